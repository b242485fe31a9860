//! A blocking HTTP client for tests: one request a connection, whatever the certificate.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Uri};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }
}

/// Sends a request and reads its answer to the end. As HTTP/1.0, so that the answer ends with the
/// connection.
pub(crate) fn send(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
    patience: Duration,
) -> Answer {
    let uri: Uri = url.parse().unwrap();
    let authority = uri.authority().unwrap();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = format!("{method} {path} HTTP/1.0\r\nhost: {authority}\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += &format!("content-length: {}\r\n\r\n{body}", body.len());
    let tcp = TcpStream::connect(authority.as_str()).unwrap();
    tcp.set_read_timeout(Some(patience)).unwrap();
    tcp.set_write_timeout(Some(patience)).unwrap();
    match uri.scheme_str() {
        Some("https") => {
            let host = authority.host().to_owned();
            let name = ServerName::try_from(host).unwrap();
            let connection = ClientConnection::new(Arc::new(any_certificate()), name).unwrap();
            exchange(StreamOwned::new(connection, tcp), &request)
        }
        _ => exchange(tcp, &request),
    }
}

/// A GET, with a token or without.
pub(crate) fn get(url: &str, token: Option<&str>, patience: Duration) -> Answer {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
    send("GET", url, &headers, "", patience)
}

fn exchange(mut stream: impl Read + Write, request: &str) -> Answer {
    stream.write_all(request.as_bytes()).unwrap();
    stream.flush().unwrap();
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        // A server may close TLS without saying so.
        Err(e) if e.kind() != ErrorKind::UnexpectedEof => panic!("no answer: {e}"),
        _ => {}
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in lines.map(|line| line.split_once(':').unwrap()) {
        headers.append(name.parse::<HeaderName>().unwrap(), value.trim().parse().unwrap());
    }
    Answer { status: status.parse().unwrap(), headers, text: body.to_owned() }
}

pub(crate) fn any_certificate() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth()
}

/// That certificates are right is not what is asked here.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}
