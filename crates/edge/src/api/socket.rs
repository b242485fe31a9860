//! WebSockets: a session between a client and what is behind it, a pod or what is going on here.
//!
//! Contract:
//! - It is a task with a name that says whose it is, in a place among the streams, on the ledger as
//!   long as it lives. It ends when either side goes, when the client may no longer, and when the
//!   process stops; then the last word is tried, for a moment.
//! - A client that is gone without a word is found out by pings within a minute, unless it is we who
//!   do not read from it: then it is the other side that holds it up.
//! - Nothing is read from one side that the other has not taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::response::Response;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use stallproof::Deadline;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tracing::Instrument;

use super::rights::LOST;
use super::sse::{OpenStream, STOPPING};
use super::{Api, Problem, Rights};

/// The largest frame: a terminal's have some bytes, a pipe's some tens of kilobytes.
const LARGEST: usize = 1 << 20;
const PING: Duration = Duration::from_secs(15);
/// Pings in a row to which nothing was heard, after which nobody is there.
const SILENT: u32 = 3;
/// For the last word, and for the client to hear it.
const GOODBYE: Duration = Duration::from_secs(2);
/// The most bytes of a close frame's reason.
const REASON: usize = 120;

type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

/// The extractor of handlers that upgrade to a WebSocket; a plain request is refused.
pub(crate) type UpgradeResult = Result<Upgrade, Problem>;

/// A client's request to upgrade its connection to a WebSocket.
pub(crate) struct Upgrade {
    /// The value of `sec-websocket-accept`.
    accept: String,
    connection: OnUpgrade,
}

impl<S: Sync> FromRequestParts<S> for Upgrade {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let has = |name: HeaderName, word: &str| {
            let values = parts.headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok());
            let mut words = values.flat_map(|value| value.split(',')).map(str::trim);
            words.any(|value| value.eq_ignore_ascii_case(word))
        };
        let upgrades = parts.method == Method::GET
            && has(CONNECTION, "upgrade")
            && has(UPGRADE, "websocket")
            && has(SEC_WEBSOCKET_VERSION, "13");
        let accept =
            parts.headers.get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
        match (upgrades, accept, parts.extensions.remove::<OnUpgrade>()) {
            (true, Some(accept), Some(connection)) => Ok(Self { accept, connection }),
            _ => Err(Problem::invalid(
                "this is a WebSocket: connect with a client of that protocol, version 13",
            )),
        }
    }
}

impl Upgrade {
    fn response(&self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::from_str(&self.accept) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        response
    }
}

/// How a session ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The other side is done.
    Done,
    /// The other side broke; why.
    Broke(String),
    /// The client is gone.
    Gone,
    /// By us: they may no longer.
    Forbidden,
    /// By us: we are stopping.
    Stopping,
}

impl SessionEnd {
    /// The reason to tell the client; none where there is nothing to say.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Done | Self::Gone => None,
            Self::Broke(why) => Some(why),
            Self::Forbidden => Some(LOST),
            Self::Stopping => Some(STOPPING),
        }
    }

    /// How the audit says it.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::Done | Self::Gone => "ok",
            Self::Broke(_) => "failed",
            Self::Forbidden => "forbidden",
            Self::Stopping => "stopped",
        }
    }

    fn code(&self) -> CloseCode {
        match self {
            Self::Done | Self::Gone => CloseCode::Normal,
            Self::Broke(_) => CloseCode::Error,
            Self::Forbidden => CloseCode::Policy,
            Self::Stopping => CloseCode::Away,
        }
    }
}

/// What is behind a session.
pub(crate) trait SessionBackend: Send + 'static {
    /// All of it. May be dropped at any moment.
    fn converse(&mut self, session: &mut Session) -> impl Future<Output = SessionEnd> + Send;

    /// Is told how it ended, once; the frame that says so, if there is one.
    fn last(&mut self, ended: &SessionEnd) -> Option<Bytes>;
}

/// The client's side: what is sent to it, and what comes from it.
pub(crate) struct Session {
    pub(crate) to: ToClient,
    pub(crate) from: FromClient,
}

pub(crate) struct ToClient {
    sink: SplitSink<WebSocket, Message>,
    ping: Interval,
    /// Pings since anything was heard, or since the client took something.
    silent: u32,
    heard: Arc<ClientActivity>,
}

pub(crate) struct FromClient {
    stream: SplitStream<WebSocket>,
    heard: Arc<ClientActivity>,
}

/// Written where frames come in, read where pings go out.
#[derive(Default)]
struct ClientActivity {
    something: AtomicBool,
    /// Whether anybody listens: silence counts only then.
    listening: AtomicBool,
}

/// The client takes no more.
pub(crate) struct Gone;

/// Opens a session as soon as the connection is ours. `deadline` is for that.
pub(crate) fn open(
    api: &Api,
    upgrade: Upgrade,
    name: String,
    (place, mut rights, deadline): (OpenStream, Rights, Deadline),
    mut backend: impl SessionBackend,
) -> Response {
    let response = upgrade.response();
    let (stop, span) = (api.tasks.stopping(), place.span());
    let session = async move {
        let _place = place;
        let Ok(Ok(connection)) = deadline.bound(upgrade.connection).await else { return };
        let connection = TokioIo::new(connection);
        let socket = WebSocket::from_raw_socket(connection, Role::Server, Some(config())).await;
        let mut session = Session::new(socket);
        let ended = tokio::select! {
            ended = backend.converse(&mut session) => ended,
            () = rights.lost() => SessionEnd::Forbidden,
            () = stop.stopped() => SessionEnd::Stopping,
        };
        let last = backend.last(&ended);
        // What is held of the other side goes first: it should not wait for a client that does not read.
        drop(backend);
        let _ = Deadline::after(GOODBYE).bound(session.end(&ended, last)).await;
    };
    api.tasks.spawn(name, session.instrument(span));
    response
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(LARGEST)).max_frame_size(Some(LARGEST))
}

impl Session {
    fn new(socket: WebSocket) -> Self {
        let (sink, stream) = socket.split();
        let heard = Arc::<ClientActivity>::default();
        let mut ping = interval_at(Instant::now() + PING, PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let to = ToClient { sink, ping, silent: 0, heard: Arc::clone(&heard) };
        Self { to, from: FromClient { stream, heard } }
    }

    /// Says goodbye, and hears the client out: closing on what it still sends would take back what
    /// was said last.
    async fn end(&mut self, ended: &SessionEnd, last: Option<Bytes>) {
        if *ended == SessionEnd::Gone {
            return;
        }
        if let Some(last) = last
            && self.to.send(last).await.is_err()
        {
            return;
        }
        let reason = ended.reason().unwrap_or_default();
        let reason = &reason[..reason.floor_char_boundary(REASON)];
        let close = CloseFrame { code: ended.code(), reason: reason.into() };
        if self.to.sink.send(Message::Close(Some(close))).await.is_ok() {
            while let Some(Ok(_)) = self.from.stream.next().await {}
        }
    }
}

impl ToClient {
    /// Waits until the connection has taken it.
    pub(crate) async fn send(&mut self, frame: Bytes) -> Result<(), Gone> {
        self.sink.send(Message::Binary(frame)).await.map_err(|_| Gone)?;
        self.silent = 0;
        Ok(())
    }

    /// The same, of text.
    pub(crate) async fn send_text(&mut self, frame: Bytes) -> Result<(), Gone> {
        let text = Utf8Bytes::try_from(frame).map_err(|_| Gone)?;
        self.sink.send(Message::Text(text)).await.map_err(|_| Gone)?;
        self.silent = 0;
        Ok(())
    }

    /// Pings as long as nothing else is to be said; returns when nobody is there. May be dropped and
    /// asked again.
    pub(crate) async fn gone(&mut self) {
        loop {
            self.ping.tick().await;
            let heard = self.heard.something.swap(false, Relaxed);
            if heard || !self.heard.listening.load(Relaxed) {
                self.silent = 0;
            } else if self.silent >= SILENT {
                return;
            }
            self.silent += 1;
            if self.sink.send(Message::Ping(Bytes::new())).await.is_err() {
                return;
            }
        }
    }
}

impl FromClient {
    /// The next frame; none when the client has gone.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.heard.listening.store(true, Relaxed);
        let frame = loop {
            let Some(Ok(message)) = self.stream.next().await else { break None };
            self.heard.something.store(true, Relaxed);
            match message {
                Message::Binary(bytes) => break Some(bytes),
                Message::Text(text) => break Some(text.into()),
                Message::Close(_) => break None,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        };
        self.heard.listening.store(false, Relaxed);
        frame
    }
}

#[cfg(feature = "fuzzing")]
pub(super) mod fuzz;
