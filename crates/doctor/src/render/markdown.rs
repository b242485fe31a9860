//! Markdown to paste into a ticket.

use std::fmt::Write as _;

use super::facts::facts;
use super::text::cut;
use super::words;
use crate::figures::count;
use crate::report::{Finding, Report};

const EVENTS: usize = 30;
const EVIDENCE: usize = 6;
const STACKS: usize = 4;

/// The report as Markdown.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# {}\n", words::verdict(report.findings.len()));
    for (n, finding) in (1..).zip(&report.findings) {
        one(&mut out, n, finding);
    }
    if !report.comparisons.is_empty() {
        let _ = writeln!(out, "## Two dumps\n");
        for two in &report.comparisons {
            let _ = writeln!(
                out,
                "- {} and {}: {} did not move, {} moved, {} came, {} went",
                inline(&two.first),
                inline(&two.second),
                count(two.stuck),
                count(two.moved),
                count(two.arrived),
                count(two.left)
            );
        }
        out.push('\n');
    }
    if !report.timeline.is_empty() {
        let _ = writeln!(
            out,
            "## Timeline\n\n| when | what | | times |\n|---|---|---|---|"
        );
        for event in report.timeline.iter().take(EVENTS) {
            let at = event.at.map_or_else(String::new, |at| format!("{at:.3}"));
            let kind = words::event(event.kind);
            let text = inline(&cut(&event.text, 160));
            let _ = writeln!(out, "| {at} | {kind} | {text} | {} |", count(event.count));
        }
        if report.timeline.len() > EVENTS {
            let _ = writeln!(out, "\nand {} more", report.timeline.len() - EVENTS);
        }
        out.push('\n');
    }
    let _ = writeln!(out, "## Read\n");
    for input in &report.inputs {
        let taken = if input.taken_for.is_empty() {
            "not read".to_owned()
        } else {
            input.taken_for.join("; ")
        };
        let _ = writeln!(out, "- {}: {}", inline(&input.name), plain(&taken));
        for refusal in &input.refused {
            let place = refusal
                .line
                .map_or_else(String::new, |line| format!("line {line}: "));
            let _ = writeln!(out, "  - {place}{}", plain(&refusal.why));
        }
    }
    for note in &report.notes {
        let _ = writeln!(out, "\n> {}", plain(&note.text));
    }
    out
}

fn one(out: &mut String, n: usize, finding: &Finding) {
    let _ = writeln!(out, "## {n}. {}\n", plain(&finding.title));
    let class = words::class(finding.class);
    let _ = writeln!(out, "*{}; {class}*\n", words::severity(finding.severity));
    for fact in facts(finding) {
        let _ = write!(out, "- **{}**: ", fact.label);
        for (i, line) in fact.lines.iter().enumerate() {
            if i > 0 {
                out.push_str("  - ");
            }
            let _ = writeln!(out, "{}", plain(line.trim()));
        }
    }
    out.push('\n');
    for path in finding.waiters.by_path.iter().take(STACKS) {
        let _ = writeln!(
            out,
            "<details><summary>{} waiting: {}</summary>\n\n```",
            count(path.count),
            plain(&path.wants)
        );
        for frame in &path.frames {
            let _ = writeln!(out, "{}", fenced(frame));
        }
        let _ = writeln!(out, "```\n</details>\n");
    }
    if !finding.evidence.is_empty() {
        let _ = writeln!(out, "```");
        for evidence in finding.evidence.iter().take(EVIDENCE) {
            let _ = writeln!(
                out,
                "{}  {}",
                fenced(&words::place(evidence)),
                fenced(&evidence.text)
            );
        }
        let _ = writeln!(out, "```\n");
    }
}

/// Prose in which nothing is markup.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            // A name after this sign is told that it was mentioned.
            '@' => out.push_str("@\u{200b}"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Text as code, also inside a table.
fn inline(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() || c == '`' { ' ' } else { c })
        .collect();
    format!("`{}`", text.replace('|', "\\|"))
}

/// A line inside a fence that cannot close it.
fn fenced(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || c == '`' { ' ' } else { c })
        .collect()
}
