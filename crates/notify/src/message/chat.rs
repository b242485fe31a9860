//! Messages for Slack (an incoming webhook) and for Teams (a workflow that posts an Adaptive Card).
//!
//! Contract: texts of an event are shown and never interpreted: they make no link, no mention and no markup.

use objects::kinds::EventLevel;
use serde_json::{Value, json};

use super::facts;
use super::syslog::visible;
use crate::event::{Event, cut};

/// Slack takes 3,000 characters in a block, and ten fields of 2,000.
const LONGEST_TEXT: usize = 1500;
const LONGEST_FACT: usize = 300;
const MOST_FACTS: usize = 10;

pub(crate) fn slack(event: &Event, channel: Option<&str>) -> Value {
    let fields: Vec<_> = facts(event)
        .into_iter()
        .take(MOST_FACTS)
        .map(|(name, value)| json!({"type": "plain_text", "text": short(&format!("{name}: {value}"))}))
        .collect();
    let mut text = visible(&event.message);
    cut(&mut text, LONGEST_TEXT);
    let mut message = json!({
        // What notifications and screen readers show.
        "text": escaped_for_slack(&format!("[{}] {text}", event.level)),
        "blocks": [
            {"type": "section", "text": {"type": "plain_text", "text": format!("[{}] {text}", event.level)}},
            {"type": "section", "fields": fields},
        ],
    });
    if let Some(channel) = channel {
        message["channel"] = channel.into();
    }
    message
}

/// The three characters that Slack gives a meaning in `text`.
fn escaped_for_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(crate) fn teams(event: &Event, title: Option<&str>) -> Value {
    let facts: Vec<_> = facts(event)
        .into_iter()
        .map(|(name, value)| json!({"title": plain(name), "value": plain(&short(&value))}))
        .collect();
    let colour = match event.level {
        EventLevel::Info | EventLevel::Notice => "accent",
        EventLevel::Warning => "warning",
        EventLevel::Error | EventLevel::Critical => "attention",
    };
    let mut text = visible(&event.message);
    cut(&mut text, LONGEST_TEXT);
    let title = title.unwrap_or("Fairlead");
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [
                    {"type": "TextBlock", "size": "medium", "weight": "bolder", "color": colour,
                     "wrap": true, "text": plain(&format!("{title}: {}", event.name))},
                    {"type": "TextBlock", "wrap": true, "text": plain(&text)},
                    {"type": "FactSet", "facts": facts},
                ],
            },
        }],
    })
}

fn short(text: &str) -> String {
    let mut text = visible(text);
    cut(&mut text, LONGEST_FACT);
    text
}

/// Text blocks of a card are Markdown.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if "\\`*_[]<".contains(c) {
            plain.push('\\');
        }
        plain.push(c);
    }
    plain
}
