//! Sends events to a target, each within a deadline.
//!
//! Contract:
//! - `Ok` means that the receiver's server took the event, as far as its protocol says so: a webhook, a chat, an
//!   Alertmanager and a collector answered 2xx, a mail server accepted the mail. Syslog has no answer: over TCP and TLS the bytes
//!   were handed to a connection that was open, over UDP a datagram left.
//! - No redirect is followed and no proxy is used, so that a secret goes nowhere but to the address it was given.
//! - An error is a sentence without anything secret: not the address of a chat's webhook, nor an answer's body.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod http;
mod smtp;
mod stream;
mod syslog;

use std::time::Duration;

use objects::kinds::OtlpEncoding;
use stallproof::Deadline;

use crate::event::Event;
use crate::target::{Target, Way};
use syslog::SyslogStream;

/// For one attempt, from the look-up of the name to the answer.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(15);

/// Why an event was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// The receiver does not answer, or refuses us: the next event would fare no better.
    #[error("{0}")]
    Unavailable(String),
    /// The receiver refuses this event, and may take another.
    #[error("{0}")]
    Refused(String),
    /// The receiver asks to be left alone for a while.
    #[error("{why}; it asks for {after:?}")]
    Later { why: String, after: Duration },
}

/// Sends to one target; keeps a connection where the protocol has one.
#[derive(Debug)]
pub(crate) struct EventSender {
    target: Target,
    syslog: Option<SyslogStream>,
}

impl EventSender {
    pub(crate) fn new(target: Target) -> Self {
        Self { target, syslog: None }
    }

    pub(crate) async fn send(
        &mut self,
        event: &Event,
        deadline: Deadline,
    ) -> Result<(), DeliveryError> {
        let deadline = deadline.within(ATTEMPT);
        let sent = deadline.bound(Box::pin(self.attempt(event, deadline))).await;
        let sent = sent
            .unwrap_or_else(|_| Err(DeliveryError::Unavailable("no answer in time".to_owned())));
        if sent.is_err() {
            self.syslog = None;
        }
        sent
    }

    async fn attempt(&mut self, event: &Event, deadline: Deadline) -> Result<(), DeliveryError> {
        use crate::message::{alertmanager, chat, otlp, webhook};
        let tls = &self.target.tls;
        match &self.target.way {
            Way::Webhook { to, key } => {
                let (body, now) = (webhook::body(event), jiff::Timestamp::now().as_second());
                let mut headers =
                    vec![(webhook::ID, event.id.clone()), (webhook::TIMESTAMP, now.to_string())];
                if let Some(key) = key {
                    let signature = webhook::signature(key, &event.id, now, &body);
                    headers.push((webhook::SIGNATURE, signature));
                }
                http::post(to, http::JSON, &headers, body, tls, deadline).await
            }
            Way::Slack { to, channel } => {
                let body = chat::slack(event, channel.as_deref()).to_string().into_bytes();
                http::post(to, http::JSON, &[], body, tls, deadline).await
            }
            Way::Teams { to, title } => {
                let body = chat::teams(event, title.as_deref()).to_string().into_bytes();
                http::post(to, http::JSON, &[], body, tls, deadline).await
            }
            Way::Alertmanager { to, labels } => {
                let body = alertmanager::alerts(event, labels).to_string().into_bytes();
                http::post(to, http::JSON, &[], body, tls, deadline).await
            }
            Way::Otlp { to, encoding } => {
                let records = [otlp::record(event)];
                let (kind, body) = match encoding {
                    OtlpEncoding::Protobuf => (http::PROTOBUF, crate::otlp::protobuf(&records)),
                    OtlpEncoding::Json => {
                        (http::JSON, crate::otlp::json(&records).to_string().into_bytes())
                    }
                };
                http::post(to, kind, &[], body, tls, deadline).await
            }
            Way::Email(mail) => smtp::send(mail, event, tls, deadline).await,
            Way::Syslog { host, port, transport, facility } => {
                if self.syslog.is_none() {
                    let opened = SyslogStream::open(host, *port, *transport, tls, deadline).await?;
                    self.syslog = Some(opened);
                }
                match &mut self.syslog {
                    Some(stream) => stream.send(event, *facility).await,
                    None => Ok(()),
                }
            }
        }
    }
}
