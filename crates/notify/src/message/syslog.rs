//! Messages of RFC 5424.
//!
//! Contract: whatever texts an event has, the result is one message that a strict parser takes: header fields are
//! printable ASCII of bounded length, values of structured data are escaped, control characters are written as
//! `\u{…}`, so that no text forges a second message. A message has at most so many bytes; details that do not fit
//! are left out, and the text is cut.

use objects::kinds::EventLevel;

use super::facts;
use crate::event::Event;

/// What every server over UDP should take, and what rsyslog takes unless it is told otherwise.
pub(crate) const LONGEST_DATAGRAM: usize = 2048;
pub(crate) const LONGEST_FRAME: usize = 8096;
/// The private enterprise number that RFC 5612 gives to documentation: Fairlead has none of its own.
const ELEMENT: &str = "fairlead@32473";
/// Left for the text when details are many.
const ROOM_FOR_TEXT: usize = 512;

pub(crate) fn message(event: &Event, facility: u8, hostname: &str, most: usize) -> Vec<u8> {
    let severity = match event.level {
        EventLevel::Critical => 2,
        EventLevel::Error => 3,
        EventLevel::Warning => 4,
        EventLevel::Notice => 5,
        EventLevel::Info => 6,
    };
    let priority = u32::from(facility) * 8 + severity;
    let at = jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%S%.6fZ", event.at);
    let at = at.unwrap_or_else(|_| "-".to_owned());
    let host = token(hostname, 255);
    let id = token(&event.name, 32);
    let mut line =
        format!("<{priority}>1 {at} {host} fairlead {} {id} [{ELEMENT}", std::process::id());
    for (name, value) in facts(event) {
        let name: String = name
            .chars()
            .filter(|c| c.is_ascii_graphic() && !"=]\"".contains(*c))
            .take(32)
            .collect();
        let value = escaped(&visible(&value));
        if !name.is_empty() && line.len() + name.len() + value.len() + 4 + ROOM_FOR_TEXT <= most {
            line.push_str(&format!(" {name}=\"{value}\""));
        }
    }
    // The byte order mark says that the text is UTF-8.
    line.push_str("] \u{feff}");
    for c in visible(&event.message).chars() {
        if line.len() + c.len_utf8() > most {
            break;
        }
        line.push(c);
    }
    line.into_bytes()
}

/// A field of the header.
fn token(text: &str, most: usize) -> String {
    let text: String = text.chars().filter(char::is_ascii_graphic).take(most).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Writes control characters, line separators and marks that turn the direction of text so that they are seen.
pub(crate) fn visible(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) {
            shown.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Escapes a value of structured data.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '"' | '\\' | ']') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}
