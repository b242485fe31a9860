use objects::kinds::{EventKind, EventLevel};

use super::*;
use crate::event::Event;

/// Texts of an event, each ended by a zero, as syslog and mail are told of them: one message of bounded length,
/// that no text ends early.
pub fn messages(bytes: &[u8]) {
    let mut texts =
        bytes.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
    let mut next = || texts.next().unwrap_or_default();
    let mut event = Event::new(EventKind::Scan, "seen", EventLevel::Warning, next());
    (event.cluster, event.pod, event.groups) = (next(), Some(next()), vec![next()]);
    event.details.insert(next(), next());
    let host = next();
    event.fit();
    for most in [syslog::LONGEST_DATAGRAM, syslog::LONGEST_FRAME] {
        let message = syslog::message(&event, 1, &host, most);
        let text = std::str::from_utf8(&message).expect("a message is UTF-8");
        assert!(message.len() <= most, "{} bytes", message.len());
        assert!(!text.contains(char::is_control), "{text:?}");
        // The structured data ends where it should, and not in a value.
        let data = text.splitn(7, ' ').nth(6).expect("it has structured data");
        let (mut quoted, mut escaped, mut end) = (false, false, None);
        for (at, c) in data.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                ']' if !quoted => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let end = end.expect("structured data ends");
        assert!(data[end..].starts_with("] \u{feff}"), "{text:?}");
    }
    let mail = mail::mail(&event, "a@b", &["c@d".to_owned()]);
    assert!(mail.is_ascii() && mail.split("\r\n").all(|line| !line.contains(['\r', '\n'])));
    let (head, _) = mail.split_once("\r\n\r\n").expect("a mail has a body");
    let headers = head.split("\r\n").filter(|line| !line.starts_with(' '));
    assert_eq!(headers.count(), 9);
}
