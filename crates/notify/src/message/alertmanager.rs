//! Alerts of Alertmanager's API v2.
//!
//! An event that ends another (`agent.back`, `stall.ended`) has the labels of the one that it ends, and an end:
//! Alertmanager then calls the alert resolved.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::event::Event;

/// The names of events that end others, with what they end.
const ENDS: [(&str, &str); 2] = [("agent.back", "agent.lost"), ("stall.ended", "stall.begun")];

pub(crate) fn alerts(event: &Event, own: &BTreeMap<String, String>) -> Value {
    let ended = ENDS.iter().find(|(end, _)| *end == event.name).map(|(_, begun)| *begun);
    let mut labels: BTreeMap<&str, &str> =
        own.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let alertname = alertname(ended.unwrap_or(&event.name));
    labels.insert("alertname", &alertname);
    labels.insert("cluster", &event.cluster);
    let level = event.level.to_string();
    // Resolved by its labels, so that it must not differ between begin and end.
    if ended.is_none() && !ENDS.iter().any(|(_, begun)| *begun == event.name) {
        labels.insert("severity", &level);
    } else {
        labels.insert("severity", "error");
    }
    let optional =
        [("namespace", &event.namespace), ("workload", &event.workload), ("pod", &event.pod)];
    labels.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))));
    for name in ["node", "subject", "rule"] {
        labels.extend(event.details.get(name).map(|value| (name, value.as_str())));
    }
    // A label with an empty value is one that is not there.
    labels.retain(|_, value| !value.is_empty());
    let mut annotations: BTreeMap<String, &str> =
        event.details.iter().map(|(name, value)| (label_name(name), value.as_str())).collect();
    annotations.insert("summary".to_owned(), &event.message);
    annotations.insert("event_id".to_owned(), &event.id);
    let mut alert = json!({
        "labels": labels,
        "annotations": annotations,
        "startsAt": event.at.to_string(),
    });
    if ended.is_some() {
        alert["endsAt"] = event.at.to_string().into();
    }
    json!([alert])
}

/// `violation.denied` as `FairleadViolationDenied`.
fn alertname(name: &str) -> String {
    let words = name.split(['.', '-']).map(|word| {
        let mut chars = word.chars();
        chars
            .next()
            .map(|first| first.to_uppercase().collect::<String>() + chars.as_str())
            .unwrap_or_default()
    });
    words.fold("Fairlead".to_owned(), |name, word| name + &word)
}

fn label_name(name: &str) -> String {
    let valid = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(valid).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}
