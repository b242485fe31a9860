//! How cost grows: the product's own code at a size, and at two, four and eight times that size.
//!
//! ```text
//! Dimension × size ─► a process of its own ─► Meter: one change, and standing ─► Curve ─► Row: exponent, holds
//! ```
//!
//! Contract:
//! - Each size runs in a process of its own, so that its memory and its caches are its own.
//! - CPU time is measured, not the clock's: who else uses the machine does not count.
//! - Of several rounds the least cost counts, since others can only add to it. A row that does not hold is
//!   measured in more rounds before it is said.

mod clusters;
mod conversations;
mod curve;
mod meter;
mod nodes;
mod peers;
mod pods;
mod rules;
mod watchers;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::incident::Cannot;
use crate::run::CannotRun;
pub use curve::Curve;
pub use meter::{Cost, Grows, Unit};

use meter::Meter;

/// The sizes, as multiples of the first.
pub const STEPS: [usize; 4] = [1, 2, 4, 8];
/// How often everything is measured; and how often what does not hold.
const ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 6;
/// The longest that one size may take.
const PATIENCE: Duration = Duration::from_mins(5);

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    Pods,
    Nodes,
    Clusters,
    Rules,
    Conversations,
    Watchers,
}

impl Dimension {
    pub const ALL: [Self; 6] =
        [Self::Pods, Self::Nodes, Self::Clusters, Self::Rules, Self::Conversations, Self::Watchers];

    pub fn name(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Nodes => "nodes",
            Self::Clusters => "clusters",
            Self::Rules => "rules",
            Self::Conversations => "conversations",
            Self::Watchers => "watchers",
        }
    }

    /// The first size.
    fn first(self) -> usize {
        match self {
            Self::Pods => 60,
            Self::Nodes => 125,
            Self::Clusters => 12,
            Self::Rules => 50,
            Self::Conversations => 10_000,
            Self::Watchers => 25,
        }
    }

    pub fn sizes(self) -> [usize; 4] {
        STEPS.map(|step| step * self.first())
    }

    fn measure(self, size: usize, dir: &Path, meter: &mut Meter) -> Result<(), Cannot> {
        match self {
            Self::Pods => pods::measure(size, dir, meter),
            Self::Nodes => nodes::measure(size, meter),
            Self::Clusters => clusters::measure(size, meter),
            Self::Rules => rules::measure(size, dir, meter),
            Self::Conversations => conversations::measure(size, meter),
            Self::Watchers => watchers::measure(size, dir, meter),
        }
    }
}

/// One curve, and whether it is as it should be.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub dimension: &'static str,
    pub what: String,
    pub unit: Unit,
    pub sizes: Vec<usize>,
    /// The cost at each size.
    pub costs: Vec<f64>,
    pub exponent: f64,
    /// The largest exponent with which it holds.
    pub limit: f64,
    pub ok: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub rows: Vec<Row>,
    pub ok: bool,
}

/// Measures one size in this process. What there is to write is written into `dir`.
pub fn measure(dimension: Dimension, size: usize, dir: &Path) -> Result<Vec<Cost>, CannotRun> {
    let mut meter = Meter::default();
    let measured = dimension.measure(size, dir, &mut meter);
    measured.map_err(|error| CannotRun(stallproof::sentence(&*error)))?;
    Ok(meter.costs)
}

/// Measures these dimensions. `one` is how this program is run again for one size; it prints what
/// [`measure`] returns as JSON.
pub fn grow(
    dimensions: &[Dimension],
    one: &dyn Fn(Dimension, usize) -> Command,
    tell: &mut dyn FnMut(&str),
) -> Result<Report, CannotRun> {
    let mut rows = Vec::new();
    for dimension in dimensions {
        let mut measured: Vec<Row> = Vec::new();
        for round in 1..=MOST_ROUNDS {
            if round > ROUNDS && measured.iter().all(|row| row.ok) {
                break;
            }
            let mut costs = Vec::new();
            for size in dimension.sizes() {
                tell(&format!("{}: {size}, round {round}", dimension.name()));
                costs.push(run(&mut one(*dimension, size)).map_err(|CannotRun(why)| {
                    CannotRun(format!("{} {size} could not be measured: {why}", dimension.name()))
                })?);
            }
            measured = together(*dimension, measured, &costs);
        }
        rows.extend(measured);
    }
    let ok = rows.iter().all(|row| row.ok);
    Ok(Report { rows, ok })
}

/// What was measured before and in this round, where the least counts.
fn together(dimension: Dimension, before: Vec<Row>, round: &[Vec<Cost>]) -> Vec<Row> {
    let Some(first) = round.first() else { return before };
    let row = |(place, cost): (usize, &Cost)| {
        let now = round.iter().map(|costs| costs.get(place).map_or(f64::NAN, |it| it.cost));
        let least = before.get(place).map(|row| row.costs.clone());
        let costs =
            now.enumerate().map(|(size, now)| least.as_ref().map_or(now, |it| it[size].min(now)));
        let curve = Curve::new(dimension.sizes().into_iter().zip(costs));
        let limit = cost.grows.limit();
        Row {
            dimension: dimension.name(),
            what: cost.what.clone(),
            unit: cost.unit,
            sizes: dimension.sizes().into(),
            exponent: curve.exponent(),
            limit,
            ok: curve.exponent() <= limit,
            costs: curve.costs(),
        }
    };
    first.iter().enumerate().map(row).collect()
}

/// What a process that measures one size says.
fn run(command: &mut Command) -> Result<Vec<Cost>, CannotRun> {
    let cannot = |why: String| CannotRun(why);
    let spawned =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| cannot(error.to_string()))?;
    // It says less than a pipe holds, so that it never waits for us.
    let until = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(cannot(format!("it took longer than {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = child.wait_with_output().map_err(|error| cannot(error.to_string()))?;
    if !said.status.success() {
        return Err(cannot(String::from_utf8_lossy(&said.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&said.stdout).map_err(|error| cannot(error.to_string()))
}

/// For people.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    for Row { dimension, what, unit, sizes, costs, exponent, limit, ok } in &report.rows {
        let is = if *ok { "✓" } else { "✗" };
        _ = writeln!(text, "{is} {dimension}: {what}");
        let points: Vec<_> = sizes
            .iter()
            .zip(costs)
            .map(|(size, cost)| format!("{size}: {}", unit.text(*cost)))
            .collect();
        let points = points.join(", ");
        _ = writeln!(text, "    {points}; grows by the power {exponent:.2} (at most {limit})");
    }
    _ = write!(text, "{}", if report.ok { "all of it holds" } else { "some of it does not hold" });
    text
}

#[cfg(test)]
mod tests;
