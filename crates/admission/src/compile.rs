//! Rules compiled to a program: once, on change, in the order in which they are decided.

use std::sync::Arc;

use kube::ResourceExt;
use objects::kinds::AdmissionRule;
use objects::kinds::admission_rule::{
    Action, ContainerKind, Criterion, List, Mode, Name, Origin, Parsed,
};
use objects::{Invalid, Kind};

use super::criteria::Test;
use super::image::DEFAULT_REGISTRIES;
use super::images::ImageLimits;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Stands in for the mode of deny rules that have none.
    pub protect: bool,
    /// The hosts of an image without a registry.
    pub default_registries: Arc<[String]>,
    /// Users whose word on owners is taken, beside Kubernetes' own controllers.
    pub controllers: Arc<[String]>,
    /// Whether sidecars that an injector added are exempt from rules on images, variables and
    /// resources.
    pub exempt_sidecars: bool,
    /// Whether there is a source of scan results of images. Without one, rules that ask for them are
    /// refused.
    pub scan_results: bool,
    /// How much is kept of what is known of images.
    pub images: ImageLimits,
}

impl Settings {
    pub fn new(protect: bool) -> Self {
        Self {
            protect,
            default_registries: DEFAULT_REGISTRIES.map(str::to_owned).into(),
            controllers: Arc::from([]),
            exempt_sidecars: false,
            scan_results: true,
            images: ImageLimits::default(),
        }
    }
}

/// The enabled rules in decision order: critical allow rules; then federal, ground and user rules,
/// in each layer allow before deny; within that as they were given.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(super) rules: Vec<Arc<Compiled>>,
}

#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) name: String,
    /// Where it stands in the program; lower is earlier.
    layer: (u8, bool),
    pub(super) action: Action,
    pub(super) protect: bool,
    pub(super) selects: [bool; 3],
    /// Whether it leaves out sidecars that are exempt.
    pub(super) spares_sidecars: bool,
    /// Whether a criterion asks for what only a scan of the image tells.
    pub(super) asks_scans: bool,
    /// All must hold.
    pub(super) folds: Vec<Fold>,
}

/// The criteria of one name.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub(super) name: Name,
    pub(super) criteria: Vec<Compare>,
}

#[derive(Clone, Debug)]
pub(super) struct Compare {
    pub(super) negative: bool,
    pub(super) test: Test,
    /// As written, for the answer.
    pub(super) text: String,
}

pub(super) fn index(kind: ContainerKind) -> usize {
    match kind {
        ContainerKind::InitContainers => 0,
        ContainerKind::Containers => 1,
        ContainerKind::EphemeralContainers => 2,
    }
}

impl Program {
    /// Refuses everything if one rule is not right or a name is there twice: the rules are those
    /// that were asked for, or none are.
    pub fn compile(rules: &[AdmissionRule], settings: &Settings) -> Result<Self, Invalid> {
        let mut problems = Invalid::default();
        let mut compiled = Vec::new();
        for (i, rule) in rules.iter().enumerate() {
            let name = rule.name_any();
            if name.is_empty() {
                problems.add(format!("rule {}", i + 1), "has no name");
            } else if rules[..i].iter().any(|other| other.name_any() == name) {
                problems.add(format!("rule {name:?}"), "is there twice");
            }
            let checked = rule.check().and_then(|()| needs(rule, settings));
            if let Err(Invalid(found)) = checked {
                for (field, problem) in found {
                    problems.add(format!("rule {name:?}: {field}"), problem);
                }
                continue;
            }
            if !rule.spec.disabled {
                compiled.push(Arc::new(Compiled::new(name, rule, settings)));
            }
        }
        problems.into_result()?;
        Ok(Self::of(compiled))
    }

    /// Of rules that were compiled before, in the order in which they are listed.
    pub(super) fn of(mut rules: Vec<Arc<Compiled>>) -> Self {
        rules.sort_by_key(|rule| rule.layer);
        Self { rules }
    }

    /// Whether some rule asks for what only a scan of the image tells.
    pub(super) fn asks_scans(&self) -> bool {
        self.rules.iter().any(|rule| rule.asks_scans)
    }

    /// Whether some deny rule refuses what matches it.
    pub(super) fn protects(&self) -> bool {
        self.rules.iter().any(|rule| rule.action == Action::Deny && rule.protect)
    }
}

/// Refuses an enabled rule that asks for scan results where there is no source of them.
pub(super) fn needs(rule: &AdmissionRule, settings: &Settings) -> Result<(), Invalid> {
    let mut problems = Invalid::default();
    for (i, criterion) in rule.spec.criteria.iter().enumerate() {
        let asks = criterion.parse().is_ok_and(|parsed| parsed.name().needs_scan());
        if asks && !settings.scan_results && !rule.spec.disabled {
            let name = &criterion.name;
            let problem = format!(
                "{name} needs scan results of images, and there are none here; offline they are given \
                 with --images; disable the rule to keep it until there are"
            );
            problems.add(format!("spec.criteria[{i}].name"), problem);
        }
    }
    problems.into_result()
}

pub(super) fn layer(rule: &AdmissionRule) -> (u8, bool) {
    let deny = rule.spec.action == Action::Deny;
    let layer = match rule.spec.origin {
        _ if rule.spec.critical && !deny => 0,
        Origin::Federal => 1,
        Origin::Ground => 2,
        Origin::UserCreated => 3,
    };
    (layer, deny)
}

impl Compiled {
    /// `rule` has been checked.
    pub(super) fn new(name: String, rule: &AdmissionRule, settings: &Settings) -> Self {
        let spec = &rule.spec;
        let selects = |kind| spec.containers.is_empty() || spec.containers.contains(&kind);
        let selects = [
            selects(ContainerKind::InitContainers),
            selects(ContainerKind::Containers),
            selects(ContainerKind::EphemeralContainers),
        ];
        let protect = match spec.mode {
            Mode::Global => settings.protect,
            Mode::Monitor => false,
            Mode::Protect => true,
        };
        let mut folds: Vec<Fold> = Vec::new();
        for (parsed, text) in merged(&spec.criteria) {
            let name = parsed.name();
            let compare = Compare { negative: parsed.is_negative(), test: Test::new(parsed), text };
            let fold = folds.iter_mut().find(|fold| fold.name == name);
            // Every customPath is to hold by itself.
            match fold.filter(|_| name != Name::CustomPath) {
                Some(fold) => fold.criteria.push(compare),
                None => folds.push(Fold { name, criteria: vec![compare] }),
            }
        }
        let spares_sidecars = spec.action == Action::Deny && is_on_container_alone(&folds);
        let asks_scans = folds.iter().any(|fold| fold.name.needs_scan());
        let (layer, action) = (layer(rule), spec.action);
        Self { name, layer, action, protect, selects, spares_sidecars, asks_scans, folds }
    }
}

/// Whether a rule asks for something of a container's own, and for none of its privileges, what it
/// has of the host or mounts, nor for anything that may be one of these.
fn is_on_container_alone(folds: &[Fold]) -> bool {
    use Name::{
        Annotations, EnvVarSecrets, EnvVars, Image, ImageRegistry, Labels, Namespace,
        ResourceLimit, User, UserGroups,
    };
    let of_container = |name: Name| {
        matches!(name, Image | ImageRegistry | EnvVars | EnvVarSecrets | ResourceLimit)
    };
    let of_request =
        |name: Name| matches!(name, Namespace | User | UserGroups | Labels | Annotations);
    folds.iter().any(|fold| of_container(fold.name))
        && folds.iter().all(|fold| of_container(fold.name) || of_request(fold.name))
}

/// Lists of one name under `containsAny`, or under `notContainsAny`, are one list.
fn merged(criteria: &[Criterion]) -> Vec<(Parsed, String)> {
    let mut merged: Vec<(Parsed, String)> = Vec::new();
    for criterion in criteria {
        // The check has parsed it already.
        let Ok(parsed) = criterion.parse() else { continue };
        if let Parsed::List(name, op @ (List::Any | List::NotAny), items) = &parsed {
            let first = merged
                .iter_mut()
                .find(|(first, _)| matches!(first, Parsed::List(n, o, _) if n == name && o == op));
            if let Some((Parsed::List(_, _, all), text)) = first {
                for item in items {
                    if !all.contains(item) {
                        all.push(item.clone());
                        text.push_str(", ");
                        text.push_str(item);
                    }
                }
                continue;
            }
        }
        merged.push((parsed, criterion.to_string()));
    }
    merged
}
