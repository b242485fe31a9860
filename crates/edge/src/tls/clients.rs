//! `ClientAuthorities`: only clients with a certificate of these authorities are let in. They are in a file
//! (PEM) that is read again when it changes.
//!
//! Contract: a client without such a certificate gets no further than the handshake, whatever names are in
//! it. Sessions are not resumed, because the certificate is looked at every time. While the file cannot
//! be used, the authorities from before hold; there are always some.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use stallproof::{Snapshot, Stop};

use super::{CHECK, TlsError};

#[derive(Debug)]
pub struct ClientAuthorities {
    path: PathBuf,
    /// Written by `refresh`, read by every handshake.
    current: Snapshot<Loaded>,
}

#[derive(Clone, Debug)]
struct Loaded {
    verifier: Arc<dyn ClientCertVerifier>,
    changed: Option<SystemTime>,
}

impl ClientAuthorities {
    pub fn load(path: PathBuf) -> Result<Arc<Self>, TlsError> {
        let current = Snapshot::new(Loaded::read(&path)?);
        Ok(Arc::new(Self { path, current }))
    }

    /// Reads the file again if it changed; whether it did.
    fn refresh(&self) -> Result<bool, TlsError> {
        if changed(&self.path) == self.current.load().changed {
            return Ok(false);
        }
        let read = Loaded::read(&self.path)?;
        Ok(self.current.update(|loaded| {
            *loaded = read;
            true
        }))
    }

    /// Follows the file until `stop`. `whose` names the listener in the log.
    pub(crate) async fn keep_current(self: Arc<Self>, whose: &'static str, stop: Stop) {
        while stop.bound(tokio::time::sleep(CHECK)).await.is_some() {
            match self.refresh() {
                Ok(true) => tracing::info!(whose, "authorities of clients replaced"),
                Ok(false) => {}
                Err(error) => {
                    let error = stallproof::sentence(&error);
                    tracing::warn!(
                        whose,
                        error,
                        "the new authorities of clients are unusable, keeping the old ones"
                    );
                }
            }
        }
    }

    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.current.load().verifier.clone()
    }
}

impl Loaded {
    fn read(path: &PathBuf) -> Result<Self, TlsError> {
        let changed = changed(path);
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|source| TlsError::Certificate { path: path.clone(), source })?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots
                .add(certificate)
                .map_err(|source| TlsError::Authority { path: path.clone(), source })?;
        }
        if roots.is_empty() {
            return Err(TlsError::NoCertificate { path: path.clone() });
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|source| TlsError::Authority {
                path: path.clone(),
                source: Error::General(source.to_string()),
            })?;
        Ok(Self { verifier, changed })
    }
}

fn changed(path: &PathBuf) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|m| m.modified()).ok()
}

impl ClientCertVerifier for ClientAuthorities {
    /// None: which ones there are may change, and a client has one certificate for us or none.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verifier().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier().verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier().verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier().supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
