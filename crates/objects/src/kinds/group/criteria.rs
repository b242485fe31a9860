//! `GroupCriteria`: the criteria of a group, compiled.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::{GroupCriterion, GroupKey, GroupOp, network};
use crate::kinds::admission_rule::{Regex, regex};
use crate::store::Invalid;

type Labels = BTreeMap<String, String>;

/// A workload, as criteria look at it.
#[derive(Clone, Copy, Debug)]
pub struct GroupSubject<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// Kind and name of its uppermost owner; none of a pod by itself.
    pub owner: Option<&'a str>,
    pub node: &'a str,
    pub images: &'a [String],
    pub labels: &'a Labels,
    pub addresses: &'a [IpAddr],
    /// The services that select it.
    pub services: &'a [Arc<str>],
    /// None if the namespace is not known.
    pub namespace_labels: Option<&'a Labels>,
}

/// The criteria of a group: for each key, one must hold.
#[derive(Debug)]
pub struct GroupCriteria(Vec<KeyCriteria>);

/// The criteria of one key; of labels, of one label.
#[derive(Debug)]
struct KeyCriteria {
    key: GroupKey,
    label: Option<String>,
    /// One must hold, if there are any.
    positive: Vec<Test>,
    /// None may hold.
    negative: Vec<Test>,
}

#[derive(Debug)]
enum Test {
    Equals(String),
    Contains(String),
    Begins(String),
    Matches(Box<Regex>),
    Within(IpNet),
}

impl GroupCriteria {
    pub fn compile(criteria: &[GroupCriterion]) -> Result<Self, Invalid> {
        let mut keys: Vec<KeyCriteria> = Vec::new();
        let mut problems = Invalid::default();
        for (i, criterion) in criteria.iter().enumerate() {
            let test = match Test::new(criterion) {
                Ok(test) => test,
                Err(problem) => {
                    problems.add(format!("spec.criteria[{i}].value"), problem);
                    continue;
                }
            };
            let GroupCriterion { key, label, op, .. } = criterion;
            let same = |other: &KeyCriteria| other.key == *key && other.label == *label;
            let place = keys.iter().position(same).unwrap_or_else(|| {
                let (positive, negative) = (Vec::new(), Vec::new());
                keys.push(KeyCriteria { key: *key, label: label.clone(), positive, negative });
                keys.len() - 1
            });
            let criteria = &mut keys[place];
            if op.is_negative() { &mut criteria.negative } else { &mut criteria.positive }
                .push(test);
        }
        problems.into_result()?;
        Ok(Self(keys))
    }

    pub fn fits(&self, subject: &GroupSubject<'_>) -> bool {
        self.0.iter().all(|criteria| criteria.holds(subject))
    }

    /// Of what is no workload: only an address is known of it.
    pub fn fits_address(&self, address: IpAddr) -> bool {
        !self.0.is_empty()
            && self.0.iter().all(|criteria| {
                criteria.key == GroupKey::Address
                    && criteria.judge(|test| test.has_address(address))
            })
    }
}

impl KeyCriteria {
    fn holds(&self, subject: &GroupSubject<'_>) -> bool {
        let label = |labels: &Labels, test: &Test| {
            let value = self.label.as_ref().and_then(|label| labels.get(label));
            value.is_some_and(|value| test.is(value))
        };
        self.judge(|test| match self.key {
            GroupKey::Image => subject.images.iter().any(|image| test.is(image)),
            GroupKey::Node => test.is(subject.node),
            GroupKey::Name => test.is(subject.name),
            GroupKey::Service => subject.services.iter().any(|service| test.is(service)),
            GroupKey::Namespace => test.is(subject.namespace),
            GroupKey::Workload => match subject.owner {
                Some(owner) => test.is(owner),
                None => test.is(&format!("Pod/{}", subject.name)),
            },
            GroupKey::Label => label(subject.labels, test),
            GroupKey::NamespaceLabel => {
                subject.namespace_labels.is_some_and(|labels| label(labels, test))
            }
            GroupKey::Address => {
                subject.addresses.iter().any(|it| test.has_address(it.to_canonical()))
            }
            // What a name resolves to is not known of a workload.
            GroupKey::Domain => false,
        })
    }

    fn judge(&self, holds: impl Fn(&Test) -> bool) -> bool {
        (self.positive.is_empty() || self.positive.iter().any(&holds))
            && !self.negative.iter().any(&holds)
    }
}

impl Test {
    fn new(criterion: &GroupCriterion) -> Result<Self, String> {
        let value = criterion.value.clone();
        Ok(match criterion.op {
            _ if criterion.key == GroupKey::Address => {
                Self::Within(network(&value).ok_or("is no address and no network")?)
            }
            GroupOp::Equals | GroupOp::Differs => Self::Equals(value),
            GroupOp::Contains | GroupOp::Lacks => Self::Contains(value),
            GroupOp::Begins | GroupOp::BeginsNot => Self::Begins(value),
            GroupOp::Matches | GroupOp::MatchesNot => Self::Matches(Box::new(regex(&value)?)),
        })
    }

    fn is(&self, text: &str) -> bool {
        match self {
            Self::Equals(value) => text == value,
            Self::Contains(value) => text.contains(value),
            Self::Begins(value) => text.starts_with(value),
            Self::Matches(regex) => regex.is_match(text.as_bytes()),
            Self::Within(_) => false,
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::Within(network) if network.contains(&address))
    }
}
