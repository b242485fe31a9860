//! `Summary`: several runs of the benchmarks as one table.
//!
//! Contract: a ratio is of two figures of one run; the summary gives the median of the runs' ratios
//! and how far they lie apart. A row whose runs do not agree on who is better says that it is noise.

use std::fmt::Write;

use serde::Serialize;

use crate::{Row, Table};

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// What was measured with: names and versions.
    pub with: Vec<(String, String)>,
    pub lines: Vec<Line>,
}

/// One claim against one rival.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    pub bench: String,
    pub what: String,
    pub unit: String,
    pub runs: usize,
    pub ours: Spread,
    pub rival: Option<Rival>,
    pub limit: Option<Held>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rival {
    pub name: String,
    pub figure: Spread,
    /// How many times better ours is.
    pub times: Spread,
    /// In some runs ours was better, in others the rival.
    pub noise: bool,
}

/// What must hold, and in how many runs it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    pub says: String,
    pub runs: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// None of nothing.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        Some(Self { median: values[values.len() / 2], least, most })
    }
}

impl Summary {
    pub fn of<'a>(tables: impl IntoIterator<Item = &'a Table>) -> Self {
        let mut claims: Vec<(&str, Vec<&Row>)> = Vec::new();
        for table in tables {
            for row in &table.rows {
                let same = |(bench, rows): &&mut (&str, Vec<&Row>)| {
                    *bench == table.title && rows[0].what == row.what
                };
                match claims.iter_mut().find(same) {
                    Some((_, rows)) => rows.push(row),
                    None => claims.push((&table.title, vec![row])),
                }
            }
        }
        let lines = claims.iter().flat_map(|(bench, rows)| lines(bench, rows)).collect();
        Self { with: Vec::new(), lines }
    }

    /// What did not hold in most runs.
    pub fn broken(&self) -> impl Iterator<Item = (&Line, &Held)> {
        let limits = self.lines.iter().filter_map(|line| Some((line, line.limit.as_ref()?)));
        limits.filter(|(line, held)| held.runs * 2 <= line.runs)
    }

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (name, version) in &self.with {
            let _ = writeln!(text, "- {name}: {version}");
        }
        let mut bench = "";
        for line in &self.lines {
            if line.bench != bench {
                bench = &line.bench;
                let _ = write!(
                    text,
                    "\n## {bench}\n\n| what | Fairlead | rival | times better, lowest to highest \
                     | must hold |\n|---|---|---|---|---|\n"
                );
            }
            let unit = &line.unit;
            let ours = figure(line.ours.median, unit);
            let (rival, times) = line.rival.as_ref().map_or_else(Default::default, |rival| {
                let Spread { median, least, most } = rival.times;
                let mut times = ratio(median);
                if line.runs > 1 {
                    let _ = write!(times, ", {} to {}", ratio(least), ratio(most));
                }
                if rival.noise {
                    times.push_str(": **noise**");
                }
                (format!("{} {}", rival.name, figure(rival.figure.median, unit)), times)
            });
            let limit = line.limit.as_ref().map_or(String::new(), |held| {
                let says = &held.says;
                match (held.runs, line.runs) {
                    (held, runs) if held == runs => format!("{says}: yes"),
                    (0, _) => format!("{says}: **NO**"),
                    (held, runs) => format!("{says}: in {held} of {runs} runs"),
                }
            });
            let _ = writeln!(text, "| {} | {ours} | {rival} | {times} | {limit} |", line.what);
        }
        text
    }
}

/// A line for each rival; one if there is none.
fn lines(bench: &str, rows: &[&Row]) -> Vec<Line> {
    let Some(ours) = Spread::of(rows.iter().map(|row| row.ours).collect()) else {
        return Vec::new();
    };
    let limit = rows[0].limit.as_ref().map(|limit| {
        let holds = |row: &&&Row| row.limit.as_ref().is_some_and(|limit| limit.holds);
        Held { says: limit.says.clone(), runs: rows.iter().filter(holds).count() }
    });
    let line = |rival: Option<Rival>, limit| Line {
        bench: bench.to_owned(),
        what: rows[0].what.clone(),
        unit: rows[0].unit.clone(),
        runs: rows.len(),
        ours,
        rival,
        limit,
    };
    let mut lines: Vec<Line> = Vec::new();
    for (name, _) in &rows[0].rivals {
        let found = |row: &&Row| row.rivals.iter().find(|rival| rival.0 == *name).map(|r| r.1);
        let figures: Vec<f64> = rows.iter().filter_map(found).collect();
        let times = rows.iter().filter_map(|row| Some(row.times(found(row)?))).collect();
        let (Some(figure), Some(times)) = (Spread::of(figures), Spread::of(times)) else {
            continue;
        };
        let noise = times.least < 1.0 && times.most > 1.0;
        let limit = if lines.is_empty() { limit.clone() } else { None };
        lines.push(line(Some(Rival { name: name.clone(), figure, times, noise }), limit));
    }
    if lines.is_empty() {
        lines.push(line(None, limit));
    }
    lines
}

fn ratio(times: f64) -> String {
    match times {
        times if !times.is_finite() => "—".to_owned(),
        times if times >= 100.0 => format!("{times:.0}×"),
        times if times >= 10.0 => format!("{times:.1}×"),
        times => format!("{times:.2}×"),
    }
}

fn figure(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value >= 1e9 => format!("{:.2} s", value / 1e9),
        "ns" if value >= 1e6 => format!("{:.1} ms", value / 1e6),
        "ns" if value >= 1e4 => format!("{:.1} µs", value / 1e3),
        "ns" => format!("{value:.0} ns"),
        "%" => format!("{value:.1} %"),
        "×" => ratio(value),
        "B" if value >= 1e6 => format!("{:.1} MB", value / 1e6),
        "B" if value >= 1e4 => format!("{:.1} kB", value / 1e3),
        _ if value >= 1e6 => format!("{:.2} M{unit}", value / 1e6),
        _ if value >= 1e4 => format!("{:.0} k{unit}", value / 1e3),
        _ => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests;
