//! A mail: headers in ASCII, the body in base64, so that no text of an event can end a line, a header or the mail.

use jiff::fmt::rfc2822;

use super::facts;
use super::syslog::visible;
use crate::event::{Event, cut};
use crate::target::base64;

const LONGEST_SUBJECT: usize = 120;
/// Bytes in an encoded word, which has 75 characters at most.
const WORD: usize = 42;
/// Bytes of a line of base64, which has 76 characters at most.
const LINE: usize = 57;

/// The mail as it is sent: lines end with CRLF, and none begins with a dot.
pub(crate) fn mail(event: &Event, from: &str, to: &[String]) -> String {
    let mut subject = format!("[{}] {}", event.level, visible(&event.message));
    cut(&mut subject, LONGEST_SUBJECT);
    let mut body = format!("{}\n\n", visible(&event.message));
    for (name, value) in facts(event) {
        body.push_str(&format!("{name}: {}\n", visible(&value)));
    }
    let date = rfc2822::to_string(&event.at.to_zoned(jiff::tz::TimeZone::UTC)).unwrap_or_default();
    let domain = from.rsplit_once('@').map_or("fairlead", |(_, domain)| domain);
    let mut mail = String::new();
    for (name, value) in [
        ("From", from.to_owned()),
        ("To", to.join(",\r\n ")),
        ("Subject", encoded(&subject)),
        ("Date", date),
        ("Message-ID", format!("<{}@{domain}>", event.id)),
        ("Auto-Submitted", "auto-generated".to_owned()),
        ("MIME-Version", "1.0".to_owned()),
        ("Content-Type", "text/plain; charset=utf-8".to_owned()),
        ("Content-Transfer-Encoding", "base64".to_owned()),
    ] {
        mail.push_str(&format!("{name}: {value}\r\n"));
    }
    mail.push_str("\r\n");
    for line in body.as_bytes().chunks(LINE) {
        mail.push_str(&base64(line));
        mail.push_str("\r\n");
    }
    mail
}

/// A header's text as encoded words of RFC 2047.
fn encoded(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    for c in text.chars() {
        if word.len() + c.len_utf8() > WORD {
            words.push(std::mem::take(&mut word));
        }
        word.push(c);
    }
    words.push(word);
    let words = words.into_iter().map(|word| format!("=?utf-8?B?{}?=", base64(word)));
    words.collect::<Vec<_>>().join("\r\n ")
}
