//! A report for people and programs: a page in a terminal, Markdown for a ticket, HTML to look at,
//! JSON as the contract.
//!
//! [`facts`] decides what is said of a finding, and in which order; the others only how. Whatever
//! came from an input is treated as hostile: control characters never reach a terminal, markup
//! never reaches a page.

mod facts;
mod flow;
mod html;
mod markdown;
mod plot;
mod text;
mod words;

use crate::report::Report;

pub use html::{escape, html};
pub use markdown::markdown;
pub use text::{Style, text};

/// The report as JSON, for programs: the contract.
pub fn json(report: &Report) -> String {
    let mut out = serde_json::to_string_pretty(report).expect("a report is plain values");
    out.push('\n');
    out
}

#[cfg(test)]
mod tests;
