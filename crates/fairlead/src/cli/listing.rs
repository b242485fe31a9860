//! Lists in a server's answers. Resources keep the API server's own columns, with the cluster before
//! them when several were asked and the namespace when all were.

use serde::Deserialize;
use serde_json::Value;

use crate::cli::client::across::ClusterOutcome;
use crate::cli::table::{Cell, Table};
use crate::cli::terminal::Colour;

/// A page of a list of resources, or the whole of a fan-out; as objects or as a table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResourceList {
    pub(crate) items: Vec<Value>,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    pub(crate) clusters: Vec<ClusterOutcome>,
    #[serde(rename = "continue", alias = "continueToken")]
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Above 0: only when the wide form is asked for.
    pub(crate) priority: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    pub(crate) cluster: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) cells: Vec<Value>,
}

/// Which columns a table of resources has besides the API server's usual ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtraColumns {
    pub(crate) clusters: bool,
    pub(crate) namespaces: bool,
    pub(crate) wide: bool,
}

/// A table of resources that is being filled. The columns of later rows may differ from those of the
/// first ones: clusters are of different versions.
#[derive(Debug)]
pub(crate) struct ResourceTable {
    extra: ExtraColumns,
    columns: Vec<Column>,
    pub(crate) table: Table,
}

impl ResourceTable {
    pub(crate) fn new(extra: ExtraColumns, columns: Vec<Column>) -> Self {
        let columns: Vec<Column> =
            columns.into_iter().filter(|column| extra.wide || column.priority <= 0).collect();
        let cluster = extra.clusters.then(|| "CLUSTER".to_owned());
        let namespace = extra.namespaces.then(|| "NAMESPACE".to_owned());
        let titles = columns.iter().map(|column| column.name.to_uppercase());
        let table = Table::new(cluster.into_iter().chain(namespace).chain(titles));
        Self { extra, columns, table }
    }

    /// The cells of a row that came under `columns`; none given means all those of this table.
    pub(crate) fn cells(&self, columns: &[Column], row: &Row) -> Vec<String> {
        let mut cells = Vec::new();
        cells.extend(self.extra.clusters.then(|| row.cluster.clone().unwrap_or_default()));
        cells.extend(self.extra.namespaces.then(|| row.namespace.clone().unwrap_or_default()));
        cells.extend(self.columns.iter().enumerate().map(|(at, ours)| {
            let at = if columns.is_empty() {
                Some(at)
            } else {
                columns.iter().position(|theirs| theirs.name == ours.name)
            };
            at.and_then(|at| row.cells.get(at)).map_or_else(|| "<none>".to_owned(), cell)
        }));
        cells
    }
}

impl ResourceList {
    /// An empty table for this list; kinds without namespaces have no column for them.
    pub(crate) fn empty_table(&self, mut extra: ExtraColumns) -> ResourceTable {
        extra.namespaces &= self.rows.iter().any(|row| row.namespace.is_some());
        ResourceTable::new(extra, self.columns.clone())
    }

    pub(crate) fn table(&self, extra: ExtraColumns) -> Table {
        let mut table = self.empty_table(extra);
        for row in &self.rows {
            let cells = table.cells(&self.columns, row);
            table.table.row(cells);
        }
        table.table
    }
}

/// The items of a list in an answer; none where there is no list.
pub(crate) fn items<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer[name].as_array().map_or(&[], Vec::as_slice)
}

/// Any JSON value as a cell.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// A field that may be missing, as a cell.
pub(crate) fn field(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::Null => "-".to_owned(),
        Value::Array(values) if values.is_empty() => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        other => cell(other),
    }
}

/// Several fields that may be missing, as cells.
pub(crate) fn fields<const N: usize>(value: &Value, names: [&str; N]) -> [Cell; N] {
    names.map(|name| field(value, name).into())
}

/// The texts of a list, joined; empty where there is no list.
pub(crate) fn joined(value: &Value, name: &str, separator: &str) -> String {
    items(value, name).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(separator)
}

/// The field `state` of a rule: red when it is invalid, dim when it is disabled.
pub(crate) fn rule_state(rule: &Value) -> Cell {
    let state = field(rule, "state");
    match state.as_str() {
        "invalid" => Cell::coloured(&state, Colour::Red),
        "disabled" => Cell::coloured(&state, Colour::Dim),
        _ => state.into(),
    }
}

/// `deployment.apps/web`, as kubectl names an object. A list's items may not say their kind.
pub(crate) fn name(object: &Value, word: &str) -> String {
    let kind = object["kind"].as_str().map_or_else(|| word.to_owned(), str::to_lowercase);
    let group =
        object["apiVersion"].as_str().and_then(|v| v.split_once('/')).map(|(group, _)| group);
    let group = group.map_or_else(String::new, |group| format!(".{group}"));
    format!("{kind}{group}/{}", object["metadata"]["name"].as_str().unwrap_or("-"))
}

#[cfg(test)]
mod tests;
