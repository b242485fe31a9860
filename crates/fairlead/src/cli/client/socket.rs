//! `Socket`: a WebSocket and the one loop around it, without threads: whoever uses it waits for the
//! socket, its own input and signals at once, and reads no input while the socket takes none.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Bytes, HandshakeError, Message, WebSocket};

use super::{Answer, GRACE, Route, Server, tls_cause, untrusted};
use crate::output::Failure;

/// What is read at once; a frame is at most one channel byte more.
pub(crate) const CHUNK: usize = 32 << 10;
/// Frames received in a row before input and signals have their turn: a flood of output must not
/// keep a Ctrl-C waiting.
pub(crate) const IN_A_ROW: usize = 64;

pub(crate) struct Socket {
    inner: WebSocket<Stream>,
    /// Something that was written waits for the socket to take it.
    pending: bool,
    /// All that has come was received. Until then no poll would tell of it: it may be in buffers.
    drained: bool,
    from: String,
}

/// What the other side told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Frame(Bytes),
    /// Nothing more for now: wait.
    Nothing,
    /// It has closed.
    Closed,
}

/// What a wait was woken by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ready {
    pub(crate) input: bool,
    /// Whoever writes the input has gone, in both directions.
    pub(crate) hung_up: bool,
    pub(crate) signal: bool,
}

#[allow(clippy::large_enum_variant, reason = "one of it, for as long as the verb runs")]
enum Stream {
    Plain(TcpStream),
    Tls(rustls::StreamOwned<rustls::ClientConnection, TcpStream>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buf),
            Self::Tls(tls) => tls.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(buf),
            Self::Tls(tls) => tls.write(buf),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

impl Socket {
    pub(crate) fn open(server: &Server, route: &Route) -> Answer<Self> {
        let base = &server.base;
        let tcp = connect(server)?;
        let stream = match &server.tls {
            None => Stream::Plain(tcp),
            Some(config) => {
                let name = ServerName::try_from(server.host.clone())
                    .map_err(|_| Failure(format!("{base} names no host that TLS could check")))?;
                let connection = rustls::ClientConnection::new(config.clone(), name)
                    .map_err(|e| Failure(format!("TLS cannot be set up: {e}")))?;
                Stream::Tls(rustls::StreamOwned::new(connection, tcp))
            }
        };
        let request = http::Request::get(format!("{}{route}", base.replacen("http", "ws", 1)))
            .header("host", base.split_once("://").map_or("", |(_, host)| host))
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", tungstenite::handshake::client::generate_key())
            .header("authorization", format!("Bearer {}", server.token))
            .header("request-timeout", format!("{}ms", server.timeout.as_millis()))
            .body(())
            .map_err(|e| Failure(format!("{base}{route} cannot be asked: {e}")))?;
        // Each frame goes out at once; what the socket does not take is bounded by reading no more.
        let config = WebSocketConfig::default().write_buffer_size(0);
        let opened = tungstenite::client::client_with_config(request, stream, Some(config));
        let inner = match opened {
            Ok((inner, _)) => inner,
            Err(HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                let body = answer.body().as_deref().unwrap_or_default();
                return Err(server.refusal(answer.status(), None, body));
            }
            Err(HandshakeError::Failure(tungstenite::Error::Io(e))) if tls_cause(&e).is_some() => {
                return Err(Failure(untrusted(base, &e)).into());
            }
            Err(HandshakeError::Failure(error)) => {
                return Err(Failure(format!("{base} does not take the connection: {error}")).into());
            }
            Err(HandshakeError::Interrupted(_)) => {
                return Err(Failure(format!("{base} did not answer in time (--timeout)")).into());
            }
        };
        let tcp = inner.get_ref().tcp();
        tcp.set_read_timeout(None)?;
        tcp.set_write_timeout(None)?;
        tcp.set_nonblocking(true)?;
        Ok(Self { inner, pending: false, drained: false, from: base.clone() })
    }

    /// Sends a frame, or keeps it until the socket takes it; until then [`Self::wait`] waits for no
    /// input, so that at most a chunk is kept.
    pub(crate) fn send(&mut self, frame: Vec<u8>) -> Result<(), Failure> {
        let sent = self.inner.write(Message::Binary(frame.into()));
        self.settle(sent)?;
        self.flush()
    }

    /// What has come, without waiting. Whoever takes only some of it comes back after a wait that
    /// does not wait.
    pub(crate) fn receive(&mut self) -> Result<Told, Failure> {
        self.drained = false;
        loop {
            match self.inner.read() {
                Ok(Message::Binary(bytes)) => return Ok(Told::Frame(bytes)),
                Ok(Message::Text(text)) => return Ok(Told::Frame(text.into())),
                // Pings are answered by the library as it goes on reading and writing.
                Ok(_) => {}
                Err(tungstenite::Error::Io(e)) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    self.drained = true;
                    self.flush()?;
                    return Ok(Told::Nothing);
                }
                Err(error) if is_end(&error) => return Ok(Told::Closed),
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    /// Waits until there is something to receive or to flush, or one of the others is readable.
    /// Input is waited for only while nothing is pending.
    pub(crate) fn wait(
        &mut self,
        input: Option<BorrowedFd<'_>>,
        signal: Option<BorrowedFd<'_>>,
    ) -> Result<Ready, Failure> {
        self.wait_for(input, signal, None)
    }

    /// As [`Self::wait`], and no longer than `patience`.
    pub(crate) fn wait_for(
        &mut self,
        input: Option<BorrowedFd<'_>>,
        signal: Option<BorrowedFd<'_>>,
        patience: Option<Duration>,
    ) -> Result<Ready, Failure> {
        let input = input.filter(|_| !self.pending);
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, self.pending);
        let tcp = self.inner.get_ref().tcp();
        let mut fds = vec![PollFd::new(tcp, interest)];
        fds.extend(input.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(signal.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let patience = if self.drained { patience } else { Some(Duration::ZERO) };
        let patience = patience.map(|patience| Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        });
        match poll(&mut fds, patience.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            Err(e) => return Err(std::io::Error::from(e).into()),
        }
        let told = |at: usize| fds.get(at).map_or(PollFlags::empty(), PollFd::revents);
        let (at_input, at_signal) = (1, 1 + usize::from(input.is_some()));
        let ready = Ready {
            input: input.is_some() && !told(at_input).is_empty(),
            hung_up: input.is_some() && told(at_input).contains(PollFlags::HUP),
            signal: signal.is_some() && !told(at_signal).is_empty(),
        };
        if self.pending {
            self.flush()?;
        }
        Ok(ready)
    }

    /// Says goodbye; whoever does not hear it will see the connection end.
    pub(crate) fn close(mut self) {
        let _ = self.inner.close(None);
        let _ = self.inner.flush();
    }

    /// Says goodbye and waits, no longer than `patience`, until the other side has heard it: closing
    /// on what it still sends could take back what was sent last.
    pub(crate) fn part(mut self, patience: Duration) {
        let closed = self.inner.close(None);
        if self.settle(closed).and_then(|()| self.flush()).is_err() {
            return;
        }
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let goes_on = match self.receive() {
                _ if left.is_zero() => false,
                Ok(Told::Frame(_)) => true,
                Ok(Told::Nothing) => self.wait_for(None, None, Some(left)).is_ok(),
                Ok(Told::Closed) | Err(_) => false,
            };
            if !goes_on {
                return;
            }
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.pending = false;
        let flushed = self.inner.flush();
        self.settle(flushed)
    }

    fn settle(&mut self, outcome: tungstenite::Result<()>) -> Result<(), Failure> {
        match outcome {
            Ok(()) => Ok(()),
            Err(tungstenite::Error::Io(e)) if e.kind() == std::io::ErrorKind::WouldBlock => {
                self.pending = true;
                Ok(())
            }
            // The reading side will find the end, after what came before it.
            Err(error) if is_end(&error) => Ok(()),
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn broken(&self, error: &tungstenite::Error) -> Failure {
        Failure(format!("the connection to {} broke: {error}", self.from))
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("from", &self.from).finish_non_exhaustive()
    }
}

fn is_end(error: &tungstenite::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    use tungstenite::error::ProtocolError;
    match error {
        tungstenite::Error::ConnectionClosed
        | tungstenite::Error::AlreadyClosed
        | tungstenite::Error::Protocol(
            ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing,
        ) => true,
        tungstenite::Error::Io(e) => {
            matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
        }
        _ => false,
    }
}

fn connect(server: &Server) -> Result<TcpStream, Failure> {
    let base = &server.base;
    let away = |why: String| {
        Failure(format!(
            "{base} does not answer ({why}); is `fairlead up` running, and there? (--server)"
        ))
    };
    let addresses =
        (server.host.as_str(), server.port).to_socket_addrs().map_err(|e| away(e.to_string()))?;
    let mut last = "no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, server.timeout) {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                tcp.set_read_timeout(Some(server.timeout + GRACE))?;
                tcp.set_write_timeout(Some(server.timeout + GRACE))?;
                return Ok(tcp);
            }
            Err(e) => last = e.to_string(),
        }
    }
    Err(away(last))
}
