//! A command in a container, over a WebSocket.
//!
//! Binary frames; the first byte is the channel: 0 stdin (empty: its end), 1 stdout, 2 stderr,
//! 3 status (`{"exitCode"?, "reason"?}`, the last one), 4 resize (`{"width", "height"}`).

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use access::Verb;
use access::audit::Pending;
use access::audit::recording::{RecordedShell, Recorder};
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use fleet::resources::exec::{self, Command, Event, Exit, Input, Output, Size};
use futures::StreamExt;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::forward::PassedBytes;
use super::pods::{PODS, PodRef};
use super::socket::{self, FromClient, Session, SessionBackend, SessionEnd, ToClient};
use super::{Api, Caller, Problem, Rights, Route, Routes, sse};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;

pub(crate) fn routes() -> Routes {
    let recorded = &["command", "container", "tty", "stdin"];
    Routes::default().with(Route::write(Verb::Exec, PODS).recording(recorded), routes!(run))
}

#[derive(Debug, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecParams {
    pub(super) namespace: String,
    /// Needed for a pod with several containers.
    pub(super) container: Option<String>,
    /// Given once for each word: `command=ls&command=-l`.
    pub(super) command: Vec<String>,
    /// With a terminal there is no stderr: all comes as stdout.
    tty: Option<bool>,
    stdin: Option<bool>,
}

impl ExecParams {
    /// A word that is repeated is more than a query's usual reader takes.
    pub(super) fn read(query: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self::default();
        once(query)?;
        let yes = |name: &str, value: &str| match value {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(Problem::invalid(format!("{name}={value:?} is neither true nor false"))),
        };
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "namespace" => asked.namespace = value.into_owned(),
                "container" => asked.container = Some(value.into_owned()),
                "command" => asked.command.push(value.into_owned()),
                "tty" => asked.tty = yes("tty", &value)?,
                "stdin" => asked.stdin = yes("stdin", &value)?,
                "timeout" => {}
                other => {
                    return Err(Problem::invalid(format!("there is no parameter {other:?} here")));
                }
            }
        }
        if asked.namespace.is_empty() {
            return Err(Problem::invalid("pods live in a namespace; say in which"));
        }
        Ok(asked)
    }
}

/// Refuses a parameter that is given twice. The command alone is, a word at a time; of any other the audit might
/// record one value, and the other be done.
pub(super) fn once(query: Option<&str>) -> Result<(), Problem> {
    let mut seen = HashSet::new();
    for (name, _) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if name != "command" && !seen.insert(name.clone()) {
            return Err(Problem::invalid(format!("{name:?} is given twice; give it once")));
        }
    }
    Ok(())
}

/// Run a command in a container
///
/// A WebSocket of binary frames; the first byte is the channel: 0 stdin (an empty frame ends it),
/// 1 stdout, 2 stderr, 3 status (`exitCode`, `reason`; the last frame), 4 resize (`width`, `height`).
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/pods/{name}/exec", tag = "pods", params(ExecParams),
    responses((status = 101, description = "It has been started"))
)]
async fn run(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    upgrade: socket::UpgradeResult,
) -> Result<Response, Problem> {
    let asked = ExecParams::read(query.as_deref())?;
    let pod = PodRef { cluster: &cluster, namespace: &asked.namespace, name: &name };
    let connection = pod.connection(&api, &caller, Verb::Exec)?;
    // A browser is told nothing of a refused upgrade: a page asks again without one, and hears why.
    let upgrade = upgrade?;
    let place = sse::open(&api, &caller, "exec", name.clone(), cluster.clone())?;
    let within = (&*cluster, Some(&*asked.namespace));
    let rights = Rights::to(&api, &caller, within, PODS, Verb::Exec);
    let command = Command {
        container: asked.container,
        command: asked.command,
        stdin: asked.stdin.unwrap_or_default(),
        tty: asked.tty.unwrap_or_default(),
    };
    let (input, output) =
        exec::exec(&connection, &asked.namespace, &name, &command, caller.deadline).await?;
    let task = format!("exec in {name} of {cluster}");
    let recorded = RecordedShell {
        user: caller.who.user.to_string(),
        cluster: cluster.clone(),
        namespace: asked.namespace.clone(),
        pod: name.clone(),
        container: command.container.clone(),
        command: command.command.clone(),
    };
    // What reads no input is all in its command, which the audit has.
    let recorded = Some(recorded).filter(|_| command.tty || command.stdin);
    let mut shell = Shell::new(&api, &caller, recorded);
    shell.starts(input, output);
    Ok(socket::open(&api, upgrade, task, (place, rights, caller.deadline), shell))
}

/// A command with its client: input, output, sizes of its terminal, and how it ended.
pub(super) struct Shell {
    /// None before its start, and after its end.
    input: Option<Input>,
    /// None before its start.
    output: Option<Output>,
    exit: Option<Exit>,
    /// The audit's record, until the end is told.
    audited: Option<Pending>,
    passed: PassedBytes,
    /// Where shells are recorded. Written by both directions: output, and sizes of the terminal.
    recorder: Option<Mutex<Recorder>>,
}

impl Shell {
    /// One that has not started. Takes the audit's record over, and begins a recording where shells are
    /// recorded.
    pub(super) fn new(api: &Api, caller: &Caller, recorded: Option<RecordedShell>) -> Self {
        let mut audited = caller.trail.take();
        let recorder = api.recordings.as_ref().zip(audited.as_mut()).zip(recorded);
        let recorder = recorder.map(|((recordings, audited), recorded)| {
            audited.detail("recorded", true.into());
            Mutex::new(recordings.begin(audited.id(), recorded))
        });
        let passed = PassedBytes::default();
        Self { input: None, output: None, exit: None, audited, passed, recorder }
    }

    pub(super) fn starts(&mut self, input: Input, output: Output) {
        (self.input, self.output) = (Some(input), Some(output));
    }
}

impl SessionBackend for Shell {
    async fn converse(&mut self, Session { to, from }: &mut Session) -> SessionEnd {
        let Self { input, output, exit, passed, recorder, .. } = self;
        let Some(output) = output else {
            return SessionEnd::Broke("the command was not started".to_owned());
        };
        let recorder = recorder.as_ref();
        tokio::select! {
            ended = tell(output, to, exit, (recorder, &passed.from_pod)) => ended,
            () = pass_on(from, input, (recorder, &passed.to_pod)) => SessionEnd::Gone,
        }
    }

    fn last(&mut self, ended: &SessionEnd) -> Option<Bytes> {
        let (code, reason) = match &self.exit {
            Some(Exit::Code(code)) => (Some(*code), None),
            Some(Exit::Failed(why) | Exit::Lost(why)) => (None, Some(why.as_str())),
            None => (None, ended.reason()),
        };
        let mut status = json!({});
        let mut audited = self.audited.take();
        if let Some(code) = code {
            status["exitCode"] = code.into();
            if let Some(audited) = audited.as_mut() {
                audited.detail("exitCode", code.into());
            }
        }
        self.passed.finish(audited, ended);
        if let Some(reason) = reason {
            status["reason"] = reason.into();
        }
        Some(frame(STATUS, status.to_string().as_bytes()))
    }
}

pub(super) fn frame(channel: u8, bytes: &[u8]) -> Bytes {
    [&[channel], bytes].concat().into()
}

/// Sends the command's output to the client.
async fn tell(
    output: &mut Output,
    to: &mut ToClient,
    exit: &mut Option<Exit>,
    (recorder, passed): (Option<&Mutex<Recorder>>, &AtomicU64),
) -> SessionEnd {
    loop {
        let event = tokio::select! {
            event = output.next() => event,
            () = to.gone() => return SessionEnd::Gone,
        };
        if let Some(Event::Stdout(bytes) | Event::Stderr(bytes)) = &event {
            passed.fetch_add(bytes.len() as u64, Relaxed);
            with(recorder, |recorder| recorder.output(bytes));
        }
        let frame = match event {
            Some(Event::Stdout(bytes)) => frame(STDOUT, &bytes),
            Some(Event::Stderr(bytes)) => frame(STDERR, &bytes),
            Some(Event::Exit(how)) => {
                *exit = Some(how);
                return SessionEnd::Done;
            }
            None => return SessionEnd::Done,
        };
        if to.send(frame).await.is_err() {
            return SessionEnd::Gone;
        }
    }
}

fn with(recorder: Option<&Mutex<Recorder>>, record: impl FnOnce(&mut Recorder)) {
    if let Some(recorder) = recorder {
        record(&mut recorder.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Sends the client's input to the command. Returns when the client has gone.
async fn pass_on(
    from: &mut FromClient,
    input: &mut Option<Input>,
    (recorder, passed): (Option<&Mutex<Recorder>>, &AtomicU64),
) {
    while let Some(frame) = from.next().await {
        let Some((&channel, bytes)) = frame.split_first() else { continue };
        // That the command has ended is told by its output.
        match (channel, &*input) {
            (STDIN, _) if bytes.is_empty() => {
                if let Some(input) = input.take() {
                    let _ = input.close().await;
                }
            }
            (STDIN, Some(input)) => {
                passed.fetch_add(bytes.len() as u64, Relaxed);
                let _ = input.stdin(bytes).await;
            }
            (RESIZE, Some(input)) => {
                if let Ok(size) = serde_json::from_slice::<Size>(bytes) {
                    with(recorder, |recorder| recorder.resize(size.width, size.height));
                    let _ = input.resize(size).await;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
