//! Requests to identity providers: one connection each, over TCP or TLS.
//!
//! Contract: no redirect is followed and no proxy is used, so that a secret goes nowhere but to the address
//! that was given. An answer has [`LARGEST`] bytes at most. Everything is within the caller's deadline.

use std::sync::Arc;
use std::time::Duration;

use access::oidc::{BoxFuture, OutboundReply, OutboundRequest, Transport};
use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use stallproof::{Deadline, Tasks};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::tls;

/// Keys of a provider are some kilobytes, a user's groups some tens.
const LARGEST: usize = 1 << 20;
/// For one address of a name; the next one is tried after it.
const CONNECT: Duration = Duration::from_secs(3);

/// Sends requests to identity providers.
#[derive(Debug)]
pub struct Outbound {
    tasks: Tasks,
    public: Arc<ClientConfig>,
}

impl Outbound {
    /// Connections are tasks of `tasks`.
    pub fn new(tasks: &Tasks) -> Result<Self, tls::TlsError> {
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        Ok(Self { tasks: tasks.clone(), public: tls::client_of(roots)? })
    }
}

impl Transport for Outbound {
    fn send(
        &self,
        request: OutboundRequest,
        deadline: Deadline,
    ) -> BoxFuture<Result<OutboundReply, String>> {
        let (tasks, public) = (self.tasks.clone(), Arc::clone(&self.public));
        Box::pin(async move {
            let exchange = exchange(request, public, &tasks, deadline);
            deadline.bound(exchange).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
        })
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

async fn exchange(
    request: OutboundRequest,
    public: Arc<ClientConfig>,
    tasks: &Tasks,
    deadline: Deadline,
) -> Result<OutboundReply, String> {
    let uri: Uri = request.url.parse().map_err(|_| format!("{:?} is no address", request.url))?;
    let authority = uri.authority().ok_or_else(|| format!("{uri} names no host"))?.clone();
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let https = match uri.scheme_str() {
        Some("https") => true,
        // Names resolve to whatever somebody's resolver says, but these do not.
        Some("http") if is_loopback(&host) => false,
        _ => return Err(format!("{uri} is neither https nor http on loopback")),
    };
    let port = authority.port_u16().unwrap_or(if https { 443 } else { 80 });
    let tcp = connect(&host, port, deadline).await?;
    let stream: Box<dyn Io> = if https {
        let config = match &request.ca {
            Some(ca) => tls::client(ca).map_err(|error| stallproof::sentence(&error))?,
            None => public,
        };
        let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
        let secured = TlsConnector::from(config).connect(name, tcp).await;
        Box::new(secured.map_err(|error| format!("{authority}: {error}"))?)
    } else {
        Box::new(tcp)
    };
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let stop = tasks.stopping();
    tasks.spawn("identity-provider connection", async move {
        // What becomes of it is what the answer says; nobody waits for it longer than that.
        let _ = stop.bound(deadline.bound(connection)).await;
    });
    let sent = sender.send_request(head(request, &uri)?).await;
    let answer = sent.map_err(|error| format!("{authority}: {error}"))?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| format!("{authority}: {error}"))?;
    Ok(OutboundReply { status, body: body.to_bytes().into() })
}

fn head(request: OutboundRequest, uri: &Uri) -> Result<Request<Full<Bytes>>, String> {
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let mut head = Request::builder()
        .uri(path)
        .header(header::HOST, authority)
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, concat!("fairlead/", env!("CARGO_PKG_VERSION")));
    if let Some(authorization) = &request.authorization {
        let value = HeaderValue::from_str(authorization.expose());
        let mut value = value.map_err(|_| "a secret cannot be sent in a header".to_owned())?;
        value.set_sensitive(true);
        head = head.header(header::AUTHORIZATION, value);
    }
    let (head, body) = match request.form {
        None => (head.method("GET"), Bytes::new()),
        Some(form) => {
            let mut text = form_urlencoded::Serializer::new(String::new());
            for (name, value) in &form {
                text.append_pair(name, value.expose());
            }
            let kind = "application/x-www-form-urlencoded";
            let head = head.method("POST").header(header::CONTENT_TYPE, kind);
            (head, text.finish().into())
        }
    };
    head.body(Full::new(body)).map_err(|error| error.to_string())
}

async fn connect(host: &str, port: u16, deadline: Deadline) -> Result<TcpStream, String> {
    let addresses = lookup_host((host, port)).await;
    let addresses = addresses.map_err(|error| format!("{host} is not known: {error}"))?;
    let mut why = format!("{host} has no address");
    for address in addresses {
        match deadline.within(CONNECT).bound(TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                tcp.set_nodelay(true).map_err(|error| error.to_string())?;
                return Ok(tcp);
            }
            Ok(Err(error)) => why = format!("{address}: {error}"),
            Err(_) => why = format!("{address}: no connection in time"),
        }
    }
    Err(why)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
