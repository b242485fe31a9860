//! Policies as a list, in the order in which they decide.

use serde::Serialize;

use crate::cluster::{Cluster, Pod};
use crate::program::TierKind;
use crate::spec::{Policies, is_labelled_apart};

/// A policy of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    pub tier: String,
    pub priority: Option<i32>,
    pub kind: String,
    /// With its namespace if it has one.
    pub policy: String,
    /// How many pods it selects.
    pub pods: usize,
    /// What it says about ingress, in words.
    pub ingress: String,
    pub egress: String,
}

pub fn rows(cluster: &Cluster, policies: &Policies) -> Vec<Row> {
    let pods = |selects: &dyn Fn(&Pod) -> bool| {
        cluster.pods.values().filter(|pod| pod.is_selectable() && selects(pod)).count()
    };
    let labels = |pod: &Pod| cluster.namespaces.get(&pod.key.namespace);
    let mut rows = Vec::new();
    let mut apart = |kind: &str, policy: &str, pods: usize| {
        rows.push(Row {
            tier: TierKind::Quarantine.to_string(),
            priority: None,
            kind: kind.to_owned(),
            policy: policy.to_owned(),
            pods,
            ingress: "denies everything".to_owned(),
            egress: "denies everything".to_owned(),
        });
    };
    let in_group = |pod: &Pod, name: &str| {
        policies.groups_of(cluster, pod).iter().any(|group| *group.name == *name)
    };
    let labelled = pods(&|pod| is_labelled_apart(pod, labels(pod)));
    if labelled > 0 {
        apart("label", crate::spec::QUARANTINE, labelled);
    }
    for group in policies.groups.values().filter(|group| group.quarantine) {
        apart("Group", &group.name, pods(&|pod| in_group(pod, &group.name)));
    }
    rows.extend(of_tier(cluster, policies, TierKind::Admin));
    for (key, policy) in &policies.network {
        let says = |rules: Option<&Vec<crate::spec::AcceptRule>>| match rules.map(Vec::len) {
            None => "-".to_owned(),
            Some(0) => "accepts nothing".to_owned(),
            Some(1) => "accepts 1 rule".to_owned(),
            Some(count) => format!("accepts {count} rules"),
        };
        rows.push(Row {
            tier: TierKind::NetworkPolicy.to_string(),
            priority: None,
            kind: "NetworkPolicy".to_owned(),
            policy: key.to_string(),
            pods: pods(&|pod| policy.selects(pod)),
            ingress: says(policy.ingress.as_ref()),
            egress: says(policy.egress.as_ref()),
        });
    }
    for group in policies.groups.values().filter(|group| group.mode.is_some()) {
        let mode = group.mode.map(|mode| mode.to_string()).unwrap_or_default();
        rows.push(Row {
            tier: TierKind::Guard.to_string(),
            priority: None,
            kind: "Group".to_owned(),
            policy: group.name.to_string(),
            pods: pods(&|pod| in_group(pod, &group.name)),
            ingress: mode.clone(),
            egress: mode,
        });
    }
    for rule in policies.guard_rules() {
        let word = if rule.allows { "allows" } else { "denies" };
        rows.push(Row {
            tier: TierKind::Guard.to_string(),
            priority: Some(rule.priority),
            kind: "NetworkRule".to_owned(),
            policy: rule.name.to_string(),
            pods: 0,
            ingress: format!("{word} from {}", rule.from),
            egress: format!("{word} to {}", rule.to),
        });
    }
    rows.extend(of_tier(cluster, policies, TierKind::Baseline));
    rows
}

fn of_tier(cluster: &Cluster, policies: &Policies, tier: TierKind) -> Vec<Row> {
    let rows = policies.in_order(tier).into_iter().map(|policy| {
        let says = |count: usize| match count {
            0 => "-".to_owned(),
            1 => "1 rule".to_owned(),
            count => format!("{count} rules"),
        };
        let selected = cluster
            .pods
            .values()
            .filter(|pod| policy.subject.selects(pod, cluster.namespaces.get(&pod.key.namespace)));
        Row {
            tier: tier.to_string(),
            priority: Some(policy.priority),
            kind: policy.kind.to_string(),
            policy: policy.name.to_string(),
            pods: selected.count(),
            ingress: says(policy.ingress.len()),
            egress: says(policy.egress.len()),
        }
    });
    rows.collect()
}
