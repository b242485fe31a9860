//! `Group`: endpoints that rules name together, selected by criteria.
//!
//! Positive criteria of one key hold if one of them does, negative ones if all do; all keys must
//! hold. Of what has several values (images, services, addresses) a positive criterion wants one
//! that fits, a negative one that none does. What has no such label has no value.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

mod criteria;

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use criteria::{GroupCriteria, GroupSubject};

use super::admission_rule::regex;
use super::field;
use crate::name;
use crate::store::{Invalid, Kind};

/// The groups that rules may name without a `Group` object.
pub const RESERVED_GROUPS: [&str; 7] =
    ["any", "external", "hosts", "ingress", "services", "unmanaged", "workloads"];

const MOST_CRITERIA: usize = 64;
const LONGEST_VALUE: usize = 1024;
const LONGEST_COMMENT: usize = 4096;
/// The most characters of a label's key: a prefix of 253, `/` and a name of 63.
const LONGEST_LABEL: usize = 317;
const LONGEST_ENFORCEMENT: usize = 256;

/// Endpoints that network rules name together.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "Group",
    doc = "Endpoints that network rules speak of together.",
    category = "fairlead",
    shortname = "fgroup",
    status = "GroupStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Members","type":"integer","jsonPath":".status.members"}"#,
    printcolumn = r#"{"name":"Enforcement","type":"string","jsonPath":".status.enforcement"}"#,
    printcolumn = r#"{"name":"Comment","type":"string","jsonPath":".spec.comment","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_COMMENT))]
    pub comment: String,
    /// What is done about connections that no rule decides: they are learned (discover) or reported
    /// (monitor), or stopped where agents enforce policies (protect). Without a mode, that of its members'
    /// other groups, or the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // An old server refuses a definition with null among the words.
    #[schemars(with = "GroupMode")]
    pub mode: Option<GroupMode>,
    /// Put apart: nobody but their node reaches the workloads in it, and they reach nobody, whatever
    /// other policies say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quarantine: bool,
    #[schemars(length(min = 1, max = MOST_CRITERIA))]
    pub criteria: Vec<GroupCriterion>,
}

/// The modes, in the order of strictness.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum GroupMode {
    Discover,
    Monitor,
    Protect,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    pub members: u32,
    /// Whether connections against the rules are stopped; until agents can, this says that they are not.
    #[schemars(length(max = LONGEST_ENFORCEMENT))]
    pub enforcement: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupCriterion {
    pub key: GroupKey,
    /// The label's key; for `label` and `namespaceLabel` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = LONGEST_LABEL), regex(pattern = field::LABEL_KEY))]
    pub label: Option<String>,
    pub op: GroupOp,
    /// The value to compare with; for `address` an address or a network, for `domain` a domain name, or
    /// `*.` and one for every name below it.
    #[schemars(length(max = LONGEST_VALUE), regex(pattern = field::TEXT))]
    pub value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GroupKey {
    Image,
    Node,
    Name,
    Service,
    Namespace,
    Label,
    NamespaceLabel,
    Address,
    Domain,
    // Kind and name of the uppermost owner, as `Deployment/web`. Not a doc comment: the schema would no
    // longer be a list of words.
    Workload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum GroupOp {
    #[serde(rename = "=")]
    Equals,
    #[serde(rename = "!=")]
    Differs,
    #[serde(rename = "contains")]
    Contains,
    #[serde(rename = "!contains")]
    Lacks,
    #[serde(rename = "prefix")]
    Begins,
    #[serde(rename = "!prefix")]
    BeginsNot,
    #[serde(rename = "regex")]
    Matches,
    #[serde(rename = "!regex")]
    MatchesNot,
}

impl GroupOp {
    pub fn is_negative(self) -> bool {
        matches!(self, Self::Differs | Self::Lacks | Self::BeginsNot | Self::MatchesNot)
    }
}

impl fmt::Display for GroupMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discover => "discover",
            Self::Monitor => "monitor",
            Self::Protect => "protect",
        })
    }
}

/// Reads an address or a network; an address is a network of one.
pub fn network(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address)
}

/// Reads a domain name, or a pattern for every name below one: lowercase, without a dot at the end.
pub fn domain(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let plain = name.strip_prefix("*.").unwrap_or(&name);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_'))
    };
    if name.len() > 253 || !plain.split('.').all(is_label) {
        return Err(format!("{text:?} is no domain name, as api.example.com or *.example.com"));
    }
    Ok(name)
}

impl GroupCriterion {
    fn check(&self, at: &str, problems: &mut Invalid) {
        let Self { key, label, op, value } = self;
        let of_label = matches!(key, GroupKey::Label | GroupKey::NamespaceLabel);
        match label {
            Some(_) if !of_label => {
                problems.add(format!("{at}.label"), "is for the keys label and namespaceLabel");
            }
            None if of_label => problems.add(format!("{at}.label"), "is missing: which label?"),
            Some(label) => {
                if let Some(problem) = name::key(label) {
                    problems.add(format!("{at}.label"), problem);
                }
            }
            None => {}
        }
        let at_value = format!("{at}.value");
        field::text(problems, &at_value, value, usize::from(!of_label), LONGEST_VALUE);
        match op {
            GroupOp::Equals | GroupOp::Differs if *key == GroupKey::Address => {
                if network(value).is_none() {
                    problems.add(at_value, format!("{value:?} is no address and no network"));
                }
            }
            _ if *key == GroupKey::Address => {
                problems.add(format!("{at}.op"), "an address has = and != only");
            }
            GroupOp::Equals if *key == GroupKey::Domain => {
                if let Err(problem) = domain(value) {
                    problems.add(at_value, problem);
                }
            }
            _ if *key == GroupKey::Domain => {
                problems.add(format!("{at}.op"), "a domain name has = only");
            }
            GroupOp::Matches | GroupOp::MatchesNot => {
                if let Err(problem) = regex(value) {
                    problems.add(at_value, problem);
                }
            }
            GroupOp::Contains | GroupOp::Lacks | GroupOp::Begins | GroupOp::BeginsNot => {
                if value.is_empty() {
                    problems.add(at_value, "is empty, which everything contains");
                }
            }
            GroupOp::Equals | GroupOp::Differs => {}
        }
    }
}

impl Kind for Group {
    const NAME: &'static str = "Group";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        let name = self.name_any();
        if RESERVED_GROUPS.contains(&name.as_str()) {
            problems.add("metadata.name", format!("{name:?} is there already, for every rule"));
        }
        let GroupSpec { comment, mode: _, quarantine: _, criteria } = &self.spec;
        if comment.chars().count() > LONGEST_COMMENT {
            problems.add("spec.comment", format!("has more than {LONGEST_COMMENT} characters"));
        }
        if criteria.is_empty() {
            problems.add("spec.criteria", "is empty; a rule may name the group any instead");
        }
        field::at_most(&mut problems, "spec.criteria", criteria.len(), MOST_CRITERIA);
        let of_domain = |it: &GroupCriterion| it.key == GroupKey::Domain;
        if criteria.iter().any(of_domain) && !criteria.iter().all(of_domain) {
            problems.add("spec.criteria", "name domains and something else; make two groups");
        }
        for (i, criterion) in criteria.iter().enumerate() {
            criterion.check(&format!("spec.criteria[{i}]"), &mut problems);
        }
        problems.into_result()
    }

    fn check_status(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        if let Some(GroupStatus { members: _, enforcement }) = &self.status {
            let at = "status.enforcement";
            field::no_longer(&mut problems, at, enforcement, LONGEST_ENFORCEMENT);
        }
        problems.into_result()
    }
}

#[cfg(test)]
mod tests;
