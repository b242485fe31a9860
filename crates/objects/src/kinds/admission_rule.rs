//! `AdmissionRule`: what may enter a cluster. Names, operators and values of criteria are
//! NeuVector's, so that moving over is an import.
//!
//! A rule that means something else than its author thought is worse than one that is refused:
//! `check` parses every criterion as the decision will ([`Criterion::parse`]) and refuses what it
//! does not know.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

mod criterion;
mod quantity;
mod re2;
pub mod versions;

use std::fmt;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use criterion::{
    Amount, Compare, Count, List, ModuleItem, Name, Parsed, PathOp, PathTest, PssLevel, Resource,
    RiskyTag, Segment, Severities, items, key_value,
};
pub use quantity::Quantity;
pub use re2::{Regex, compile as regex};

use super::field;
use crate::store::{Invalid, Kind};

const MOST_CRITERIA: usize = 128;
const MOST_SUB_CRITERIA: usize = 16;
/// The most characters of a value: NeuVector's lists are one text, and hundreds of namespaces or images
/// are in use.
const LONGEST_VALUE: usize = 65_536;
const LONGEST_WORD: usize = 1024;
const LONGEST_COMMENT: usize = 4096;
pub const LONGEST_WHY: usize = 4096;

/// A rule on what may enter a cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "AdmissionRule",
    doc = "A rule on what may enter a cluster.",
    category = "fairlead",
    shortname = "admrule",
    status = "AdmissionRuleStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Action","type":"string","jsonPath":".spec.action"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Criteria","type":"string","jsonPath":".spec.criteria[*].name"}"#,
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.why","priority":1}"#,
    printcolumn = r#"{"name":"Comment","type":"string","jsonPath":".spec.comment","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(deny_unknown_fields)]
pub struct AdmissionRuleSpec {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_COMMENT))]
    pub comment: String,
    pub action: Action,
    /// What a deny rule does: `monitor` records, `protect` refuses; empty is the global mode.
    #[serde(default, skip_serializing_if = "Mode::is_global")]
    pub mode: Mode,
    /// The kinds of containers that the rule looks at; none named is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub containers: Vec<ContainerKind>,
    #[schemars(length(min = 1, max = MOST_CRITERIA))]
    pub criteria: Vec<Criterion>,
    #[serde(default)]
    pub category: Category,
    /// A disabled rule is never looked at.
    #[serde(default)]
    pub disabled: bool,
    /// The layer in which the rule is decided: federal before ground before user_created.
    #[serde(default)]
    pub origin: Origin,
    /// A critical allow rule comes before every layer.
    #[serde(default)]
    pub critical: bool,
}

/// The result of reading the rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRuleStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default)]
    pub state: RuleState,
    /// What is wrong with the rule, or is hardly what was meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_WHY))]
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleState {
    /// The rule decides.
    #[default]
    Active,
    Disabled,
    /// The rule is not looked at, because it is not valid.
    Invalid,
}

impl fmt::Display for RuleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Invalid => "invalid",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Allow,
    Deny,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    #[serde(rename = "")]
    Global,
    Monitor,
    Protect,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "",
            Self::Monitor => "monitor",
            Self::Protect => "protect",
        })
    }
}

impl Mode {
    fn is_global(&self) -> bool {
        *self == Self::Global
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContainerKind {
    InitContainers,
    Containers,
    EphemeralContainers,
}

impl fmt::Display for ContainerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InitContainers => "init_containers",
            Self::Containers => "containers",
            Self::EphemeralContainers => "ephemeral_containers",
        })
    }
}

/// A field of NeuVector's, of which it evaluates one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Category {
    #[default]
    Kubernetes,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Federal,
    Ground,
    #[default]
    UserCreated,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Federal => "federal",
            Self::Ground => "ground",
            Self::UserCreated => "user_created",
        })
    }
}

/// One condition, with NeuVector's names and operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_WORD))]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_WORD))]
    pub op: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_VALUE))]
    pub value: String,
    #[serde(default, alias = "sub", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SUB_CRITERIA))]
    pub sub_criteria: Vec<SubCriterion>,
    /// The type `customPath` or `saBindRiskyRole`, which says what the criterion is, whatever its name.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_WORD))]
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_WORD))]
    pub template_kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_WORD))]
    pub path: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_WORD))]
    pub value_type: String,
}

impl Criterion {
    fn check_lengths(&self, at: &str, problems: &mut Invalid) {
        let Self { name, op, value, sub_criteria, kind, template_kind, path, value_type } = self;
        for (field, text, most) in [
            ("name", name, LONGEST_WORD),
            ("op", op, LONGEST_WORD),
            ("value", value, LONGEST_VALUE),
            ("type", kind, LONGEST_WORD),
            ("template_kind", template_kind, LONGEST_WORD),
            ("path", path, LONGEST_WORD),
            ("value_type", value_type, LONGEST_WORD),
        ] {
            field::no_longer(problems, &format!("{at}.{field}"), text, most);
        }
        for (i, SubCriterion { name, op, value }) in sub_criteria.iter().enumerate() {
            for (field, text) in [("name", name), ("op", op), ("value", value)] {
                let at = format!("{at}.sub_criteria[{i}].{field}");
                field::no_longer(problems, &at, text, LONGEST_WORD);
            }
        }
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.kind == "customPath" { &self.path } else { &self.name };
        f.write_str(what)?;
        for word in [&self.op, &self.value] {
            if !word.is_empty() {
                write!(f, " {word}")?;
            }
        }
        for (i, sub) in self.sub_criteria.iter().enumerate() {
            let comma = if i == 0 { "" } else { " or" };
            write!(f, "{comma} {} {} {}", sub.name, sub.op, sub.value)?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubCriterion {
    #[schemars(length(max = LONGEST_WORD))]
    pub name: String,
    #[schemars(length(max = LONGEST_WORD))]
    pub op: String,
    #[schemars(length(max = LONGEST_WORD))]
    pub value: String,
}

impl AdmissionRuleSpec {
    /// Says what is accepted, because such rules are in use, but is hardly what was meant.
    pub fn warnings(&self) -> Vec<(String, String)> {
        let mut warnings = Invalid::default();
        for (i, criterion) in self.criteria.iter().enumerate() {
            let at = format!("spec.criteria[{i}]");
            for warning in criterion.warnings() {
                warnings.add(format!("{at}.value"), warning);
            }
            let twice = self.criteria[..i]
                .iter()
                .any(|other| other.name == criterion.name && other.op == "containsAll");
            if twice && criterion.op == "containsAll" {
                let name = &criterion.name;
                let warning =
                    format!("{name} containsAll is there twice, which means either, not both");
                warnings.add(at, warning);
            }
        }
        warnings.0
    }
}

impl Kind for AdmissionRule {
    const NAME: &'static str = "AdmissionRule";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let AdmissionRuleSpec { comment, action, mode, containers, criteria, .. } = &self.spec;
        let mut problems = Invalid::default();
        if comment.chars().count() > LONGEST_COMMENT {
            problems.add("spec.comment", format!("has more than {LONGEST_COMMENT} characters"));
        }
        if *action == Action::Allow && !mode.is_global() {
            problems.add("spec.mode", "is for deny rules; an allow rule has no monitor form");
        }
        field::at_most(&mut problems, "spec.containers", containers.len(), 3);
        if criteria.is_empty() {
            problems.add("spec.criteria", "is empty, so that the rule matches nothing");
        }
        field::at_most(&mut problems, "spec.criteria", criteria.len(), MOST_CRITERIA);
        let mut names = Vec::new();
        for (i, criterion) in criteria.iter().enumerate() {
            let at = format!("spec.criteria[{i}]");
            let subs = criterion.sub_criteria.len();
            field::at_most(&mut problems, &format!("{at}.sub_criteria"), subs, MOST_SUB_CRITERIA);
            let before = problems.0.len();
            criterion.check_lengths(&at, &mut problems);
            if problems.0.len() > before {
                continue;
            }
            match criterion.parse() {
                Ok(parsed) if *action == Action::Allow && parsed.name().is_for_deny_only() => {
                    let name = parsed.name();
                    let problem = format!("{name} is for deny rules only; an allow rule has {}", {
                        Name::listed(|name| !name.is_for_deny_only())
                    });
                    problems.add(format!("{at}.name"), problem);
                }
                Ok(parsed) => {
                    if let Err((field, problem)) = criterion.check_action(&parsed, *action) {
                        problems.add(format!("{at}{field}"), problem);
                    }
                    names.push(parsed.name());
                }
                Err((field, problem)) => problems.add(format!("{at}{field}"), problem),
            }
        }
        let beside = |name: &&Name| !matches!(name, Name::StorageClassName | Name::Namespace);
        if names.contains(&Name::StorageClassName)
            && let Some(other) = names.iter().find(beside)
        {
            let problem = format!(
                "storageClassName goes with namespace only, not with {other}: a claim has nothing \
                 else to compare; make two rules"
            );
            problems.add("spec.criteria", problem);
        }
        problems.into_result()
    }

    /// Checks the status alone: when the spec is not valid, the status says so.
    fn check_status(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        let why = self.status.as_ref().and_then(|status| status.why.as_ref());
        if why.is_some_and(|why| why.chars().count() > LONGEST_WHY) {
            problems.add("status.why", format!("has more than {LONGEST_WHY} characters"));
        }
        problems.into_result()
    }
}

#[cfg(test)]
mod tests;
