//! `Rules`: the rules of the store, compiled as they change.
//!
//! Contract: `apply`, `delete` and `reset` take rules as the store tells them, in any order, and the
//! outcome depends only on what is there in the end. Within a layer and an action, rules stand in the
//! order of their names. A rule that is not right decides nothing and says why; the others go on. A
//! rule is compiled once, when it comes or changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use objects::kinds::AdmissionRule;
use objects::kinds::admission_rule::{AdmissionRuleSpec, LONGEST_WHY, Mode, RuleState};
use objects::{Index, Kind};

use super::compile::{Compiled, Program, Settings, layer, needs};

/// A rule of the store, and what became of it.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: String,
    pub spec: AdmissionRuleSpec,
    pub state: RuleState,
    /// What is wrong with it, or hardly what was meant.
    pub why: Option<String>,
    /// Of a deny rule: whether a match refuses, rather than being recorded.
    pub protect: bool,
    /// As the store has it, for who writes its status.
    pub(super) stored: Arc<AdmissionRule>,
    layer: (u8, bool),
    compiled: Option<Arc<Compiled>>,
}

#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(super) program: Program,
    by_name: BTreeMap<String, Arc<Listed>>,
    /// Whether the store has told all it has.
    told: bool,
}

impl Rules {
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// In the order in which they are decided; those that are not looked at in their places.
    pub fn list(&self) -> Vec<&Arc<Listed>> {
        let mut listed: Vec<_> = self.by_name.values().collect();
        listed.sort_by_key(|rule| rule.layer);
        listed
    }

    pub(super) fn reset(&mut self, rules: Vec<AdmissionRule>, settings: &Settings) {
        let mut before = std::mem::take(&mut self.by_name);
        for rule in rules {
            let known = before.remove(&rule.name_any());
            let listed = Listed::new(rule, known.as_deref(), settings);
            self.by_name.insert(listed.name.clone(), Arc::new(listed));
        }
        self.told = true;
        self.order();
    }

    pub(super) fn apply(&mut self, rule: AdmissionRule, settings: &Settings) {
        let known = self.by_name.get(&rule.name_any());
        let listed = Listed::new(rule, known.map(|known| &**known), settings);
        self.by_name.insert(listed.name.clone(), Arc::new(listed));
        self.order();
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.by_name.remove(name);
        self.order();
    }

    fn order(&mut self) {
        let compiled = self.by_name.values().filter_map(|rule| rule.compiled.clone());
        self.program = Program::of(compiled.collect());
    }

    /// How many there are in a state.
    pub(super) fn count(&self, state: RuleState) -> usize {
        self.by_name.values().filter(|rule| rule.state == state).count()
    }
}

/// The rules while an event of the store is taken in.
#[derive(Debug)]
pub(super) struct Compiling<'a>(pub(super) &'a mut Rules, pub(super) &'a Settings);

impl Index<AdmissionRule> for Compiling<'_> {
    fn reset(&mut self, all: Vec<AdmissionRule>) -> bool {
        self.0.reset(all, self.1);
        true
    }

    fn apply(&mut self, rule: AdmissionRule) -> bool {
        self.0.apply(rule, self.1);
        true
    }

    fn delete(&mut self, rule: AdmissionRule) -> bool {
        self.0.delete(&rule.name_any());
        true
    }
}

impl Listed {
    fn new(rule: AdmissionRule, known: Option<&Self>, settings: &Settings) -> Self {
        if let Some(known) = known.filter(|known| known.spec == rule.spec) {
            return Self { stored: Arc::new(rule), ..known.clone() };
        }
        let name = rule.name_any();
        let (state, why) = match rule.check().and_then(|()| needs(&rule, settings)) {
            Err(problems) => (RuleState::Invalid, Some(problems.to_string())),
            Ok(()) => {
                let warnings = rule.spec.warnings().into_iter();
                let warnings: Vec<_> =
                    warnings.map(|(field, warning)| format!("{field}: {warning}")).collect();
                let state =
                    if rule.spec.disabled { RuleState::Disabled } else { RuleState::Active };
                (state, (!warnings.is_empty()).then(|| warnings.join("; ")))
            }
        };
        let compiled = (state == RuleState::Active)
            .then(|| Arc::new(Compiled::new(name.clone(), &rule, settings)));
        Self {
            name,
            spec: rule.spec.clone(),
            state,
            why: why.map(|why| why.chars().take(LONGEST_WHY).collect()),
            protect: match rule.spec.mode {
                Mode::Global => settings.protect,
                Mode::Monitor => false,
                Mode::Protect => true,
            },
            layer: layer(&rule),
            stored: Arc::new(rule),
            compiled,
        }
    }
}

#[cfg(test)]
mod tests;
