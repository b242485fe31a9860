//! HTTP/2 over TLS: chosen by the handshake, and bounded as HTTP/1.1 is.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use http_body_util::{BodyExt, Empty};
use rustls::pki_types::ServerName;
use stallproof::Deadline;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::tls::{self, ListenerTls, ManagedCertificate};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

struct Server {
    address: SocketAddr,
    authority: String,
    tasks: Tasks,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.stop("the test is over");
    }
}

async fn server(limits: HttpLimits) -> Server {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let held = Arc::new(ManagedCertificate::default());
    held.replace(&made.cert.pem(), &made.signing_key.serialize_pem()).unwrap();
    let endless = || async {
        let chunk = Bytes::from(vec![b'x'; 16 << 10]);
        let chunks = futures::stream::repeat_with(move || Ok::<_, Infallible>(chunk.clone()));
        Body::from_stream(chunks)
    };
    let host = |headers: http::HeaderMap, uri: Uri| async move {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("-");
        format!("{host} {uri}")
    };
    let closing = || async { ([(header::CONNECTION, "close")], "last") };
    let router = Router::new()
        .route("/", get(host))
        .route("/endless", get(endless))
        .route("/closing", get(closing));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = Tasks::new("http2");
    let serving =
        crate::serve::serve(listener, ListenerTls::Managed(held), router, limits, tasks.clone());
    tasks.spawn("serve", serving);
    Server { address, authority: made.cert.pem(), tasks }
}

impl Server {
    async fn connect(&self, protocol: &str) -> TlsStream<TcpStream> {
        let mut config = (*tls::client(&self.authority).unwrap()).clone();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
    }

    /// A connection on which the test writes frames itself.
    async fn raw(&self) -> TlsStream<TcpStream> {
        let mut stream = self.connect("h2").await;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        stream
    }
}

const HEADERS_FRAME: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING_FRAME: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `GET path` over https, of the authority `localhost`.
fn get_request(path: &str) -> Vec<u8> {
    let mut headers = vec![0x82, 0x87, 0x04, u8::try_from(path.len()).unwrap()];
    headers.extend(path.as_bytes());
    headers.extend([0x01, 9]);
    headers.extend(b"localhost");
    headers
}

/// Reads until the server hangs up.
async fn ended(mut stream: TlsStream<TcpStream>) -> bool {
    let mut some = vec![0; 16 << 10];
    let end = async { while stream.read(&mut some).await.is_ok_and(|read| read > 0) {} };
    soon().bound(end).await.is_ok()
}

#[tokio::test]
async fn a_client_chooses_its_version_and_is_answered_alike() {
    let server = server(HttpLimits::of(8).with_http2()).await;
    let stream = server.connect("h2").await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let handshake = hyper::client::conn::http2::handshake(
        RequestTasks(server.tasks.clone()),
        TokioIo::new(stream),
    );
    let (mut sender, connection) = handshake.await.unwrap();
    let driven = tokio::spawn(connection);
    let ask = |path: &str| {
        let uri = format!("https://localhost{path}");
        Request::get(uri).body(Empty::<Bytes>::new()).unwrap()
    };
    let answer = sender.send_request(ask("/?a=b")).await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_2);
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, "localhost /?a=b", "as a request of HTTP/1.1 says it");
    // An answer that would end a connection of HTTP/1.1 ends this one, after what is under way.
    let answer = sender.send_request(ask("/closing")).await.unwrap();
    assert!(!answer.headers().contains_key(header::CONNECTION));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "last");
    soon().bound(driven).await.expect("it ends").unwrap().unwrap();

    let mut old = server.connect("http/1.1").await;
    old.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    old.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("a /"), "{text}");
}

#[tokio::test]
async fn a_listener_that_does_not_offer_it_has_none() {
    let server = server(HttpLimits::of(8)).await;
    let mut config = (*tls::client(&server.authority).unwrap()).clone();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tcp = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn requests_taken_back_and_headers_without_an_end_end_the_connection() {
    let server = server(HttpLimits::of(8).with_http2()).await;
    let mut stream = server.raw().await;
    let mut frames = Vec::new();
    for nth in 0..4000_u32 {
        let id = nth * 2 + 1;
        frames.extend(frame(HEADERS_FRAME, END_HEADERS | END_STREAM, id, &get_request("/")));
        frames.extend(frame(RESET, 0, id, &8_u32.to_be_bytes()));
    }
    // It may be cut off before all was sent.
    let _ = stream.write_all(&frames).await;
    assert!(ended(stream).await, "rapid resets");

    let mut stream = server.raw().await;
    stream.write_all(&frame(HEADERS_FRAME, 0, 1, &get_request("/"))).await.unwrap();
    let mut more = Vec::new();
    for _ in 0..64 {
        more.extend([0, 1, b'a', 127, 0]);
        more.extend([b'a'; 127]);
    }
    for _ in 0..200 {
        if stream.write_all(&frame(CONTINUATION, 0, 1, &more)).await.is_err() {
            break;
        }
    }
    assert!(ended(stream).await, "endless headers");
}

#[tokio::test]
async fn a_connection_without_a_request_is_ended_whatever_else_it_sends() {
    let limits = HttpLimits { patience: Duration::from_secs(1), ..HttpLimits::of(8).with_http2() };
    let server = server(limits).await;
    let mut pinging = server.raw().await;
    let half = server.raw().await;
    let (mut half_reader, mut half_writer) = tokio::io::split(half);
    half_writer.write_all(&frame(HEADERS_FRAME, 0, 1, &get_request("/"))).await.unwrap();
    let drain = async {
        let mut some = vec![0; 4096];
        while half_reader.read(&mut some).await.is_ok_and(|read| read > 0) {}
    };
    let ping = async {
        let mut some = vec![0; 4096];
        loop {
            let ping = frame(PING_FRAME, 0, 0, &[0; 8]);
            if pinging.write_all(&ping).await.is_err() {
                return;
            }
            match pinging.read(&mut some).await {
                Ok(read) if read > 0 => tokio::time::sleep(Duration::from_millis(50)).await,
                _ => return,
            }
        }
    };
    soon().bound(async { tokio::join!(drain, ping) }).await.expect("both are ended");
}

#[tokio::test]
async fn a_peer_whose_window_stays_closed_is_cut_off() {
    let taken_within = Duration::from_secs(2);
    let limits = HttpLimits { taken_within, ..HttpLimits::of(8).with_http2() };
    let server = server(limits).await;
    let mut stream = server.raw().await;
    let headers = get_request("/endless");
    stream.write_all(&frame(HEADERS_FRAME, END_HEADERS | END_STREAM, 1, &headers)).await.unwrap();
    // The kernel takes all that comes; the window is never opened again.
    assert!(ended(stream).await, "nothing was taken");
}
