//! A webhook's body, and its signature as Standard Webhooks (standardwebhooks.com) have it.

use ring::hmac;

use crate::event::Event;
use crate::target::{SigningKey, base64};

pub(crate) const ID: &str = "webhook-id";
pub(crate) const TIMESTAMP: &str = "webhook-timestamp";
pub(crate) const SIGNATURE: &str = "webhook-signature";

pub(crate) fn body(event: &Event) -> Vec<u8> {
    // Texts, numbers and times are JSON.
    serde_json::to_vec(event).unwrap_or_default()
}

/// `v1,` and the HMAC-SHA256 of id, time of sending and body, in base64. The time is that of the attempt, so
/// that a receiver can refuse what somebody recorded and sends again later.
pub(crate) fn signature(key: &SigningKey, id: &str, seconds: i64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(&key.0);
    context.update(format!("{id}.{seconds}.").as_bytes());
    context.update(body);
    format!("v1,{}", base64(context.sign()))
}
