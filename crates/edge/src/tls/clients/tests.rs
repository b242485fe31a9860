use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use stallproof::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::*;
use crate::serve::{HttpLimits, serve};
use crate::tls::{ListenerTls, ManagedCertificate, TlsError};

/// An authority, and the client's certificate and key that it signed.
struct Signed {
    authority: String,
    client: (CertificateDer<'static>, PrivateKeyDer<'static>),
}

/// A client's certificate has no name, as one for an API server may have none.
fn signed() -> Signed {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let cert = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    Signed { authority, client: (cert.der().clone(), key) }
}

async fn server(clients: Arc<ClientAuthorities>, tasks: &Tasks) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let held = ManagedCertificate::self_signed(&["localhost".to_owned()]).unwrap();
    let router = Router::new().route("/", get(|| async { "in" }));
    let tls = ListenerTls::ManagedForClients(held, clients);
    tasks.spawn("server", serve(listener, tls, router, HttpLimits::of(8), tasks.clone()));
    address
}

/// What a client with this certificate, or none, is answered.
async fn ask(address: SocketAddr, client: Option<&Signed>) -> std::io::Result<String> {
    #[derive(Debug)]
    struct Anybody;
    impl rustls::client::danger::ServerCertVerifier for Anybody {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<rustls::client::danger::ServerCertVerified, Error> {
            Ok(rustls::client::danger::ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            ring::default_provider().signature_verification_algorithms.supported_schemes()
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody));
    let config = match client {
        None => config.with_no_client_auth(),
        Some(Signed { client: (cert, key), .. }) => {
            config.with_client_auth_cert(vec![cert.clone()], key.clone_key()).unwrap()
        }
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn write(path: &Path, authority: &str, age: u64) {
    std::fs::write(path, authority).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
}

#[tokio::test]
async fn only_clients_of_the_authorities_get_an_answer_whatever_their_name() {
    let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::new("test"));
    let path = dir.path().join("ca.crt");
    let (ours, theirs) = (signed(), signed());
    write(&path, &ours.authority, 20);
    let clients = ClientAuthorities::load(path.clone()).unwrap();
    let address = server(clients.clone(), &tasks).await;
    assert!(ask(address, Some(&ours)).await.unwrap().ends_with("in"));
    assert!(ask(address, Some(&theirs)).await.is_err());
    assert!(ask(address, None).await.is_err());

    // A new authority counts from the next handshake on, and the old one no longer.
    write(&path, &theirs.authority, 10);
    assert!(clients.refresh().unwrap());
    assert!(ask(address, Some(&theirs)).await.unwrap().ends_with("in"));
    assert!(ask(address, Some(&ours)).await.is_err());

    // A file that is of no use lets nobody else in.
    for broken in ["", "-----BEGIN CERTIFICATE-----\nhalf"] {
        write(&path, broken, 5);
        clients.refresh().unwrap_err();
        assert!(ask(address, Some(&theirs)).await.is_ok());
        assert!(ask(address, None).await.is_err());
    }
    tasks.stop("the test is over");
}

#[test]
fn a_file_without_authorities_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.crt");
    let error = ClientAuthorities::load(path.clone()).unwrap_err();
    assert!(error.to_string().contains("ca.crt"), "{error}");
    std::fs::write(&path, "").unwrap();
    assert!(matches!(ClientAuthorities::load(path), Err(TlsError::NoCertificate { .. })));
}
