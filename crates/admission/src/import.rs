//! NeuVector's exported rules (`NvAdmissionControlSecurityRule`) as `AdmissionRule`s.
//!
//! A rule is carried over whole or not at all: dropping one criterion would widen it.

use kube::ResourceExt;
use objects::kinds::admission_rule::{Action, Criterion, Name, Origin, Parsed};
use objects::kinds::{AdmissionRule, AdmissionRuleSpec};
use objects::{Invalid, Kind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub struct Imported {
    pub rules: Vec<AdmissionRule>,
    pub notes: Vec<Note>,
}

/// What is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The rule as it is called here, or the part of the export.
    pub rule: String,
    /// False where the rule was not carried over, or is kept disabled.
    pub carried: bool,
    pub why: String,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Exported {
    id: Option<u64>,
    conversion_id_ref: Option<u64>,
    action: String,
    rule_type: String,
    category: String,
    comment: String,
    containers: Option<Vec<Value>>,
    criteria: Vec<Value>,
    disabled: bool,
    disable: bool,
    rule_mode: String,
    cfg_type: String,
    critical: bool,
}

/// Takes the documents of an export. The error is a sentence: not an export.
pub fn import(documents: &[Value]) -> Result<Imported, String> {
    let mut imported = Imported::default();
    for document in documents {
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "NvAdmissionControlSecurityRule" => imported.document(document)?,
            "List" => {
                let items = document.get("items").and_then(Value::as_array);
                let items = import(items.map_or(&[], Vec::as_slice))?;
                imported.rules.extend(items.rules);
                imported.notes.extend(items.notes);
            }
            other => {
                return Err(format!(
                    "kind {other:?} is not NvAdmissionControlSecurityRule; export the admission \
                     rules from NeuVector"
                ));
            }
        }
    }
    Ok(imported)
}

impl Imported {
    fn note(&mut self, rule: &str, carried: bool, why: impl Into<String>) {
        self.notes.push(Note { rule: rule.to_owned(), carried, why: why.into() });
    }

    fn document(&mut self, document: &Value) -> Result<(), String> {
        let spec = document.get("spec").unwrap_or(&Value::Null);
        if let Some(config) = spec.get("config").filter(|config| !config.is_null()) {
            let mode = config.get("mode").and_then(Value::as_str).unwrap_or("monitor");
            let why = format!(
                "the export's settings are not rules and are left out; its global mode is {mode}"
            );
            self.note("config", true, why);
        }
        let rules = match spec.get("rules") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Array(rules)) => rules,
            Some(_) => return Err("spec.rules is not a list".to_owned()),
        };
        let federal = document.pointer("/metadata/name").and_then(Value::as_str) == Some("federal");
        for (i, rule) in rules.iter().enumerate() {
            self.rule(i, rule, federal);
        }
        Ok(())
    }

    fn rule(&mut self, i: usize, rule: &Value, federal: bool) {
        let fallback = format!("nv-rule-{}", i + 1);
        let exported = match Exported::deserialize(rule) {
            Ok(exported) => exported,
            Err(error) => return self.note(&fallback, false, format!("cannot be read: {error}")),
        };
        let id = exported.id.filter(|id| *id != 0).or(exported.conversion_id_ref);
        let mut name = id.map_or(fallback, |id| format!("nv-{id}"));
        if self.rules.iter().any(|rule| rule.name_any() == name) {
            let taken = name.clone();
            let free = (2..).map(|n| format!("{taken}-{n}"));
            let mut free = free.filter(|name| self.rules.iter().all(|r| r.name_any() != *name));
            name = free.next().unwrap_or(taken);
        }
        match exported.spec(federal) {
            Ok((spec, mut notes)) => {
                let rule = AdmissionRule::new(&name, spec);
                let scans: Vec<_> = rule.spec.criteria.iter().filter(|c| asks_scan(c)).collect();
                if !scans.is_empty() {
                    let names: Vec<_> = scans.iter().map(|c| c.name.as_str()).collect();
                    let why = format!(
                        "{} needs scan results of images: have trivy-operator report them, or import \
                         them with `fairlead images import` (offline: --images)",
                        names.join(", ")
                    );
                    if scans.iter().any(|criterion| refuses_unscanned(criterion)) {
                        let why = "images without scan results were refused by this rule; add a rule \
                                   imageScanned = false to keep that";
                        notes.push(why.to_owned());
                    }
                    notes.push(why);
                }
                for note in notes {
                    self.note(&name, true, note);
                }
                match rule.check() {
                    Ok(()) => {
                        for (_, warning) in rule.spec.warnings() {
                            self.note(&name, true, warning);
                        }
                        self.rules.push(rule);
                    }
                    Err(Invalid(problems)) => {
                        for (field, problem) in problems {
                            self.note(&name, false, format!("left out: {field}: {problem}"));
                        }
                    }
                }
            }
            Err(why) => self.note(&name, false, format!("left out: {why}")),
        }
    }
}

/// Whether a criterion asks for scan results, or for more than is known of them.
fn asks_scan(criterion: &Criterion) -> bool {
    criterion.parse().is_ok_and(|parsed| parsed.name().needs_scan())
}

/// Whether NeuVector took an image that was never scanned for one with a vulnerability: it did where one
/// severity alone is counted by its age.
fn refuses_unscanned(criterion: &Criterion) -> bool {
    let combined = |name| matches!(name, Name::CveHighCount | Name::CveHighWithFixCount);
    !criterion.sub_criteria.is_empty()
        && matches!(criterion.parse(), Ok(Parsed::Count(count)) if !combined(count.name))
}

impl Exported {
    fn spec(self, federal: bool) -> Result<(AdmissionRuleSpec, Vec<String>), String> {
        let mut notes = Vec::new();
        let action = if self.action.is_empty() { &self.rule_type } else { &self.action };
        let action = match action.as_str() {
            "allow" | "exception" => Action::Allow,
            "deny" => Action::Deny,
            other => return Err(format!("the action {other:?} is not allow or deny")),
        };
        if !matches!(self.category.as_str(), "" | "Kubernetes") {
            notes.push(format!(
                "its category {:?} is Kubernetes here, as it was in NeuVector",
                self.category
            ));
        }
        let mode = match (action, self.rule_mode.as_str()) {
            (Action::Allow, mode) => {
                if !mode.is_empty() {
                    notes.push(format!("an allow rule has no mode; {mode:?} is left out"));
                }
                Value::from("")
            }
            (Action::Deny, mode) => mode.into(),
        };
        let mode = serde_json::from_value(mode).map_err(|error| format!("rule_mode: {error}"))?;
        let containers = self.containers.unwrap_or_default();
        if containers.is_empty() {
            notes.push(
                "it names no containers: NeuVector looked at regular containers only, this rule \
                 looks at init and ephemeral containers too"
                    .to_owned(),
            );
        }
        let containers = serde_json::from_value(Value::Array(containers))
            .map_err(|error| format!("containers: {error}"))?;
        let origin = match self.cfg_type.as_str() {
            "federal" => Origin::Federal,
            "ground" => Origin::Ground,
            _ if federal => Origin::Federal,
            _ => Origin::UserCreated,
        };
        let criteria = self.criteria.into_iter().map(criterion).collect::<Result<_, _>>()?;
        let spec = AdmissionRuleSpec {
            comment: self.comment,
            action,
            mode,
            containers,
            criteria,
            category: Default::default(),
            disabled: self.disabled || self.disable,
            origin,
            critical: self.critical,
        };
        Ok((spec, notes))
    }
}

fn criterion(value: Value) -> Result<Criterion, String> {
    let mut criterion: Criterion =
        serde_json::from_value(value).map_err(|error| format!("a criterion: {error}"))?;
    match criterion.op.as_str() {
        "regexContainsAny" => "regex".clone_into(&mut criterion.op),
        "!regexContainsAny" => "!regex".clone_into(&mut criterion.op),
        _ => {}
    }
    // NeuVector repeats the name as path and type of criteria that have neither.
    let own = [criterion.name.clone(), String::new()];
    if criterion.kind != "customPath" && criterion.name != "customPath" {
        for field in [&mut criterion.path, &mut criterion.kind] {
            if own.contains(field) && *field != "saBindRiskyRole" {
                field.clear();
            }
        }
    }
    Ok(criterion)
}
