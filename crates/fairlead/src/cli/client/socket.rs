//! A WebSocket of a server, as a half that sends frames and a half that receives them: neither waits
//! for the other, so that a peer that takes nothing can still be heard.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::Method;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::{Message, protocol::Role};

use super::{Body, ClientResult, Route, Server};
use crate::output::Failure;

/// What is read from a file or a connection at once; a frame is at most one channel byte more.
pub(crate) const CHUNK: usize = 32 << 10;
/// How long the server has to hear that a connection is over, after all that was sent.
const GOODBYE: Duration = Duration::from_secs(1);

type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

#[derive(Debug)]
pub(crate) struct FrameSender {
    sink: SplitSink<WebSocket, Message>,
    from: String,
}

#[derive(Debug)]
pub(crate) struct FrameReceiver {
    stream: SplitStream<WebSocket>,
    from: String,
}

impl Server {
    pub(crate) async fn socket(&self, route: &Route) -> ClientResult<(FrameSender, FrameReceiver)> {
        let from = self.base.clone();
        let failed = |why: String| Failure(format!("{from} does not take the connection: {why}"));
        let key = generate_key();
        let mut request = self.authorized(Method::GET, route, Body::None, "*/*").await?;
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", key.as_str()),
        ] {
            let value = value.parse().map_err(|_| failed(format!("{name} cannot be sent")))?;
            request.headers_mut().insert(name, value);
        }
        let opened = async {
            let (response, _) = self.send(request).await?;
            let accepted = response.headers().get("sec-websocket-accept");
            if accepted
                .is_none_or(|accepted| accepted != derive_accept_key(key.as_bytes()).as_str())
            {
                return Err(failed(format!("it answers {}", response.status())).into());
            }
            let upgraded = hyper::upgrade::on(response).await;
            let upgraded = upgraded.map_err(|e| failed(stallproof::sentence(&e)))?;
            Ok(WebSocket::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
        };
        let (sink, stream) = self.in_time(opened).await?.split();
        Ok((FrameSender { sink, from: from.clone() }, FrameReceiver { stream, from }))
    }
}

impl FrameSender {
    /// Waits until the connection has taken the frame. After the other side has closed, nothing is
    /// sent: the receiving half will find the end, after what came before it.
    pub(crate) async fn send(&mut self, frame: impl Into<Bytes>) -> Result<(), Failure> {
        match self.sink.send(Message::Binary(frame.into())).await {
            Err(error) if !is_end(&error) => Err(broken(&self.from, &error)),
            _ => Ok(()),
        }
    }

    /// Says goodbye, and waits for a moment until the other side has heard it: closing on what it
    /// still sends could take back what was sent last.
    pub(crate) async fn close(mut self, mut receiver: FrameReceiver) {
        let goodbye = async {
            if self.sink.close().await.is_ok() {
                while let Ok(Some(_)) = receiver.next().await {}
            }
        };
        // Whoever does not hear it will see the connection end.
        let _ = timeout(GOODBYE, goodbye).await;
    }
}

impl FrameReceiver {
    /// The next frame; None once the other side has closed.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match self.stream.next().await {
                None => return Ok(None),
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes)),
                Some(Ok(Message::Text(text))) => return Ok(Some(text.into())),
                // The library answers pings as it goes on reading.
                Some(Ok(_)) => {}
                Some(Err(error)) if is_end(&error) => return Ok(None),
                Some(Err(error)) => return Err(broken(&self.from, &error)),
            }
        }
    }
}

fn broken(from: &str, error: &Error) -> Failure {
    Failure(format!("the connection to {from} broke: {error}"))
}

fn is_end(error: &Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error {
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(
            ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing,
        ) => true,
        Error::Io(e) => matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof),
        _ => false,
    }
}
