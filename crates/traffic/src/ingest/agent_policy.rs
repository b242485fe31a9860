//! `AgentPolicy`: the rules and groups for agents: by address alone, since an agent knows no pods but its
//! own node's.
//!
//! Contract: only groups that a rule speaks of, or that have a mode, are sent. What did not change
//! is the same allocation in the next version, so that a difference is found by looking at pointers.
//! A version is never used for two contents, whatever restarts in between.
//!
//! Nothing is enforced by agents yet: they tell by these rules what to keep when there is too much.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use kube::ResourceExt;
use objects::kinds::{
    GroupKey, GroupMode, GroupName, GroupSpec, NetworkRule, Ports, RuleAction, network,
};
use stallproof::Map;

use super::inventory::Inventory;
use crate::conversations::Moment;
use crate::rules::LearnedRule;

#[derive(Clone, Debug, PartialEq)]
pub struct AgentPolicy {
    pub version: u64,
    pub rules: Map<Arc<str>, Arc<AgentRule>>,
    pub groups: Map<Arc<str>, Arc<AgentGroup>>,
    /// Of workloads in no group that has a mode.
    pub mode: GroupMode,
}

/// Rules are looked at in the order of `learned`, `priority` and name; the first that speaks of a
/// conversation decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRule {
    pub name: Arc<str>,
    /// Learned rules come after all written ones.
    pub learned: bool,
    pub priority: i32,
    /// Groups by their keys in [`AgentPolicy::groups`].
    pub from: Arc<str>,
    pub to: Arc<str>,
    /// None is all.
    pub ports: Vec<Ports>,
    pub applications: Vec<String>,
    pub allows: bool,
}

/// An address is in it that is in one of `networks` and in none of `except`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentGroup {
    pub networks: Vec<IpNet>,
    pub except: Vec<IpNet>,
    pub mode: Option<GroupMode>,
}

impl AgentGroup {
    pub fn has(&self, address: IpAddr) -> bool {
        let within = |networks: &[IpNet]| networks.iter().any(|it| it.contains(&address));
        within(&self.networks) && !within(&self.except)
    }
}

impl AgentPolicy {
    pub(super) fn new(mode: GroupMode) -> Self {
        Self { version: 0, rules: Map::new(), groups: Map::new(), mode }
    }

    /// Says whether it became another.
    pub(super) fn become_current(
        &mut self,
        written: &[NetworkRule],
        learned: &[LearnedRule],
        inventory: &Inventory,
        now: Moment,
    ) -> bool {
        let mut rules: BTreeMap<_, _> = learned.iter().map(AgentRule::from).map(by_name).collect();
        // One that was promoted has the name that it had when it was learned.
        let written = written.iter().filter(|it| !it.spec.disabled);
        rules.extend(written.map(AgentRule::from).map(by_name));
        let groups = groups(rules.values(), inventory);
        let changed = replace(&mut self.rules, rules) | replace(&mut self.groups, groups);
        if changed {
            // Later than any version of a controller that was here before.
            self.version = (self.version + 1).max(now.0);
        }
        changed
    }
}

/// Keeps what is equal.
fn replace<T: PartialEq>(
    map: &mut Map<Arc<str>, Arc<T>>,
    next: impl IntoIterator<Item = (Arc<str>, T)>,
) -> bool {
    let mut gone: Map<Arc<str>, Arc<T>> = map.clone();
    let mut changed = false;
    for (name, value) in next {
        if gone.remove(&name).is_none_or(|known| *known != value) {
            map.insert(name, Arc::new(value));
            changed = true;
        }
    }
    // What was replaced is not gone.
    for (name, before) in &gone {
        if map.get(name).is_some_and(|now| Arc::ptr_eq(now, before)) {
            map.remove(name);
            changed = true;
        }
    }
    changed
}

fn by_name(rule: AgentRule) -> (Arc<str>, AgentRule) {
    (Arc::clone(&rule.name), rule)
}

impl From<&NetworkRule> for AgentRule {
    fn from(rule: &NetworkRule) -> Self {
        let spec = &rule.spec;
        Self {
            name: rule.name_any().into(),
            learned: false,
            priority: spec.priority,
            from: spec.from.as_str().into(),
            to: spec.to.as_str().into(),
            ports: spec.ports.iter().filter_map(|text| text.parse().ok()).collect(),
            applications: spec.applications.clone(),
            allows: spec.action == RuleAction::Allow,
        }
    }
}

impl From<&LearnedRule> for AgentRule {
    fn from(rule: &LearnedRule) -> Self {
        Self {
            name: rule.name().into(),
            learned: true,
            priority: 0,
            from: Arc::clone(&rule.from),
            to: Arc::clone(&rule.to),
            ports: rule.ports.clone(),
            applications: Vec::new(),
            allows: true,
        }
    }
}

impl AgentRule {
    /// Rules decide in this order.
    pub fn order(&self) -> (bool, i32, &str) {
        (self.learned, self.priority, &self.name)
    }
}

/// Those that a rule speaks of, and those with a mode.
fn groups<'a>(
    rules: impl Iterator<Item = &'a AgentRule>,
    inventory: &Inventory,
) -> BTreeMap<Arc<str>, AgentGroup> {
    let mut groups: BTreeMap<Arc<str>, AgentGroup> = BTreeMap::new();
    for name in rules.flat_map(|rule| [&rule.from, &rule.to]) {
        if groups.contains_key(name) {
            continue;
        }
        let group = match GroupName::parse(name) {
            Ok(GroupName::Reserved(word)) => reserved(word, inventory),
            Ok(GroupName::Made(name)) => made(name, inventory),
            // Filled below.
            Ok(GroupName::Learned { .. }) => AgentGroup::default(),
            Err(_) => continue,
        };
        groups.insert(Arc::clone(name), group);
    }
    for group in inventory.groups.all_made().iter().filter(|made| made.mode.is_some()) {
        let shipped = || made(&group.name, inventory);
        groups.entry(Arc::clone(&group.name)).or_insert_with(shipped).mode = group.mode;
    }
    for (pod, membership) in inventory.groups.all() {
        let learned: Arc<str> = format!("{}/{}", pod.namespace, pod.owner()).into();
        for name in membership.groups.iter().chain([&learned]) {
            if let Some(group) = groups.get_mut(name) {
                group.networks.extend(pod.addresses.iter().copied().map(single));
            }
        }
    }
    for group in groups.values_mut() {
        group.networks.sort();
        group.networks.dedup();
    }
    groups
}

fn reserved(word: &str, inventory: &Inventory) -> AgentGroup {
    let workloads = || inventory.groups.all().flat_map(|(pod, _)| pod.addresses.iter().copied());
    let inner = || inventory.services().flat_map(|it| it.cluster_addresses.iter().copied());
    let outer = || inventory.services().flat_map(|it| it.ingress_addresses.iter().copied());
    let known = || workloads().chain(inventory.hosts()).chain(inner()).chain(outer()).map(single);
    let all = |addresses: &mut dyn Iterator<Item = IpAddr>| addresses.map(single).collect();
    let (networks, except): (Vec<IpNet>, Vec<IpNet>) = match word {
        "any" => (everything(), Vec::new()),
        "workloads" => (all(&mut workloads()), Vec::new()),
        "hosts" => (all(&mut inventory.hosts()), Vec::new()),
        "services" => (all(&mut inner()), Vec::new()),
        "ingress" => (all(&mut outer()), Vec::new()),
        "external" => (everything(), known().chain(inventory.ranges()).collect()),
        _ => (inventory.ranges(), known().collect()),
    };
    let mut group = AgentGroup { networks, except, mode: None };
    group.except.sort();
    group.except.dedup();
    group
}

/// What it says of addresses; its workloads are added by who calls.
fn made(name: &str, inventory: &Inventory) -> AgentGroup {
    let Some(made) = inventory.groups.made(name) else { return AgentGroup::default() };
    let GroupSpec { criteria, .. } = &made.spec;
    if criteria.iter().any(|criterion| criterion.key != GroupKey::Address) {
        return AgentGroup { mode: made.mode, ..AgentGroup::default() };
    }
    let (mut networks, mut except) = (Vec::new(), Vec::new());
    for criterion in criteria {
        let list = if criterion.op.is_negative() { &mut except } else { &mut networks };
        list.extend(network(&criterion.value));
    }
    if networks.is_empty() {
        networks = everything();
    }
    AgentGroup { networks, except, mode: made.mode }
}

fn single(address: IpAddr) -> IpNet {
    address.to_canonical().into()
}

fn everything() -> Vec<IpNet> {
    [IpAddr::from([0_u8; 4]), IpAddr::from([0_u8; 16])]
        .into_iter()
        .filter_map(|address| IpNet::new(address, 0).ok())
        .collect()
}

#[cfg(test)]
mod tests;
