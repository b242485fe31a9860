//! What every TLS configuration between agents and controllers is made of.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Why a certificate or a key that was handed over is of no use.
#[derive(Debug, thiserror::Error)]
pub enum BadCertificate {
    #[error("a certificate that was handed over is not PEM")]
    NotPem(#[from] rustls::pki_types::pem::Error),
    #[error("a certificate that was handed over cannot be used")]
    Unusable(#[from] rustls::Error),
}

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificates of a PEM text.
pub fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, BadCertificate> {
    Ok(CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>()?)
}

/// The authorities of a PEM text.
pub fn roots(pem: &str) -> Result<RootCertStore, BadCertificate> {
    let mut roots = RootCertStore::empty();
    for authority in chain(pem)? {
        roots.add(authority)?;
    }
    Ok(roots)
}
