use serde_json::json;

use super::{Receiver, ReceiverSpec, host_and_port};
use crate::store::Kind;

fn problems(spec: serde_json::Value) -> Vec<String> {
    let spec: ReceiverSpec = serde_json::from_value(spec).expect("a spec");
    let checked = Receiver::new("oncall", spec).check();
    checked
        .err()
        .map(|invalid| invalid.0.into_iter().map(|(at, _)| at).collect())
        .unwrap_or_default()
}

#[test]
fn a_receiver_is_exactly_one_kind() {
    let webhook = json!({"url": "https://hooks.example.com/x"});
    let syslog = json!({"address": "logs.example.com:6514", "transport": "tls"});
    assert!(problems(json!({"webhook": webhook})).is_empty());
    assert_eq!(problems(json!({})), ["spec"]);
    assert_eq!(problems(json!({"webhook": webhook, "syslog": syslog})), ["spec"]);
}

#[test]
fn what_would_break_a_protocol_is_refused() {
    for url in ["ftp://x", "https://", "https://u:p@host/", "https://host/a b", "https://h\r\nX: y"]
    {
        assert_eq!(problems(json!({"webhook": {"url": url}})), ["spec.webhook.url"], "{url}");
    }
    let mail = |from: &str, to: &str| {
        problems(json!({"email": {"server": "mail.example.com:587", "from": from, "to": [to]}}))
    };
    assert!(mail("fairlead@example.com", "ops@example.com").is_empty());
    assert_eq!(mail("a@b>\r\nRCPT TO:<x@y", "ops@example.com"), ["spec.email.from"]);
    assert_eq!(mail("a@b", "no one"), ["spec.email.to[0]"]);
    assert_eq!(problems(json!({"syslog": {"address": "logs"}})), ["spec.syslog.address"]);
    let labels = json!({"alertmanager": {"url": "http://am:9093", "labels": {"a-b": "c"}}});
    assert_eq!(problems(labels), ["spec.alertmanager.labels[a-b]"]);
}

#[test]
fn a_chat_needs_its_secret_and_a_password_needs_tls() {
    assert_eq!(problems(json!({"slack": {}})), ["spec.secret"]);
    assert!(problems(json!({"teams": {}, "secret": "teams"})).is_empty());
    let plain = json!({"secret": "mail", "email": {
        "server": "mail:25", "security": "none", "from": "a@b", "to": ["c@d"]
    }});
    assert_eq!(problems(plain), ["spec.email.security"]);
}

#[test]
fn hosts_are_split_from_ports() {
    assert_eq!(host_and_port("logs.example.com:514"), Some(("logs.example.com", 514)));
    assert_eq!(host_and_port("[::1]:514"), Some(("::1", 514)));
    for bad in ["::1:514", "[::1]", "host:0", "host:70000", ":514", "a b:1"] {
        assert_eq!(host_and_port(bad), None, "{bad}");
    }
}
