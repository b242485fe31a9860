//! HTTP/2 on a listener, for clients that choose it in the TLS handshake.
//!
//! Contract: what bounds a connection of HTTP/1.1 bounds one of HTTP/2.
//! - A connection without a request is ended after the listener's patience, however many pings and halves of
//!   headers come.
//! - A peer that takes nothing of an answer for as long as a peer may is cut off, also if it is its windows
//!   that stay closed while its kernel takes all.
//! - Requests at once, bytes that wait to be read or sent, and headers are bounded for each connection.
//!   Requests that are taken back as fast as they are made, and headers without an end, end it (the library
//!   counts both).
//! - A WebSocket is none of HTTP/2's: its client opens a connection of HTTP/1.1, as browsers do by
//!   themselves.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http::{HeaderValue, Request, Response, Uri, header};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use stallproof::{Stop, Tasks};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{HEADERS, HttpLimits, RouterService};

/// Requests at once on a connection: what a page asks for at once, and its streams.
const STREAMS: u32 = 64;
/// Requests that were taken back before they were looked at, after which the connection ends.
const RESETS: usize = 20;
/// Bytes that a client may have sent on one request, and on its connection, before they are read.
const STREAM_WINDOW: u32 = 64 << 10;
const WINDOW: u32 = 256 << 10;
/// Bytes that may wait to be sent on a stream.
const SENDING: usize = 64 << 10;
/// Pings find out that the other end is gone.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);
/// How often a connection's streams are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Serves a connection until its end; once `stop` is set, lets it finish what it has begun.
pub(super) async fn serve<S>(
    stream: S,
    service: RouterService,
    limits: HttpLimits,
    (stop, tasks): (Stop, Tasks),
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let streams = Streams::new();
    let service = StreamService { service, streams: Arc::clone(&streams) };
    let header_list = u32::try_from(HEADERS).unwrap_or(u32::MAX);
    let connection = http2::Builder::new(RequestTasks(tasks))
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SENDING)
        .max_header_list_size(header_list)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = Box::pin(connection);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ending: Option<Instant> = None;
    loop {
        let ends = tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended early");
                }
                return;
            }
            () = stop.stopped(), if ending.is_none() => true,
            _ = look.tick() => match streams.look(limits) {
                Look::Well => false,
                Look::Unused | Look::Leaving => true,
                Look::NothingTaken => {
                    return tracing::debug!("nothing of an answer was taken");
                }
            },
        };
        match ending {
            None if ends => {
                connection.as_mut().graceful_shutdown();
                ending = Some(Instant::now());
            }
            // A peer that does not say goodbye is not waited for.
            Some(since) if streams.are_none() && since.elapsed() > limits.patience => return,
            _ => {}
        }
    }
}

/// Runs the requests of connections as tasks that somebody owns.
#[derive(Clone)]
struct RequestTasks(Tasks);

impl<F> hyper::rt::Executor<F> for RequestTasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn("request", future);
    }
}

/// The requests of one connection that are open.
struct Streams {
    /// Written where a request begins, goes on and ends; read by the connection's look.
    state: Mutex<StreamStates>,
}

struct StreamStates {
    next: u64,
    /// Since when each waits for the peer to take something; none while it is we who are waited for.
    open: HashMap<u64, Option<Instant>>,
    /// Since when there is none.
    unused: Instant,
    /// An answer said that the connection is to end.
    leaving: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Look {
    Well,
    Unused,
    Leaving,
    NothingTaken,
}

impl Streams {
    fn new() -> Arc<Self> {
        let (open, unused) = (HashMap::new(), Instant::now());
        let state = Mutex::new(StreamStates { next: 0, open, unused, leaving: false });
        Arc::new(Self { state })
    }

    fn open(self: &Arc<Self>) -> StreamPlace {
        let mut state = self.state.lock();
        state.next += 1;
        let id = state.next;
        state.open.insert(id, None);
        StreamPlace { streams: Arc::clone(self), id }
    }

    fn are_none(&self) -> bool {
        self.state.lock().open.is_empty()
    }

    fn look(&self, limits: HttpLimits) -> Look {
        let state = self.state.lock();
        let late = |since: &Instant| since.elapsed() > limits.taken_within;
        if state.open.values().flatten().any(late) {
            return Look::NothingTaken;
        }
        match state.open.is_empty() {
            true if state.unused.elapsed() > limits.patience => Look::Unused,
            _ if state.leaving => Look::Leaving,
            _ => Look::Well,
        }
    }
}

/// A request among those of its connection.
struct StreamPlace {
    streams: Arc<Streams>,
    id: u64,
}

impl StreamPlace {
    /// Whether the peer is to take something now.
    fn waits(&self, waits: bool) {
        let mut state = self.streams.state.lock();
        state.open.insert(self.id, waits.then(Instant::now));
    }

    fn leaves(&self) {
        self.streams.state.lock().leaving = true;
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut state = self.streams.state.lock();
        state.open.remove(&self.id);
        state.unused = Instant::now();
    }
}

/// Answers the requests of one connection.
struct StreamService {
    service: RouterService,
    streams: Arc<Streams>,
}

impl hyper::service::Service<Request<Incoming>> for StreamService {
    type Response = Response<TakenBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let place = self.streams.open();
        as_in_http1(&mut request);
        let answer = hyper::service::Service::call(&self.service, request);
        Box::pin(async move {
            let mut response = answer.await?;
            // In HTTP/1.1 this ends a connection; here it may not be said.
            let connection = response.headers_mut().remove(header::CONNECTION);
            if connection.is_some_and(|value| value == "close") {
                place.leaves();
            }
            place.waits(true);
            Ok(response.map(|body| TakenBody { body, place }))
        })
    }
}

/// Says the host and the path as a request of HTTP/1.1 does: who reads them knows no other way.
fn as_in_http1(request: &mut Request<Incoming>) {
    let uri = request.uri();
    let host = uri.authority().and_then(|it| HeaderValue::from_str(it.as_str()).ok());
    let path = uri.path_and_query().cloned();
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
    if let Some(path) = path {
        *request.uri_mut() = Uri::from(path);
    }
}

/// An answer's body that notes whether the peer takes it: the library asks for more once what it has is
/// taken.
struct TakenBody {
    body: Body,
    place: StreamPlace,
}

impl HttpBody for TakenBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.place.waits(frame.is_ready());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
