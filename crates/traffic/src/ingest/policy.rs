//! `Policies`: rules and groups compiled as they change, for the shards and for agents.
//!
//! Contract: a change is compiled within [`PACE`] and a little, however many come. A rule that is not
//! valid decides nothing and says why; the others go on.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use objects::kinds::{GroupMode, GroupName, NetworkRule};
use objects::{Index, Kind};
use stallproof::{Map, Snapshot, Tasks};
use tracing::warn;

use super::agent_policy::AgentPolicy;
use super::inventory::Inventory;
use super::learner::LearnedView;
use crate::conversations::{Judge, Moment};
use crate::groups::Groups;
use crate::names::Names;
use crate::rules::{Policy, Program};

/// The least time from one compilation to the next: pods come and go all the time.
const PACE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub(super) struct Policies {
    /// Written by the watch.
    pub(super) rules: Snapshot<WrittenRules>,
    /// Written when rules or groups change, read by the agents' streams.
    pub(super) agent_policy: Snapshot<AgentPolicy>,
}

/// The network rules of the store.
#[derive(Clone, Debug, Default)]
pub struct WrittenRules {
    by_name: Map<Arc<str>, Arc<WrittenRule>>,
    /// Whether the store has told everything once.
    pub synced: bool,
}

/// A network rule of the store.
#[derive(Clone, Debug)]
pub struct WrittenRule {
    pub rule: NetworkRule,
    /// Why it decides nothing, if it is not valid.
    pub wrong: Option<String>,
}

impl WrittenRules {
    /// All rules, in the order in which they are looked at.
    pub fn list(&self) -> Vec<&Arc<WrittenRule>> {
        let mut all: Vec<_> = self.by_name.values().collect();
        all.sort_by_key(|written| (written.rule.spec.priority, written.rule.name_any()));
        all
    }

    pub fn get(&self, name: &str) -> Option<&Arc<WrittenRule>> {
        self.by_name.get(name)
    }

    /// The rules that are valid.
    pub fn valid(&self) -> Vec<NetworkRule> {
        let valid = self.by_name.values().filter(|written| written.wrong.is_none());
        valid.map(|written| written.rule.clone()).collect()
    }
}

impl Index<NetworkRule> for WrittenRules {
    fn reset(&mut self, all: Vec<NetworkRule>) -> bool {
        *self = Self { by_name: Map::new(), synced: true };
        all.into_iter().for_each(|rule| _ = self.apply(rule));
        true
    }

    fn apply(&mut self, rule: NetworkRule) -> bool {
        let wrong = rule.check().err().map(|problems| problems.to_string());
        self.by_name.insert(rule.name_any().into(), Arc::new(WrittenRule { rule, wrong }));
        true
    }

    fn delete(&mut self, rule: NetworkRule) -> bool {
        self.by_name.remove(rule.name_any().as_str()).is_some()
    }
}

impl WrittenRule {
    /// Names a group that the rule speaks of and that is not there: the rule decides about nobody.
    pub fn missing(&self, groups: &Groups) -> Option<String> {
        let named = |text: &'_ str| match GroupName::parse(text) {
            Ok(GroupName::Made(name)) if groups.made(name).is_none() => Some(name.to_owned()),
            _ => None,
        };
        let missing = named(&self.rule.spec.from).or_else(|| named(&self.rule.spec.to))?;
        Some(format!("there is no group {missing:?}"))
    }
}

impl Policies {
    pub(super) fn start(
        judge: Snapshot<Arc<dyn Judge>>,
        inventory: Snapshot<Inventory>,
        learned: Snapshot<LearnedView>,
        names: Names,
        mode: GroupMode,
        tasks: &Tasks,
    ) -> Self {
        let rules = Snapshot::default();
        let agent_policy = Snapshot::new(AgentPolicy::new(mode));
        let policies = Self { rules, agent_policy };
        let keeping = policies.clone().keep(judge, inventory, learned, names, tasks.clone());
        tasks.spawn_essential("guard-policy", keeping);
        policies
    }

    async fn keep(
        self,
        judge: Snapshot<Arc<dyn Judge>>,
        inventory: Snapshot<Inventory>,
        learned: Snapshot<LearnedView>,
        names: Names,
        tasks: Tasks,
    ) {
        let stop = tasks.stopping();
        let (mut inventories, mut lessons) = (inventory.subscribe(), learned.subscribe());
        let mut written = self.rules.subscribe();
        let (mut program, mut of) = (Program::default(), None);
        loop {
            let (rules, lesson, known) = (self.rules.load(), learned.load(), inventory.load());
            let now = (rules.generation(), lesson.generation());
            if of != Some(now) {
                match Program::compile(&rules.valid(), &lesson.rules) {
                    Ok(compiled) => program = compiled,
                    // Invalid rules were left out already.
                    Err(problems) => warn!(%problems, "the network rules cannot be compiled"),
                }
                of = Some(now);
            }
            let groups = known.groups.clone();
            let policy = Policy { program: program.clone(), groups, names: names.clone() };
            judge.update(|judge| {
                *judge = Arc::new(policy);
                true
            });
            self.agent_policy.update(|policy| {
                policy.become_current(&rules.valid(), &lesson.rules, &known, Moment::now())
            });
            let changed = async {
                tokio::select! {
                    _ = inventories.changed() => {}
                    _ = lessons.changed() => {}
                    _ = written.changed() => {}
                }
                tokio::time::sleep(PACE).await;
            };
            if stop.bound(changed).await.is_none() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
