//! The criteria of a NeuVector group in ours.
//!
//! NeuVector folds the criteria of one key into an OR as soon as one is positive, and all labels of a pod into one
//! key; ours want one positive and no negative of each key and label. So ours stand for the same or for less, never
//! for more.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use objects::kinds::admission_rule::regex;
use objects::kinds::{GroupCriterion, GroupKey, GroupOp, domain};
use serde_json::Value;

/// What pods are made by; one that nothing made is its own.
const MAKERS: &str =
    "Deployment|StatefulSet|DaemonSet|ReplicaSet|ReplicationController|CronJob|Job|Pod";

/// What a group stands for here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) criteria: Vec<GroupCriterion>,
    /// Whether it stands for nothing that it did not stand for.
    pub(crate) is_subset: bool,
    /// Whether it stands for everything that it stood for.
    pub(crate) is_superset: bool,
    pub(crate) notes: Vec<String>,
}

/// The error is a sentence: why there is no such group here.
pub(crate) fn select(criteria: &[Value], pod_networks: &[IpNet]) -> Result<Selection, String> {
    if criteria.is_empty() {
        return Err("it has no criteria".to_owned());
    }
    if criteria.iter().any(|criterion| text(criterion, "key") == "address") {
        return addresses(criteria, pod_networks);
    }
    let mut selection = Selection { is_subset: true, is_superset: true, ..Selection::default() };
    let keys: Vec<&str> = criteria.iter().map(|criterion| text(criterion, "key")).collect();
    if keys.contains(&"domain") && keys.contains(&"namespace") {
        return Err(
            "it asks for both domain and namespace, which were combined otherwise".to_owned()
        );
    }
    for criterion in criteria {
        one(criterion, &mut selection)?;
    }
    combined(&mut selection);
    Ok(selection)
}

fn text<'a>(criterion: &'a Value, field: &str) -> &'a str {
    criterion[field].as_str().unwrap_or_default()
}

fn one(criterion: &Value, selection: &mut Selection) -> Result<(), String> {
    let (key, op, value) =
        (text(criterion, "key"), text(criterion, "op"), text(criterion, "value"));
    let (key, label) = match key {
        "image" => (GroupKey::Image, None),
        "node" => (GroupKey::Node, None),
        "domain" | "namespace" => (GroupKey::Namespace, None),
        "service" => return service(op, value, selection),
        "container" => return Err("containers are not told apart by name here".to_owned()),
        "" => return Err("a criterion has no key".to_owned()),
        label => match label.strip_prefix("ns:") {
            Some(label) => (GroupKey::NamespaceLabel, Some(label.to_owned())),
            None => (GroupKey::Label, Some(label.to_owned())),
        },
    };
    let (op, value) = match (op, value) {
        ("=", "any") => (GroupOp::Matches, "^".to_owned()),
        ("=", value) if has_wildcard(value) => (GroupOp::Matches, wildcard(value)),
        ("!=", value) if has_wildcard(value) => (GroupOp::MatchesNot, wildcard(value)),
        ("=", value) => (GroupOp::Equals, value.to_owned()),
        ("!=", value) => (GroupOp::Differs, value.to_owned()),
        ("contains", value) => (GroupOp::Contains, value.to_owned()),
        ("prefix", value) => (GroupOp::Begins, value.to_owned()),
        ("regex", value) => (GroupOp::Matches, value.to_owned()),
        ("!regex", value) => (GroupOp::MatchesNot, value.to_owned()),
        (other, _) => return Err(format!("the operator {other:?} is not known")),
    };
    if matches!(op, GroupOp::Matches | GroupOp::MatchesNot)
        && let Err(why) = regex(&value)
    {
        return Err(format!("{value:?} is no regular expression here: {why}"));
    }
    if value.is_empty() {
        return Err("a criterion has no value".to_owned());
    }
    selection.criteria.push(GroupCriterion { key, label, op, value });
    Ok(())
}

fn has_wildcard(value: &str) -> bool {
    value.contains(['*', '?'])
}

/// As NeuVector makes a regular expression of it, what it does not escape included.
fn wildcard(value: &str) -> String {
    format!("^{}$", value.replace('.', "\\.").replace('?', ".").replace('*', ".*"))
}

/// NeuVector's services are workloads, named NAME.NAMESPACE after what made the pods.
fn service(op: &str, value: &str, selection: &mut Selection) -> Result<(), String> {
    let wrong = || format!("the service {op} {value:?} cannot be told by what made its pods");
    let (name, namespace) = value.rsplit_once('.').ok_or_else(wrong)?;
    let plain = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if op != "=" || !plain(name) || !plain(namespace) {
        return Err(wrong());
    }
    if selection.criteria.iter().any(|it| it.key == GroupKey::Workload) {
        return Err("it asks for several services, which may be in several namespaces".to_owned());
    }
    let owner = format!("^({MAKERS})/{name}$");
    for (key, op, value) in [
        (GroupKey::Namespace, GroupOp::Equals, namespace.to_owned()),
        (GroupKey::Workload, GroupOp::Matches, owner),
    ] {
        let criterion = GroupCriterion { key, label: None, op, value };
        if !selection.criteria.contains(&criterion) {
            selection.criteria.push(criterion);
        }
    }
    selection.is_superset = false;
    selection.notes.push(format!("the service {value} is told by what made its pods"));
    Ok(())
}

/// Where the two ways of combining criteria differ, ours stands for less; it says so, and is mended where it would
/// stand for more: NeuVector wants a label to be there before it may have another value.
fn combined(selection: &mut Selection) {
    let of_label =
        |it: &GroupCriterion| matches!(it.key, GroupKey::Label | GroupKey::NamespaceLabel);
    let mut present = Vec::new();
    let mut mixed = false;
    let mut several = [BTreeSet::new(), BTreeSet::new()];
    let mut namespaces = 0;
    for criterion in &selection.criteria {
        let same =
            |other: &&GroupCriterion| other.key == criterion.key && other.label == criterion.label;
        let of_key: Vec<_> = selection.criteria.iter().filter(same).collect();
        let negative = of_key.iter().filter(|it| it.op.is_negative()).count();
        mixed |= negative > 0 && negative < of_key.len();
        if of_label(criterion) {
            several[usize::from(criterion.key == GroupKey::Label)].insert(criterion.label.clone());
            if negative == of_key.len() {
                let label = criterion.label.clone();
                let value = "^".to_owned();
                present.push(GroupCriterion {
                    key: criterion.key,
                    label,
                    op: GroupOp::Matches,
                    value,
                });
            }
        }
        namespaces +=
            usize::from(criterion.key == GroupKey::Namespace && !criterion.op.is_negative());
    }
    let by_service = selection.criteria.iter().any(|it| it.key == GroupKey::Workload);
    if by_service && namespaces > 1 {
        // Another namespace may be asked for beside the service's: ours would take either.
        let equal: BTreeSet<_> = selection
            .criteria
            .iter()
            .filter(|it| it.key == GroupKey::Namespace && it.op == GroupOp::Equals)
            .map(|it| it.value.clone())
            .collect();
        if equal.len() != 1
            || namespaces
                > selection
                    .criteria
                    .iter()
                    .filter(|it| it.key == GroupKey::Namespace && it.op == GroupOp::Equals)
                    .count()
        {
            selection.is_subset = false;
            selection.notes.push("it asks for a service and for other namespaces".to_owned());
        }
    }
    if !present.is_empty() {
        selection.is_superset = false;
    }
    for criterion in present {
        if !selection.criteria.contains(&criterion) {
            selection.criteria.push(criterion);
        }
    }
    if mixed {
        selection.is_superset = false;
        selection
            .notes
            .push("of positive and negative criteria of one key both must hold here".to_owned());
    }
    if several.iter().any(|labels| labels.len() > 1) {
        selection.is_superset = false;
        selection.notes.push("all of its labels must hold here, where one was enough".to_owned());
    }
}

fn addresses(criteria: &[Value], pod_networks: &[IpNet]) -> Result<Selection, String> {
    let mut selection = Selection { is_subset: true, is_superset: true, ..Selection::default() };
    let mut names = Vec::new();
    for criterion in criteria {
        let (key, op, value) =
            (text(criterion, "key"), text(criterion, "op"), text(criterion, "value"));
        if key != "address" {
            return Err("addresses and what else is asked for stood for nothing".to_owned());
        }
        if op != "=" {
            return Err(format!("addresses with {op:?} cannot be listed"));
        }
        // A list of which one is no address is a name there.
        let listed: Option<Vec<_>> = value.split(',').map(networks).collect();
        let Some(listed) = listed else {
            names.push(name(value)?);
            continue;
        };
        for network in listed.into_iter().flatten() {
            if pod_networks.iter().any(|pods| pods.contains(&network) || network.contains(pods)) {
                selection.is_subset = false;
            }
            add(&mut selection.criteria, GroupKey::Address, network.to_string());
        }
    }
    if !selection.is_subset {
        let why = "its addresses may be of pods, which NeuVector's never were; name the networks of pods with \
                   --pod-networks";
        selection.notes.push(why.to_owned());
    }
    if !names.is_empty() {
        // Both resolve a name; ours when a pod asks for it, NeuVector by itself too.
        selection.is_superset = false;
        selection.notes.push(match selection.criteria.is_empty() {
            true => {
                "it has what pods of a node that enforces policies resolve the names to".to_owned()
            }
            false => format!("{} left out: names need a group of their own here", names.join(", ")),
        });
    }
    if selection.criteria.is_empty() {
        names.into_iter().for_each(|name| add(&mut selection.criteria, GroupKey::Domain, name));
    }
    if selection.criteria.len() > 64 {
        return Err("it has more than 64 networks or names".to_owned());
    }
    Ok(selection)
}

fn add(criteria: &mut Vec<GroupCriterion>, key: GroupKey, value: String) {
    let criterion = GroupCriterion { key, label: None, op: GroupOp::Equals, value };
    if !criteria.contains(&criterion) {
        criteria.push(criterion);
    }
}

/// A domain name, or every name below one, as NeuVector reads it.
fn name(value: &str) -> Result<String, String> {
    if value.starts_with("vh:") {
        let why = "is for the host that a request names, which is not looked at here";
        return Err(format!("{value:?} {why}"));
    }
    let name = domain(value).map_err(|why| format!("{why}, nor an address, network or range"))?;
    match name.strip_prefix("*.") {
        Some(parent) if !parent.contains('.') => {
            Err(format!("{value:?} stands for nothing in NeuVector: it has one label"))
        }
        _ => Ok(name),
    }
}

fn networks(value: &str) -> Option<Vec<IpNet>> {
    if let Some((first, last)) = value.split_once('-') {
        return match (first.trim().parse().ok()?, last.trim().parse().ok()?) {
            (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
                Some(Ipv4Subnets::new(first, last, 0).map(IpNet::V4).collect())
            }
            (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
                Some(Ipv6Subnets::new(first, last, 0).map(IpNet::V6).collect())
            }
            _ => None,
        };
    }
    let network =
        value.parse::<IpNet>().or_else(|_| value.parse::<IpAddr>().map(IpNet::from)).ok()?;
    Some(vec![network.trunc()])
}
