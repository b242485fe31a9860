//! Strangers: who reaches every listener from one address, has no credential, and does what keeps a server
//! busy or its connections taken. They are tasks of a runtime of their own until they are dropped.

#![allow(dead_code, reason = "the test and the benchmark each use a part of it")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

use super::running::{Up, http};

/// Where they come from: everybody else of these tests is 127.0.0.1.
const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
/// Between two bytes of who sends slowly.
const DRIP: Duration = Duration::from_millis(500);
/// Before one that was cut off comes back.
const AGAIN: Duration = Duration::from_secs(1);
/// Between two frames of an HTTP/2 flood on one connection: what the attacker's own processor time takes
/// from the server's is not what is tested.
const PACE: Duration = Duration::from_millis(2);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Where the listeners are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listeners {
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// With TLS.
    pub(crate) agents: SocketAddr,
    /// With TLS.
    pub(crate) webhook: SocketAddr,
}

impl Listeners {
    /// A process with all four, that of agents and the webhook with TLS.
    pub(crate) fn up(data: &Path, descriptors: Option<usize>) -> (Up, Self) {
        let (agents, webhook) = (port(), port());
        let up = Up::start_with(data, "none", |command| {
            command
                .env("FAIRLEAD_AGENTS_LISTEN", format!("0.0.0.0:{agents}"))
                .args(["--admission-webhook", "on"])
                .args(["--admission-listen", &format!("127.0.0.1:{webhook}")]);
            if let Some(most) = descriptors {
                *command = limited(command, most);
            }
            command
        });
        let at = |url: &str| url.split_once("://").unwrap().1.parse().unwrap();
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (api, admin) = (at(&up.api), at(&up.admin));
        (up, Self { api, admin, agents: local(agents), webhook: local(webhook) })
    }
}

/// A port that is free now. It is below those that connections go out from, of which a flood takes many.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(std::process::id() % 1_000).unwrap() * 10;
    loop {
        let port = first + NEXT.fetch_add(1, Relaxed);
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// The same command with so many file descriptors and no way to have more.
fn limited(command: &Command, most: usize) -> Command {
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--nofile={most}:{most}")).arg(command.get_program());
    limited.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.stdout(Stdio::piped()).stderr(Stdio::null());
    limited
}

pub(crate) struct Strangers {
    runtime: Option<Runtime>,
    opened: Arc<AtomicUsize>,
}

impl Drop for Strangers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Strangers {
    /// `each` connections of every kind to every listener, held, and opened again when cut off.
    pub(crate) fn flood(at: Listeners, each: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let strangers = Self { runtime: Some(runtime), opened: Arc::default() };
        // It cuts off the oldest for each who comes.
        let of = |to| if to == at.admin { each.min(64) } else { each };
        for to in [at.api, at.admin, at.agents, at.webhook] {
            strangers.hold(of(to), to, b"", None);
        }
        // As much as is taken of a header that does not end.
        let header = format!("GET /livez HTTP/1.1\r\nhost: x\r\nx-a: {}", "a".repeat(24 << 10));
        let body = b"POST /api/v1/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                     content-length: 8000\r\n\r\n{";
        for to in [at.api, at.admin] {
            strangers.hold(of(to), to, header.as_bytes(), Some(b'a'));
            strangers.hold(of(to), to, body, Some(b' '));
        }
        // Answers that nobody reads.
        let page = "GET /api/v1/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(64);
        strangers.hold(each, at.api, page.as_bytes(), None);
        // Answers that would have to be compressed for each.
        let page = "GET /api/v1/openapi.json HTTP/1.1\r\nhost: x\r\naccept-encoding: gzip\r\n\r\n";
        strangers.hold(each, at.api, page.repeat(64).as_bytes(), None);
        let metrics = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(64);
        strangers.hold(of(at.admin), at.admin, metrics.as_bytes(), None);
        // Handshakes that do not go on.
        for to in [at.agents, at.webhook] {
            strangers.hold(each, to, &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3], Some(0));
        }
        let chunked = b"POST /admit HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n\
                        40000\r\n{";
        strangers.hold_tls(each / 4, at.webhook, b"http/1.1", chunked, Some(b' '));
        // More than there are places for who has no certificate.
        strangers.hold_tls(each / 2, at.agents, b"h2", PREFACE, None);
        let few = (each / 32).max(2);
        strangers.frames(few, at.agents, rapid_resets);
        strangers.frames(few, at.agents, endless_headers);
        strangers.frames(few, at.agents, pings);
        strangers
    }

    /// How many connections were opened so far.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Relaxed)
    }

    fn run<F: Future<Output = io::Result<()>> + Send + 'static>(
        &self,
        count: usize,
        one: impl Fn() -> F + Send + Sync + Clone + 'static,
    ) {
        let runtime = self.runtime.as_ref().unwrap();
        for nth in 0..count {
            let (one, opened) = (one.clone(), Arc::clone(&self.opened));
            runtime.spawn(async move {
                sleep(Duration::from_millis(nth as u64 % 500)).await;
                loop {
                    opened.fetch_add(1, Relaxed);
                    // Being cut off is what it came for.
                    let _ = one().await;
                    sleep(AGAIN).await;
                }
            });
        }
    }

    /// Sends `first`, then `drip` again and again, and reads nothing.
    fn hold(&self, count: usize, to: SocketAddr, first: &[u8], drip: Option<u8>) {
        let first: Arc<[u8]> = first.into();
        self.run(count, move || {
            let first = Arc::clone(&first);
            async move { drip_into(connect(to).await?, &first, drip).await }
        });
    }

    fn hold_tls(
        &self,
        count: usize,
        to: SocketAddr,
        protocol: &'static [u8],
        first: &'static [u8],
        drip: Option<u8>,
    ) {
        self.run(count, move || async move {
            drip_into(handshake(to, protocol).await?, first, drip).await
        });
    }

    /// Speaks HTTP/2 as `frames` makes it, over TLS, without a certificate.
    fn frames(&self, count: usize, to: SocketAddr, frames: fn(u32) -> Vec<u8>) {
        self.run(count, move || async move {
            let stream = handshake(to, b"h2").await?;
            let (mut read, mut write) = tokio::io::split(stream);
            let mut first = PREFACE.to_vec();
            first.extend(frame(4, 0, 0, &[]));
            write.write_all(&first).await?;
            // Answers are thrown away, or the server would stop because of that.
            let reading = async { tokio::io::copy(&mut read, &mut tokio::io::sink()).await };
            let writing = async {
                for nth in 0.. {
                    write.write_all(&frames(nth)).await?;
                    sleep(PACE).await;
                }
                Ok::<_, io::Error>(0)
            };
            tokio::select! { ended = reading => ended?, ended = writing => ended? };
            Ok(())
        });
    }
}

async fn drip_into(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    first: &[u8],
    drip: Option<u8>,
) -> io::Result<()> {
    stream.write_all(first).await?;
    let Some(drip) = drip else {
        // Until it is cut off, and without reading: a connection that is reset is readable.
        loop {
            sleep(2 * DRIP).await;
            let mut one = [0];
            if first.is_empty() && stream.read(&mut one).await? == 0 {
                return Ok(());
            }
        }
    };
    loop {
        sleep(DRIP).await;
        stream.write_all(&[drip]).await?;
    }
}

async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(FROM, 0))?;
    socket.connect(to).await
}

async fn handshake(
    to: SocketAddr,
    protocol: &[u8],
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut config = http::any_certificate();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("stranger.example").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, connect(to).await?).await
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// POST / over https, of the authority `x`.
const REQUEST: [u8; 6] = [0x83, 0x87, 0x84, 0x01, 0x01, b'x'];

/// Forty requests, each taken back at once.
fn rapid_resets(nth: u32) -> Vec<u8> {
    let mut frames = Vec::new();
    for of in 0..40 {
        let stream = (nth * 40 + of) * 2 + 1;
        frames.extend(frame(1, 4, stream, &REQUEST));
        frames.extend(frame(3, 0, stream, &8u32.to_be_bytes()));
    }
    frames
}

/// A request whose headers have no end.
fn endless_headers(nth: u32) -> Vec<u8> {
    if nth == 0 {
        return frame(1, 0, 1, &REQUEST);
    }
    // A header `a: a…`, which is to be remembered by nobody.
    let mut headers = Vec::new();
    for _ in 0..8 {
        headers.extend([0, 1, b'a', 127, 0]);
        headers.extend([b'a'; 127]);
    }
    frame(9, 0, 1, &headers)
}

fn pings(_: u32) -> Vec<u8> {
    frame(6, 0, 0, &[0; 8]).repeat(40)
}
