//! An outcome as people read it: text, and a page for a ticket.

mod html;
mod plot;
mod text;

pub use html::html;
pub use text::{progress, text};

use crate::outcome::{Relation, Requirement};

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

pub(crate) fn time(ms: Option<f64>) -> String {
    match ms {
        None => "–".to_owned(),
        Some(ms) if ms >= 10_000.0 => format!("{:.1} s", ms / 1e3),
        Some(ms) if ms >= 10.0 => format!("{ms:.0} ms"),
        Some(ms) if ms >= 0.1 => format!("{ms:.1} ms"),
        Some(ms) => format!("{:.0} µs", ms * 1e3),
    }
}

/// A number as a person writes it: whole if it is, otherwise with as many digits as matter.
pub(crate) fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        let digits = format!("{:.0}", value.abs());
        let groups: Vec<_> =
            digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
        return format!("{}{}", if value < 0.0 { "-" } else { "" }, groups.join(","));
    }
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        "ms" => time(Some(value)),
        "bytes" => mib(value as u64),
        unit => format!("{} {unit}", number(value)),
    }
}

pub(crate) fn value(requirement: &Requirement) -> String {
    requirement.value.map_or("not measured".to_owned(), |value| with_unit(value, &requirement.unit))
}

pub(crate) fn limit(requirement: &Requirement) -> String {
    let relation = match requirement.relation {
        Relation::AtMost => "at most",
        Relation::AtLeast => "at least",
        Relation::Exactly => "exactly",
    };
    format!("{relation} {}", with_unit(requirement.limit, &requirement.unit))
}

#[cfg(test)]
mod tests;
