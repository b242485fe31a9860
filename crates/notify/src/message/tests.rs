use objects::kinds::{EventKind, EventLevel};
use proptest::prelude::*;

use super::{alertmanager, chat, mail, syslog, webhook};
use crate::event::Event;
use crate::target::{Credentials, Target, Way};

/// Texts that have broken somebody's parser.
const NASTY: [&str; 8] = [
    "plain",
    "two\nlines\r\n<13>1 - - - - - - forged",
    "quotes \" brackets ] [x@1 a=\"b\"] backslash \\",
    "\u{0}\u{1b}[31mred\u{7f}\u{9b}",
    "\u{202e}desrever \u{feff}bom \u{2028}separator",
    "ünïcödé 日本語 🚢",
    "<!channel> <https://evil.example.com|click> *bold* [link](https://evil.example.com) @all",
    "\r\n.\r\nMAIL FROM:<x@y>\r\n",
];

fn event(message: &str) -> Event {
    let mut event = Event::new(EventKind::Violation, "denied", EventLevel::Error, message);
    event.workload = Some(format!("shop/Deployment/{message}"));
    event.namespace = Some("shop".to_owned());
    event.with("rule", message).with(message, "a strange name")
}

/// Priority, structured data and text of a message.
type Parsed = (u32, Vec<(String, String)>, String);

/// A strict reader of RFC 5424: header, structured data, text.
fn parse(line: &str) -> Option<Parsed> {
    let rest = line.strip_prefix('<')?;
    let (priority, rest) = rest.split_once('>')?;
    let mut fields = rest.splitn(7, ' ');
    if fields.next()? != "1" {
        return None;
    }
    for most in [32, 255, 48, 128, 32] {
        let field = fields.next()?;
        let right =
            !field.is_empty() && field.len() <= most && field.bytes().all(|b| b.is_ascii_graphic());
        right.then_some(())?;
    }
    let mut rest = fields.next()?.strip_prefix("[fairlead@32473")?;
    let mut values = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix(']') {
            let text = after.strip_prefix(" \u{feff}")?;
            (!text.contains(char::is_control)).then_some(())?;
            return Some((priority.parse().ok()?, values, text.to_owned()));
        }
        let (name, after) = rest.strip_prefix(' ')?.split_once("=\"")?;
        let name_is_right = name.bytes().all(|b| b.is_ascii_graphic() && !b"=]\"".contains(&b));
        (!name.is_empty() && name.len() <= 32 && name_is_right).then_some(())?;
        let (mut value, mut escaped, mut end) = (String::new(), false, None);
        for (at, c) in after.char_indices() {
            match (escaped, c) {
                (true, c) => (value.push(c), escaped = false).1,
                (false, '\\') => escaped = true,
                (false, '"') => {
                    end = Some(at);
                    break;
                }
                (false, ']') => return None,
                (false, c) if c.is_control() => return None,
                (false, c) => value.push(c),
            }
        }
        values.push((name.to_owned(), value));
        rest = &after[end? + 1..];
    }
}

#[test]
fn every_text_makes_one_message_of_syslog() {
    for text in NASTY {
        let line = syslog::message(&event(text), 16, "no de\n", syslog::LONGEST_FRAME);
        let line = String::from_utf8(line).expect("UTF-8");
        let (priority, values, said) = parse(&line).unwrap_or_else(|| panic!("{line:?}"));
        assert_eq!(priority, 16 * 8 + 3);
        assert_eq!(said, syslog::visible(text));
        assert!(values.contains(&("rule".to_owned(), syslog::visible(text))), "{values:?}");
    }
}

proptest! {
    #[test]
    fn any_text_makes_one_message_of_syslog_that_fits(
        text in any::<String>(), name in any::<String>(), most in 1024_usize..4096,
    ) {
        let mut event = event(&text).with(&name, text.clone());
        event.fit();
        let line = syslog::message(&event, 10, &name, most);
        prop_assert!(line.len() <= most);
        let line = String::from_utf8(line).expect("UTF-8");
        prop_assert!(parse(&line).is_some(), "{line:?}");
    }

    #[test]
    fn any_text_makes_one_mail(text in any::<String>()) {
        let mail = mail::mail(&event(&text), "a@b", &["c@d".to_owned(), "e@f".to_owned()]);
        prop_assert!(mail.is_ascii());
        for line in mail.split("\r\n") {
            prop_assert!(line.len() <= 998 && !line.contains(['\r', '\n']), "{line:?}");
            prop_assert!(!line.starts_with('.'));
        }
        prop_assert!(mail.ends_with("\r\n"));
        prop_assert_eq!(mail.matches("\r\n\r\n").count(), 1, "one end of the headers");
    }
}

#[test]
fn a_strict_reader_refuses_what_is_not_escaped() {
    assert!(parse("<13>1 - - - - - [fairlead@32473 a=\"b]\"] \u{feff}x").is_none());
    assert!(parse("<13>1 - - - - - [fairlead@32473 a=\"b\"] \u{feff}x\ny").is_none());
}

#[test]
fn texts_make_no_link_and_no_mention_in_a_chat() {
    for text in NASTY {
        let slack = chat::slack(&event(text), Some("#ops"));
        assert!(!slack["text"].as_str().is_some_and(|text| text.contains('<')), "{slack}");
        assert_eq!(slack["blocks"][0]["text"]["type"], "plain_text");
        assert_eq!(slack["channel"], "#ops");
        let teams = chat::teams(&event(text), None);
        let body = &teams["attachments"][0]["content"]["body"];
        let said = body[1]["text"].as_str().unwrap_or_default().replace("\\[", "");
        assert!(!said.contains('['), "{said}");
    }
}

#[test]
fn an_end_resolves_the_alert_that_it_ends() {
    let of = |what, level| {
        let event = Event::new(EventKind::Agent, what, level, "node-1").with("node", "node-1");
        alertmanager::alerts(&event, &[("team".to_owned(), "platform".to_owned())].into())
    };
    let (lost, back) = (of("lost", EventLevel::Error), of("back", EventLevel::Info));
    assert_eq!(lost[0]["labels"], back[0]["labels"]);
    assert_eq!(lost[0]["labels"]["alertname"], "FairleadAgentLost");
    assert_eq!(lost[0]["labels"]["team"], "platform");
    assert!(lost[0].get("endsAt").is_none() && back[0]["endsAt"].is_string());
}

#[test]
fn a_signature_is_that_of_standard_webhooks() {
    // The example of the specification's reference libraries.
    let spec = serde_json::from_value(serde_json::json!({"webhook": {"url": "https://x"}}));
    let key = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_vec();
    let credentials = Credentials::new([("hmac-key".to_owned(), key)]);
    let target = Target::prepare(&spec.expect("a spec"), &credentials).expect("a target");
    let Way::Webhook { key: Some(key), .. } = target.way else { panic!("{target:?}") };
    let signature = webhook::signature(
        &key,
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        br#"{"test": 2432232314}"#,
    );
    assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}
