//! Lists as the server answers them, and how they are shown: the API server's own columns, with the
//! cluster first when several were asked and the namespace when all were.

use serde::Deserialize;
use serde_json::Value;

use crate::cli::client::across::Asked;
use crate::cli::table::Table;

/// A page of a list, or the whole of a fan-out; as objects or as a table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Listing {
    pub(crate) items: Vec<Value>,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    pub(crate) clusters: Vec<Asked>,
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

/// Which columns stand before and behind the server's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) clusters: bool,
    pub(crate) namespaces: bool,
    pub(crate) wide: bool,
}

/// A table that is being filled, by rows whose columns may differ from the first ones': clusters
/// are of different versions.
#[derive(Debug)]
pub(crate) struct Sheet {
    shape: Shape,
    columns: Vec<Column>,
    pub(crate) table: Table,
}

impl Sheet {
    pub(crate) fn new(shape: Shape, columns: Vec<Column>) -> Self {
        let columns: Vec<Column> =
            columns.into_iter().filter(|column| shape.wide || column.priority <= 0).collect();
        let mut titles = Vec::new();
        if shape.clusters {
            titles.push("CLUSTER".to_owned());
        }
        if shape.namespaces {
            titles.push("NAMESPACE".to_owned());
        }
        titles.extend(columns.iter().map(|column| column.name.to_uppercase()));
        Self { shape, columns, table: Table::new(titles) }
    }

    /// The cells of a row that came under `columns`; none given means those of this sheet in full.
    pub(crate) fn cells(&self, columns: &[Column], row: &Row) -> Vec<String> {
        let mut cells = Vec::new();
        if self.shape.clusters {
            cells.push(row.cluster.clone().unwrap_or_default());
        }
        if self.shape.namespaces {
            cells.push(row.namespace.clone().unwrap_or_default());
        }
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

impl Listing {
    /// The list as a table; the namespace is shown when one was not asked for and there are any.
    pub(crate) fn sheet(&self, mut shape: Shape) -> Sheet {
        shape.namespaces &= self.rows.iter().any(|row| row.namespace.is_some());
        let mut sheet = Sheet::new(shape, self.columns.clone());
        for row in &self.rows {
            let cells = sheet.cells(&self.columns, row);
            sheet.table.row(cells);
        }
        sheet
    }
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
