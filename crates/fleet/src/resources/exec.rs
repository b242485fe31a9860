//! Runs a command in a container, with or without a terminal.
//!
//! Contract:
//! - [`Output`] is the session: it works while it is polled, sends the data of [`Input`], and ends with
//!   exactly one [`Event::Exit`]. Dropping it ends the session, and [`Input`] returns an error then.
//! - A session may be silent for hours; one whose API server is gone ends with [`Exit::Lost`] within
//!   half a minute, by the pings of [`Channels`].
//! - Output that nobody reads stops the process in the pod, as a full pipe does; output and input do
//!   not wait for each other.
//! - The kubelet decides about the process of a lost session. Without a terminal it usually runs on.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::AttachParams;
use kube::core::{Request, Status};
use serde::{Deserialize, Serialize};
use stallproof::{Deadline, sentence};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Bytes;

use super::channels::{Channels, Lost};
use super::check_segment;
use crate::{Connection, Error};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// Its frame has the number of the channel that ends; since protocol v5 (API servers from 1.30).
const CLOSE: u8 = 255;

/// The largest frame of input; larger input is split.
const FRAME: usize = 32 * 1024;
/// Frames that wait for the connection: enough to type and to paste ahead, half a megabyte at most.
const AHEAD: usize = 16;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Command {
    /// The container; it may be left out for a pod with one.
    pub container: Option<String>,
    pub command: Vec<String>,
    pub stdin: bool,
    /// Whether it has a terminal, which has no stderr: all output is stdout.
    pub tty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The last event.
    Exit(Exit),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "exit", content = "detail", rename_all = "camelCase")]
pub enum Exit {
    Code(i32),
    /// The command could not be run, or its exit could not be read; the text is the kubelet's.
    Failed(String),
    /// The session broke; the state of the process is unknown.
    Lost(String),
}

/// Runs a command in a container. The deadline is for starting it.
pub async fn exec(
    connection: &Connection,
    namespace: &str,
    pod: &str,
    command: &Command,
    deadline: Deadline,
) -> Result<(Input, Output), Error> {
    check_segment("namespace", namespace)?;
    check_segment("pod", pod)?;
    if command.command.is_empty() {
        return Err(Error::Invalid("there is no command to run; give one, such as sh".to_owned()));
    }
    let params = AttachParams {
        container: command.container.clone(),
        stdin: command.stdin,
        stdout: true,
        stderr: !command.tty,
        tty: command.tty,
        ..AttachParams::default()
    };
    let pods = Request::new(Pod::url_path(&(), Some(namespace)));
    let request = pods.exec(pod, &command.command, &params);
    open(connection, "starting a command", request, deadline).await
}

/// Attaches to the terminal of a container's own process. The deadline is for opening the session.
pub async fn attach(
    connection: &Connection,
    namespace: &str,
    pod: &str,
    container: &str,
    deadline: Deadline,
) -> Result<(Input, Output), Error> {
    check_segment("namespace", namespace)?;
    check_segment("pod", pod)?;
    let params = AttachParams {
        container: Some(container.to_owned()),
        stdin: true,
        stdout: true,
        stderr: false,
        tty: true,
        ..AttachParams::default()
    };
    let pods = Request::new(Pod::url_path(&(), Some(namespace)));
    open(connection, "attaching to a container", pods.attach(pod, &params), deadline).await
}

async fn open(
    connection: &Connection,
    doing: &'static str,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    deadline: Deadline,
) -> Result<(Input, Output), Error> {
    let opened = connection
        .call(doing, deadline, |client| async move {
            client.connect(request.map_err(kube::Error::BuildRequest)?).await
        })
        .await?;
    let closes = opened.supports_stream_close();
    let (frames, typed) = mpsc::channel(AHEAD);
    let output = Output {
        channels: Some(Channels::new(opened.into_stream())),
        typed: Some(typed),
        _connection: connection.clone(),
    };
    Ok((Input { frames, closes }, output))
}

/// The session is over: there is nobody to send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session is over")]
pub struct Over;

/// The input of a session. Sending waits while the connection or the process reads no more.
pub struct Input {
    frames: mpsc::Sender<(u8, Vec<u8>)>,
    closes: bool,
}

impl Input {
    pub async fn stdin(&self, bytes: &[u8]) -> Result<(), Over> {
        for frame in bytes.chunks(FRAME) {
            self.send(STDIN, frame.to_vec()).await?;
        }
        Ok(())
    }

    /// Tells the terminal its size.
    pub async fn resize(&self, size: Size) -> Result<(), Over> {
        let Size { width, height } = size;
        self.send(RESIZE, format!(r#"{{"Width":{width},"Height":{height}}}"#).into_bytes()).await
    }

    /// Whether this API server supports [`close`](Self::close). Servers before 1.30 do not; there a
    /// process that reads to the end runs until the session is dropped.
    pub fn can_close(&self) -> bool {
        self.closes
    }

    /// Ends the input. Output goes on.
    pub async fn close(self) -> Result<(), Over> {
        if self.closes { self.send(CLOSE, vec![STDIN]).await } else { Ok(()) }
    }

    async fn send(&self, channel: u8, bytes: Vec<u8>) -> Result<(), Over> {
        self.frames.send((channel, bytes)).await.map_err(|_| Over)
    }
}

/// The output of a session, and the session itself.
pub struct Output {
    /// `None` once it has ended.
    channels: Option<Channels>,
    /// `None` once there is no [`Input`].
    typed: Option<mpsc::Receiver<(u8, Vec<u8>)>>,
    /// Keeps the cluster's client alive.
    _connection: Connection,
}

impl Output {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        let Some(channels) = &mut self.channels else { return Poll::Pending };
        while let Some(typed) = &mut self.typed {
            match channels.poll_ready(cx)? {
                Poll::Ready(()) => {}
                Poll::Pending => return Poll::Pending,
            }
            match typed.poll_recv(cx) {
                Poll::Ready(Some((channel, bytes))) => channels.send(channel, &bytes)?,
                Poll::Ready(None) => self.typed = None,
                Poll::Pending => break,
            }
        }
        channels.poll_flush(cx)
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Lost>> {
        if let Poll::Ready(Err(lost)) = self.poll_send(cx) {
            return Poll::Ready(Err(lost));
        }
        let Some(channels) = &mut self.channels else { return Poll::Pending };
        loop {
            let event = match std::task::ready!(channels.poll_receive(cx))? {
                // The first frame of each channel is empty.
                Some((_, bytes)) if bytes.is_empty() => continue,
                Some((STDOUT, bytes)) => Event::Stdout(bytes),
                Some((STDERR, bytes)) => Event::Stderr(bytes),
                Some((STATUS, bytes)) => Event::Exit(exit_of(&bytes)),
                Some(_) => continue,
                None => Event::Exit(Exit::Lost(
                    "the session was closed before the command had ended".to_owned(),
                )),
            };
            return Poll::Ready(Ok(event));
        }
    }
}

impl Stream for Output {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.channels.is_none() {
            return Poll::Ready(None);
        }
        let event = match std::task::ready!(self.poll_event(cx)) {
            Ok(event) => event,
            Err(lost) => Event::Exit(Exit::Lost(sentence(&lost))),
        };
        if matches!(event, Event::Exit(_)) {
            (self.channels, self.typed) = (None, None);
        }
        Poll::Ready(Some(event))
    }
}

/// Reads the kubelet's last status.
fn exit_of(status: &[u8]) -> Exit {
    let Ok(status) = serde_json::from_slice::<Status>(status) else {
        return Exit::Failed("the kubelet's last status could not be read".to_owned());
    };
    if status.is_success() {
        return Exit::Code(0);
    }
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let code = causes
        .filter(|cause| cause.reason == "ExitCode")
        .find_map(|cause| cause.message.parse().ok());
    code.map_or(Exit::Failed(status.message), Exit::Code)
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("closes", &self.closes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("ended", &self.channels.is_none()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
