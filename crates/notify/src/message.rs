//! Events in the words of each receiver. Pure: an event in, a text out.

pub(crate) mod alertmanager;
pub(crate) mod chat;
pub(crate) mod mail;
pub(crate) mod otlp;
pub(crate) mod syslog;
pub(crate) mod webhook;

use crate::event::Event;

/// What a person wants to know beside the sentence: names and values, in order.
fn facts(event: &Event) -> Vec<(&str, String)> {
    let mut facts = vec![
        ("event", event.name.clone()),
        ("level", event.level.to_string()),
        ("cluster", event.cluster.clone()),
    ];
    let optional = [("workload", &event.workload), ("pod", &event.pod)];
    facts.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    if !event.groups.is_empty() {
        facts.push(("groups", event.groups.join(", ")));
    }
    facts.extend(event.details.iter().map(|(name, value)| (name.as_str(), value.clone())));
    if event.count > 1 {
        facts.push(("count", event.count.to_string()));
    }
    facts.push(("at", event.at.to_string()));
    facts.push(("id", event.id.clone()));
    facts
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
