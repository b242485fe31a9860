//! What the checks and the schemas of kinds have in common. A pattern here says to an API server what
//! the check beside it says to us.

use super::Condition;
use crate::name;
use crate::store::Invalid;

/// The pattern of [`name::subdomain`], without its length.
pub(super) const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// The most characters of a name.
pub(super) const LONGEST_NAME: usize = 253;
/// The pattern of [`name::dns_label`], without its length.
pub(super) const LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// The pattern of [`name::key`], without the lengths of its parts.
pub(super) const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$";
/// The pattern of a key of a Secret's data.
pub(super) const SECRET_KEY: &str = r"^[-._a-zA-Z0-9]+$";
/// The pattern of [`text`], without its length.
pub(super) const TEXT: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
/// The most characters of a time of RFC 3339, with room.
pub(super) const LONGEST_TIME: usize = 64;

/// The bounds of Kubernetes' own conditions; its messages may be longer.
pub(super) const MOST_CONDITIONS: usize = 8;
pub(super) const LONGEST_CONDITION_TYPE: usize = 316;
pub(super) const LONGEST_CONDITION_STATUS: usize = 7;
pub(super) const LONGEST_REASON: usize = 1024;
pub(super) const LONGEST_MESSAGE: usize = 4096;

/// Checks the name of another object.
pub(super) fn name(problems: &mut Invalid, field: &str, value: &str) {
    if let Some(problem) = name::subdomain(value) {
        problems.add(field, format!("{value:?} {problem}"));
    }
}

/// Checks the name of another object that is shorter than most.
pub(super) fn name_within(problems: &mut Invalid, field: &str, value: &str, most: usize) {
    name(problems, field, value);
    if value.len() > most {
        problems.add(field, format!("has {} characters; {most} at most", value.len()));
    }
}

/// Checks the length of a text in characters, as a schema counts it. Line breaks and the like are let
/// through: what others said is written down as they said it.
pub(super) fn no_longer(problems: &mut Invalid, field: &str, value: &str, most: usize) {
    if value.chars().count() > most {
        problems.add(field, format!("has more than {most} characters"));
    }
}

pub(super) fn secret_key(problems: &mut Invalid, field: &str, key: &str) {
    let in_key = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if key.is_empty() || key.len() > LONGEST_NAME || !key.bytes().all(in_key) {
        let problem = "must be 1 to 253 characters of letters, digits, '-', '_' and '.'";
        problems.add(field, problem);
    }
}

/// Checks the conditions of a status.
pub(super) fn conditions(problems: &mut Invalid, conditions: &[Condition]) {
    at_most(problems, "status.conditions", conditions.len(), MOST_CONDITIONS);
    for (i, condition) in conditions.iter().enumerate() {
        let Condition { r#type, status, reason, message, last_transition_time } = condition;
        let time = last_transition_time.as_deref().unwrap_or_default();
        for (field, value, most) in [
            ("type", r#type.as_str(), LONGEST_CONDITION_TYPE),
            ("status", status, LONGEST_CONDITION_STATUS),
            ("reason", reason, LONGEST_REASON),
            ("message", message, LONGEST_MESSAGE),
            ("lastTransitionTime", time, LONGEST_TIME),
        ] {
            no_longer(problems, &format!("status.conditions[{i}].{field}"), value, most);
        }
    }
}

pub(super) fn at_most(problems: &mut Invalid, field: &str, count: usize, most: usize) {
    if count > most {
        problems.add(field, format!("has {count} entries; {most} at most"));
    }
}

/// Checks a text of one line; its length is in characters, as a schema counts it. Control characters have
/// no use in a name and spoil a terminal.
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

#[cfg(test)]
mod tests;
