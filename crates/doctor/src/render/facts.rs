//! What is said of a finding, in order: what is stuck, who waits, who holds it, what follows, the
//! way out.

use super::words;
use crate::figures::{count, many};
use crate::report::{Evidence, Finding, Holder, Waiters};

/// A line of the report: a label and its text.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) label: &'static str,
    pub(super) lines: Vec<String>,
}

/// How many entries of a list are shown.
const SHOWN: usize = 8;

pub(super) fn facts(finding: &Finding) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut say = |label, lines: Vec<String>| {
        if !lines.is_empty() {
            facts.push(Fact { label, lines });
        }
    };
    say("stuck", resource(finding));
    if let Some(held) = &finding.held {
        let proof = held.evidence.first().map_or_else(String::new, proof);
        say("held", vec![format!("{}: {}{proof}", words::mode(held.mode), held.why)]);
    }
    say("waiting", waiters(&finding.waiters));
    if let Some(since) = &finding.since {
        let at = since.at.map_or_else(String::new, |at| format!("{at:.3}, "));
        let proof = since.evidence.as_ref().map_or_else(String::new, proof);
        say("since", vec![format!("{at}{}{proof}", since.text)]);
    }
    say("holder", finding.holders.iter().take(SHOWN).map(holder).collect());
    say(
        "holder",
        finding.no_holder.iter().filter(|_| finding.holders.is_empty()).cloned().collect(),
    );
    let steps = finding.cycle.iter().map(|step| {
        let who = match (&step.thread, step.goroutine) {
            (Some(name), _) => format!("thread \"{name}\" "),
            (None, Some(id)) => format!("goroutine {id} "),
            (None, None) => String::new(),
        };
        let proof = step.evidence.as_ref().map_or_else(String::new, proof);
        format!("{who}holds {}, waits for {} in {}{proof}", step.holds, step.waits_for, step.frame)
    });
    say("cycle", steps.collect());
    let blast = finding.blast_radius.iter().take(SHOWN).map(|b| {
        let n = if b.count > 0 { format!("{} × ", count(b.count)) } else { String::new() };
        format!("{n}{}: {}", b.what, b.why)
    });
    say("reach", blast.chain(more(finding.blast_radius.len())).collect());
    say("facts", finding.details.clone());
    say("way out", vec![finding.remedy.clone()].into_iter().filter(|r| !r.is_empty()).collect());
    say("collect", finding.collect_next.clone());
    let confidence = &finding.confidence;
    say("sure", vec![format!("{}: {}", words::level(confidence.level), confidence.why)]);
    facts
}

fn resource(finding: &Finding) -> Vec<String> {
    let resource = &finding.resource;
    let kind = words::resource(resource.kind);
    if resource.name.is_empty() || resource.name == kind {
        return Vec::new();
    }
    let mut line = format!("{kind} {}", resource.name);
    if let Some(address) = &resource.address {
        line += &format!(" at {address}");
    }
    if let Some(field) = resource.field.as_ref().filter(|f| f.starts_with('+')) {
        line += &format!(", field at {field}");
    }
    let mut lines = vec![line.trim().to_owned()];
    if !resource.sites.is_empty() {
        let sites: Vec<&str> = resource.sites.iter().take(4).map(String::as_str).collect();
        lines.push(format!("taken in {}", sites.join(", ")));
    }
    lines
}

fn waiters(waiters: &Waiters) -> Vec<String> {
    if waiters.is_empty() {
        return Vec::new();
    }
    let mut first = count(waiters.total);
    match (waiters.readers, waiters.writers) {
        (0, 0) => {}
        (readers, 0) => first += &format!(": {} to read", count(readers)),
        (0, writers) => first += &format!(": {} to write", count(writers)),
        (readers, writers) => {
            first += &format!(": {} to read, {} to write", count(readers), count(writers));
        }
    }
    let mut lines = vec![first];
    let entries = waiters.by_entry.iter().take(SHOWN);
    lines.extend(
        entries.map(|e| format!("{:>9}  {} {}", count(e.count), words::entry(e.kind), e.name)),
    );
    lines.extend(more(waiters.by_entry.len()));
    lines
}

fn holder(holder: &Holder) -> String {
    let who = match holder.goroutine {
        _ if holder.thread.is_some() => {
            format!("{} in {}", words::threads(holder), holder.frame)
        }
        Some(id) => format!("goroutine {id} in {}", holder.frame),
        None if holder.count > 1 => {
            format!("{} in {}", many(holder.count, "goroutine", "goroutines"), holder.frame)
        }
        None => holder.frame.clone(),
    };
    let blocked = holder
        .blocked_on
        .as_ref()
        .map_or_else(String::new, |on| format!(", itself waiting for {on}"));
    let confidence = &holder.confidence;
    let proof = holder.evidence.as_ref().map_or_else(String::new, proof);
    format!("{who}{blocked} ({}: {}){proof}", words::level(confidence.level), confidence.why)
}

fn proof(evidence: &Evidence) -> String {
    format!(" [{}]", words::place(evidence))
}

fn more(len: usize) -> Option<String> {
    (len > SHOWN).then(|| format!("and {} more", len - SHOWN))
}
