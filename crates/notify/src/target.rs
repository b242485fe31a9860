//! `Target`: a receiver that can be sent to: its spec with what is secret, checked and ready.
//!
//! Contract: `Debug` shows nothing secret, and neither does an error.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::Uri;
use objects::kinds::{MailSecurity, OtlpEncoding, ReceiverSpec, SyslogTransport, host_and_port};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The label of Secrets that receivers may name: without it a receiver could have any Secret of Fairlead's
/// own namespace sent away.
pub const SECRET_LABEL: &str = "fairlead.dev/receiver";

/// The values of a receiver's Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials(BTreeMap<String, Vec<u8>>);

impl Credentials {
    pub fn new(values: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        Self(values.into_iter().collect())
    }

    /// A text without the line break that an editor leaves at its end.
    fn text(&self, key: &str) -> Option<String> {
        let text = std::str::from_utf8(self.0.get(key)?).ok()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(Vec::as_slice).filter(|bytes| !bytes.is_empty())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hidden(pub(crate) String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// A receiver that can be sent to.
#[derive(Clone, Debug)]
pub struct Target {
    pub(crate) way: Way,
    pub(crate) tls: Arc<ClientConfig>,
}

#[derive(Clone, Debug)]
pub(crate) enum Way {
    Webhook { to: HttpTarget, key: Option<SigningKey> },
    Slack { to: HttpTarget, channel: Option<String> },
    Teams { to: HttpTarget, title: Option<String> },
    Alertmanager { to: HttpTarget, labels: BTreeMap<String, String> },
    Syslog { host: String, port: u16, transport: SyslogTransport, facility: u8 },
    Email(Box<MailTarget>),
    Otlp { to: HttpTarget, encoding: OtlpEncoding },
}

/// Where a request goes. The address of a chat's webhook is itself a secret.
#[derive(Clone)]
pub(crate) struct HttpTarget {
    pub(crate) url: Uri,
    pub(crate) authorization: Option<Hidden>,
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.host().unwrap_or_default())
    }
}

/// The key of a webhook's signatures.
#[derive(Clone, Debug)]
pub(crate) struct SigningKey(pub(crate) ring::hmac::Key);

#[derive(Clone, Debug)]
pub(crate) struct MailTarget {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) security: MailSecurity,
    pub(crate) from: String,
    pub(crate) to: Vec<String>,
    pub(crate) login: Option<(String, Hidden)>,
}

impl Target {
    /// Prepares a receiver; the error is a sentence that says what to do.
    pub fn prepare(spec: &ReceiverSpec, credentials: &Credentials) -> Result<Self, String> {
        let tls = tls(spec.ca.as_deref(), credentials)?;
        let url_of_chat = || {
            let url = credentials.text("url");
            url.ok_or("its Secret has no key url with the address of the webhook; add it")
        };
        let way = if let Some(webhook) = &spec.webhook {
            let authorization = credentials.text("authorization").map(Hidden);
            let key = credentials.text("hmac-key").map(|key| signing_key(&key)).transpose()?;
            Way::Webhook { to: http_target(&webhook.url, authorization)?, key }
        } else if let Some(slack) = &spec.slack {
            Way::Slack { to: secret_address(&url_of_chat()?)?, channel: slack.channel.clone() }
        } else if let Some(teams) = &spec.teams {
            Way::Teams { to: secret_address(&url_of_chat()?)?, title: teams.title.clone() }
        } else if let Some(alertmanager) = &spec.alertmanager {
            let token = credentials.text("token").map(|token| format!("Bearer {token}"));
            let pair = credentials.text("username").zip(credentials.text("password"));
            let basic = pair
                .map(|(user, password)| format!("Basic {}", base64(format!("{user}:{password}"))));
            let base = alertmanager.url.trim_end_matches('/');
            let url = format!("{}/api/v2/alerts", base.trim_end_matches("/api/v2/alerts"));
            let to = http_target(&url, token.or(basic).map(Hidden))?;
            Way::Alertmanager { to, labels: alertmanager.labels.clone() }
        } else if let Some(syslog) = &spec.syslog {
            let (host, port) = host_and_port(&syslog.address)
                .ok_or_else(|| format!("{:?} is no host and port", syslog.address))?;
            let (transport, facility) = (syslog.transport, syslog.facility.min(23));
            Way::Syslog { host: host.to_owned(), port, transport, facility }
        } else if let Some(email) = &spec.email {
            let (host, port) = host_and_port(&email.server)
                .ok_or_else(|| format!("{:?} is no host and port", email.server))?;
            let login = match (credentials.text("username"), credentials.text("password")) {
                (Some(user), Some(password)) => Some((user, Hidden(password))),
                (None, None) => None,
                _ => return Err("its Secret has only one of username and password".to_owned()),
            };
            if login.is_some() && email.security == MailSecurity::None {
                return Err("a password is sent under TLS alone; set security to starttls or tls"
                    .to_owned());
            }
            Way::Email(Box::new(MailTarget {
                host: host.to_owned(),
                port,
                security: email.security,
                from: email.from.clone(),
                to: email.to.clone(),
                login,
            }))
        } else if let Some(otlp) = &spec.otlp {
            let authorization = credentials.text("authorization").map(Hidden);
            let mut to = http_target(&otlp.url, authorization)?;
            if matches!(to.url.path(), "" | "/") && to.url.query().is_none() {
                let url = format!("{}{}", otlp.url.trim_end_matches('/'), crate::otlp::PATH);
                to = http_target(&url, to.authorization)?;
            }
            Way::Otlp { to, encoding: otlp.encoding }
        } else {
            return Err(
                "it says nobody: give one of webhook, syslog, slack, teams, alertmanager, email, otlp"
                    .to_owned(),
            );
        };
        Ok(Self { way, tls })
    }
}

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn http_target(url: &str, authorization: Option<Hidden>) -> Result<HttpTarget, String> {
    let uri: Uri = url.parse().map_err(|_| format!("{url:?} is no URL"))?;
    let host = uri.host().ok_or_else(|| format!("{url:?} names no host"))?;
    let bare = host.trim_matches(['[', ']']);
    let local = bare == "localhost"
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if authorization.is_some() && uri.scheme_str() != Some("https") && !local {
        return Err(
            "its Secret has a password or token, which is sent under https alone".to_owned()
        );
    }
    Ok(HttpTarget { url: uri, authorization })
}

/// As [`http_target`], without a word of the address in an error.
fn secret_address(url: &str) -> Result<HttpTarget, String> {
    let wrong = || "the key url of its Secret is no URL with https://".to_owned();
    let target = http_target(url, None).map_err(|_| wrong())?;
    let host = target.url.host().unwrap_or_default().trim_matches(['[', ']']);
    let local = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if target.url.scheme_str() != Some("https") && !local {
        return Err(wrong());
    }
    Ok(target)
}

/// `whsec_` and base64, as Standard Webhooks write keys, or any text of 16 bytes and more.
fn signing_key(text: &str) -> Result<SigningKey, String> {
    use ::base64::Engine;
    let key = match text.strip_prefix("whsec_") {
        Some(encoded) => ::base64::engine::general_purpose::STANDARD
            .decode(encoded)
            .map_err(|_| "the key hmac-key of its Secret is not base64 after whsec_".to_owned())?,
        None => text.as_bytes().to_vec(),
    };
    if key.len() < 16 {
        return Err(
            "the key hmac-key of its Secret is shorter than 16 bytes; make a longer one".to_owned()
        );
    }
    Ok(SigningKey(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key)))
}

fn tls(ca: Option<&str>, credentials: &Credentials) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate =
                    certificate.map_err(|error| format!("spec.ca is not PEM: {error}"))?;
                roots.add(certificate).map_err(|error| format!("spec.ca: {error}"))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let config = match (credentials.bytes("tls.crt"), credentials.bytes("tls.key")) {
        (Some(chain), Some(key)) => {
            let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
            let chain = chain.map_err(|_| "the key tls.crt of its Secret is not PEM".to_owned())?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| "the key tls.key of its Secret is not PEM".to_owned())?;
            config.with_client_auth_cert(chain, key).map_err(|_| {
                "tls.crt and tls.key of its Secret do not belong together".to_owned()
            })?
        }
        _ => config.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests;
