//! What the checks of kinds have in common.

use crate::name;
use crate::store::Invalid;

/// The name of another object.
pub(super) fn name(problems: &mut Invalid, field: &str, value: &str) {
    if let Some(problem) = name::subdomain(value) {
        problems.add(field, format!("{value:?} {problem}"));
    }
}

pub(super) fn at_most(problems: &mut Invalid, field: &str, count: usize, most: usize) {
    if count > most {
        problems.add(field, format!("has {count} entries; {most} at most"));
    }
}

/// Characters are counted, as a schema counts them. Control characters have no use in a name and
/// spoil a terminal.
pub(super) fn text(problems: &mut Invalid, field: &str, value: &str, least: usize, most: usize) {
    let length = value.chars().count();
    if length < least {
        problems.add(field, "is empty");
    } else if length > most {
        problems.add(field, format!("has {length} characters; {most} at most"));
    }
    if value.contains(|c: char| c.is_control()) {
        problems.add(field, "has a control character");
    }
}
