//! A stand-in for a kubelet: what an API server calls for logs, exec and port-forward, over TLS on
//! loopback, in as few words as it takes. It runs no containers: their output is made up here.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

pub(crate) struct Kubelet {
    pub(crate) address: SocketAddr,
    /// Told when a connection has ended that was to go on for ever.
    pub(crate) hung_up: Arc<Notify>,
    _serving: JoinSet<()>,
}

impl Kubelet {
    pub(crate) async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let hung_up = Arc::new(Notify::new());
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, tls, Arc::clone(&hung_up)));
        Self { address, hung_up, _serving: serving }
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, hung_up: Arc<Notify>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, hung_up) = (tls.clone(), Arc::clone(&hung_up));
        connections.spawn(async move {
            // An API server that goes away in the middle is none of our concern.
            if let Ok(stream) = tls.accept(stream).await {
                let _ = serve(stream, &hung_up).await;
            }
        });
    }
}

type Stream = TlsStream<TcpStream>;

/// One request, after which the connection is over.
async fn serve(mut stream: Stream, hung_up: &Notify) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split(' ').nth(1).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path: Vec<_> = path.split('/').skip(1).collect();
    match path[..] {
        ["containerLogs", _, "broken", _] => {
            respond(&mut stream, "500 Internal Server Error", "the disk is on fire").await
        }
        ["containerLogs", _, pod, container] => {
            let follow = query.contains("follow=true");
            logs(&mut stream, pod, container, follow).await?;
            if follow {
                hung_up.notify_one();
            }
            Ok(())
        }
        ["exec" | "attach", ..] if header(&head, "upgrade") == Some("SPDY/3.1") => {
            spdy_exec(stream).await
        }
        ["exec" | "attach", ..] => exec(upgrade(stream, &head).await?).await,
        ["portForward", ..] => {
            let port = query.split('&').find_map(|pair| pair.strip_prefix("port="));
            let port = port.and_then(|port| port.parse().ok()).unwrap_or(PORT);
            forward(upgrade(stream, &head).await?, port).await
        }
        _ => respond(&mut stream, "404 Not ServedKind", target).await,
    }
}

async fn respond(stream: &mut Stream, status: &str, body: &str) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).await?;
    stream.shutdown().await
}

/// Two lines, cut where nobody would cut them; followed, until the other end hangs up.
async fn logs(
    stream: &mut Stream,
    pod: &str,
    container: &str,
    follow: bool,
) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    for piece in [pod, " of ", container, "\nse", "cond\n"] {
        stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).await?;
        stream.flush().await?;
    }
    if follow {
        // Nothing more comes: this ends when they hang up.
        while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
        return Ok(());
    }
    stream.write_all(b"0\r\n\r\n").await?;
    stream.shutdown().await
}

fn header<'h>(head: &'h str, wanted: &str) -> Option<&'h str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
}

async fn upgrade(mut stream: Stream, head: &str) -> std::io::Result<WebSocketStream<Stream>> {
    let key = header(head, "sec-websocket-key");
    let key = key.expect("the API server passes on a WebSocket's upgrade");
    let accept = derive_accept_key(key.as_bytes());
    // The newest that it is offered: clients of 1.29 and later offer v5, which can close stdin.
    let offered = header(head, "sec-websocket-protocol").unwrap_or_default();
    let version = if offered.contains("v5.channel.k8s.io") { 5 } else { 4 };
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: v{version}.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await?;
    Ok(WebSocketStream::from_raw_socket(stream, Role::Server, None).await)
}

/// A shell that repeats what is typed, says its size on stderr, and leaves with 7 at `exit`.
async fn exec(mut socket: WebSocketStream<Stream>) -> std::io::Result<()> {
    const EXIT: &[u8] = br#"{"metadata":{},"status":"Failure","reason":"NonZeroExitCode",
        "details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
    for (channel, bytes) in [(1, &b""[..]), (2, b""), (3, b""), (1, b"$ ")] {
        say(&mut socket, channel, bytes).await?;
    }
    while let Some(Ok(message)) = socket.next().await {
        match &message.into_data()[..] {
            [0, b'e', b'x', b'i', b't', b'\n'] => say(&mut socket, 3, EXIT).await?,
            [0, typed @ ..] => say(&mut socket, 1, typed).await?,
            [4, size @ ..] => say(&mut socket, 2, size).await?,
            // v5's word for the end of a stream.
            [255, 0] => say(&mut socket, 3, SUCCESS).await?,
            _ => {}
        }
    }
    Ok(())
}

/// How a shell that ended well says so.
const SUCCESS: &[u8] = br#"{"metadata":{},"status":"Success"}"#;

/// A shell of kubectl's before it spoke WebSockets, which repeats in capitals what it is sent until that ends.
/// Of SPDY/3.1 it is as much as that takes: kubectl opens the streams for errors, stdin, stdout and stderr in
/// this order, each is answered without headers, and data comes and goes in frames.
async fn spdy_exec(mut stream: Stream) -> std::io::Result<()> {
    const SYN_STREAM: u16 = 1;
    const PING: u16 = 6;
    const FIN: u8 = 1;
    const STREAMS: [u32; 4] = [1, 3, 5, 7];
    let [error, stdin, stdout, stderr] = STREAMS;
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\
                X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    // Headers are one stream of zlib: its first two bytes come once; then blocks as they are, the last empty.
    let mut begins: &[u8] = &[0x78, 0x01];
    let no_headers = [0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    loop {
        let mut frame = [0; 8];
        stream.read_exact(&mut frame).await?;
        let [first, second, _, _, flags, length @ ..] = frame;
        let length = u32::from_be_bytes([0, length[0], length[1], length[2]]);
        let mut content = vec![0; length as usize];
        stream.read_exact(&mut content).await?;
        if first & 0x80 == 0 {
            let from = u32::from_be_bytes([first, second, frame[2], frame[3]]);
            assert_eq!(from, stdin, "only stdin is sent");
            spdy_data(&mut stream, stdout, 0, &content.to_ascii_uppercase()).await?;
            if flags & FIN != 0 {
                spdy_data(&mut stream, stdout, FIN, b"").await?;
                spdy_data(&mut stream, stderr, FIN, b"").await?;
                spdy_data(&mut stream, error, FIN, SUCCESS).await?;
            }
            continue;
        }
        match u16::from_be_bytes([frame[2], frame[3]]) {
            SYN_STREAM => {
                let headers = [begins, &no_headers[..]].concat();
                begins = &[];
                let length = u32::try_from(4 + headers.len()).unwrap().to_be_bytes();
                stream.write_all(&[0x80, 3, 0, 2, 0, length[1], length[2], length[3]]).await?;
                stream.write_all(&[&content[..4], &headers].concat()).await?;
            }
            PING => stream.write_all(&[&frame[..], &content].concat()).await?,
            _ => {}
        }
    }
}

async fn spdy_data(stream: &mut Stream, to: u32, flags: u8, bytes: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    let head = [&to.to_be_bytes()[..], &[flags], &length[1..]].concat();
    stream.write_all(&[&head, bytes].concat()).await?;
    stream.flush().await
}

async fn say(
    socket: &mut WebSocketStream<Stream>,
    channel: u8,
    bytes: &[u8],
) -> std::io::Result<()> {
    let frame = Message::binary([&[channel], bytes].concat());
    socket.send(frame).await.map_err(std::io::Error::other)
}

/// The port that is forwarded.
pub(crate) const PORT: u16 = 8080;

/// Ports from here on are those of this machine's loopback: a process of the test's own.
const LOOPBACK: u16 = 10_000;

/// A port that repeats what it is sent, in capitals; or one of loopback.
async fn forward(mut socket: WebSocketStream<Stream>, port: u16) -> std::io::Result<()> {
    for channel in [0, 1] {
        say(&mut socket, channel, &port.to_le_bytes()).await?;
    }
    if port >= LOOPBACK {
        return bridge(socket, TcpStream::connect(("127.0.0.1", port)).await).await;
    }
    while let Some(Ok(message)) = socket.next().await {
        if let [0, sent @ ..] = &message.into_data()[..] {
            say(&mut socket, 0, &sent.to_ascii_uppercase()).await?;
        }
    }
    Ok(())
}

/// Carries bytes between the API server and a connection, until either ends.
async fn bridge(
    mut socket: WebSocketStream<Stream>,
    connected: std::io::Result<TcpStream>,
) -> std::io::Result<()> {
    let mut tcp = match connected {
        Ok(tcp) => tcp,
        // As a kubelet says it: on the channel for errors.
        Err(error) => return say(&mut socket, 1, error.to_string().as_bytes()).await,
    };
    let mut answer = vec![0; 16 << 10];
    loop {
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(message)) => {
                    if let [0, sent @ ..] = &message.into_data()[..] {
                        tcp.write_all(sent).await?;
                    }
                }
                _ => return Ok(()),
            },
            read = tcp.read(&mut answer) => match read? {
                0 => return socket.close(None).await.map_err(std::io::Error::other),
                read => say(&mut socket, 0, &answer[..read]).await?,
            },
        }
    }
}
