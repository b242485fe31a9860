//! `Identity`: who a node is to the controllers, in one file that its owner alone can read.
//!
//! Contract:
//! - The private key is made here and stays here.
//! - Before a token is shown to anybody, they have proved that they hold a certificate of the
//!   authority whose hash is in it, or of the one that is published: who is in between learns nothing.
//! - A file is replaced whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use pki::agents::Token;
use rcgen::{KeyPair, PublicKeyData};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, version,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stallproof::{Deadline, Tasks};

use pki::tls::{self, BadCertificate};
use protocol::proto;

use crate::client::{ClientError, connect, resolve};

const FILE: &str = "identity.json";

/// What is in the file.
#[derive(Clone, Serialize, Deserialize)]
struct Kept {
    node: String,
    /// PEM.
    certificate: String,
    authorities: String,
    key: String,
    since: Timestamp,
    until: Timestamp,
}

/// A node's certificate and key. Clones are cheap.
#[derive(Clone)]
pub struct Identity {
    kept: Arc<Kept>,
    dir: PathBuf,
}

/// Without the key.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Kept { node, until, .. } = &*self.kept;
        f.debug_struct("Identity").field("node", node).field("until", until).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("{path} cannot be {doing}")]
    File { path: PathBuf, doing: &'static str, source: std::io::Error },
    #[error("{path} is no identity; remove it and enrol again")]
    Unreadable { path: PathBuf },
    #[error("this is no token; make one with `fairlead agents token`")]
    NoToken,
    #[error("a key cannot be made")]
    Key(#[from] rcgen::Error),
    #[error(transparent)]
    Controller(#[from] ClientError),
    #[error("what the controller gave cannot be used")]
    Tls(#[from] BadCertificate),
}

impl Identity {
    /// The one in this directory, if there is one.
    pub fn open(dir: &Path) -> Result<Option<Self>, IdentityError> {
        let path = dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(IdentityError::File { path, doing: "read", source }),
        };
        let kept = serde_json::from_slice(&text);
        let kept = kept.map_err(|_| IdentityError::Unreadable { path })?;
        let identity = Self { kept: Arc::new(kept), dir: dir.to_owned() };
        identity.config()?;
        Ok(Some(identity))
    }

    /// Has a new key certified with a token, by the first controller that does; kept in `dir`.
    pub async fn enrol(
        addresses: &[String],
        token: &str,
        node: &str,
        dir: &Path,
        tasks: &Tasks,
        deadline: Deadline,
    ) -> Result<Self, IdentityError> {
        let pin = Token::pin(token).ok_or(IdentityError::NoToken)?;
        Self::enrol_at(pinned(pin)?, addresses, token, node, dir, tasks, deadline).await
    }

    /// The same for a pod, with a token of its service account: shown to controllers of `authorities`
    /// (PEM) alone.
    pub async fn enrol_pod(
        addresses: &[String],
        token: &str,
        authorities: &str,
        node: &str,
        dir: &Path,
        tasks: &Tasks,
        deadline: Deadline,
    ) -> Result<Self, IdentityError> {
        let config = ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&version::TLS13])
            .map_err(BadCertificate::from)?
            .with_root_certificates(tls::roots(authorities)?)
            .with_no_client_auth();
        let config = Arc::new(speaking(config));
        Self::enrol_at(config, addresses, token, node, dir, tasks, deadline).await
    }

    async fn enrol_at(
        config: Arc<ClientConfig>,
        addresses: &[String],
        token: &str,
        node: &str,
        dir: &Path,
        tasks: &Tasks,
        deadline: Deadline,
    ) -> Result<Self, IdentityError> {
        let key = KeyPair::generate()?;
        let mut last = ClientError::Unreachable("there is no address".to_owned());
        for address in resolve(addresses, deadline).await? {
            let asking = async {
                let mut calls = connect(address, Some(config.clone()), tasks).await?;
                let asked = proto::EnrolRequest {
                    token: token.trim().to_owned(),
                    node: node.to_owned(),
                    public_key: key.der_bytes().to_vec(),
                };
                Ok::<_, ClientError>(calls.enrol(asked).await?.into_inner())
            };
            match deadline.bound(asking).await {
                Ok(Ok(certified)) => return Self::keep(node, &key, certified, dir),
                Ok(Err(error)) => last = error,
                Err(_) => break,
            }
        }
        Err(last.into())
    }

    pub fn node(&self) -> &str {
        &self.kept.node
    }

    pub fn until(&self) -> Timestamp {
        self.kept.until
    }

    /// Past two thirds of its time.
    pub fn is_aged(&self, now: Timestamp) -> bool {
        let Kept { since, until, .. } = &*self.kept;
        now.duration_since(*since) >= until.duration_since(*since) / 3 * 2
    }

    pub fn has_expired(&self, now: Timestamp) -> bool {
        now >= self.kept.until
    }

    /// The next one, from who certifies a public key.
    pub(crate) async fn renewed<F>(
        &self,
        certify: impl FnOnce(Vec<u8>) -> F,
    ) -> Result<Self, ClientError>
    where
        F: Future<Output = Result<proto::Certified, ClientError>>,
    {
        let failed = |error: &dyn std::error::Error| ClientError::Over(stallproof::sentence(error));
        let key = KeyPair::generate().map_err(|e| failed(&e))?;
        let certified = certify(key.der_bytes().to_vec()).await?;
        Self::keep(&self.kept.node, &key, certified, &self.dir).map_err(|e| failed(&e))
    }

    fn keep(
        node: &str,
        key: &KeyPair,
        certified: proto::Certified,
        dir: &Path,
    ) -> Result<Self, IdentityError> {
        let proto::Certified { certificate, authorities, until } = certified;
        let until = i64::try_from(until).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let kept = Kept {
            node: node.to_owned(),
            certificate,
            authorities,
            key: key.serialize_pem(),
            since: Timestamp::now(),
            until: until.unwrap_or(Timestamp::MAX),
        };
        let identity = Self { kept: Arc::new(kept), dir: dir.to_owned() };
        // Before it replaces one that can be used.
        identity.config()?;
        identity.write()?;
        Ok(identity)
    }

    fn write(&self) -> Result<(), IdentityError> {
        let path = self.dir.join(FILE);
        let text = serde_json::to_vec(&*self.kept).expect("texts and times can be written as JSON");
        let write = || {
            fs::create_dir_all(&self.dir)?;
            let draft = self.dir.join(".identity.json.new");
            // One that was left behind may have been readable.
            let _ = fs::remove_file(&draft);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(|source| IdentityError::File {
            path: path.clone(),
            doing: "written",
            source,
        })
    }

    /// For connections to controllers.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, BadCertificate> {
        let Kept { certificate, authorities, key, .. } = &*self.kept;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let config = ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(tls::roots(authorities)?)
            .with_client_auth_cert(tls::chain(certificate)?, key)?;
        Ok(Arc::new(speaking(config)))
    }
}

/// Trusts one authority, of which only the hash is known.
fn pinned(pin: [u8; 32]) -> Result<Arc<ClientConfig>, BadCertificate> {
    let verifier = Arc::new(Pinned { pin, provider: tls::provider() });
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(speaking(config)))
}

fn speaking(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config
}

#[derive(Debug)]
struct Pinned {
    pin: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    /// As usual, with the one authority that was shown and hashes to what is known.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let is_it = |shown: &&CertificateDer<'_>| Sha256::digest(shown)[..] == self.pin;
        let authority = intermediates.iter().find(is_it);
        let authority = authority.ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?
            .verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
