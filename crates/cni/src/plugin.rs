//! What the executable does: reads what the runtime asks, asks the daemon, prints the answer.
//!
//! When the daemon is away:
//! - If it was well a moment ago ([`ready`]), it is being replaced: STATUS succeeds, and the other
//!   commands wait for the next daemon, [`REPLACED_WITHIN`] at most. A request that the last one
//!   heard and did not answer is asked again: all of them may be.
//! - Else STATUS says so, and ADD, CHECK and GC ask the runtime at once to try again later.
//! - DEL succeeds at once if the node has no interface of the container (the address comes back when
//!   the daemon reconciles), and else is as the others.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde_json::Value;

use crate::interface::host_interface;
use crate::ready;
use crate::spec::{Args, Code, Command, Configuration, Error, Invocation, Success, Version};
use crate::wire::{self, Ask, LARGEST, Name, Reply, Request};

/// Of the time we are given, what is kept for the daemon's answer to reach us: it should be the one
/// to say what took so long.
const MARGIN: Duration = Duration::from_millis(500);
/// How long a command waits for the next daemon: most are replaced sooner, and a runtime that waits
/// longer than this for one that does not come tells nobody why.
const REPLACED_WITHIN: Duration = Duration::from_secs(10);
/// The pauses between two looks for it.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// How long STATUS may take. A daemon answers it from memory; while a kubelet waits for it, the
/// kubelet hears nothing else of its runtime.
const STATUS_WITHIN: Duration = Duration::from_secs(5);

/// What the plugin prints, and whether it is a success.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Most successes have nothing to say.
    pub output: Option<Value>,
    pub success: bool,
}

/// Does what the environment and stdin ask for.
pub fn run(variable: impl Fn(&str) -> Option<OsString>, stdin: impl Read) -> Answer {
    let mut version = Version::LATEST;
    match answer(variable, stdin, &mut version) {
        Ok(output) => Answer { output, success: true },
        Err(error) => Answer { output: Some(error.render(version)), success: false },
    }
}

fn answer(
    variable: impl Fn(&str) -> Option<OsString>,
    stdin: impl Read,
    version: &mut Version,
) -> Result<Option<Value>, Error> {
    let began = Instant::now();
    let invocation = Invocation::parse(variable)?;
    let stdin = read(stdin)?;
    let command = match &invocation {
        Invocation::Version => return Ok(Some(Version::report(&stdin))),
        Invocation::Add { .. } => Command::Add,
        Invocation::Del { .. } => Command::Del,
        Invocation::Check { .. } => Command::Check,
        Invocation::Gc => Command::Gc,
        Invocation::Status => Command::Status,
    };
    let config = Configuration::parse(&stdin, command)?;
    *version = config.version;
    let status = command == Command::Status;
    let timeout = if status { config.timeout.min(STATUS_WITHIN) } else { config.timeout };
    let agent = Agent { socket: &config.socket, deadline: began + timeout, timeout };
    let socket = &config.socket;
    match invocation {
        Invocation::Version => Ok(None),
        Invocation::Add { name, netns, args: Args { pod } } => {
            let namespace = open(&netns)?;
            let (network, pool) = (config.name.clone(), config.pool.clone());
            let netns = netns.to_string_lossy().into_owned();
            let add = Ask::Add { name, network, netns, pod, pool };
            let reply = agent.ask(add, Some(&namespace), || false);
            match reply.map_err(|error| away(socket, &error))? {
                Reply::Added(success) => {
                    let success = Success { dns: config.dns, ..success };
                    Ok(Some(success.render(config.version, config.previous.as_ref())))
                }
                other => done(other),
            }
        }
        Invocation::Del { name } => {
            let (delete, network) = (name.clone(), config.name.clone());
            let delete = Ask::Delete { name: delete, network };
            match agent.ask(delete, None, || is_gone(&name)) {
                Ok(reply) => done(reply),
                Err(error) if never_began(&error) && is_gone(&name) => Ok(None),
                Err(error) => Err(away(socket, &error)),
            }
        }
        Invocation::Check { name, netns } => {
            let namespace = open(&netns)?;
            let (network, addresses) = (config.name.clone(), config.previous_addresses());
            let check = Ask::Check { name, network, addresses };
            let reply = agent.ask(check, Some(&namespace), || false);
            done(reply.map_err(|error| away(socket, &error))?)
        }
        Invocation::Gc => {
            let (network, valid) = (config.name.clone(), config.valid.clone());
            let reply = agent.ask(Ask::Collect { network, valid }, None, || false);
            done(reply.map_err(|error| away(socket, &error))?)
        }
        Invocation::Status => {
            let reply = agent.once(&mut Request { wait_ms: 0, ask: Ask::Status }, None);
            let reply =
                reply.map_err(|error| Error { code: Code::NotAvailable, ..away(socket, &error) });
            match reply.and_then(done) {
                // Away, or just started and not yet at work.
                Err(error) if error.code == Code::NotAvailable && ready::holds(socket) => Ok(None),
                answer => answer,
            }
        }
    }
}

/// The daemon, and how long it may take.
struct Agent<'a> {
    socket: &'a Path,
    timeout: Duration,
    deadline: Instant,
}

impl Agent<'_> {
    fn once(&self, request: &mut Request, namespace: Option<&OwnedFd>) -> io::Result<Reply> {
        request.wait_until(self.deadline - MARGIN.min(self.timeout / 4));
        wire::call(self.socket, request, namespace.map(AsFd::as_fd), self.deadline)
    }

    /// Asks, and asks the next daemon if this one is being replaced. While nobody has heard the
    /// request it may become `needless`, and is then not waited with.
    fn ask(
        &self,
        ask: Ask,
        namespace: Option<&OwnedFd>,
        needless: impl Fn() -> bool,
    ) -> io::Result<Reply> {
        let mut request = Request { wait_ms: 0, ask };
        let mut pause = FIRST_PAUSE;
        let mut give_up = None;
        loop {
            let (error, unheard) = match self.once(&mut request, namespace) {
                Err(error) if never_began(&error) => (error, true),
                Err(error) if broke_off(&error) => (error, false),
                answered => return answered,
            };
            let now = Instant::now();
            let patience = REPLACED_WITHIN.min(self.timeout / 2);
            let give_up = *give_up.get_or_insert(self.deadline.min(now + patience));
            if now + pause > give_up || (unheard && needless()) || !ready::holds(self.socket) {
                return Err(error);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn done(reply: Reply) -> Result<Option<Value>, Error> {
    match reply {
        Reply::Done => Ok(None),
        Reply::Failed(error) => Err(error),
        Reply::Added(_) | Reply::Shown(_) => Err(Error::new(
            Code::Io,
            "the fairlead agent answered something else than was asked",
        )
        .details(
            "the plugin and the agent are of different versions: run `fairlead net install` again",
        )),
    }
}

fn read(stdin: impl Read) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let read = stdin.take(LARGEST as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| Error::new(Code::Io, format!("stdin cannot be read: {error}")))?;
    if text.len() > LARGEST {
        let msg = format!("stdin has more than {LARGEST} bytes");
        return Err(Error::new(Code::Decoding, msg).details("is it a network configuration?"));
    }
    Ok(text)
}

fn open(netns: &Path) -> Result<OwnedFd, Error> {
    // Whatever the path leads to, opening it does not wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(netns, flags, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        let msg = format!(
            "the network namespace {} (CNI_NETNS) cannot be opened: {error}",
            netns.display()
        );
        match error.kind() {
            ErrorKind::NotFound => Error::new(Code::UnknownContainer, msg).details(
                "the container is gone, or the runtime names a path of another mount namespace",
            ),
            _ => Error::new(Code::Io, msg),
        }
    })
}

/// Whether the node has no interface of this attachment (any more).
fn is_gone(name: &Name) -> bool {
    let family = AddressFamily::INET;
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::DGRAM, flags, None).is_ok_and(|socket| {
        let index = rustix::net::netdevice::name_to_index(&socket, &host_interface(name));
        index == Err(rustix::io::Errno::NODEV)
    })
}

/// Whether nobody has heard the request.
fn never_began(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

/// Whether who heard the request ended without an answer.
fn broke_off(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

fn away(socket: &Path, error: &io::Error) -> Error {
    let shown = socket.display();
    let (msg, details) = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => (
            format!("the fairlead agent is not running (nobody listens on {shown})"),
            "start it (`fairlead agent`, or its DaemonSet) and see its log; the runtime tries again".to_owned(),
        ),
        ErrorKind::PermissionDenied => (
            format!("the fairlead agent's socket {shown} may not be used"),
            "the plugin must run as the user that runs the agent, usually root".to_owned(),
        ),
        ErrorKind::TimedOut => (
            "the fairlead agent did not answer in time".to_owned(),
            "`fairlead inflight` on this node shows what it does; the runtime tries again".to_owned(),
        ),
        _ => (
            format!("the fairlead agent broke off (on {shown}): {error}"),
            "see its log; the runtime tries again".to_owned(),
        ),
    };
    Error::new(Code::TryAgainLater, msg).details(details)
}

#[cfg(test)]
mod tests;
