//! `ResponseRules`: what is done about an event. A decision is a pure function of the rules, the event and how
//! many like it came before.
//!
//! Contract:
//! - Rules are looked at by priority, then by name. Every rule that matches acts; one that suppresses is the last.
//! - A rule that is not valid, or is disabled, does nothing, and the others go on.
//! - A rule with a frequency acts when so many events of one subject came within its time, and begins to count
//!   anew. The subjects that are counted are bounded; the one that was quiet longest makes room.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use objects::Kind;
use objects::kinds::{ResponseAction, ResponseConditions, ResponseRule};

use crate::event::Event;

/// Subjects whose events are counted: a rule, what it is about, and a few instants each.
const MOST_SUBJECTS: usize = 4096;
/// Of one subject no more instants are kept than this; a rule that waits for more counts in larger steps.
const MOST_INSTANTS: usize = 1024;

/// The rules as they are looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseRules(Vec<Arc<ResponseRule>>);

/// What is to be done about one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Names of receivers, each once, in the order of the rules.
    pub notify: Vec<String>,
    /// The rule by which the workload is quarantined.
    pub quarantine: Option<String>,
    /// The rule that ended the search.
    pub suppressed: Option<String>,
    /// Every rule that matched.
    pub matched: Vec<String>,
}

/// The events that rules with a frequency have counted. The router alone has one.
#[derive(Debug, Default)]
pub struct Frequencies {
    seen: HashMap<(String, String), VecDeque<Instant>>,
}

impl ResponseRules {
    pub fn new(rules: impl IntoIterator<Item = Arc<ResponseRule>>) -> Self {
        let right = |rule: &Arc<ResponseRule>| !rule.spec.disabled && rule.check().is_ok();
        let mut rules: Vec<_> = rules.into_iter().filter(right).collect();
        rules.sort_by(|a, b| order(a).cmp(&order(b)));
        Self(rules)
    }

    /// Decides what is done about an event.
    pub fn decide(&self, event: &Event, frequencies: &mut Frequencies, now: Instant) -> Response {
        let mut response = Response::default();
        for rule in &self.0 {
            let spec = &rule.spec;
            let name = rule.metadata.name.as_deref().unwrap_or_default();
            if spec.event != event.kind || !holds(&spec.conditions, event) {
                continue;
            }
            if let Some(frequency) = spec.conditions.frequency
                && !frequencies.reached(name, event.subject(), frequency, now)
            {
                continue;
            }
            response.matched.push(name.to_owned());
            for action in &spec.actions {
                match action {
                    ResponseAction::Notify => {
                        for receiver in &spec.receivers {
                            if !response.notify.contains(receiver) {
                                response.notify.push(receiver.clone());
                            }
                        }
                    }
                    ResponseAction::Quarantine => {
                        response.quarantine.get_or_insert_with(|| name.to_owned());
                    }
                    ResponseAction::Suppress => response.suppressed = Some(name.to_owned()),
                }
            }
            if response.suppressed.is_some() {
                break;
            }
        }
        response
    }
}

fn order(rule: &ResponseRule) -> (i32, &str) {
    (rule.spec.priority, rule.metadata.name.as_deref().unwrap_or_default())
}

fn holds(conditions: &ResponseConditions, event: &Event) -> bool {
    let ResponseConditions { level, names, groups, workloads, clusters, frequency: _ } = conditions;
    let one_of = |globs: &[String], texts: &[&str]| {
        globs.is_empty() || globs.iter().any(|glob| texts.iter().any(|text| matches(glob, text)))
    };
    let groups_of: Vec<_> = event.groups.iter().map(String::as_str).collect();
    level.is_none_or(|level| event.level >= level)
        && one_of(names, &[&event.name])
        && one_of(clusters, &[&event.cluster])
        && one_of(groups, &groups_of)
        && one_of(workloads, event.workload.as_deref().as_slice())
}

impl Frequencies {
    fn reached(
        &mut self,
        rule: &str,
        subject: &str,
        frequency: objects::kinds::Frequency,
        now: Instant,
    ) -> bool {
        let key = (rule.to_owned(), subject.to_owned());
        if self.seen.len() >= MOST_SUBJECTS && !self.seen.contains_key(&key) {
            let quiet = self.seen.iter().min_by_key(|(_, seen)| seen.back().copied());
            if let Some(quiet) = quiet.map(|(key, _)| key.clone()) {
                self.seen.remove(&quiet);
            }
        }
        let seen = self.seen.entry(key).or_default();
        while seen.front().is_some_and(|at| now.duration_since(*at) >= frequency.window()) {
            seen.pop_front();
        }
        seen.push_back(now);
        if seen.len() >= (frequency.count as usize).min(MOST_INSTANTS) {
            seen.clear();
            return true;
        }
        false
    }
}

/// Whether a text is what a glob says: `*` is any run of characters, `?` exactly one. Linear but for one step back.
fn matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<_>, Vec<_>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, t));
                g += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (g, t) = (g + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (g, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests;
