//! What a replay found: plain values, which serialise to the JSON that is the contract, and the
//! judgement of them, which is a pure function.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub type Figures = BTreeMap<String, f64>;
pub type Parameters = BTreeMap<String, Value>;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub incident: String,
    pub seed: u64,
    pub scale: f64,
    pub version: String,
    pub parameters: Parameters,
    /// What `level` counts in this incident's samples.
    pub level: String,
    pub old: Side,
    pub new: Side,
    pub requirements: Vec<Requirement>,
    /// Why nothing was shown: too little load, or a load that the old design bears.
    pub void: Option<String>,
    pub ok: bool,
}

/// One design under the load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Side {
    #[serde(flatten)]
    pub ended: Ended,
    pub timeline: Vec<Sample>,
}

/// How one design came out of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// The limit at which it was stopped; none: it came to its end.
    pub stopped: Option<String>,
    pub seconds: f64,
    pub answered: u64,
    pub refused: u64,
    pub failed: u64,
    /// Still waiting at the end.
    pub in_flight: u64,
    pub most_in_flight: u64,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    pub peak_memory_bytes: u64,
    /// What only this incident measures.
    pub figures: Figures,
    pub named: Option<Named>,
    pub notes: Vec<String>,
}

/// The stall as the design itself named it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    pub what: String,
    pub step: String,
    pub after_ms: f64,
}

/// One moment of one design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    pub at_ms: u64,
    pub in_flight: u64,
    /// Since the beginning.
    pub answered: u64,
    pub refused: u64,
    pub failed: u64,
    /// Of what was answered since the sample before.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// How long the oldest in flight has waited.
    pub oldest_ms: f64,
    pub memory_bytes: u64,
    /// How far it has come; see [`Outcome::level`].
    pub level: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Relation {
    AtMost,
    AtLeast,
    Exactly,
}

/// What must hold of the new design. A figure that is not there does not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requirement {
    pub name: String,
    pub relation: Relation,
    pub limit: f64,
    pub value: Option<f64>,
    pub unit: String,
    pub ok: bool,
}

impl Requirement {
    pub fn new(name: &str, value: Option<f64>, relation: Relation, limit: f64, unit: &str) -> Self {
        let ok = value.is_some_and(|value| match relation {
            Relation::AtMost => value <= limit,
            Relation::AtLeast => value >= limit,
            Relation::Exactly => (value - limit).abs() < 1e-9,
        });
        let (name, unit) = (name.to_owned(), unit.to_owned());
        Self { name, relation, limit, value, unit, ok }
    }
}

/// Requirements of one design's end, line by line.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    ended: &'a Ended,
    requirements: Vec<Requirement>,
}

impl<'a> Judge<'a> {
    /// The first of all requirements: it was not stopped.
    pub(crate) fn of(ended: &'a Ended) -> Self {
        let stopped = f64::from(u8::from(ended.stopped.is_some()));
        let mut judge = Self { ended, requirements: Vec::new() };
        judge.value("stopped at a limit", Some(stopped), Relation::Exactly, 0.0, "");
        judge
    }

    pub(crate) fn value(
        &mut self,
        name: &str,
        value: Option<f64>,
        relation: Relation,
        limit: f64,
        unit: &str,
    ) {
        self.requirements.push(Requirement::new(name, value, relation, limit, unit));
    }

    fn figure(&mut self, name: &str, figure: &str, relation: Relation, limit: f64, unit: &str) {
        let value = self.ended.figures.get(figure).copied();
        self.value(name, value, relation, limit, unit);
    }

    pub(crate) fn at_most(&mut self, name: &str, figure: &str, limit: f64, unit: &str) {
        self.figure(name, figure, Relation::AtMost, limit, unit);
    }

    pub(crate) fn at_least(&mut self, name: &str, figure: &str, limit: f64, unit: &str) {
        self.figure(name, figure, Relation::AtLeast, limit, unit);
    }

    pub(crate) fn exactly(&mut self, name: &str, figure: &str, limit: f64, unit: &str) {
        self.figure(name, figure, Relation::Exactly, limit, unit);
    }

    /// What hung was named, with its step, soon enough.
    pub(crate) fn named_within(&mut self, name: &str, limit_ms: f64) {
        let named = self.ended.named.as_ref().filter(|named| !named.step.is_empty());
        let after = named.map(|named| named.after_ms);
        self.value(name, after, Relation::AtMost, limit_ms, "ms");
    }

    pub(crate) fn requirements(self) -> Vec<Requirement> {
        self.requirements
    }
}

/// Enough for any plot, and a file that can be attached to a ticket.
const SAMPLES: usize = 400;

/// Every other one, for as often as there are too many; the last stays.
pub(crate) fn thin(mut timeline: Vec<Sample>) -> Vec<Sample> {
    while timeline.len() > SAMPLES {
        let last = timeline.len() - 1;
        let kept = timeline.iter().enumerate().filter(|(i, _)| i % 2 == 0 || *i == last);
        timeline = kept.map(|(_, sample)| *sample).collect();
    }
    timeline
}

#[cfg(test)]
mod tests;
