//! `Failure`: why a cluster cannot be used, as a reason and as a sentence for the user.
//!
//! The sentence says what happened and, where one thing helps, what to do. It never has a credential.

use std::error::Error as StdError;
use std::time::Duration;

use rustls::CertificateError;

use crate::client::is_anonymous;
use crate::credentials::Access;
use crate::dial::DialError;
use crate::view::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) why: String,
}

/// The kinds of failures. They are few, because they are the values of a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    Name,
    Refused,
    Timeout,
    Network,
    Proxy,
    Certificate,
    Tls,
    Unauthorised,
    NotAnApiServer,
    ServerError,
    Setup,
    Plugin,
}

impl Reason {
    pub(crate) const ALL: [Self; 12] = [
        Self::Name,
        Self::Refused,
        Self::Timeout,
        Self::Network,
        Self::Proxy,
        Self::Certificate,
        Self::Tls,
        Self::Unauthorised,
        Self::NotAnApiServer,
        Self::ServerError,
        Self::Setup,
        Self::Plugin,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::Proxy => "proxy",
            Self::Certificate => "certificate",
            Self::Tls => "tls",
            Self::Unauthorised => "unauthorised",
            Self::NotAnApiServer => "not_an_api_server",
            Self::ServerError => "server_error",
            Self::Setup => "setup",
            Self::Plugin => "plugin",
        }
    }

    /// The state of a cluster that fails for this reason.
    pub(crate) fn state(self) -> State {
        match self {
            Self::Name
            | Self::Refused
            | Self::Timeout
            | Self::Network
            | Self::Proxy
            | Self::Tls
            | Self::ServerError => State::Unreachable,
            Self::Unauthorised | Self::Plugin => State::Unauthorised,
            Self::Certificate | Self::NotAnApiServer | Self::Setup => State::Misconfigured,
        }
    }
}

impl Failure {
    pub(crate) fn new(reason: Reason, why: impl Into<String>) -> Self {
        Self { reason, why: why.into() }
    }

    pub(crate) fn setup(why: impl Into<String>) -> Self {
        Self::new(Reason::Setup, why)
    }

    /// There was no answer in time.
    pub(crate) fn no_answer(what: &str, within: Duration) -> Self {
        Self::new(Reason::Timeout, format!("no answer to {what} within {}", short(within)))
    }

    /// Explains a failed request to the server of `access`.
    pub(crate) fn of(error: &kube::Error, access: &Access) -> Self {
        let server = access.endpoint.address();
        match error {
            kube::Error::Api(status) => match status.code {
                401 => Self::new(
                    Reason::Unauthorised,
                    format!("{server} does not accept {}", access.auth.describe()),
                ),
                _ if is_anonymous(status) => Self::new(
                    Reason::Unauthorised,
                    format!(
                        "{server} sees us as system:anonymous: the context's user has no \
                         credentials, or none it knows"
                    ),
                ),
                500.. => Self::new(
                    Reason::ServerError,
                    format!("{server} answers {}{}", status.code, said(&status.message)),
                ),
                code => Self::new(
                    Reason::NotAnApiServer,
                    format!(
                        "{server} answers {code} where an API server tells its version; is the address right?"
                    ),
                ),
            },
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::new(
                Reason::NotAnApiServer,
                format!(
                    "{server} answers, but not as a Kubernetes API server; is the address right?"
                ),
            ),
            other => chain(other)
                .find_map(|cause| cause.downcast_ref::<DialError>())
                .map_or_else(|| Self::broken(other, &server), |dial| dial.failure(&server)),
        }
    }

    fn broken(error: &kube::Error, server: &str) -> Self {
        // A server that wants another client certificate says so only after the handshake.
        let tls = chain(error).find_map(tls_error);
        if let Some(tls) = tls {
            return Self::of_tls(tls, server);
        }
        let last = chain(error).last().map(ToString::to_string).unwrap_or_default();
        Self::new(Reason::Network, format!("the connection to {server} broke: {last}"))
    }

    pub(crate) fn of_tls(error: &rustls::Error, server: &str) -> Self {
        let certificate = |what: String| Self::new(Reason::Certificate, what);
        let rustls::Error::InvalidCertificate(problem) = error else {
            return match error {
                rustls::Error::AlertReceived(alert) => Self::new(
                    Reason::Tls,
                    format!(
                        "{server} ended the TLS handshake: {alert:?}; does it want another client certificate?"
                    ),
                ),
                rustls::Error::InvalidMessage(_) => Self::new(
                    Reason::NotAnApiServer,
                    format!(
                        "{server} does not speak TLS; is the port right, or should the address begin with http://?"
                    ),
                ),
                other => Self::new(Reason::Tls, format!("TLS with {server} failed: {other}")),
            };
        };
        match problem {
            // A bad signature comes from another authority with the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                certificate(format!(
                    "the certificate of {server} is from an authority that we do not know; set \
                 certificate-authority-data of the context's cluster to the CA that signed it"
                ))
            }
            CertificateError::NotValidForName => {
                certificate(format!("the certificate of {server} is for another name; {NAME_FIX}"))
            }
            CertificateError::NotValidForNameContext { presented, .. } => certificate(format!(
                "the certificate of {server} is for {} and not for this name; {NAME_FIX}",
                names(presented)
            )),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                let when = match problem {
                    CertificateError::ExpiredContext { not_after, .. } => on(*not_after),
                    _ => String::new(),
                };
                certificate(format!(
                    "the certificate of {server} expired{when}; renew it there (kubeadm certs renew \
                     apiserver, or whatever issued it), or set this machine's clock"
                ))
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                certificate(format!(
                    "the certificate of {server} is not valid yet; is this machine's clock right?"
                ))
            }
            other => certificate(format!("the certificate of {server} is not acceptable: {other}")),
        }
    }
}

const NAME_FIX: &str = "use a name it has in the server's address, or set tls-server-name to one";

/// Lists the first few of a certificate's names.
fn names(presented: &[String]) -> String {
    let clean = |name: &String| {
        // rustls writes them as `DnsName("a.example")`.
        let inner = name.split_once('(').map_or(name.as_str(), |(_, rest)| rest);
        inner.trim_matches(|c| c == ')' || c == '"').to_owned()
    };
    let mut shown: Vec<_> = presented.iter().take(3).map(clean).collect();
    if presented.len() > shown.len() {
        shown.push("…".to_owned());
    }
    if shown.is_empty() { "no name at all".to_owned() } else { shown.join(", ") }
}

fn on(time: rustls::pki_types::UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or(String::new(), |at| format!(" on {at}"))
}

fn said(message: &str) -> String {
    let line = one_line(message, 200);
    if line.is_empty() { line } else { format!(": {line}") }
}

/// Makes a foreign text fit into a sentence: one line, no control characters, a bounded length.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let mut line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(most) {
        line.truncate(end);
        line.push('…');
    }
    line
}

pub(crate) fn short(duration: Duration) -> String {
    let tenths = (duration.as_secs_f64() * 10.0).round();
    if tenths % 10.0 == 0.0 {
        format!("{:.0} s", tenths / 10.0)
    } else {
        format!("{:.1} s", tenths / 10.0)
    }
}

fn chain<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// Returns rustls' own error, also from within an `io::Error`, whose `source` skips the error in it.
pub(crate) fn tls_error<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e rustls::Error> {
    let in_io = || tls_error(error.downcast_ref::<std::io::Error>()?.get_ref()?);
    error.downcast_ref::<rustls::Error>().or_else(in_io)
}

#[cfg(test)]
mod tests;
