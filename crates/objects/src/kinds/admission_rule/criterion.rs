//! A criterion as it is decided: the written words are parsed here, once, for the check of a rule
//! and for its compilation alike.

mod scan;

use std::fmt;

pub use scan::{Count, ModuleItem, Severities};

use super::re2::{self, Regex};
use super::{Criterion, Quantity, SubCriterion};

/// A problem: the field, relative to the criterion, and a sentence.
type Problem = (&'static str, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Image,
    ImageRegistry,
    Namespace,
    User,
    UserGroups,
    Labels,
    Annotations,
    MountVolumes,
    EnvVars,
    EnvVarSecrets,
    RunAsPrivileged,
    RunAsRoot,
    CveCriticalCount,
    CveHighCount,
    CveHighCountNoCritical,
    CveMediumCount,
    CveCriticalWithFixCount,
    CveHighWithFixCount,
    CveHighWithFixCountNoCritical,
    CveNames,
    Modules,
    ImageScanned,
    ImageSigned,
    ImageVerifiers,
    ImageCompliance,
    SharePidWithHost,
    ShareIpcWithHost,
    ShareNetWithHost,
    AllowPrivEscalation,
    PspCompliance,
    ViolatePssPolicy,
    ResourceLimit,
    StorageClassName,
    SaBindRiskyRole,
    CveScoreCount,
    ImageNoOs,
    CustomPath,
}

const NAMES: [(Name, &str); 37] = [
    (Name::Image, "image"),
    (Name::ImageRegistry, "imageRegistry"),
    (Name::Namespace, "namespace"),
    (Name::User, "user"),
    (Name::UserGroups, "userGroups"),
    (Name::Labels, "labels"),
    (Name::Annotations, "annotations"),
    (Name::MountVolumes, "mountVolumes"),
    (Name::EnvVars, "envVars"),
    (Name::EnvVarSecrets, "envVarSecrets"),
    (Name::RunAsPrivileged, "runAsPrivileged"),
    (Name::RunAsRoot, "runAsRoot"),
    (Name::CveCriticalCount, "cveCriticalCount"),
    (Name::CveHighCount, "cveHighCount"),
    (Name::CveHighCountNoCritical, "cveHighCountNoCritical"),
    (Name::CveMediumCount, "cveMediumCount"),
    (Name::CveCriticalWithFixCount, "cveCriticalWithFixCount"),
    (Name::CveHighWithFixCount, "cveHighWithFixCount"),
    (Name::CveHighWithFixCountNoCritical, "cveHighWithFixCountNoCritical"),
    (Name::CveNames, "cveNames"),
    (Name::Modules, "modules"),
    (Name::ImageScanned, "imageScanned"),
    (Name::ImageSigned, "imageSigned"),
    (Name::ImageVerifiers, "imageVerifiers"),
    (Name::ImageCompliance, "imageCompliance"),
    (Name::SharePidWithHost, "sharePidWithHost"),
    (Name::ShareIpcWithHost, "shareIpcWithHost"),
    (Name::ShareNetWithHost, "shareNetWithHost"),
    (Name::AllowPrivEscalation, "allowPrivEscalation"),
    (Name::PspCompliance, "pspCompliance"),
    (Name::ViolatePssPolicy, "violatePssPolicy"),
    (Name::ResourceLimit, "resourceLimit"),
    (Name::StorageClassName, "storageClassName"),
    (Name::SaBindRiskyRole, "saBindRiskyRole"),
    (Name::CveScoreCount, "cveScoreCount"),
    (Name::ImageNoOs, "imageNoOS"),
    (Name::CustomPath, "customPath"),
];

impl Name {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some((name, _)) = NAMES.iter().find(|(_, word)| *word == text) {
            return Ok(*name);
        }
        if text == "cveScore" {
            return Err(
                "there is no cveScore; cveScoreCount counts what has a score of at least its \
                        value"
                    .to_owned(),
            );
        }
        let known = Self::listed(|_| true);
        Err(format!("there is no criterion {text:?}; there are {known}"))
    }

    /// Whether a criterion asks for what only a scan of the image, or a check of its signatures, can
    /// tell.
    pub fn needs_scan(self) -> bool {
        (Self::CveCriticalCount..=Self::ImageCompliance).contains(&self)
            || matches!(self, Self::CveScoreCount | Self::ImageNoOs)
    }

    /// What such a rule would let in must not depend on what only refusing is right about.
    pub fn is_for_deny_only(self) -> bool {
        self >= Self::SharePidWithHost
    }

    pub(super) fn listed(which: impl Fn(Self) -> bool) -> String {
        let words = NAMES.iter().filter(|(name, _)| which(*name)).map(|(_, word)| *word);
        words.collect::<Vec<_>>().join(", ")
    }

    fn operators(self) -> &'static [&'static str] {
        const ANY: &[&str] = &["containsAny", "notContainsAny"];
        const LIST: &[&str] =
            &["containsAny", "notContainsAny", "containsAll", "containsOtherThan"];
        match self {
            Self::Image | Self::ImageRegistry | Self::Namespace | Self::StorageClassName => ANY,
            Self::User => &["containsAny", "notContainsAny", "regex", "!regex"],
            Self::UserGroups => &[
                "containsAny",
                "notContainsAny",
                "containsAll",
                "containsOtherThan",
                "regex",
                "!regex",
            ],
            Self::Labels
            | Self::Annotations
            | Self::MountVolumes
            | Self::EnvVars
            | Self::CveNames
            | Self::Modules => LIST,
            Self::ImageVerifiers => &["containsAny", "notContainsAny", "containsAll"],
            Self::CveScoreCount => &[">="],
            name if name.is_count() => &[">=", "<="],
            Self::SaBindRiskyRole => &["containsTagAny"],
            Self::ResourceLimit | Self::CustomPath => &[],
            _ => &["="],
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = NAMES.iter().find(|(name, _)| name == self).map_or("", |(_, word)| word);
        f.write_str(word)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Any,
    NotAny,
    All,
    OtherThan,
}

impl List {
    fn parse(op: &str) -> Option<Self> {
        Some(match op {
            "containsAny" => Self::Any,
            "notContainsAny" => Self::NotAny,
            "containsAll" => Self::All,
            "containsOtherThan" => Self::OtherThan,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PssLevel {
    Baseline,
    Restricted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    CpuLimit,
    CpuRequest,
    MemoryLimit,
    MemoryRequest,
}

/// A sub-criterion of `resourceLimit`: cores or bytes, above the value or not above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    pub resource: Resource,
    pub above: bool,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RiskyTag {
    ViewSecret,
    CreatePod,
    AnyActionWorkload,
    AnyActionRbac,
    ExecIntoContainer,
}

const TAGS: [(RiskyTag, &str); 5] = [
    (RiskyTag::ViewSecret, "risky_role_view_secret"),
    (RiskyTag::CreatePod, "risky_role_create_pod"),
    (RiskyTag::AnyActionWorkload, "risky_role_any_action_workload"),
    (RiskyTag::AnyActionRbac, "risky_role_any_action_rbac"),
    (RiskyTag::ExecIntoContainer, "risky_role_exec_into_container"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal,
    NotEqual,
    Above,
    AtLeast,
    AtMost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Key(String),
    /// Any element of a list. Where there is an object instead, its key `0`.
    Each,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PathOp {
    Exist,
    NotExist,
    Texts(List, Vec<String>),
    Number(Compare, f64),
    Flag(bool),
}

/// A test of the values at a path below `item`.
#[derive(Clone, Debug, PartialEq)]
pub struct PathTest {
    pub path: Vec<Segment>,
    pub op: PathOp,
}

#[derive(Clone, Debug)]
pub enum Parsed {
    /// A criterion whose values are texts, or `key[=value]`.
    List(Name, List, Vec<String>),
    Regex {
        name: Name,
        negative: bool,
        regex: Regex,
    },
    Flag(Name, bool),
    Pss(PssLevel),
    Resources(Vec<Amount>),
    RiskyRole(Vec<RiskyTag>),
    Path(PathTest),
    Count(Count),
    /// At least `count` vulnerabilities have a score of at least this many tenths.
    Scores {
        tenths: u16,
        count: f64,
    },
    /// Whether the image was scanned at most this many days ago.
    ScannedWithin {
        value: bool,
        days: f64,
    },
}

impl Parsed {
    pub fn name(&self) -> Name {
        match self {
            Self::List(name, ..) | Self::Regex { name, .. } | Self::Flag(name, _) => *name,
            Self::Count(count) => count.name,
            Self::Scores { .. } => Name::CveScoreCount,
            Self::ScannedWithin { .. } => Name::ImageScanned,
            Self::Pss(_) => Name::ViolatePssPolicy,
            Self::Resources(_) => Name::ResourceLimit,
            Self::RiskyRole(_) => Name::SaBindRiskyRole,
            Self::Path(_) => Name::CustomPath,
        }
    }

    /// Negative criteria of one name are all to hold; one positive one makes them alternatives.
    pub fn is_negative(&self) -> bool {
        matches!(self, Self::List(_, List::NotAny, _) | Self::Regex { negative: true, .. })
    }
}

/// The items of a list: trimmed, without empty ones and repeats.
pub fn items(value: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for item in value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        if !items.iter().any(|other| other == item) {
            items.push(item.to_owned());
        }
    }
    items
}

/// A text of the form `key` or `key=value`.
pub fn key_value(item: &str) -> (&str, Option<&str>) {
    match item.split_once('=') {
        Some((key, value)) => (key.trim(), Some(value.trim())),
        None => (item.trim(), None),
    }
}

impl Criterion {
    /// Reads a criterion as the decision uses it. The error is the field and a sentence that says what to
    /// write instead.
    pub fn parse(&self) -> Result<Parsed, (&'static str, String)> {
        let name = match self.kind.as_str() {
            "" => Name::parse(&self.name).map_err(|problem| (".name", problem))?,
            "customPath" => Name::CustomPath,
            "saBindRiskyRole" => Name::SaBindRiskyRole,
            other => {
                let problem =
                    format!("there is no type {other:?}; there are customPath, saBindRiskyRole");
                return Err((".type", problem));
            }
        };
        if !self.sub_criteria.is_empty() && !name.has_sub_criteria() {
            let problem = format!("are for {} only", Name::listed(Name::has_sub_criteria));
            return Err((".sub_criteria", problem));
        }
        // NeuVector writes them on both.
        let of_path = [&self.path, &self.template_kind, &self.value_type];
        let may_have = matches!(name, Name::CustomPath | Name::SaBindRiskyRole);
        if !may_have && of_path.iter().any(|field| !field.is_empty()) {
            let problem = "path, template_kind and value_type are for customPath only".to_owned();
            return Err((".path", problem));
        }
        let value = self.value.trim();
        match name {
            Name::ResourceLimit => return self.resources(),
            Name::CustomPath => return self.custom_path(),
            _ => {}
        }
        let known = name.operators();
        if !known.contains(&self.op.as_str()) {
            return Err((".op", no_operator(&name.to_string(), &self.op, known)));
        }
        if let Some(list) = List::parse(&self.op) {
            let items = items(value);
            if items.is_empty() {
                return Err((".value", "has no item".to_owned()));
            }
            let keyed = matches!(name, Name::Labels | Name::Annotations | Name::EnvVars);
            if keyed && let Some(item) = items.iter().find(|item| key_value(item).0.is_empty()) {
                let problem =
                    format!("{item:?} has no key, so it can never match; write key=value");
                return Err((".value", problem));
            }
            if name.needs_scan() {
                scan::check_items(name, &items).map_err(|problem| (".value", problem))?;
            }
            return Ok(Parsed::List(name, list, items));
        }
        if value.is_empty() {
            return Err((".value", "is empty".to_owned()));
        }
        match name {
            name if name.has_sub_criteria() => self.scan(name, value),
            Name::User | Name::UserGroups => {
                let regex = re2::compile(value).map_err(|problem| (".value", problem))?;
                Ok(Parsed::Regex { name, negative: self.op == "!regex", regex })
            }
            Name::SaBindRiskyRole => {
                let tags = items(value).iter().map(|item| tag(item)).collect::<Result<Vec<_>, _>>();
                let tags = tags.map_err(|problem| (".value", problem))?;
                if tags.is_empty() {
                    return Err((".value", "has no item".to_owned()));
                }
                Ok(Parsed::RiskyRole(tags))
            }
            Name::ViolatePssPolicy => match value {
                "baseline" => Ok(Parsed::Pss(PssLevel::Baseline)),
                "restricted" => Ok(Parsed::Pss(PssLevel::Restricted)),
                _ => Err((".value", format!("{value:?} is not baseline or restricted"))),
            },
            Name::AllowPrivEscalation | Name::PspCompliance if value != "true" => {
                Err((".value", format!("{value:?} is not true, the one value {name} has")))
            }
            name => {
                let flag = value.parse().map_err(|_| not_boolean(value))?;
                Ok(Parsed::Flag(name, flag))
            }
        }
    }

    fn resources(&self) -> Result<Parsed, Problem> {
        if !self.op.is_empty() || !self.value.trim().is_empty() {
            let problem = "resourceLimit has neither operator nor value, only sub_criteria";
            return Err((".op", problem.to_owned()));
        }
        if self.sub_criteria.is_empty() {
            let problem = "is empty, so that it never matches; write cpuLimit, cpuRequest, \
                           memoryLimit or memoryRequest";
            return Err((".sub_criteria", problem.to_owned()));
        }
        let amounts = self.sub_criteria.iter().map(SubCriterion::parse);
        let amounts: Result<_, _> = amounts.collect();
        Ok(Parsed::Resources(amounts.map_err(|problem| (".sub_criteria", problem))?))
    }

    fn custom_path(&self) -> Result<Parsed, Problem> {
        if !matches!(self.template_kind.as_str(), "" | "podTemplate") {
            let problem = format!("{:?} is not podTemplate", self.template_kind);
            return Err((".template_kind", problem));
        }
        let path = path(self.path.trim()).map_err(|problem| (".path", problem))?;
        let value = self.value.trim();
        let known: &[&str] = match self.value_type.as_str() {
            "key" => &["exist", "notExist"],
            "string" => &[
                "exist",
                "notExist",
                "containsAny",
                "notContainsAny",
                "containsAll",
                "containsOtherThan",
            ],
            "number" => &["exist", "notExist", "=", "!=", ">", ">=", "<="],
            "boolean" => &["exist", "notExist", "="],
            other => {
                let problem = format!("{other:?} is not key, string, number or boolean");
                return Err((".value_type", problem));
            }
        };
        if !known.contains(&self.op.as_str()) {
            let what = format!("customPath of type {}", self.value_type);
            return Err((".op", no_operator(&what, &self.op, known)));
        }
        let compare = match self.op.as_str() {
            "exist" => return Ok(Parsed::Path(PathTest { path, op: PathOp::Exist })),
            "notExist" => return Ok(Parsed::Path(PathTest { path, op: PathOp::NotExist })),
            "!=" => Compare::NotEqual,
            ">" => Compare::Above,
            ">=" => Compare::AtLeast,
            "<=" => Compare::AtMost,
            _ => Compare::Equal,
        };
        let op = if let Some(list) = List::parse(&self.op) {
            let items = items(value);
            if items.is_empty() {
                return Err((".value", "has no item".to_owned()));
            }
            PathOp::Texts(list, items)
        } else if self.value_type == "boolean" {
            PathOp::Flag(value.parse().map_err(|_| not_boolean(value))?)
        } else {
            let digits = |b: u8| b.is_ascii_digit() || b".+-eE".contains(&b);
            let number: f64 = (value.bytes().all(digits))
                .then(|| value.parse().ok())
                .flatten()
                .filter(|number: &f64| number.is_finite())
                .ok_or_else(|| (".value", format!("{value:?} is not one number")))?;
            PathOp::Number(compare, number)
        };
        Ok(Parsed::Path(PathTest { path, op }))
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.scan_warnings();
        if matches!(self.name.as_str(), "runAsRoot" | "pspCompliance") {
            let counts = if self.value.trim() == "false" { "counts" } else { "does not count" };
            let as_what = if self.value.trim() == "false" { "not root" } else { "root" };
            warnings.push(format!(
                "where it is not known what an image runs as, a container without runAsUser {counts} \
                 as {as_what}; violatePssPolicy = restricted asks for runAsNonRoot"
            ));
        }
        if !matches!(self.name.as_str(), "namespace" | "user" | "image")
            || List::parse(&self.op).is_none()
        {
            return warnings;
        }
        for item in items(&self.value) {
            if item.contains('=') {
                let warning = format!("{item:?} looks like key=value, which {} has not", self.name);
                warnings.push(warning);
            }
            if self.name != "image" {
                continue;
            }
            let plain = item.strip_prefix("https://").unwrap_or(&item);
            let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost";
            let (registry, name) = match plain.split_once('/') {
                Some((first, rest)) if is_host(first) => (true, rest),
                Some(_) => (false, plain),
                None => {
                    let host = plain.split(':').next().unwrap_or_default();
                    let alone = host.contains('.') || host == "localhost";
                    (alone, if alone { "" } else { plain })
                }
            };
            if registry && name.is_empty() {
                warnings.push(format!(
                    "{item:?} is a registry alone and matches no image; imageRegistry is meant"
                ));
            } else if name.contains('@') && !name.contains(':') {
                warnings.push(format!(
                    "{item:?} has an @ but no :, so only the repository is compared"
                ));
            } else if !registry && !name.contains(['/', '*', '?']) {
                let repository = name.split([':', '@']).next().unwrap_or_default();
                warnings.push(format!(
                    "{item:?} does not match the official image, which is library/{repository}"
                ));
            }
        }
        warnings
    }
}

impl SubCriterion {
    fn parse(&self) -> Result<Amount, String> {
        let Self { name, op, value } = self;
        let resource = match name.as_str() {
            "cpuLimit" => Resource::CpuLimit,
            "cpuRequest" => Resource::CpuRequest,
            "memoryLimit" => Resource::MemoryLimit,
            "memoryRequest" => Resource::MemoryRequest,
            _ => {
                return Err(format!(
                    "there is no {name:?}; there are cpuLimit, cpuRequest, memoryLimit, \
                     memoryRequest"
                ));
            }
        };
        if !matches!(op.as_str(), ">" | "<=") {
            return Err(no_operator(name, op, &[">", "<="]));
        }
        let value = value.trim();
        let digits = |b: u8| b.is_ascii_digit() || b".+-eE".contains(&b);
        let number = value.bytes().all(digits).then(|| value.parse::<f64>().ok()).flatten();
        match number.filter(|number| number.is_finite() && *number >= 0.0) {
            Some(value) => Ok(Amount { resource, above: op == ">", value }),
            None => {
                let instead = Quantity::parse(value).map(|quantity| match resource {
                    Resource::CpuLimit | Resource::CpuRequest => {
                        let millis = quantity.millis();
                        format!("{}.{:03}", millis / 1000, (millis % 1000).abs())
                    }
                    _ => quantity.whole().to_string(),
                });
                let instead = instead
                    .filter(|number| !number.starts_with('-'))
                    .map_or_else(String::new, |number| format!("; write {number}"));
                Err(format!("{name} {value:?} is no plain number of cores or bytes{instead}"))
            }
        }
    }
}

fn no_operator(what: &str, op: &str, known: &[&str]) -> String {
    format!("{what} has no operator {op:?}; it has {}", known.join(", "))
}

fn not_boolean(value: &str) -> Problem {
    (".value", format!("{value:?} is not true or false"))
}

fn tag(item: &str) -> Result<RiskyTag, String> {
    let known = TAGS.iter().find(|(_, word)| *word == item).map(|(tag, _)| *tag);
    known.ok_or_else(|| {
        let words: Vec<_> = TAGS.iter().map(|(_, word)| *word).collect();
        format!("there is no tag {item:?}; there are {}", words.join(", "))
    })
}

fn path(text: &str) -> Result<Vec<Segment>, String> {
    let Some(rest) = text.strip_prefix("item.") else {
        return Err(format!("{text:?} does not start with item."));
    };
    // `containers[_]` and `containers.[_]` are one thing.
    let rest = rest.replace(".[_]", "[_]").replace("[_]", ".0");
    let segment = |word: &str| match word {
        "" => Err(format!("{text:?} has an empty segment")),
        "0" => Ok(Segment::Each),
        word if word.contains(['[', ']']) => {
            Err(format!("{text:?} has {word:?}; any element of a list is 0 or [_]"))
        }
        word => Ok(Segment::Key(word.to_owned())),
    };
    rest.split('.').map(segment).collect()
}
