//! One kept-alive HTTP connection, plain or TLS, for a load that is made of many: what a client library
//! would cost is not the server's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// The most of an answer that is read, and how much at a time.
const LARGEST: usize = 8 << 20;
const PIECE: usize = 16 << 10;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) struct Http {
    stream: Box<dyn Stream>,
    read: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// It says when to come back.
    pub(crate) retry: bool,
    pub(crate) body: Vec<u8>,
}

impl Http {
    pub(crate) async fn plain(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: Box::new(stream), read: Vec::new() })
    }

    pub(crate) async fn tls(address: SocketAddr, connector: &TlsConnector) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = connector.connect(ServerName::from(address.ip()), stream).await?;
        Ok(Self { stream: Box::new(stream), read: Vec::new() })
    }

    /// Sends a whole request, and returns its answer.
    pub(crate) async fn ask(&mut self, request: &[u8], within: Duration) -> io::Result<Answer> {
        let asking = async {
            self.stream.write_all(request).await?;
            self.stream.flush().await?;
            self.answer().await
        };
        tokio::time::timeout(within, asking).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    async fn answer(&mut self) -> io::Result<Answer> {
        let end = loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
        let field = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.trim().to_owned())
        };
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(malformed)?;
        let length: usize =
            field("content-length").and_then(|length| length.parse().ok()).ok_or_else(malformed)?;
        if length > LARGEST {
            return Err(malformed());
        }
        while self.read.len() < end + length {
            self.more().await?;
        }
        let rest = self.read.split_off(end + length);
        let body = std::mem::replace(&mut self.read, rest).split_off(end);
        Ok(Answer { status, retry: field("retry-after").is_some(), body })
    }

    async fn more(&mut self) -> io::Result<()> {
        self.read.reserve(PIECE);
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

pub(crate) fn get(path: &str, token: Option<&str>) -> Vec<u8> {
    let bearer = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n{bearer}\r\n")
        .into_bytes()
}

pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Takes any certificate: the server is our own child, and whether it is that one is not the question.
pub(crate) fn any_certificate() -> Result<TlsConnector, Error> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any(provider)))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
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
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
