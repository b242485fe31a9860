//! The table that every benchmark fills: one row, one claim.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

/// One claim: ours and a rival's figure from the same run.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub what: String,
    pub unit: &'static str,
    pub ours: f64,
    /// Who else was measured, and what they got.
    pub rivals: Vec<(String, f64)>,
    /// What must hold, if something must.
    pub limit: Option<Limit>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Limit {
    pub says: String,
    pub holds: bool,
}

#[derive(Debug, Default, Serialize)]
pub struct Table {
    pub title: String,
    pub rows: Vec<Row>,
}

impl Table {
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), rows: Vec::new() }
    }

    pub fn row(&mut self, what: &str, unit: &'static str, ours: f64, rivals: &[(&str, f64)]) {
        self.rows.push(Row {
            what: what.to_owned(),
            unit,
            ours,
            rivals: rivals.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            limit: None,
        });
    }

    /// States what must hold of the last row.
    pub fn must(&mut self, says: &str, holds: bool) {
        if let Some(row) = self.rows.last_mut() {
            row.limit = Some(Limit { says: says.to_owned(), holds });
        }
    }

    pub fn holds(&self) -> bool {
        self.rows.iter().filter_map(|row| row.limit.as_ref()).all(|limit| limit.holds)
    }

    pub fn markdown(&self) -> String {
        let mut text = format!(
            "## {}\n\n| what | Fairlead | rivals, and their multiple of ours | must hold |\n|---|---|---|---|\n",
            self.title
        );
        for row in &self.rows {
            let rivals: Vec<String> = row
                .rivals
                .iter()
                .map(|(name, value)| {
                    format!("{name} {} ({})", figure(*value, row.unit), ratio(*value, row.ours))
                })
                .collect();
            let limit = row.limit.as_ref().map_or(String::new(), |limit| {
                format!("{}: {}", limit.says, if limit.holds { "yes" } else { "**NO**" })
            });
            let ours = figure(row.ours, row.unit);
            let _ = writeln!(text, "| {} | {ours} | {} | {limit} |", row.what, rivals.join(", "));
        }
        text
    }

    /// Writes `<name>.md` and `<name>.json` into `dir`.
    pub fn save(&self, dir: &Path, name: &str) -> std::io::Result<()> {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join(format!("{name}.md")), self.markdown())?;
        std::fs::write(dir.join(format!("{name}.json")), serde_json::to_vec_pretty(self)?)
    }
}

fn ratio(value: f64, ours: f64) -> String {
    if ours <= 0.0 {
        return "—".to_owned();
    }
    match value / ours {
        r if r >= 100.0 => format!("{r:.0}×"),
        r if r >= 10.0 => format!("{r:.1}×"),
        r => format!("{r:.2}×"),
    }
}

fn figure(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value >= 1e9 => format!("{:.2} s", value / 1e9),
        "ns" if value >= 1e6 => format!("{:.1} ms", value / 1e6),
        "ns" if value >= 1e4 => format!("{:.1} µs", value / 1e3),
        "ns" => format!("{value:.0} ns"),
        "%" => format!("{value:.1} %"),
        _ if value >= 1e6 => format!("{:.2} M {unit}", value / 1e6),
        _ if value >= 1e4 => format!("{:.0} k {unit}", value / 1e3),
        _ => format!("{value:.0} {unit}"),
    }
}
