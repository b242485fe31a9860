//! Merges the tables, or the objects, of many clusters into one.
//!
//! Clusters of different versions print different columns. Columns are merged by name: a column has the
//! place that it has in the first table with it, after the columns that precede it there. A cluster
//! without a column has no value in it. Rows are sorted by cluster, and within a cluster in the order
//! in which the server sent them.

use futures::StreamExt;
use kube::core::DynamicObject;
use serde::Serialize;
use serde_json::Value;
use stallproof::Deadline;

use crate::fan::{ClusterTarget, Missing, Reply, fan};
use crate::resources::{Column, ListQuery, Page, Row, Table, list, table};

/// One table of many clusters. `rows[i].cells` are in the order of `columns`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Merged {
    pub columns: Vec<Column>,
    pub rows: Vec<ClusterRow>,
    /// Clusters that have more rows than these, each with the token to go on with.
    pub truncated: Vec<Truncated>,
    /// Clusters that did not answer, and why.
    pub missing: Vec<Missing>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterRow {
    pub cluster: String,
    #[serde(flatten)]
    pub row: Row,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Truncated {
    pub cluster: String,
    pub continue_token: String,
    pub remaining: Option<i64>,
}

/// Lists in every chosen cluster at once. `progress` sees each reply as it arrives.
pub async fn table_all(
    chosen: impl IntoIterator<Item = ClusterTarget>,
    query: &ListQuery,
    deadline: Deadline,
    mut progress: impl FnMut(&Reply<Table>),
) -> Merged {
    let mut merged = Merged::default();
    let ask = |connection, deadline| async move { table(&connection, query, deadline).await };
    let mut replies = std::pin::pin!(fan(chosen, deadline, ask));
    while let Some(reply) = replies.next().await {
        progress(&reply);
        merged.add(reply);
    }
    merged.sort();
    merged
}

/// Objects of many clusters.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Gathered {
    /// Sorted by cluster, and within a cluster in the server's order.
    pub items: Vec<ClusterObject>,
    pub truncated: Vec<Truncated>,
    pub missing: Vec<Missing>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterObject {
    pub cluster: String,
    pub object: DynamicObject,
}

/// Lists objects in every chosen cluster at once. `progress` sees each reply as it arrives.
pub async fn list_all(
    chosen: impl IntoIterator<Item = ClusterTarget>,
    query: &ListQuery,
    deadline: Deadline,
    mut progress: impl FnMut(&Reply<Page<DynamicObject>>),
) -> Gathered {
    let mut gathered = Gathered::default();
    let ask = |connection, deadline| async move { list(&connection, query, deadline).await };
    let mut replies = std::pin::pin!(fan(chosen, deadline, ask));
    while let Some(reply) = replies.next().await {
        progress(&reply);
        match reply.into_result() {
            Err(missing) => gathered.missing.push(missing),
            Ok((cluster, page)) => {
                gathered.truncated.extend(truncated(&cluster, page.continue_token, page.remaining));
                let own = |object| ClusterObject { cluster: cluster.clone(), object };
                gathered.items.extend(page.items.into_iter().map(own));
            }
        }
    }
    gathered.items.sort_by(|one, other| one.cluster.cmp(&other.cluster));
    gathered.truncated.sort_by(|one, other| one.cluster.cmp(&other.cluster));
    gathered.missing.sort_by(|one, other| one.cluster.cmp(&other.cluster));
    gathered
}

fn truncated(
    cluster: &str,
    continue_token: Option<String>,
    remaining: Option<i64>,
) -> Option<Truncated> {
    let cluster = cluster.to_owned();
    continue_token.map(|continue_token| Truncated { cluster, continue_token, remaining })
}

impl Merged {
    /// Adds one cluster's reply.
    pub fn add(&mut self, reply: Reply<Table>) {
        let (cluster, table) = match reply.into_result() {
            Ok(answered) => answered,
            Err(missing) => return self.missing.push(missing),
        };
        self.truncated.extend(truncated(&cluster, table.continue_token, table.remaining));
        let places = self.make_room(&table.columns);
        let width = self.columns.len();
        self.rows.extend(table.rows.into_iter().map(|mut row| {
            let mut cells = vec![Value::Null; width];
            for (place, cell) in places.iter().zip(row.cells) {
                cells[*place] = cell;
            }
            row.cells = cells;
            ClusterRow { cluster: cluster.clone(), row }
        }));
    }

    /// Sorts by cluster, because replies arrive in any order.
    pub fn sort(&mut self) {
        self.rows.sort_by(|one, other| one.cluster.cmp(&other.cluster));
        self.truncated.sort_by(|one, other| one.cluster.cmp(&other.cluster));
        self.missing.sort_by(|one, other| one.cluster.cmp(&other.cluster));
    }

    /// Adds the columns that are new, and returns the place of each of `columns`.
    fn make_room(&mut self, columns: &[Column]) -> Vec<usize> {
        let mut place = 0;
        for column in columns {
            match self.columns.iter().position(|have| have.name == column.name) {
                Some(at) => place = at + 1,
                None => {
                    self.columns.insert(place, column.clone());
                    for row in &mut self.rows {
                        row.row.cells.insert(place, Value::Null);
                    }
                    place += 1;
                }
            }
        }
        let at = |column: &Column| self.columns.iter().position(|have| have.name == column.name);
        columns.iter().map(|column| at(column).expect("every column has been given room")).collect()
    }
}

#[cfg(test)]
mod tests;
