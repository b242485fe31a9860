//! What is enforced where: by node, and by policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use policy::cluster::Pod;
use policy::program::PolicyKind;
use policy::spec::is_labelled_apart;

use crate::compiler::{Facts, PolicyName};

/// What a node that has or had an agent enforces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub node: Arc<str>,
    /// The generation that it acknowledged last; 0 if none is known.
    pub generation: u64,
    /// The generation that it should have; 0 if that is not known yet.
    pub newest: u64,
    /// When it acknowledged that.
    pub acknowledged: Option<Timestamp>,
    pub state: NodeState,
}

/// How far a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It enforces the newest.
    Applied,
    /// It was sent a change so long ago, or is about to be.
    UnderWay(Duration),
    /// It could not enforce what it was sent.
    Failing(String),
    /// It enforces the newest, but netfilter does not see the packets of some of its pods.
    Bypassed(String),
    /// Its agent is not connected: it goes on with what it has.
    Away,
    /// The controller has not read everything yet.
    NotCompiled,
    /// No agent that enforces was ever connected in this term.
    NoAgent,
}

/// A policy, and on which nodes it is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStatus {
    pub policy: PolicyName,
    /// The generation in which it was published as it is now.
    pub generation: u64,
    /// How many pods it selects; none for a rule of guard, which selects by groups.
    pub pods: Option<usize>,
    /// On how many nodes it has pods.
    pub nodes: usize,
    /// On how many of those it is in force.
    pub applied: usize,
    /// The other nodes, with what is waited for.
    pub waiting: Vec<(Arc<str>, NodeState)>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

impl NodeState {
    /// What is waited for, in words; none if nothing is.
    pub fn waits_for(&self) -> Option<String> {
        match self {
            Self::Applied => None,
            Self::UnderWay(since) => {
                Some(format!("its agent to enforce what it was sent {} s ago", since.as_secs()))
            }
            Self::Failing(why) => Some(format!("its agent, which could not enforce it: {why}")),
            Self::Bypassed(why) => Some(format!("packets of its pods to pass netfilter: {why}")),
            Self::Away => Some("its agent to connect again; it enforces what it has".to_owned()),
            Self::NotCompiled => Some("the controller to read all policies and pods".to_owned()),
            Self::NoAgent => Some("an agent with policy.enforce=on; none is connected".to_owned()),
        }
    }
}

/// All nodes that have pods of their own network, or an agent.
pub fn nodes(facts: &Facts, known: Vec<NodeStatus>) -> BTreeMap<Arc<str>, NodeStatus> {
    let pods = facts.inputs.cluster.pods.values().filter(|pod| pod.is_selectable());
    let with_pods = pods.map(|pod| &pod.node).filter(|node| !node.is_empty());
    let mut all: BTreeMap<Arc<str>, NodeStatus> = with_pods
        .map(|node| {
            let none = NodeStatus {
                node: Arc::clone(node),
                generation: 0,
                newest: 0,
                acknowledged: None,
                state: NodeState::NoAgent,
            };
            (Arc::clone(node), none)
        })
        .collect();
    let exists = |node: &NodeStatus| {
        facts.inputs.cluster.nodes.contains_key(&node.node) || node.state != NodeState::Away
    };
    let known = known.into_iter().filter(exists);
    all.extend(known.map(|node| (Arc::clone(&node.node), node)));
    all
}

/// Every policy, in the order of kinds and names.
pub fn policies(facts: &Facts, nodes: &BTreeMap<Arc<str>, NodeStatus>) -> Vec<PolicyStatus> {
    let inputs = &facts.inputs;
    let cluster = &inputs.cluster;
    let selected = |selects: &dyn Fn(&Pod) -> bool| -> (usize, BTreeSet<Arc<str>>) {
        let pods = cluster.pods.values().filter(|pod| pod.is_selectable() && selects(pod));
        let mut count = 0;
        let on = pods.inspect(|_| count += 1).map(|pod| Arc::clone(&pod.node));
        let on = on.filter(|node| !node.is_empty()).collect();
        (count, on)
    };
    let labels = |pod: &Pod| cluster.namespaces.get(&pod.key.namespace);
    let mut all = Vec::new();
    let mut add = |kind, name: Arc<str>, of: Option<(usize, BTreeSet<Arc<str>>)>| {
        let policy = PolicyName { kind, name };
        let generation = facts.published.get(&policy).copied().unwrap_or_default();
        // A rule of guard may decide about anybody.
        let (pods, on) = match of {
            Some((pods, on)) => (Some(pods), on),
            None => (None, nodes.keys().cloned().collect()),
        };
        let state = |node: &Arc<str>| match nodes.get(node) {
            None => NodeState::NoAgent,
            Some(NodeStatus { state: state @ NodeState::Bypassed(_), .. }) => state.clone(),
            // What it has includes the policy as it is now.
            Some(it) if it.generation >= generation.max(1) => NodeState::Applied,
            Some(it) => it.state.clone(),
        };
        let states = on.iter().map(|node| (Arc::clone(node), state(node)));
        let waiting: Vec<_> = states.filter(|(_, state)| *state != NodeState::Applied).collect();
        let applied = on.len() - waiting.len();
        let problem = facts.problems.get(&policy).cloned();
        all.push(PolicyStatus {
            policy,
            generation,
            pods,
            nodes: on.len(),
            applied,
            waiting,
            problem,
        });
    };
    let apart = selected(&|pod| is_labelled_apart(pod, labels(pod)));
    if apart.0 > 0 {
        add(PolicyKind::Quarantine, policy::spec::QUARANTINE.into(), Some(apart));
    }
    for (key, policy) in &inputs.policies.network {
        let of = selected(&|pod| policy.selects(pod));
        add(PolicyKind::NetworkPolicy, key.to_string().into(), Some(of));
    }
    for ((kind, name), policy) in &inputs.policies.cluster {
        let of = selected(&|pod| policy.subject.selects(pod, labels(pod)));
        add(*kind, Arc::clone(name), Some(of));
    }
    for (name, group) in &inputs.policies.groups {
        if group.mode.is_some() || group.quarantine {
            let has = |pod: &Pod| {
                inputs.policies.groups_of(cluster, pod).iter().any(|it| it.name == *name)
            };
            add(PolicyKind::Group, Arc::clone(name), Some(selected(&has)));
        }
    }
    for (learned, name) in inputs.policies.rules.keys() {
        if !learned {
            add(PolicyKind::NetworkRule, Arc::clone(name), None);
        }
    }
    // What could not be read at all has a problem and no place above.
    let listed: BTreeSet<PolicyName> = all.iter().map(|it| it.policy.clone()).collect();
    let unread = facts.problems.iter().filter(|(policy, _)| !listed.contains(policy));
    all.extend(unread.map(|(policy, problem)| PolicyStatus {
        policy: policy.clone(),
        generation: 0,
        pods: None,
        nodes: 0,
        applied: 0,
        waiting: Vec::new(),
        problem: Some(problem.clone()),
    }));
    all
}
