//! Health, metrics and debug endpoints.

use std::path::PathBuf;

use super::listen::{self, ListenAddress};
use super::{Setting, TlsSource};
use crate::cli::values;

#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) listen: ListenAddress,
    pub(crate) tls: TlsSource,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) profiling: bool,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            listen: ListenAddress::loopback(7682),
            tls: TlsSource::Files,
            tls_cert: None,
            tls_key: None,
            token_file: None,
            profiling: false,
        }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "admin.listen",
        metavar: "ADDR",
        help: "Health, metrics and debug endpoints; beyond loopback only with TLS, and without a token only /livez and /readyz",
        allowed: listen::ALLOWED,
        take: |c, v| v.parse().ok().map(|v| c.admin.listen = v),
        show: |c| c.admin.listen.to_string(),
    },
    Setting {
        key: "admin.tls",
        metavar: "SOURCE",
        help: "Certificate of the admin endpoints: `files` takes admin.tls-cert and admin.tls-key; `auto` makes one at each start, for addresses beyond loopback, and stays plain on loopback",
        allowed: TlsSource::ALLOWED,
        take: |c, v| TlsSource::parse(v).map(|v| c.admin.tls = v),
        show: |c| c.admin.tls.name().to_owned(),
    },
    Setting {
        key: "admin.tls-cert",
        metavar: "FILE",
        help: "Certificate chain (PEM) for the admin endpoints",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.admin.tls_cert = Some(v)),
        show: |c| values::show_path(c.admin.tls_cert.as_deref()),
    },
    Setting {
        key: "admin.tls-key",
        metavar: "FILE",
        help: "Private key (PEM) for the admin endpoints; readable by its owner only",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.admin.tls_key = Some(v)),
        show: |c| values::show_path(c.admin.tls_key.as_deref()),
    },
    Setting {
        key: "admin.token-file",
        metavar: "FILE",
        help: "Bearer token for the admin endpoints (/livez and /readyz need none)",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.admin.token_file = Some(v)),
        show: |c| values::show_path(c.admin.token_file.as_deref()),
    },
    Setting {
        key: "admin.profiling",
        metavar: "BOOL",
        help: "Serve CPU and heap profiles under /debug/pprof/",
        allowed: "true or false",
        take: |c, v| v.parse().ok().map(|v| c.admin.profiling = v),
        show: |c| c.admin.profiling.to_string(),
    },
];
