//! `customPath`: a path below the pod or pod template that reaches zero or more places.

use objects::kinds::admission_rule::{self as rule, Compare, List, Segment};
use serde_json::Value;

use super::lists::holds;
use crate::glob::Glob;

#[derive(Clone, Debug)]
pub(crate) struct PathTest {
    path: Vec<Segment>,
    op: Op,
}

#[derive(Clone, Debug)]
enum Op {
    Exist,
    NotExist,
    Texts(List, Vec<Glob>),
    Number(Compare, f64),
    Flag(bool),
}

impl PathTest {
    pub(super) fn new(test: rule::PathTest) -> Self {
        let op = match test.op {
            rule::PathOp::Exist => Op::Exist,
            rule::PathOp::NotExist => Op::NotExist,
            rule::PathOp::Texts(list, items) => {
                Op::Texts(list, items.iter().map(|item| Glob::new(item)).collect())
            }
            rule::PathOp::Number(compare, number) => Op::Number(compare, number),
            rule::PathOp::Flag(flag) => Op::Flag(flag),
        };
        Self { path: test.path, op }
    }

    /// An item that cannot be read meets everything: only deny rules have such criteria, and what is
    /// not known lets nobody in.
    pub(super) fn met(&self, item: Option<&Value>) -> bool {
        let Some(item) = item else { return true };
        match &self.op {
            Op::NotExist => !reaches(item, &self.path, &mut |_| true),
            op => reaches(item, &self.path, &mut |place| op.met(place)),
        }
    }

    pub(super) fn saw(&self, item: Option<&Value>) -> String {
        item.map_or_else(
            || "the object is too deep to be read".to_owned(),
            |item| format!("{} places", places(item, &self.path).len()),
        )
    }

    pub(super) fn finds_the_same(&self, item: Option<&Value>, before: Option<&Value>) -> bool {
        let (Some(item), Some(before)) = (item, before) else { return false };
        places(item, &self.path) == places(before, &self.path)
    }
}

fn places<'v>(item: &'v Value, path: &[Segment]) -> Vec<&'v Value> {
    let mut places = Vec::new();
    reaches(item, path, &mut |place| {
        places.push(place);
        false
    });
    places
}

/// Whether one of the places is right. What is null is not there, as Kubernetes has it.
fn reaches<'v>(
    value: &'v Value,
    path: &[Segment],
    right: &mut dyn FnMut(&'v Value) -> bool,
) -> bool {
    if value.is_null() {
        return false;
    }
    let Some((segment, rest)) = path.split_first() else { return right(value) };
    match (segment, value) {
        (Segment::Key(key), Value::Object(object)) => {
            object.get(key).is_some_and(|value| reaches(value, rest, right))
        }
        (Segment::Each, Value::Array(list)) => list.iter().any(|value| reaches(value, rest, right)),
        (Segment::Each, Value::Object(object)) => {
            object.get("0").is_some_and(|value| reaches(value, rest, right))
        }
        _ => false,
    }
}

impl Op {
    fn met(&self, place: &Value) -> bool {
        match (self, place) {
            (Self::Exist | Self::NotExist, _) => true,
            (Self::Texts(list, items), Value::String(text)) => {
                holds(*list, items, std::iter::once(text.as_str()), Glob::matches)
            }
            (Self::Texts(list, items), Value::Array(values)) => {
                holds(*list, items, values.iter().filter_map(Value::as_str), Glob::matches)
            }
            #[allow(clippy::float_cmp, reason = "the rule says equal")]
            (Self::Number(compare, number), Value::Number(have)) => {
                have.as_f64().is_some_and(|have| match compare {
                    Compare::Equal => have == *number,
                    Compare::NotEqual => have != *number,
                    Compare::Above => have > *number,
                    Compare::AtLeast => have >= *number,
                    Compare::AtMost => have <= *number,
                })
            }
            (Self::Flag(flag), Value::Bool(have)) => have == flag,
            _ => false,
        }
    }
}
