//! The API.

use std::path::PathBuf;

use super::listen::{self, ListenAddress};
use super::{Setting, TlsSource};
use crate::cli::values;

#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) listen: ListenAddress,
    pub(crate) tls: TlsSource,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    /// Hosts that a certificate of our own making is for, beside those that are known.
    pub(crate) names: Vec<String>,
}

impl Default for Api {
    fn default() -> Self {
        let listen = ListenAddress::loopback(7680);
        Self { listen, tls: TlsSource::Files, tls_cert: None, tls_key: None, names: Vec::new() }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "api.listen",
        metavar: "ADDR",
        help: "The API that the command line and programs speak to; beyond loopback only with TLS",
        allowed: listen::ALLOWED,
        take: |c, v| v.parse().ok().map(|v| c.api.listen = v),
        show: |c| c.api.listen.to_string(),
    },
    Setting {
        key: "api.tls",
        metavar: "SOURCE",
        help: "Certificate of the API: `files` takes api.tls-cert and api.tls-key (none of them: no TLS); `auto` takes one of an authority of its own, which is published in the ConfigMap fairlead-ca and in ca.crt in the data directory",
        allowed: TlsSource::ALLOWED,
        take: |c, v| TlsSource::parse(v).map(|v| c.api.tls = v),
        show: |c| c.api.tls.name().to_owned(),
    },
    Setting {
        key: "api.tls-cert",
        metavar: "FILE",
        help: "Certificate chain (PEM) for the API",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.api.tls_cert = Some(v)),
        show: |c| values::show_path(c.api.tls_cert.as_deref()),
    },
    Setting {
        key: "api.tls-key",
        metavar: "FILE",
        help: "Private key (PEM) for the API; readable by its owner only",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.api.tls_key = Some(v)),
        show: |c| values::show_path(c.api.tls_key.as_deref()),
    },
    Setting {
        key: "api.names",
        metavar: "LIST",
        help: "Names and addresses by which clients reach the API, for its certificate with api.tls=auto, beside those of the Service and of loopback; separated by commas",
        allowed: "none, or names and addresses separated by commas, such as fairlead.example.com",
        take: |c, v| values::words(v, host).map(|v| c.api.names = v),
        show: |c| values::show_words(&c.api.names),
    },
];

/// A name or an address, with nothing beside it.
fn host(text: &str) -> Option<String> {
    let is_address = text.parse::<std::net::IpAddr>().is_ok();
    (is_address || values::node(text).is_some()).then(|| text.to_owned())
}
