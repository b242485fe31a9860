//! Merge: the tables of many clusters as one.
//!
//! Clusters of different versions print different columns. They are merged by name: a column comes
//! where the first table that has it has it, after the columns that stand before it there; a cluster
//! without it has no value in it. Rows are sorted by cluster, and within one as the server sent them.

use flow::Deadline;
use futures::StreamExt;
use serde::Serialize;
use serde_json::Value;

use crate::fan::{Missing, Reply, Target, fan};
use crate::resources::{Column, ListQuery, Row, Table, table};

/// One table of many clusters. `rows[i].cells` are in the order of `columns`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Merged {
    pub columns: Vec<Column>,
    pub rows: Vec<ClusterRow>,
    /// Clusters that have more than is here, each with where to go on.
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

/// Lists in every target at once. `progress` sees each reply as it arrives.
pub async fn table_all(
    targets: impl IntoIterator<Item = Target>,
    query: &ListQuery,
    deadline: Deadline,
    mut progress: impl FnMut(&Reply<Table>),
) -> Merged {
    let mut merged = Merged::default();
    let ask = |connection, deadline| async move { table(&connection, query, deadline).await };
    let mut replies = std::pin::pin!(fan(targets, deadline, ask));
    while let Some(reply) = replies.next().await {
        progress(&reply);
        merged.add(reply);
    }
    merged.sort();
    merged
}

impl Merged {
    /// Takes one cluster's reply in.
    pub fn add(&mut self, reply: Reply<Table>) {
        let (cluster, table) = match reply.into_result() {
            Ok(answered) => answered,
            Err(missing) => return self.missing.push(missing),
        };
        if let Some(continue_token) = table.continue_token {
            let remaining = table.remaining;
            self.truncated.push(Truncated { cluster: cluster.clone(), continue_token, remaining });
        }
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

    /// Replies arrive in any order; what is shown has one.
    pub fn sort(&mut self) {
        self.rows.sort_by(|one, other| one.cluster.cmp(&other.cluster));
        self.truncated.sort_by(|one, other| one.cluster.cmp(&other.cluster));
        self.missing.sort_by(|one, other| one.cluster.cmp(&other.cluster));
    }

    /// Adds the columns that are new; says where each of `columns` is.
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
