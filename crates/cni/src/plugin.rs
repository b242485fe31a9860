//! The executable: it reads the runtime's command, sends it to the agent and prints the reply.
//!
//! While the agent is away:
//! - If it was well a moment ago ([`ready`]), it is being replaced: STATUS succeeds, and the other
//!   commands wait for the next agent, [`REPLACED_WITHIN`] at most. A request that the last agent
//!   received and did not answer is sent again: every request may be.
//! - Otherwise STATUS says that the agent is away, and ADD, CHECK and GC ask the runtime at once to try
//!   again later.
//! - DEL succeeds at once if the node has no interface of the container (the address comes back when
//!   the agent reconciles); otherwise DEL behaves as the other commands.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde_json::Value;

use crate::interface::{calico_interface, host_interface};
use crate::ready;
use crate::spec::{Args, Code, Command, Configuration, Error, Invocation, Success, Version};
use crate::wire::{self, AddRequest, AttachmentKey, LARGEST, Operation, Pod, Reply, Request};

/// The part of the timeout that is kept for the agent's reply to arrive: the agent should be the one to
/// say what took so long.
const MARGIN: Duration = Duration::from_millis(500);
/// How long a command waits for the next agent: most are replaced sooner, and a runtime that waits
/// longer than this for an agent that does not come tells nobody why.
const REPLACED_WITHIN: Duration = Duration::from_secs(10);
/// The pauses between two attempts to reach it.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// How long STATUS may take. An agent answers it from memory; while a kubelet waits for it, the
/// kubelet hears nothing else of its runtime.
const STATUS_WITHIN: Duration = Duration::from_secs(5);

/// What the plugin prints on stdout, and whether the command succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Most successes print nothing.
    pub stdout: Option<Value>,
    pub success: bool,
}

/// Runs the command that the environment and stdin describe.
pub fn run(variable: impl Fn(&str) -> Option<OsString>, stdin: impl Read) -> Output {
    let mut version = Version::LATEST;
    match execute(variable, stdin, &mut version) {
        Ok(stdout) => Output { stdout, success: true },
        Err(error) => Output { stdout: Some(error.render(version)), success: false },
    }
}

fn execute(
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
    let timeout = match command {
        Command::Status => config.timeout.min(STATUS_WITHIN),
        _ => config.timeout,
    };
    let agent = Agent { socket: &config.socket, deadline: began + timeout, timeout };
    let socket = &config.socket;
    match invocation {
        Invocation::Version => Ok(None),
        Invocation::Add { key, netns, args: Args { pod } } => {
            let namespace = open(&netns)?;
            let (network, pool) = (config.name.clone(), config.pool.clone());
            let netns = netns.to_string_lossy().into_owned();
            let fixed = config.fixed.clone();
            let add = Operation::Add(AddRequest { key, network, netns, pod, pool, fixed });
            let reply = agent.call(add, Some(&namespace), || false);
            match reply.map_err(|error| away(socket, &error))? {
                Reply::Added(success) => {
                    let success = Success { dns: config.dns, ..success };
                    Ok(Some(success.render(config.version, config.previous.as_ref())))
                }
                other => done(other),
            }
        }
        Invocation::Del { key, args: Args { pod } } => {
            let is_gone = || is_gone(&key, pod.as_ref());
            let del = Operation::Del { key: key.clone(), network: config.name.clone() };
            match agent.call(del, None, is_gone) {
                Ok(reply) => done(reply),
                Err(error) if never_began(&error) && is_gone() => Ok(None),
                Err(error) => Err(away(socket, &error)),
            }
        }
        Invocation::Check { key, netns } => {
            let namespace = open(&netns)?;
            let (network, addresses) = (config.name.clone(), config.previous_addresses());
            let check = Operation::Check { key, network, addresses };
            let reply = agent.call(check, Some(&namespace), || false);
            done(reply.map_err(|error| away(socket, &error))?)
        }
        Invocation::Gc => {
            let (network, valid) = (config.name.clone(), config.valid.clone());
            let reply = agent.call(Operation::Gc { network, valid }, None, || false);
            done(reply.map_err(|error| away(socket, &error))?)
        }
        Invocation::Status => {
            let reply = agent.once(&mut Request { wait_ms: 0, operation: Operation::Status }, None);
            let reply =
                reply.map_err(|error| Error { code: Code::NotAvailable, ..away(socket, &error) });
            match reply.and_then(done) {
                // The agent is away, or has just started and does not serve yet.
                Err(error) if error.code == Code::NotAvailable && ready::holds(socket) => Ok(None),
                answer => answer,
            }
        }
    }
}

/// The agent, and how long it may take.
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

    /// Sends the operation, and sends it to the next agent if this one is being replaced. While no
    /// agent has received the request it may become `needless`; then nobody waits for it any more.
    fn call(
        &self,
        operation: Operation,
        namespace: Option<&OwnedFd>,
        needless: impl Fn() -> bool,
    ) -> io::Result<Reply> {
        let mut request = Request { wait_ms: 0, operation };
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

/// Says whether the node has no interface of this attachment (any more), by whatever name it went.
fn is_gone(key: &AttachmentKey, pod: Option<&Pod>) -> bool {
    let family = AddressFamily::INET;
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::DGRAM, flags, None).is_ok_and(|socket| {
        let is_absent = |name: &str| {
            let index = rustix::net::netdevice::name_to_index(&socket, name);
            index == Err(rustix::io::Errno::NODEV)
        };
        is_absent(&host_interface(key))
            && calico_interface(key, pod).is_none_or(|name| is_absent(&name))
    })
}

/// Says whether no agent has received the request.
fn never_began(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

/// Says whether the agent that received the request ended without a reply.
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
