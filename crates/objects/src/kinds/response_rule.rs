//! `ResponseRule`: what is done about events.
//!
//! Rules are looked at in the order of their priority, then of their names. Every rule that matches an event
//! acts on it, until one suppresses it: then no later rule is looked at.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use std::fmt;
use std::time::Duration;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field;
use crate::store::{Invalid, Kind};

const MOST_GLOBS: usize = 64;
const LONGEST_GLOB: usize = 512;
const MOST_RECEIVERS: usize = 32;
const LONGEST_COMMENT: usize = 4096;
const MOST_COUNT: u32 = 1_000_000;

/// What is done about events.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "ResponseRule",
    doc = "What is done about events: whom to tell, what to keep quiet about, what to quarantine.",
    category = "fairlead",
    shortname = "fresp",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Priority","type":"integer","jsonPath":".spec.priority"}"#,
    printcolumn = r#"{"name":"Event","type":"string","jsonPath":".spec.event"}"#,
    printcolumn = r#"{"name":"Actions","type":"string","jsonPath":".spec.actions"}"#,
    printcolumn = r#"{"name":"Receivers","type":"string","jsonPath":".spec.receivers"}"#,
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(deny_unknown_fields)]
pub struct ResponseRuleSpec {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_COMMENT))]
    pub comment: String,
    /// The events that the rule is about.
    pub event: EventKind,
    /// All of them must hold.
    #[serde(default)]
    pub conditions: ResponseConditions,
    #[schemars(length(min = 1, max = 3))]
    pub actions: Vec<ResponseAction>,
    /// Names of `Receiver`s that are told, by the action notify.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_RECEIVERS), inner(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME)))]
    pub receivers: Vec<String>,
    /// The order of rules: the lowest priority is looked at first.
    #[serde(default = "middle")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub priority: i32,
    /// A disabled rule is never looked at.
    #[serde(default)]
    pub disabled: bool,
}

/// What must hold of an event. Of each list one must match; `*` stands for any run of characters, `?` for one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponseConditions {
    /// At least this severe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // An old server refuses a definition with null among the words.
    #[schemars(with = "EventLevel")]
    pub level: Option<EventLevel>,
    /// What happened: violation.denied, violation.unknown, admission.denied, admission.monitored, agent.lost,
    /// agent.back, stall.begun, stall.ended, audit.write, audit.login-failed, receiver.dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_GLOBS), inner(length(min = 1, max = LONGEST_GLOB), regex(pattern = field::TEXT)))]
    pub names: Vec<String>,
    /// Groups of the workload, made or learned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_GLOBS), inner(length(min = 1, max = LONGEST_GLOB), regex(pattern = field::TEXT)))]
    pub groups: Vec<String>,
    /// The workload, as `shop/Deployment/web`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_GLOBS), inner(length(min = 1, max = LONGEST_GLOB), regex(pattern = field::TEXT)))]
    pub workloads: Vec<String>,
    /// Clusters, as the fleet names them; `-` is the one that Fairlead runs in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_GLOBS), inner(length(min = 1, max = LONGEST_GLOB), regex(pattern = field::TEXT)))]
    pub clusters: Vec<String>,
    /// The rule acts once so many such events of one subject came within `seconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<Frequency>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frequency {
    #[schemars(range(min = 2, max = MOST_COUNT))]
    pub count: u32,
    #[schemars(range(min = 1, max = 86_400))]
    pub seconds: u32,
}

impl Frequency {
    pub fn window(self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }
}

/// What events are about.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    Violation,
    Admission,
    Agent,
    Scan,
    Stall,
    Audit,
    Receiver,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Violation => "violation",
            Self::Admission => "admission",
            Self::Agent => "agent",
            Self::Scan => "scan",
            Self::Stall => "stall",
            Self::Audit => "audit",
            Self::Receiver => "receiver",
        })
    }
}

/// How severe an event is; the later ones are worse.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum EventLevel {
    Info,
    Notice,
    Warning,
    Error,
    Critical,
}

impl fmt::Display for EventLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
        })
    }
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ResponseAction {
    Notify,
    Suppress,
    Quarantine,
}

impl fmt::Display for ResponseAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notify => "notify",
            Self::Suppress => "suppress",
            Self::Quarantine => "quarantine",
        })
    }
}

fn middle() -> i32 {
    1000
}

impl Kind for ResponseRule {
    const NAME: &'static str = "ResponseRule";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let ResponseRuleSpec {
            comment,
            event,
            conditions,
            actions,
            receivers,
            priority,
            disabled: _,
        } = &self.spec;
        let mut problems = Invalid::default();
        field::no_longer(&mut problems, "spec.comment", comment, LONGEST_COMMENT);
        let ResponseConditions { level: _, names, groups, workloads, clusters, frequency } =
            conditions;
        for (list, globs) in
            [("names", names), ("groups", groups), ("workloads", workloads), ("clusters", clusters)]
        {
            let at = format!("spec.conditions.{list}");
            field::at_most(&mut problems, &at, globs.len(), MOST_GLOBS);
            for (i, glob) in globs.iter().enumerate() {
                field::text(&mut problems, &format!("{at}[{i}]"), glob, 1, LONGEST_GLOB);
            }
        }
        if let Some(Frequency { count, seconds }) = frequency {
            if !(2..=MOST_COUNT).contains(count) {
                problems.add("spec.conditions.frequency.count", "must be from 2 to 1000000");
            }
            if !(1..=86_400).contains(seconds) {
                problems.add("spec.conditions.frequency.seconds", "must be from 1 to 86400");
            }
        }
        if actions.is_empty() || actions.len() > 3 {
            problems.add("spec.actions", "must be one to three of notify, suppress, quarantine");
        }
        let has = |action| actions.contains(&action);
        if has(ResponseAction::Notify) && receivers.is_empty() {
            problems.add("spec.receivers", "is empty: who is to be told?");
        }
        if !has(ResponseAction::Notify) && !receivers.is_empty() {
            problems.add("spec.receivers", "are told by the action notify alone");
        }
        if has(ResponseAction::Quarantine)
            && !matches!(event, EventKind::Violation | EventKind::Admission)
        {
            problems.add("spec.actions", format!("an event of {event} has nothing to quarantine"));
        }
        field::at_most(&mut problems, "spec.receivers", receivers.len(), MOST_RECEIVERS);
        for (i, receiver) in receivers.iter().enumerate() {
            field::name(&mut problems, &format!("spec.receivers[{i}]"), receiver);
        }
        if !(0..=1_000_000).contains(priority) {
            problems.add("spec.priority", "must be from 0 to 1000000");
        }
        problems.into_result()
    }
}

#[cfg(test)]
mod tests;
