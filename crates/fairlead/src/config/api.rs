//! The API.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Setting;
use crate::values;

#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) listen: SocketAddr,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
}

impl Default for Api {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 7680)), tls_cert: None, tls_key: None }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "api.listen",
        metavar: "ADDR",
        help: "The API that the command line and programs speak to; beyond loopback only with TLS",
        allowed: "an address and port, such as 127.0.0.1:7680 or [::1]:7680",
        take: |c, v| v.parse().ok().map(|v| c.api.listen = v),
        show: |c| c.api.listen.to_string(),
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
];
