//! Rules as Kubernetes' own `NetworkPolicy`, for whoever enforces those today.
//!
//! Contract: a policy admits what the rules allow into the workloads it selects, never more without
//! a note that says so. What a policy cannot say is left out with a note: deny rules, applications,
//! ranges of protocols it does not know, groups by image, name, node or expression, and what leaves
//! a workload. A workload whose pods have no label that lasts from one run to the next is left out
//! with a note too: an empty selector would select every pod of the namespace.
//!
//! A policy isolates what it selects: everything that no policy allows is refused. So the rules are
//! to be complete for a group before its policy is applied.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use objects::kinds::{
    GroupCriterion, GroupKey, GroupName, GroupOp, NetworkRule, Ports, Protocol, RuleAction, network,
};

use crate::conversations::Labels;
use crate::groups::Groups;

#[derive(Clone, Debug, Default)]
pub struct Exported {
    /// In the order of namespace and name.
    pub policies: Vec<NetworkPolicy>,
    pub notes: Vec<Note>,
}

/// What a policy does not say as the rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub rule: String,
    pub why: String,
}

/// Every namespace has it, since Kubernetes 1.21.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

const LONGEST_NAME: usize = 253;

/// Labels that controllers put on the pods of one run, one revision or one replica. A selector with
/// one of them would stop selecting at the next run or rollout.
const OF_ONE_RUN: [&str; 9] = [
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
    "controller-uid",
    "job-completion-index",
    "job-name",
    "pod-template-generation",
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];

/// The Job controller's labels: `job-name`, `controller-uid`, `job-completion-index` and what may
/// be added to them.
const OF_JOBS: &str = "batch.kubernetes.io/";

fn is_of_one_run(label: &str) -> bool {
    OF_ONE_RUN.contains(&label) || label.starts_with(OF_JOBS)
}

pub fn export(rules: &[NetworkRule], groups: &Groups) -> Exported {
    let mut exported = Exported::default();
    let mut policies: BTreeMap<(String, String), NetworkPolicy> = BTreeMap::new();
    let mut rules: Vec<_> = rules.iter().filter(|rule| !rule.spec.disabled).collect();
    rules.sort_by_key(|rule| (rule.spec.priority, rule.name_any()));
    for rule in rules {
        let mut notes = Vec::new();
        match entry(rule, groups, &mut notes) {
            Ok((target, ingress)) => {
                let name = policy_name(&rule.spec.to);
                let key = (target.namespace.clone(), name.clone());
                let policy = policies.entry(key).or_insert_with(|| target.policy(name));
                if let Some(spec) = &mut policy.spec {
                    spec.ingress.get_or_insert_default().push(ingress);
                }
            }
            Err(why) => notes.push(why),
        }
        let rule = rule.name_any();
        exported.notes.extend(notes.into_iter().map(|why| Note { rule: rule.clone(), why }));
    }
    exported.policies = policies.into_values().collect();
    exported
}

/// Pods of one namespace.
struct Target {
    namespace: String,
    pods: LabelSelector,
}

impl Target {
    fn policy(&self, name: String) -> NetworkPolicy {
        let metadata = ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        };
        let spec = NetworkPolicySpec {
            pod_selector: Some(self.pods.clone()),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ..NetworkPolicySpec::default()
        };
        NetworkPolicy { metadata, spec: Some(spec) }
    }
}

fn entry(
    rule: &NetworkRule,
    groups: &Groups,
    notes: &mut Vec<String>,
) -> Result<(Target, NetworkPolicyIngressRule), String> {
    let spec = &rule.spec;
    if spec.action == RuleAction::Deny {
        return Err("denies, which a NetworkPolicy cannot: what another rule allows stays allowed"
            .to_owned());
    }
    if !spec.applications.is_empty() {
        return Err("is about applications, which a NetworkPolicy does not know".to_owned());
    }
    let target = target(&spec.to, groups)?;
    if policy_name(&spec.to).len() > LONGEST_NAME {
        return Err(format!("the name of {} is too long for a NetworkPolicy", spec.to));
    }
    let from = peers(&spec.from, groups, notes)?;
    let ports = ports(&spec.ports)?;
    Ok((target, NetworkPolicyIngressRule { from, ports }))
}

fn target(to: &str, groups: &Groups) -> Result<Target, String> {
    let selected = match GroupName::parse(to)? {
        GroupName::Reserved(_) => {
            return Err(format!("is about what enters {to}; only a group's policy can be written"));
        }
        GroupName::Learned { namespace, owner } => learned(namespace, owner, groups)?,
        GroupName::Made(name) => made(name, groups)?,
    };
    let Selected::Pods { namespaces, pods } = selected else {
        return Err(format!("is about what enters {to}, which are addresses and not pods"));
    };
    let namespaces = namespaces.unwrap_or_default();
    let only = namespaces.match_labels.as_ref().filter(|labels| labels.len() == 1);
    let namespace = only.and_then(|labels| labels.get(NAMESPACE_NAME));
    match (namespace, &namespaces.match_expressions) {
        (Some(namespace), None) => Ok(Target { namespace: namespace.clone(), pods }),
        _ => Err(format!("the group {to} is not of one namespace, and a NetworkPolicy is")),
    }
}

fn peers(
    from: &str,
    groups: &Groups,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<NetworkPolicyPeer>>, String> {
    let block = |cidr: &str| NetworkPolicyPeer {
        ip_block: Some(IPBlock { cidr: cidr.to_owned(), except: None }),
        ..NetworkPolicyPeer::default()
    };
    let selected = match GroupName::parse(from)? {
        GroupName::Reserved("any") => return Ok(None),
        GroupName::Reserved("workloads") => {
            let peer = NetworkPolicyPeer {
                namespace_selector: Some(LabelSelector::default()),
                ..NetworkPolicyPeer::default()
            };
            return Ok(Some(vec![peer]));
        }
        GroupName::Reserved("external") => {
            notes.push("a NetworkPolicy has no word for external: it allows every address".into());
            return Ok(Some(vec![block("0.0.0.0/0"), block("::/0")]));
        }
        GroupName::Reserved(name) => {
            return Err(format!("a NetworkPolicy has no word for {name}"));
        }
        GroupName::Learned { namespace, owner } => learned(namespace, owner, groups)?,
        GroupName::Made(name) => made(name, groups)?,
    };
    Ok(Some(match selected {
        Selected::Networks(networks) => networks.iter().map(|cidr| block(cidr)).collect(),
        Selected::Pods { namespaces, pods } => vec![NetworkPolicyPeer {
            // Without one, a peer would be of the policy's own namespace.
            namespace_selector: Some(namespaces.unwrap_or_default()),
            pod_selector: Some(pods),
            ip_block: None,
        }],
    }))
}

enum Selected {
    Pods { namespaces: Option<LabelSelector>, pods: LabelSelector },
    Networks(Vec<String>),
}

/// By the labels that all of its pods have, if no other pod has them.
fn learned(namespace: &str, owner: &str, groups: &Groups) -> Result<Selected, String> {
    let mut common: Option<Labels> = None;
    let is_member = |pod_owner: &Arc<str>| **pod_owner == *owner;
    for pod in groups.workloads(namespace).filter(|pod| is_member(&pod.owner())) {
        let common = common.get_or_insert_with(|| pod.labels.clone());
        common.retain(|key, value| pod.labels.get(key) == Some(value));
    }
    let mut common =
        common.ok_or(format!("{namespace}/{owner} has no pods to take labels from"))?;
    let passing: Vec<_> = common.extract_if(.., |key, _| is_of_one_run(key)).collect();
    if common.is_empty() && !passing.is_empty() {
        let passing: Vec<_> = passing.into_iter().map(|(key, _)| key).collect();
        return Err(format!(
            "the pods of {namespace}/{owner} have only labels of one run or revision in common \
             ({}), which the next one will not have; give its pod template a label of its own",
            passing.join(", ")
        ));
    }
    if common.is_empty() {
        return Err(format!(
            "the pods of {namespace}/{owner} have no label in common; give its pod template one"
        ));
    }
    let strays = |labels: &Labels| common.iter().all(|(key, value)| labels.get(key) == Some(value));
    let others = groups.workloads(namespace).filter(|pod| !is_member(&pod.owner()));
    if let Some(other) = others.into_iter().find(|pod| strays(&pod.labels)) {
        let (other, name) = (other.owner(), format!("{namespace}/{owner}"));
        return Err(format!("the labels of {name} would select {namespace}/{other} as well"));
    }
    let pods = LabelSelector { match_labels: Some(common), match_expressions: None };
    Ok(Selected::Pods { namespaces: Some(namespace_named(namespace)), pods })
}

fn namespace_named(namespace: &str) -> LabelSelector {
    let labels = Labels::from([(NAMESPACE_NAME.to_owned(), namespace.to_owned())]);
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}

fn made(name: &str, groups: &Groups) -> Result<Selected, String> {
    let group = groups.made(name).ok_or(format!("there is no group {name}"))?;
    let criteria = &group.spec.criteria;
    if criteria.iter().all(|it| it.key == GroupKey::Address && it.op == GroupOp::Equals) {
        let networks = criteria.iter().filter_map(|it| network(&it.value));
        return Ok(Selected::Networks(networks.map(|net| net.trunc().to_string()).collect()));
    }
    let (mut pods, mut namespaces) = (Requirements::default(), Requirements::default());
    for criterion in criteria {
        let GroupCriterion { key, label, op, value } = criterion;
        let equal = match op {
            GroupOp::Equals => true,
            GroupOp::Differs => false,
            _ => return Err(format!("the group {name} has a criterion that labels cannot say")),
        };
        let (requirements, key) = match (key, label) {
            (GroupKey::Label, Some(label)) => (&mut pods, label.as_str()),
            (GroupKey::NamespaceLabel, Some(label)) => (&mut namespaces, label.as_str()),
            (GroupKey::Namespace, _) => (&mut namespaces, NAMESPACE_NAME),
            _ => return Err(format!("the group {name} has a criterion that labels cannot say")),
        };
        requirements.add(key, equal, value);
    }
    Ok(Selected::Pods {
        namespaces: namespaces.selector(),
        pods: pods.selector().unwrap_or_default(),
    })
}

/// Values by label, and whether it must have one of them or none.
#[derive(Default)]
struct Requirements(BTreeMap<(String, bool), Vec<String>>);

impl Requirements {
    fn add(&mut self, key: &str, equal: bool, value: &str) {
        self.0.entry((key.to_owned(), equal)).or_default().push(value.to_owned());
    }

    fn selector(self) -> Option<LabelSelector> {
        let (mut labels, mut expressions) = (Labels::new(), Vec::new());
        for ((key, equal), values) in self.0 {
            match (equal, &values[..]) {
                (true, [one]) => _ = labels.insert(key, one.clone()),
                _ => expressions.push(LabelSelectorRequirement {
                    key,
                    operator: if equal { "In" } else { "NotIn" }.to_owned(),
                    values: Some(values),
                }),
            }
        }
        let match_labels = (!labels.is_empty()).then_some(labels);
        let match_expressions = (!expressions.is_empty()).then_some(expressions);
        let any = match_labels.is_some() || match_expressions.is_some();
        any.then_some(LabelSelector { match_labels, match_expressions })
    }
}

fn ports(texts: &[String]) -> Result<Option<Vec<NetworkPolicyPort>>, String> {
    if texts.is_empty() {
        return Ok(None);
    }
    let port = |text: &String| {
        let ports: Ports = text.parse()?;
        let protocol = match ports.protocol {
            Protocol::TCP => "TCP",
            Protocol::UDP => "UDP",
            Protocol::SCTP => "SCTP",
            other => return Err(format!("is about {other}, which a NetworkPolicy does not know")),
        };
        if ports.last == 0 {
            return Err("is about port 0, which a NetworkPolicy does not know".to_owned());
        }
        let one = ports.first == ports.last;
        Ok(NetworkPolicyPort {
            protocol: Some(protocol.to_owned()),
            // Ports begin at one there.
            port: (!ports.is_all()).then(|| IntOrString::Int(ports.first.max(1).into())),
            end_port: (!ports.is_all() && !one).then(|| ports.last.into()),
        })
    };
    texts.iter().map(port).collect::<Result<_, String>>().map(Some)
}

/// A learned group's name has slashes and capitals; a made one may look like what becomes of it.
fn policy_name(group: &str) -> String {
    match group.split_once('/') {
        Some(_) => format!("learned.{}", group.to_ascii_lowercase().replace('/', ".")),
        None => group.to_owned(),
    }
}
