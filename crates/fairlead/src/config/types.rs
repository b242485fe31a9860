//! Types that only settings have.

use std::fmt;

use super::formats::{Format, one_of};
use crate::values;

/// Where objects live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// In the data directory.
    Embedded,
    /// In the API server of this pod, or of the current kubeconfig context.
    Kubernetes,
}

impl Store {
    pub(super) fn format() -> Format<Self> {
        one_of([("embedded", Self::Embedded), ("kubernetes", Self::Kubernetes)])
    }
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// Where it makes sense; the setting's help says where that is.
    Auto,
    On,
    Off,
}

impl Switch {
    pub(super) fn format() -> Format<Self> {
        one_of([("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)])
    }
}

/// Where a listener's certificate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsSource {
    /// A certificate and a key on disk, where they are set.
    Files,
    /// A certificate that this process makes.
    Auto,
}

impl TlsSource {
    pub(super) fn format() -> Format<Self> {
        one_of([("files", Self::Files), ("auto", Self::Auto)])
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Auto,
    Human,
    Json,
}

impl LogFormat {
    pub(super) fn format() -> Format<Self> {
        one_of([("auto", Self::Auto), ("human", Self::Human), ("json", Self::Json)])
    }
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl Service {
    pub(super) fn format() -> Format<Self> {
        let expected = "a namespace and a name, with a port other than 443 after a colon: \
                        fairlead/webhook, fairlead/webhook:7683";
        Format::new(expected, Self::read, |Self { namespace, name, port }| {
            format!("{namespace}/{name}:{port}")
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (namespace, rest) = text.split_once('/')?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, port.parse().ok().filter(|port| *port != 0)?),
            None => (rest, 443),
        };
        Some(Self { namespace: values::label(namespace)?, name: values::label(name)?, port })
    }
}

/// The namespace and the name of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The service account of agents that enrol as pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceAccount {
    /// `fairlead-agent` in the fleet's namespace.
    Auto,
    None,
    Named(ObjectName),
}

impl ServiceAccount {
    pub(super) fn format() -> Format<Self> {
        let expected = "auto, none, or a namespace and a name, such as fairlead/fairlead-agent";
        Format::new(expected, Self::read, Self::to_string)
    }

    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "auto" => Self::Auto,
            "none" => Self::None,
            _ => {
                let (namespace, name) = text.split_once('/')?;
                let (namespace, name) = (values::label(namespace)?, values::node(name)?);
                Self::Named(ObjectName { namespace, name })
            }
        })
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Named(ObjectName { namespace, name }) => write!(f, "{namespace}/{name}"),
        }
    }
}

/// `https://host:port`, with nothing behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpsUrl {
    pub(crate) base: String,
    pub(crate) host: String,
}

impl HttpsUrl {
    pub(super) fn format() -> Format<Self> {
        let expected = "https, a host and a port, such as https://fairlead.example.com:7683";
        Format::new(expected, Self::read, |url| url.base.clone())
    }

    fn read(text: &str) -> Option<Self> {
        let base = text.trim_end_matches('/');
        let url: http::Uri = base.parse().ok()?;
        let plain = url.scheme_str() == Some("https") && matches!(url.path(), "" | "/");
        let place = url.authority().filter(|place| !place.as_str().contains('@'))?;
        let host = place.host().trim_start_matches('[').trim_end_matches(']');
        (plain && url.query().is_none() && !host.is_empty())
            .then(|| Self { base: base.to_owned(), host: host.to_owned() })
    }
}
