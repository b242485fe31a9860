//! The table that every benchmark fills: one row, one claim.

use std::env;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// Names the file to which a table is added as a line of JSON.
pub const OUT: &str = "FAIRLEAD_BENCH_OUT";

/// One claim: ours and the rivals' figures from the same run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Row {
    pub what: String,
    /// Of `ns`, `B` and `%` less is better, of rates more.
    pub unit: String,
    pub ours: f64,
    /// Who else was measured, and what they got.
    pub rivals: Vec<(String, f64)>,
    /// What must hold, if something must.
    pub limit: Option<Limit>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Limit {
    pub says: String,
    pub holds: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Table {
    pub title: String,
    pub rows: Vec<Row>,
}

impl Table {
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), rows: Vec::new() }
    }

    pub fn row(&mut self, what: &str, unit: &str, ours: f64, rivals: &[(&str, f64)]) {
        self.rows.push(Row {
            what: what.to_owned(),
            unit: unit.to_owned(),
            ours,
            rivals: rivals.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            limit: None,
        });
    }

    /// States what must hold of the last row.
    pub fn must(&mut self, says: &str, holds: bool) {
        let Some(row) = self.rows.last_mut() else { return };
        match &mut row.limit {
            None => row.limit = Some(Limit { says: says.to_owned(), holds }),
            Some(limit) => {
                limit.says = format!("{}; {says}", limit.says);
                limit.holds &= holds;
            }
        }
    }

    pub fn holds(&self) -> bool {
        self.rows.iter().filter_map(|row| row.limit.as_ref()).all(|limit| limit.holds)
    }

    /// Shows it, and keeps it for the summary of all runs if one is being made.
    #[allow(clippy::print_stdout, reason = "the table is what a benchmark is for")]
    pub fn finish(&self) -> ExitCode {
        println!("{}", Summary::of([self]).markdown());
        if let Some(path) = env::var_os(OUT) {
            let mut line = serde_json::to_string(self).expect("numbers and names");
            let _ = writeln!(line);
            let file = OpenOptions::new().create(true).append(true).open(&path);
            if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
                eprintln!("not kept in {}: {error}", path.display());
                return ExitCode::from(2);
            }
        }
        if self.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl Row {
    /// How many times better than a rival ours is.
    pub fn times(&self, rival: f64) -> f64 {
        let less_is_better = matches!(self.unit.as_str(), "ns" | "B" | "%" | "requests");
        if less_is_better { rival / self.ours } else { self.ours / rival }
    }
}
