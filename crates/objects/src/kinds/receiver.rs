//! `Receiver`: somebody who is told of events: an HTTP endpoint, a syslog server, a chat, an Alertmanager, a
//! mailbox, an OpenTelemetry collector.
//!
//! What is secret is in a Secret of Fairlead's own namespace, which is named here. Its keys:
//!
//! | kind | keys |
//! |---|---|
//! | webhook | `hmac-key` signs each request; `authorization` is sent as that header |
//! | slack, teams | `url`, the address of the incoming webhook or of the workflow |
//! | alertmanager | `username` and `password`, or `token` |
//! | email | `username` and `password` |
//! | otlp | `authorization` is sent as that header |
//! | syslog over TLS, and all of HTTP | `tls.crt` and `tls.key`, if the server asks for a certificate |

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field;
use crate::store::{Invalid, Kind};

const LONGEST_URL: usize = 2048;
const LONGEST_ADDRESS: usize = 320;
const LONGEST_COMMENT: usize = 4096;
const LONGEST_CA: usize = 64 << 10;
const MOST_RECIPIENTS: usize = 64;
const MOST_LABELS: usize = 32;
const LONGEST_LABEL: usize = 256;
/// The pattern of a URL without user and fragment.
const URL: &str = r"^https?://[^\s#@]+$";
/// The pattern of a host and its port.
const HOST_AND_PORT: &str = r"^(\[[0-9a-fA-F:.]+\]|[-._a-zA-Z0-9]+):[0-9]{1,5}$";
/// The pattern of a mail address: what has no place in one cannot end a line of SMTP either.
const MAILBOX: &str = r"^[^\s<>@\x00-\x1f\x7f]+@[^\s<>@\x00-\x1f\x7f]+$";

/// Somebody who is told of events.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "Receiver",
    doc = "Somebody who is told of events: exactly one of webhook, syslog, slack, teams, alertmanager, email, otlp.",
    category = "fairlead",
    shortname = "frcv",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Webhook","type":"string","jsonPath":".spec.webhook.url"}"#,
    printcolumn = r#"{"name":"Syslog","type":"string","jsonPath":".spec.syslog.address"}"#,
    printcolumn = r#"{"name":"Secret","type":"string","jsonPath":".spec.secret"}"#,
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ReceiverSpec {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_COMMENT))]
    pub comment: String,
    /// A Secret of Fairlead's own namespace with what is secret of this receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME))]
    pub secret: Option<String>,
    /// Certificate authorities (PEM) of the receiver's server; the public ones if none are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = LONGEST_CA))]
    pub ca: Option<String>,
    /// A disabled receiver is sent nothing, and nothing is kept for it.
    #[serde(default)]
    pub disabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookReceiver>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syslog: Option<SyslogReceiver>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack: Option<SlackReceiver>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teams: Option<TeamsReceiver>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alertmanager: Option<AlertmanagerReceiver>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<EmailReceiver>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otlp: Option<OtlpReceiver>,
}

/// An HTTP endpoint that is sent each event as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookReceiver {
    #[schemars(length(min = 1, max = LONGEST_URL), regex(pattern = URL))]
    pub url: String,
}

/// A syslog server that is sent messages of RFC 5424.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SyslogReceiver {
    /// Host and port.
    #[schemars(length(min = 1, max = LONGEST_ADDRESS), regex(pattern = HOST_AND_PORT))]
    pub address: String,
    /// How messages travel: udp, tcp (counted by octets, RFC 6587) or tls (RFC 5425).
    #[serde(default)]
    pub transport: SyslogTransport,
    /// The facility's number: 16 to 23 are local0 to local7, 10 is security.
    #[serde(default = "facility")]
    #[schemars(range(min = 0, max = 23))]
    pub facility: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SyslogTransport {
    Udp,
    #[default]
    Tcp,
    Tls,
}

/// A Slack channel, by the incoming webhook in the Secret's key `url`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlackReceiver {
    /// Overrides the channel of the webhook, where Slack lets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = LONGEST_LABEL), regex(pattern = field::TEXT))]
    pub channel: Option<String>,
}

/// A Teams channel or chat, by the workflow in the Secret's key `url`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TeamsReceiver {
    /// What stands above each message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = LONGEST_LABEL), regex(pattern = field::TEXT))]
    pub title: Option<String>,
}

/// An Alertmanager, by its API v2.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlertmanagerReceiver {
    /// Where the Alertmanager is, without `/api/v2/alerts`.
    #[schemars(length(min = 1, max = LONGEST_URL), regex(pattern = URL))]
    pub url: String,
    /// Labels that every alert gets beside its own.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = MOST_LABELS,
        "additionalProperties" = {"type": "string", "maxLength": LONGEST_LABEL}
    ))]
    pub labels: std::collections::BTreeMap<String, String>,
}

/// A mailbox, through a server that takes mail for submission.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmailReceiver {
    /// The server's host and port: 587 for starttls, 465 for tls.
    #[schemars(length(min = 1, max = LONGEST_ADDRESS), regex(pattern = HOST_AND_PORT))]
    pub server: String,
    /// How the connection is secured: starttls, tls, or none. Without TLS no password is sent.
    #[serde(default)]
    pub security: MailSecurity,
    #[schemars(length(min = 3, max = LONGEST_ADDRESS), regex(pattern = MAILBOX))]
    pub from: String,
    #[schemars(length(min = 1, max = MOST_RECIPIENTS), inner(length(min = 3, max = LONGEST_ADDRESS), regex(pattern = MAILBOX)))]
    pub to: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MailSecurity {
    #[default]
    Starttls,
    Tls,
    None,
}

/// A collector or backend that takes OpenTelemetry's logs over HTTP (OTLP).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtlpReceiver {
    /// Where the collector is; `/v1/logs` is added if the URL has no path.
    #[schemars(length(min = 1, max = LONGEST_URL), regex(pattern = URL))]
    pub url: String,
    /// How log records are written: protobuf, which every server of OTLP takes, or json.
    #[serde(default)]
    pub encoding: OtlpEncoding,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpEncoding {
    #[default]
    Protobuf,
    Json,
}

fn facility() -> u8 {
    16
}

impl ReceiverSpec {
    /// The words for what this receiver is: one, if the spec is valid.
    pub fn types(&self) -> Vec<&'static str> {
        let Self { webhook, syslog, slack, teams, alertmanager, email, otlp, .. } = self;
        [
            (webhook.is_some(), "webhook"),
            (syslog.is_some(), "syslog"),
            (slack.is_some(), "slack"),
            (teams.is_some(), "teams"),
            (alertmanager.is_some(), "alertmanager"),
            (email.is_some(), "email"),
            (otlp.is_some(), "otlp"),
        ]
        .into_iter()
        .filter_map(|(is, name)| is.then_some(name))
        .collect()
    }
}

fn url(problems: &mut Invalid, at: &str, url: &str) {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '#' | '@');
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(bad) => {}
        _ => problems.add(at, "must be a URL with http:// or https://, without user and fragment"),
    }
    field::no_longer(problems, at, url, LONGEST_URL);
}

/// Splits `HOST:PORT`; an IPv6 address stands in brackets.
pub fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let named = |host: &str| {
        !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    };
    match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
        Some(Some(host)) => host.parse::<std::net::Ipv6Addr>().ok().map(|_| (host, port)),
        Some(None) => None,
        None => named(host).then_some((host, port)),
    }
}

fn address(problems: &mut Invalid, at: &str, text: &str) {
    if host_and_port(text).is_none() || text.len() > LONGEST_ADDRESS {
        problems.add(at, format!("{text:?} is no host and port, as logs.example.com:6514"));
    }
}

fn mailbox(problems: &mut Invalid, at: &str, text: &str) {
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | '@');
    let right = text.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !domain.is_empty() && !local.contains(bad) && !domain.contains(bad)
    });
    if !right || text.chars().count() > LONGEST_ADDRESS {
        problems.add(at, format!("{text:?} is no mail address"));
    }
}

impl Kind for Receiver {
    const NAME: &'static str = "Receiver";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let spec = &self.spec;
        let mut problems = Invalid::default();
        field::no_longer(&mut problems, "spec.comment", &spec.comment, LONGEST_COMMENT);
        match spec.types().len() {
            1 => {}
            0 => problems.add(
                "spec",
                "says nobody: give one of webhook, syslog, slack, teams, alertmanager, email, otlp",
            ),
            _ => problems.add("spec", "names several; make a receiver for each"),
        }
        if let Some(secret) = &spec.secret {
            field::name(&mut problems, "spec.secret", secret);
        }
        if let Some(ca) = &spec.ca {
            field::no_longer(&mut problems, "spec.ca", ca, LONGEST_CA);
            if !ca.contains("-----BEGIN CERTIFICATE-----") {
                problems.add("spec.ca", "holds no PEM certificate");
            }
        }
        if let Some(webhook) = &spec.webhook {
            url(&mut problems, "spec.webhook.url", &webhook.url);
        }
        if let Some(otlp) = &spec.otlp {
            url(&mut problems, "spec.otlp.url", &otlp.url);
        }
        if let Some(syslog) = &spec.syslog {
            address(&mut problems, "spec.syslog.address", &syslog.address);
            if syslog.facility > 23 {
                problems.add("spec.syslog.facility", "must be from 0 to 23");
            }
        }
        if spec.secret.is_none() && (spec.slack.is_some() || spec.teams.is_some()) {
            problems.add("spec.secret", "is missing: its key url has the address of the webhook");
        }
        let slack = spec.slack.as_ref().and_then(|slack| slack.channel.as_ref());
        let teams = spec.teams.as_ref().and_then(|teams| teams.title.as_ref());
        for (at, text) in [("spec.slack.channel", slack), ("spec.teams.title", teams)] {
            if let Some(text) = text {
                field::text(&mut problems, at, text, 1, LONGEST_LABEL);
            }
        }
        if let Some(alertmanager) = &spec.alertmanager {
            url(&mut problems, "spec.alertmanager.url", &alertmanager.url);
            let at = "spec.alertmanager.labels";
            field::at_most(&mut problems, at, alertmanager.labels.len(), MOST_LABELS);
            for (name, value) in &alertmanager.labels {
                let mut bytes = name.bytes();
                let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
                if !first || !bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                    problems.add(format!("{at}[{name}]"), "is no name of a Prometheus label");
                }
                field::no_longer(&mut problems, &format!("{at}[{name}]"), value, LONGEST_LABEL);
            }
        }
        if let Some(email) = &spec.email {
            address(&mut problems, "spec.email.server", &email.server);
            mailbox(&mut problems, "spec.email.from", &email.from);
            if email.to.is_empty() {
                problems.add("spec.email.to", "is empty");
            }
            field::at_most(&mut problems, "spec.email.to", email.to.len(), MOST_RECIPIENTS);
            for (i, to) in email.to.iter().enumerate() {
                mailbox(&mut problems, &format!("spec.email.to[{i}]"), to);
            }
            if email.security == MailSecurity::None && spec.secret.is_some() {
                problems.add("spec.email.security", "is none, and a password needs TLS");
            }
        }
        problems.into_result()
    }
}

#[cfg(test)]
mod tests;
