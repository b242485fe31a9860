use objects::kinds::ReceiverSpec;
use serde_json::json;

use super::{Credentials, Target};

fn prepare(spec: serde_json::Value, secret: &[(&str, &str)]) -> Result<Target, String> {
    let spec: ReceiverSpec = serde_json::from_value(spec).expect("a spec");
    let secret = secret.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    Target::prepare(&spec, &Credentials::new(secret))
}

#[test]
fn nothing_secret_is_shown() {
    let secret = [("hmac-key", "a key that nobody may see"), ("authorization", "Bearer hush")];
    let credentials =
        Credentials::new(secret.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())));
    let webhook = prepare(json!({"webhook": {"url": "https://hooks.example.com"}}), &secret);
    let url = [("url", "https://hooks.slack.example.com/services/T0/B0/hush")];
    let slack = prepare(json!({"secret": "slack", "slack": {}}), &url);
    let mail = prepare(
        json!({"email": {"server": "mail:587", "from": "a@b", "to": ["c@d"]}}),
        &[("username", "u"), ("password", "hush")],
    );
    let shown = format!("{webhook:?} {slack:?} {mail:?} {credentials:?}");
    assert!(!shown.contains("hush") && !shown.contains("nobody may see"), "{shown}");
    assert!(shown.contains("hooks.slack.example.com"), "{shown}");
}

#[test]
fn what_is_secret_is_sent_under_tls_alone() {
    let plain = json!({"webhook": {"url": "http://hooks.example.com"}});
    assert!(prepare(plain.clone(), &[]).is_ok());
    assert!(prepare(plain.clone(), &[("hmac-key", "sixteen bytes of key")]).is_ok());
    assert!(prepare(plain, &[("authorization", "Bearer hush")]).is_err());
    let url = [("url", "http://hooks.slack.example.com/services/hush")];
    let refused = prepare(json!({"secret": "slack", "slack": {}}), &url);
    assert!(refused.is_err_and(|why| !why.contains("hush")));
    let mail =
        json!({"email": {"server": "m:25", "security": "none", "from": "a@b", "to": ["c@d"]}});
    assert!(prepare(mail, &[("username", "u"), ("password", "hush")]).is_err());
}

#[test]
fn a_short_key_and_a_missing_address_are_refused() {
    let webhook = json!({"webhook": {"url": "https://hooks.example.com"}});
    assert!(prepare(webhook.clone(), &[("hmac-key", "short")]).is_err());
    assert!(prepare(webhook, &[("hmac-key", "whsec_!!")]).is_err());
    assert!(prepare(json!({"secret": "s", "teams": {}}), &[]).is_err());
    assert!(prepare(json!({"ca": "nonsense", "syslog": {"address": "a:1"}}), &[]).is_ok());
}
