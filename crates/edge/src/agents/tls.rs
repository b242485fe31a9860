//! TLS between agents and controllers: both ends are ours, so only 1.3, and sessions are not
//! resumed, because a certificate is looked at every time.

use std::sync::Arc;

use pki::agents::{Bearer, Serving};
use pki::tls::{BadCertificate, chain, provider, roots};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, version};

/// A configuration that asks for a certificate, and lets in peers without one: they may enrol.
pub(super) fn server(serving: &Serving) -> Result<Arc<ServerConfig>, BadCertificate> {
    let roots = Arc::new(roots(&serving.authorities)?);
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .allow_unauthenticated()
        .build()
        .map_err(|e| rustls::Error::General(e.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(serving.key.expose().as_bytes())?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain(&serving.chain)?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The node that a peer's proven certificates speak for.
pub(super) fn bearer(peer: Option<&[CertificateDer<'_>]>) -> Option<Bearer> {
    let certificate = webpki::EndEntityCert::try_from(peer?.first()?).ok()?;
    certificate.valid_uri_names().find_map(Bearer::parse)
}
