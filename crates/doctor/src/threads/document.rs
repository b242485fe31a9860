//! Thread dumps that are JSON documents: `jcmd Thread.dump_to_file -format=json` and
//! `py-spy dump --json`.

use std::borrow::Cow;

use serde::Deserialize;

use super::dump::{Builder, Runtime, State, ThreadDump};
use super::java;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Java<'a> {
    #[serde(borrow)]
    thread_dump: JavaDump<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JavaDump<'a> {
    #[serde(borrow, default)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    thread_containers: Vec<Container<'a>>,
}

#[derive(Debug, Deserialize)]
struct Container<'a> {
    #[serde(borrow, default)]
    threads: Vec<JavaThread<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JavaThread<'a> {
    #[serde(borrow)]
    tid: Number<'a>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    state: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    blocked_on: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    waiting_on: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    park_blocker: Option<ParkBlocker<'a>>,
    #[serde(borrow, default)]
    monitors_owned: Vec<Monitors<'a>>,
    #[serde(borrow, default)]
    stack: Vec<Cow<'a, str>>,
}

/// Java 21 writes numbers as texts, others may not.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Number<'a> {
    Plain(u64),
    #[serde(borrow)]
    Text(Cow<'a, str>),
}

#[derive(Debug, Deserialize)]
struct ParkBlocker<'a> {
    #[serde(borrow, default)]
    object: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct Monitors<'a> {
    #[serde(default)]
    depth: usize,
    #[serde(borrow, default)]
    locks: Vec<Option<Cow<'a, str>>>,
}

#[derive(Debug, Deserialize)]
struct SpyThread<'a> {
    thread_id: u64,
    #[serde(borrow, default)]
    thread_name: Option<Cow<'a, str>>,
    os_thread_id: Option<u64>,
    #[serde(default)]
    owns_gil: bool,
    #[serde(borrow)]
    frames: Vec<SpyFrame<'a>>,
}

#[derive(Debug, Deserialize)]
struct SpyFrame<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    filename: Cow<'a, str>,
    #[serde(default)]
    line: i64,
    #[serde(borrow, default)]
    locals: Option<Vec<SpyLocal<'a>>>,
}

#[derive(Debug, Deserialize)]
struct SpyLocal<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    addr: u64,
}

/// Whether a document that begins so may be one of these.
pub(crate) fn begins(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    if let Some(rest) = head.strip_prefix(b"{") {
        return rest.trim_ascii_start().starts_with(b"\"threadDump\"");
    }
    head.strip_prefix(b"[").is_some_and(|rest| {
        let rest = rest.trim_ascii_start();
        rest.is_empty() || rest.starts_with(b"{")
    })
}

/// Reads a document; `None` where it is neither of them.
pub(crate) fn parse(input: &str, text: &[u8]) -> Option<ThreadDump> {
    // The two differ in their first byte, and a failed attempt costs a reading.
    if text.trim_ascii_start().starts_with(b"[") {
        let threads: Vec<SpyThread<'_>> = serde_json::from_slice(text).ok()?;
        return py_spy(input, &threads);
    }
    let document: Java<'_> = serde_json::from_slice(text).ok()?;
    java(input, &document.thread_dump)
}

fn number(number: &Number<'_>) -> Option<u64> {
    match number {
        Number::Plain(n) => Some(*n),
        Number::Text(text) => text.parse().ok(),
    }
}

fn java(input: &str, document: &JavaDump<'_>) -> Option<ThreadDump> {
    let form = "Java thread dump, Thread.dump_to_file as JSON";
    let mut builder = Builder::new(input, Runtime::Java, form, 0);
    builder.dump.taken = document.time.as_deref().and_then(|time| time.parse().ok());
    let threads = || document.thread_containers.iter().flat_map(|c| &c.threads);
    let type_of = |object: &str| object.split_once('@').map_or("", |(t, _)| t).to_owned();
    let mut says_state = false;
    for (line, thread) in (1u32..).zip(threads()) {
        let Some(id) = number(&thread.tid) else { continue };
        if !builder.begin(&thread.name, id, line) {
            continue;
        }
        for call in &thread.stack {
            java::frame(&mut builder, call);
        }
        for monitors in &thread.monitors_owned {
            for lock in monitors.locks.iter().flatten() {
                builder.hold(lock, &type_of(lock), Some(monitors.depth));
            }
        }
        let on = thread.blocked_on.as_deref().or(thread.waiting_on.as_deref());
        let on = on.or(thread.park_blocker.as_ref().map(|b| &*b.object));
        if let Some(on) = on {
            builder.waits_on(on, &type_of(on));
        }
        if let Some(draft) = &mut builder.draft {
            draft.state = thread.state.as_deref().map_or(State::Unknown, java::state);
            says_state |= draft.state != State::Unknown;
        }
    }
    builder.dump.lists_monitors = says_state;
    if !says_state {
        let why = "this version of Java writes neither states nor locks here: take `jstack -l` too";
        builder.dump.gaps.push(why.to_owned());
    }
    builder.finish()
}

fn py_spy(input: &str, threads: &[SpyThread<'_>]) -> Option<ThreadDump> {
    let form = "Python thread dump, py-spy as JSON";
    let mut builder = Builder::new(input, Runtime::Python, form, 0);
    for (line, thread) in (1u32..).zip(threads) {
        let id = thread.os_thread_id.unwrap_or(thread.thread_id);
        let name = thread.thread_name.as_deref().unwrap_or("");
        if !builder.begin(name, id, line) {
            continue;
        }
        for frame in &thread.frames {
            let c = frame.filename.contains(".so") || frame.filename.ends_with(".c");
            builder.dump.shows_native |= c;
            builder.frame(&frame.name, &format!("{}:{}", frame.filename, frame.line));
            let receiver = frame.locals.iter().flatten().find(|l| l.name == "self");
            if let Some(local) = receiver.filter(|l| l.addr > 0) {
                builder.value(local.addr);
            }
        }
        if let Some(draft) = &mut builder.draft {
            draft.state = if thread.owns_gil { State::Running } else { State::Waiting };
        }
    }
    builder.finish()
}
