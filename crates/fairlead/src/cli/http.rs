//! HTTP/1.1 as the command line speaks it: requests to one origin, over TCP or TLS. No proxy is used
//! and no redirect is followed, so that a token goes nowhere but to the address that was given.
//!
//! Connecting has a deadline of its own; the caller sets the one for the answer. A connection whose
//! answer was read to its end serves the next request.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, HOST};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// An open connection, ready for one request at a time.
pub(crate) type Connection = http1::SendRequest<Full<Bytes>>;

/// Which certificates of a server are accepted.
#[derive(Debug)]
pub(crate) enum Trust {
    /// Certificates of the public authorities.
    Public,
    /// Certificates of these authorities alone.
    Authorities(Vec<CertificateDer<'static>>),
    /// Every certificate: the address is this machine's own, or the user chose so.
    Anything,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{0:?} is not an http:// or https:// address")]
    NotAnAddress(String),
    #[error("there is no such host")]
    NoSuchHost,
    #[error("it cannot be reached in time")]
    ConnectTimeout,
    #[error("{0}")]
    Unreachable(io::Error),
    #[error("its certificate is not trusted: {0}")]
    Untrusted(io::Error),
    #[error("no answer within {} s", .0.as_secs_f64())]
    AnswerTimeout(Duration),
    #[error("{0}")]
    BrokenOff(String),
    #[error("the answer is larger than {} MiB", .0 >> 20)]
    TooLarge(usize),
}

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> Self {
        Self::BrokenOff(stallproof::sentence(&error))
    }
}

/// A server that is asked: scheme, host and port.
pub(crate) struct Origin {
    host: String,
    port: u16,
    /// The value of the header `Host`.
    authority: HeaderValue,
    /// Some for https.
    tls: Option<TlsConnector>,
    connect_timeout: Duration,
    /// A connection that waits for the next request. Written and read by whoever sends one.
    idle: Mutex<Option<Connection>>,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Origin").field("authority", &self.authority).finish_non_exhaustive()
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Origin {
    /// The origin of a URL, whose path does not matter here.
    pub(crate) fn of(
        url: &Uri,
        trust: Trust,
        connect_timeout: Duration,
    ) -> Result<Self, HttpError> {
        let wrong = || HttpError::NotAnAddress(url.to_string());
        let https = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let authority = url.authority().ok_or_else(wrong)?;
        let tls = https.then(|| client_config(trust)).transpose().map_err(HttpError::Untrusted)?;
        Ok(Self {
            host: host_of(authority).to_owned(),
            port: authority.port_u16().unwrap_or(if https { 443 } else { 80 }),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?,
            tls: tls.map(|config| TlsConnector::from(Arc::new(config))),
            connect_timeout,
            idle: Mutex::new(None),
        })
    }

    /// Sends a request and waits for the head of its answer, as long as that takes. The URI of the
    /// request is a path. Whoever has read the whole answer gives the connection back to
    /// [`Self::keep`].
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Connection), HttpError> {
        request.headers_mut().insert(HOST, self.authority.clone());
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut connection) = idle
            && connection.ready().await.is_ok()
        {
            match connection.try_send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                // A connection that the server closed before it took the request gives it back.
                Err(mut unsent) => match unsent.take_message() {
                    Some(message) => request = message,
                    None => return Err(unsent.into_error().into()),
                },
            }
        }
        let mut connection = self.connect().await?;
        let response = connection.send_request(request).await?;
        Ok((response, connection))
    }

    pub(crate) fn keep(&self, connection: Connection) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }

    /// The status and the body of a GET, within a time and a size.
    pub(crate) async fn get(
        &self,
        path: &str,
        token: Option<&str>,
        limit: Duration,
        largest: usize,
    ) -> Result<(StatusCode, Vec<u8>), HttpError> {
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::default());
        let request = request.map_err(|e| HttpError::BrokenOff(e.to_string()))?;
        let exchange = async {
            let (response, connection) = self.send(request).await?;
            let status = response.status();
            let body = read(response, largest).await?;
            self.keep(connection);
            Ok((status, body))
        };
        timeout(limit, exchange).await.unwrap_or(Err(HttpError::AnswerTimeout(limit)))
    }

    async fn connect(&self) -> Result<Connection, HttpError> {
        let stream = self.open().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the connection; whoever waits for an answer hears of its errors.
        tokio::spawn(async move { drop(connection.with_upgrades().await) });
        Ok(sender)
    }

    async fn open(&self) -> Result<Box<dyn Io>, HttpError> {
        let limit = self.connect_timeout;
        let addresses = timeout(limit, lookup_host((self.host.as_str(), self.port))).await;
        let addresses = addresses.map_err(late)?.map_err(|_| HttpError::NoSuchHost)?;
        let mut failure = HttpError::NoSuchHost;
        for address in addresses {
            failure = match timeout(limit, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => return timeout(limit, self.secure(tcp)).await.map_err(late)?,
                Ok(Err(error)) => HttpError::Unreachable(error),
                Err(elapsed) => late(elapsed),
            };
        }
        Err(failure)
    }

    async fn secure(&self, tcp: TcpStream) -> Result<Box<dyn Io>, HttpError> {
        tcp.set_nodelay(true).map_err(HttpError::Unreachable)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(tcp)) };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|e| HttpError::Untrusted(io::Error::other(e)))?;
        match tls.connect(name, tcp).await {
            Ok(stream) => Ok(Box::new(stream)),
            // The connection was made, and what came over it was not accepted.
            Err(error) => match error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
                Some(_) => Err(HttpError::Untrusted(error)),
                None => Err(HttpError::Unreachable(error)),
            },
        }
    }
}

fn late(_: Elapsed) -> HttpError {
    HttpError::ConnectTimeout
}

/// The host without the brackets of an IPv6 address.
pub(crate) fn host_of(authority: &Authority) -> &str {
    authority.host().trim_matches(['[', ']'])
}

/// The whole body of an answer, unpacked.
pub(crate) async fn read(
    response: Response<Incoming>,
    largest: usize,
) -> Result<Vec<u8>, HttpError> {
    let packed = response.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding == "gzip");
    let body = Limited::new(response.into_body(), largest).collect().await;
    let bytes = body.map(http_body_util::Collected::to_bytes).map_err(|error| match error
        .downcast::<hyper::Error>(
    ) {
        Ok(error) => HttpError::from(*error),
        Err(error) if error.is::<LengthLimitError>() => HttpError::TooLarge(largest),
        Err(error) => HttpError::BrokenOff(error.to_string()),
    })?;
    if !packed {
        return Ok(bytes.into());
    }
    let mut text = Vec::new();
    flate2::read::MultiGzDecoder::new(&bytes[..])
        .take(largest as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|e| HttpError::BrokenOff(format!("the answer cannot be unpacked: {e}")))?;
    if text.len() > largest { Err(HttpError::TooLarge(largest)) } else { Ok(text) }
}

fn client_config(trust: Trust) -> Result<ClientConfig, io::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Public => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Trust::Authorities(authorities) => {
            for authority in authorities {
                roots.add(authority).map_err(io::Error::other)?;
            }
        }
        Trust::Anything => {
            let verifier = Arc::new(AcceptAnything(provider));
            let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
            return Ok(builder.with_no_client_auth());
        }
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Accepts every certificate; the handshake is still checked to be its owner's.
#[derive(Debug)]
struct AcceptAnything(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnything {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
