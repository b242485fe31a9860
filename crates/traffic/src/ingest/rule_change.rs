//! `RuleChange`: what brings an agent's rules and groups from one version to the next.

use std::sync::Arc;

use objects::kinds::GroupMode;

use super::{AgentGroup, AgentPolicy, AgentRule};

/// What changed of rules and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChange {
    pub version: u64,
    /// What was before is void: this is everything.
    pub whole: bool,
    pub rules: Vec<Arc<AgentRule>>,
    pub removed_rules: Vec<Arc<str>>,
    pub groups: Vec<(Arc<str>, Arc<AgentGroup>)>,
    pub removed_groups: Vec<Arc<str>>,
    /// Of workloads in no group that has one.
    pub mode: GroupMode,
}

impl RuleChange {
    /// What brings who has `before` to `now`.
    pub fn between(before: Option<&AgentPolicy>, now: &AgentPolicy) -> Self {
        let rules = now.rules.iter().filter(|(name, rule)| {
            before.and_then(|before| before.rules.get(*name)).is_none_or(|had| had != *rule)
        });
        let groups = now.groups.iter().filter(|(name, group)| {
            before.and_then(|before| before.groups.get(*name)).is_none_or(|had| had != *group)
        });
        let removed_rules = before.iter().flat_map(|before| before.rules.keys());
        let removed_groups = before.iter().flat_map(|before| before.groups.keys());
        Self {
            version: now.version,
            whole: before.is_none(),
            rules: rules.map(|(_, rule)| rule.clone()).collect(),
            removed_rules: removed_rules
                .filter(|it| !now.rules.contains_key(*it))
                .cloned()
                .collect(),
            groups: groups.map(|(name, group)| (name.clone(), group.clone())).collect(),
            removed_groups: removed_groups
                .filter(|it| !now.groups.contains_key(*it))
                .cloned()
                .collect(),
            mode: now.mode,
        }
    }

    /// Brings what an agent has up to date.
    pub fn apply(self, policy: &mut AgentPolicy) {
        if self.whole {
            policy.rules.clear();
            policy.groups.clear();
        }
        for name in &self.removed_rules {
            policy.rules.remove(name);
        }
        for name in &self.removed_groups {
            policy.groups.remove(name);
        }
        policy.rules.extend(self.rules.into_iter().map(|rule| (rule.name.clone(), rule)));
        policy.groups.extend(self.groups);
        (policy.version, policy.mode) = (self.version, self.mode);
    }
}
