//! The criteria of a group, compiled.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use objects::Invalid;
use objects::kinds::admission_rule::{Regex, regex};
use objects::kinds::{GroupCriterion, GroupKey, GroupOp, network};

use crate::conversations::Labels;

/// What criteria are held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub node: Arc<str>,
    pub images: Vec<String>,
    /// Those that select it.
    pub services: Vec<Arc<str>>,
    pub labels: Labels,
    pub namespace_labels: Arc<Labels>,
    pub addresses: Vec<IpAddr>,
}

/// All folds must hold.
#[derive(Debug)]
pub struct Criteria(Vec<Fold>);

/// The criteria of one key; of labels, of one label.
#[derive(Debug)]
struct Fold {
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

impl Criteria {
    pub fn compile(criteria: &[GroupCriterion]) -> Result<Self, Invalid> {
        let mut folds: Vec<Fold> = Vec::new();
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
            let same = |fold: &Fold| fold.key == *key && fold.label == *label;
            let place = folds.iter().position(same).unwrap_or_else(|| {
                let (positive, negative) = (Vec::new(), Vec::new());
                folds.push(Fold { key: *key, label: label.clone(), positive, negative });
                folds.len() - 1
            });
            let fold = &mut folds[place];
            if op.is_negative() { &mut fold.negative } else { &mut fold.positive }.push(test);
        }
        problems.into_result()?;
        Ok(Self(folds))
    }

    pub fn fits(&self, subject: &Subject) -> bool {
        self.0.iter().all(|fold| fold.holds(subject))
    }

    /// Of what is no workload: only an address is known of it.
    pub fn fits_address(&self, address: IpAddr) -> bool {
        !self.0.is_empty()
            && self.0.iter().all(|fold| {
                fold.key == GroupKey::Address && fold.judge(|test| test.has_address(address))
            })
    }
}

impl Fold {
    fn holds(&self, subject: &Subject) -> bool {
        let label = |labels: &Labels, test: &Test| {
            let value = self.label.as_ref().and_then(|label| labels.get(label));
            value.is_some_and(|value| test.is(value))
        };
        self.judge(|test| match self.key {
            GroupKey::Image => subject.images.iter().any(|image| test.is(image)),
            GroupKey::Node => test.is(&subject.node),
            GroupKey::Name => test.is(&subject.name),
            GroupKey::Service => subject.services.iter().any(|service| test.is(service)),
            GroupKey::Namespace => test.is(&subject.namespace),
            GroupKey::Label => label(&subject.labels, test),
            GroupKey::NamespaceLabel => label(&subject.namespace_labels, test),
            GroupKey::Address => subject.addresses.iter().any(|it| test.has_address(*it)),
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
