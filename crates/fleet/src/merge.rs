//! `Merged`: the tables of many clusters as one.
//!
//! Clusters of different versions print different columns. Columns are merged by name: a column has the
//! place that it has in the first table with it, after the columns that precede it there. A cluster
//! without a column has no value in it. Rows are sorted by cluster, and within a cluster in the order
//! in which the server sent them.

use serde::Serialize;
use serde_json::Value;

use crate::fan::{Missing, Reply};
use crate::resources::{Column, Row, Table};

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
