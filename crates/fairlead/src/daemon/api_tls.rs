//! The API's certificate: from files, or of the authority that the webhook's is of, too. The leader makes
//! and renews that one; every replica serves with it as soon as it follows.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use edge::api::OwnCertificate;
use edge::tls::{CertificateFiles, ListenerTls, ManagedCertificate};
use pki::Certificates;
use stallproof::readiness::Component;
use stallproof::{Stop, Tasks};
use tracing::warn;

use crate::config::{Config, Store, TlsSource};
use crate::values;

/// The Service by which the API is reached in its cluster.
const SERVICE: &str = "fairlead";
/// In the data directory: whom a client on this machine is to trust.
const BUNDLE: &str = "ca.crt";

/// Whether the API serves with a certificate of our own making.
pub(crate) fn is_auto(config: &Config) -> bool {
    config.api.tls == TlsSource::Auto
}

/// The hosts that such a certificate is for: the same on every replica, because all serve with one.
pub(crate) fn names(config: &Config) -> Vec<String> {
    if !is_auto(config) {
        return Vec::new();
    }
    let namespace = &config.fleet.namespace;
    let mut names = match config.store {
        Store::Kubernetes => vec![
            format!("{SERVICE}.{namespace}.svc"),
            format!("{SERVICE}.{namespace}"),
            SERVICE.to_owned(),
        ],
        Store::Embedded => vec![values::machine_name(), config.api.listen.local_host()],
    };
    names.extend(["localhost", "127.0.0.1", "::1"].map(String::from));
    names.extend(config.api.names.iter().cloned());
    let mut once = Vec::new();
    names.retain(|name| {
        let first = !once.contains(name);
        once.push(name.clone());
        first
    });
    names
}

/// The certificate of our own making that the API is served with, if it is.
pub(crate) fn own_certificate(
    config: &Config,
    certificates: Option<&Certificates>,
) -> Option<OwnCertificate> {
    let certificates = certificates.filter(|_| is_auto(config))?.clone();
    Some(OwnCertificate { names: names(config), certificates })
}

/// How the API is served: with `files`, or with those of our own making. `served` is told when there is
/// one to serve with.
pub(crate) fn begin(
    config: &Config,
    files: Option<Arc<CertificateFiles>>,
    certificates: Option<&Certificates>,
    served: Component,
    tasks: &Tasks,
) -> ListenerTls {
    let stop = tasks.stopping();
    let Some(certificates) = certificates.filter(|_| is_auto(config)) else {
        served.ready();
        tasks.spawn("api-readiness", async move {
            stop.stopped().await;
            served.not_ready("stopped");
        });
        return files.map_or(ListenerTls::Plain, ListenerTls::Files);
    };
    served.not_ready("the leader has not made its certificate yet");
    let held = Arc::new(ManagedCertificate::default());
    let keeping = held.clone().follow("api", certificates.clone(), tasks.stopping());
    tasks.spawn("api-certificate", keeping);
    let there = held.clone();
    tasks.spawn("api-readiness", async move {
        if stop.bound(there.ready()).await.is_some() {
            served.ready();
        }
        stop.stopped().await;
        served.not_ready("stopped");
    });
    let writing = write_bundle(config.data.join(BUNDLE), certificates.clone(), tasks.stopping());
    tasks.spawn("api-authority", writing);
    ListenerTls::Managed(held)
}

/// Keeps whom to trust in a file, for clients on this machine.
async fn write_bundle(path: PathBuf, certificates: Certificates, stop: Stop) {
    let mut changes = certificates.changes();
    let mut written = None;
    loop {
        let bundle = certificates.bundle().filter(|bundle| written.as_ref() != Some(bundle));
        if let Some(bundle) = bundle {
            if let Err(error) = replace(&path, bundle.as_bytes()) {
                let path = path.display();
                warn!(%path, %error, "whom to trust cannot be written for clients on this machine");
            }
            written = Some(bundle);
        }
        if stop.bound(changes.changed()).await.is_none() {
            return;
        }
    }
}

/// Whole or not at all.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o644).open(&draft)?;
    file.write_all(text)?;
    std::fs::rename(&draft, path)
}
