//! The certificates of listeners: from files, read again when they change ([`CertificateFiles`]), or handed
//! over by their keeper ([`ManagedCertificate`]). Rotating one needs no restart. [`ListenerTls`] is a listener's choice
//! between them, and of whose clients it lets in ([`ClientAuthorities`]).

mod clients;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pki::Certificates;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use stallproof::{Snapshot, Stop, Tasks};
use tokio_rustls::TlsAcceptor;

pub use clients::ClientAuthorities;

/// How often the files are looked at: two `stat`s, and a rotation has days.
const CHECK: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path}: not a PEM certificate chain")]
    Certificate { path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("{path}: holds no certificate")]
    NoCertificate { path: PathBuf },
    #[error("{path}: not a PEM private key")]
    Key { path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("{cert} and {key} do not belong together or cannot be used")]
    Unusable { cert: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("{path}: holds a certificate that is of no authority")]
    Authority { path: PathBuf, source: rustls::Error },
    #[error("a certificate that was handed over is not PEM")]
    NotPem(#[from] rustls::pki_types::pem::Error),
    #[error("a certificate that was handed over cannot be used")]
    UnusableHeld(#[from] rustls::Error),
    #[error("a certificate cannot be made")]
    Unmade(#[from] rcgen::Error),
}

/// A certificate and key on disk, and the newest valid pair read from there.
#[derive(Debug)]
pub struct CertificateFiles {
    cert: PathBuf,
    key: PathBuf,
    /// Written by `refresh`, read by every handshake.
    current: Snapshot<Loaded>,
}

#[derive(Clone, Debug)]
struct Loaded {
    certified: Arc<CertifiedKey>,
    changed: [Option<SystemTime>; 2],
}

impl CertificateFiles {
    pub fn load(cert: PathBuf, key: PathBuf) -> Result<Arc<Self>, TlsError> {
        let loaded = Loaded { changed: changed(&cert, &key), certified: read(&cert, &key)? };
        Ok(Arc::new(Self { cert, key, current: Snapshot::new(loaded) }))
    }

    /// Reads the files again if they changed. While they are unusable (half written, say) the pair
    /// from before stays in use.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let changed = changed(&self.cert, &self.key);
        if changed == self.current.load().changed {
            return Ok(false);
        }
        let certified = read(&self.cert, &self.key)?;
        Ok(self.current.update(|loaded| {
            *loaded = Loaded { certified, changed };
            true
        }))
    }

    /// Follows the files until `stop`. `whose` names the listener in the log.
    pub async fn keep_current(self: Arc<Self>, whose: &'static str, stop: Stop) {
        while stop.bound(tokio::time::sleep(CHECK)).await.is_some() {
            match self.refresh() {
                Ok(true) => tracing::info!(whose, "certificate replaced"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(whose, %error, "the new certificate is unusable, keeping the old one");
                }
            }
        }
    }

    /// Serves with whatever pair is current at each handshake.
    pub fn acceptor(self: &Arc<Self>, protocols: &[&str]) -> TlsAcceptor {
        acceptor(self.clone(), protocols, None)
    }
}

/// How a listener's connections are secured.
#[derive(Clone, Debug)]
pub enum ListenerTls {
    /// Connections are not encrypted: for loopback.
    Plain,
    Files(Arc<CertificateFiles>),
    Managed(Arc<ManagedCertificate>),
    /// As `Managed`, but a connection to a loopback address may be plain, and is treated as one of a
    /// listener on loopback.
    ManagedBeyondLoopback(Arc<ManagedCertificate>),
    /// As `Managed`, for clients with a certificate of these authorities alone.
    ManagedForClients(Arc<ManagedCertificate>, Arc<ClientAuthorities>),
}

impl ListenerTls {
    pub fn scheme(&self) -> &'static str {
        if self.is_plain() { "http" } else { "https" }
    }

    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Follows the files, where there are any, for as long as `tasks` runs. `whose` names the listener.
    pub(crate) fn keep_current(&self, whose: &'static str, tasks: &Tasks) {
        match self {
            Self::Files(certificate) => {
                let keeping = certificate.clone().keep_current(whose, tasks.stopping());
                tasks.spawn("certificate", keeping);
            }
            Self::ManagedForClients(_, clients) => {
                let keeping = clients.clone().keep_current(whose, tasks.stopping());
                tasks.spawn("client-authorities", keeping);
            }
            Self::Plain | Self::Managed(_) | Self::ManagedBeyondLoopback(_) => {}
        }
    }

    /// The acceptor; none where connections are plain.
    pub(crate) fn acceptor(&self, protocols: &[&str]) -> Option<TlsAcceptor> {
        match self {
            Self::Plain => None,
            Self::Files(certificate) => Some(certificate.acceptor(protocols)),
            Self::Managed(held) | Self::ManagedBeyondLoopback(held) => {
                Some(held.acceptor(protocols))
            }
            Self::ManagedForClients(held, clients) => {
                Some(acceptor(held.clone(), protocols, Some(clients.clone())))
            }
        }
    }
}

/// A certificate that is kept elsewhere; none until it is handed over.
#[derive(Debug, Default)]
pub struct ManagedCertificate {
    /// Written by `replace`, read by every handshake.
    current: Snapshot<Option<Arc<CertifiedKey>>>,
}

impl ManagedCertificate {
    /// A self-signed certificate, made now: for callers that do not verify it, such as a kubelet's probe.
    pub fn self_signed(names: &[String]) -> Result<Arc<Self>, TlsError> {
        let made = rcgen::generate_simple_self_signed(names)?;
        let held = Arc::new(Self::default());
        held.replace(&made.cert.pem(), &made.signing_key.serialize_pem())?;
        Ok(held)
    }

    /// Serves with this pair (PEM) from now on.
    pub fn replace(&self, cert: &str, key: &str) -> Result<(), TlsError> {
        let chain =
            CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        self.current.update(|current| {
            *current = Some(Arc::new(certified));
            true
        });
        Ok(())
    }

    /// Waits until there is a certificate.
    pub async fn ready(&self) {
        let mut changes = self.current.subscribe();
        while self.current.read(Option::is_none) {
            changes.changed().await;
        }
    }

    /// Serves with the newest of `certificates`, until `stop`. `whose` names the listener in the log.
    pub async fn follow(
        self: Arc<Self>,
        whose: &'static str,
        certificates: Certificates,
        stop: Stop,
    ) {
        let mut changes = certificates.changes();
        let mut before = None;
        loop {
            let serving = certificates.serving();
            if let Some(serving) = serving.filter(|serving| before.as_ref() != Some(serving)) {
                match self.replace(&serving.certificate, serving.key.expose()) {
                    Ok(()) => tracing::info!(whose, until = %serving.until, "has a certificate"),
                    Err(error) => {
                        let error = stallproof::sentence(&error);
                        tracing::warn!(
                            whose,
                            error,
                            "the new certificate is unusable, keeping the old one"
                        );
                    }
                }
                before = Some(serving);
            }
            if stop.bound(changes.changed()).await.is_none() {
                return;
            }
        }
    }

    /// Serves with whatever pair is current at each handshake.
    pub fn acceptor(self: &Arc<Self>, protocols: &[&str]) -> TlsAcceptor {
        acceptor(self.clone(), protocols, None)
    }
}

impl ResolvesServerCert for ManagedCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read(Clone::clone)
    }
}

/// For connections to a server that shows a certificate of `authorities` (PEM); HTTP/1.1.
pub(crate) fn client(authorities: &str) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority?)?;
    }
    client_of(roots)
}

/// As `client`, of authorities that were read.
pub(crate) fn client_of(roots: RootCertStore) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn acceptor(
    resolver: Arc<dyn ResolvesServerCert>,
    protocols: &[&str],
    clients: Option<Arc<ClientAuthorities>>,
) -> TlsAcceptor {
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3");
    let mut config = match clients {
        None => config.with_no_client_auth().with_cert_resolver(resolver),
        Some(clients) => {
            let mut config = config.with_client_cert_verifier(clients).with_cert_resolver(resolver);
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config
        }
    };
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load().certified.clone())
    }
}

fn changed(cert: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [cert, key].map(|path| std::fs::metadata(path).and_then(|m| m.modified()).ok())
}

fn read(cert: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| TlsError::Certificate { path: cert.to_owned(), source })?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: cert.to_owned() });
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|source| TlsError::Key { path: key.to_owned(), source })?;
    CertifiedKey::from_der(chain, private, &ring::default_provider())
        .map(Arc::new)
        .map_err(|source| TlsError::Unusable { cert: cert.to_owned(), key: key.to_owned(), source })
}

#[cfg(test)]
mod tests;
