//! Response rules, and the webhooks that they name.
//!
//! A rule with a condition that has no counterpart here is not carried over: without the condition it would act more
//! often than it did.

use objects::Kind;
use objects::kinds::{
    EventKind, EventLevel, Receiver, ReceiverSpec, ResponseAction, ResponseConditions,
    ResponseRule, ResponseRuleSpec, WebhookReceiver,
};
use serde_json::Value;

use crate::network::Groups;
use crate::{Imported, Names, Outcome, kind, name_of, plain};

/// The order in which they stand; rules of ours that people wrote have 1000 unless they say otherwise.
const FIRST_PRIORITY: i32 = 10_000;

/// Makes receivers of webhooks whose address is no secret.
pub(crate) fn receivers(documents: &[&Value], names: &mut Names, imported: &mut Imported) {
    for document in documents.iter().filter(|document| kind(document) == "NvConfigSecurityRule") {
        let config = ["fed_config", "config"].map(|field| &document["spec"][field]["webhooks"]);
        for webhook in config.into_iter().filter_map(Value::as_array).flatten() {
            let name = webhook["name"].as_str().unwrap_or_default();
            let kind = webhook["type"].as_str().unwrap_or_default();
            if !matches!(kind, "" | "JSON") {
                let why = format!(
                    "its address is a secret: make it with `fairlead receivers apply` and --secret-file, as {}",
                    if kind == "Teams" { "teams" } else { "slack" }
                );
                imported.note("receiver", name, Outcome::NotCarried, why);
                continue;
            }
            let url = webhook["url"].as_str().unwrap_or_default().to_owned();
            let given = names.give("receiver", name);
            let spec = ReceiverSpec {
                comment: String::new(),
                secret: None,
                ca: None,
                disabled: webhook["enable"] == false,
                webhook: Some(WebhookReceiver { url }),
                syslog: None,
                slack: None,
                teams: None,
                alertmanager: None,
                email: None,
                otlp: None,
            };
            let receiver = Receiver::new(&given, spec);
            match receiver.check() {
                Err(invalid) => {
                    let why = invalid.0.into_iter().map(|(_, why)| why).collect::<Vec<_>>();
                    imported.note("receiver", name, Outcome::Refused, why.join("; "));
                }
                Ok(()) => {
                    let why = "the JSON of its notifications is Fairlead's";
                    imported.note("receiver", name, Outcome::Changed, why);
                    imported.receivers.push(receiver);
                }
            }
        }
    }
}

pub(crate) fn rules(
    documents: &[&Value],
    groups: &Groups,
    names: &mut Names,
    imported: &mut Imported,
) {
    let mut all: Vec<(String, String, &Value)> = Vec::new();
    for document in documents {
        let (spec, name) = (&document["spec"], name_of(document));
        match kind(document) {
            "NvResponseRuleSecurityRule" => {
                let group = spec["rule"]["group"].as_str().unwrap_or_default();
                all.push((name.to_owned(), group.to_owned(), &spec["rule"]));
            }
            "NvSecurityRule" | "NvClusterSecurityRule" => {
                let target = spec["target"]["selector"]["name"].as_str().unwrap_or_default();
                for (i, rule) in spec["response"].as_array().into_iter().flatten().enumerate() {
                    let unnamed = format!("{name}-response-{}", i + 1);
                    let named = rule["policy_name"].as_str().filter(|name| !name.is_empty());
                    let group = rule["group"].as_str().filter(|group| !group.is_empty());
                    let group = group.unwrap_or(target).to_owned();
                    all.push((named.unwrap_or(&unnamed).to_owned(), group, rule));
                }
            }
            _ => {}
        }
    }
    let mut priority = FIRST_PRIORITY;
    for (name, group, rule) in all {
        match convert(rule, &group, groups) {
            Err(why) => imported.note("response rule", &name, Outcome::Refused, why),
            Ok((spec, mut notes)) => {
                let given = names.give("response", &name);
                if given != name {
                    notes.push(format!("its name here is {given}"));
                }
                let made = ResponseRule::new(&given, ResponseRuleSpec { priority, ..spec });
                priority = (priority + 1).min(1_000_000);
                if let Err(invalid) = made.check() {
                    let why = invalid.0.into_iter().map(|(at, why)| format!("{at}: {why}"));
                    let why = why.collect::<Vec<_>>().join("; ");
                    imported.note("response rule", &name, Outcome::Refused, why);
                    continue;
                }
                imported.responses.push(made);
                let outcome = if notes.is_empty() { Outcome::Kept } else { Outcome::Changed };
                imported.note("response rule", &name, outcome, notes.join("; "));
            }
        }
    }
}

fn convert(
    rule: &Value,
    group: &str,
    groups: &Groups,
) -> Result<(ResponseRuleSpec, Vec<String>), String> {
    let mut notes = Vec::new();
    let event = match rule["event"].as_str().unwrap_or_default() {
        "violation" => EventKind::Violation,
        "security-event" => {
            notes.push(
                "of security events only violations of network rules are events here".to_owned(),
            );
            EventKind::Violation
        }
        "admission-control" => EventKind::Admission,
        other => return Err(format!("events of {other:?} have no counterpart here")),
    };
    let mut conditions = ResponseConditions::default();
    if !group.is_empty() && group != "any" {
        let here = groups.get(group).and_then(|end| end.name.clone());
        let here = here.ok_or_else(|| format!("the group {group:?} is not carried over"))?;
        if objects::kinds::RESERVED_GROUPS.contains(&here.as_str()) {
            return Err(format!("events name no group {group:?} here"));
        }
        conditions.groups.push(here);
    }
    for condition in rule["conditions"].as_array().into_iter().flatten() {
        let (of, value) = (
            condition["type"].as_str().unwrap_or_default(),
            condition["value"].as_str().unwrap_or_default(),
        );
        let level = match (of, value.to_ascii_lowercase().as_str()) {
            ("level", "critical" | "emergency" | "alert") => EventLevel::Critical,
            ("level", "error") => EventLevel::Error,
            ("level", "warning") => EventLevel::Warning,
            ("level", "notice") => EventLevel::Notice,
            ("level", "info" | "debug") => EventLevel::Info,
            _ => return Err(format!("the condition {of} {value:?} has no counterpart here")),
        };
        // All must hold: the severest.
        conditions.level = conditions.level.max(Some(level));
    }
    let mut actions = Vec::new();
    let mut receivers = Vec::new();
    for action in rule["actions"].as_array().into_iter().flatten() {
        match action.as_str().unwrap_or_default() {
            "quarantine" => actions.push(ResponseAction::Quarantine),
            "suppress-log" => actions.push(ResponseAction::Suppress),
            "webhook" => {
                let named = rule["webhooks"].as_array().into_iter().flatten();
                receivers = named.filter_map(|name| name.as_str().map(plain)).collect();
                if receivers.is_empty() {
                    return Err("it tells every webhook; name them".to_owned());
                }
                actions.push(ResponseAction::Notify);
            }
            other => return Err(format!("the action {other:?} has no counterpart here")),
        }
    }
    let comment = rule["comment"].as_str().unwrap_or_default().to_owned();
    let disabled = rule["disable"] == true;
    let spec =
        ResponseRuleSpec { comment, event, conditions, actions, receivers, priority: 0, disabled };
    Ok((spec, notes))
}
