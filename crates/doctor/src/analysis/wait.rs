//! What a stack waits for, read from the runtime's frames at its top and from its header's state.

use crate::goroutine::{Dump, Name, RuntimeCall, Stack};

/// What a goroutine waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Wait {
    Lock(LockOp),
    Once,
    /// A wait group.
    Group,
    Condition,
    Semaphore,
    Send,
    Receive,
    Select,
    /// A channel operation; the form does not say which.
    Channel,
    /// `select {}` or a nil channel: never returns.
    Forever,
    Io,
    Syscall,
    Sleep,
    /// Runs, or could.
    Running,
    /// The runtime's own.
    Idle,
    /// The form does not say.
    Unknown,
}

/// How a lock is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LockOp {
    /// `RWMutex.RLock`.
    Read,
    /// `RWMutex.Lock`, past the other writers: waits for readers to leave.
    HeadWrite,
    /// `RWMutex.Lock`, behind another writer.
    QueuedWrite,
    /// `Mutex.Lock`.
    Mutex,
}

impl LockOp {
    pub(super) fn wants(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::HeadWrite => "write (head of the queue)",
            Self::QueuedWrite => "write (queued)",
            Self::Mutex => "lock",
        }
    }
}

impl Wait {
    /// Whether only somebody else can wake it.
    pub(super) fn is_blocked(self) -> bool {
        !matches!(self, Self::Running | Self::Idle | Self::Unknown)
    }

    /// In words, for "it waits for …".
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Lock(LockOp::Mutex) => "a mutex",
            Self::Lock(_) => "an RWMutex",
            Self::Once => "a sync.Once",
            Self::Group => "a wait group",
            Self::Condition => "a condition",
            Self::Semaphore => "a semaphore",
            Self::Send => "a channel send",
            Self::Receive => "a channel receive",
            Self::Select => "a select",
            Self::Channel => "a channel",
            Self::Forever => "nothing: it can never proceed",
            Self::Io => "I/O",
            Self::Syscall => "a system call",
            Self::Sleep => "a sleep",
            Self::Running => "nothing: it is running",
            Self::Idle => "work for the runtime",
            Self::Unknown => "something that this form does not show",
        }
    }
}

/// What a stack waits for, and the index of the first frame outside the runtime and `sync`.
pub(super) fn classify(dump: &Dump, stack: &Stack) -> (Wait, usize) {
    let (mut parked, mut behind) = (false, false);
    let mut found = None;
    let mut depth = stack.frames.len();
    for (i, frame) in stack.frames.iter().enumerate() {
        let wait = match dump.known(frame.function) {
            RuntimeCall::Program => {
                depth = i;
                break;
            }
            RuntimeCall::Runtime | RuntimeCall::Sync => continue,
            RuntimeCall::SemaMutex
            | RuntimeCall::SemaRw
            | RuntimeCall::SemaRwR
            | RuntimeCall::Sema => {
                parked = true;
                Wait::Semaphore
            }
            RuntimeCall::LockSlow | RuntimeCall::MutexLock => {
                behind = true;
                Wait::Lock(LockOp::Mutex)
            }
            RuntimeCall::RwRLock => Wait::Lock(LockOp::Read),
            RuntimeCall::RwLock if behind => Wait::Lock(LockOp::QueuedWrite),
            RuntimeCall::RwLock => Wait::Lock(LockOp::HeadWrite),
            RuntimeCall::FdLock => Wait::Lock(LockOp::Mutex),
            // A goroutine that runs the once's function has program frames inside this one.
            RuntimeCall::Once => Wait::Once,
            RuntimeCall::WaitGroup => Wait::Group,
            RuntimeCall::Cond => Wait::Condition,
            RuntimeCall::ChanSend => Wait::Send,
            RuntimeCall::ChanRecv => Wait::Receive,
            RuntimeCall::Select => Wait::Select,
            RuntimeCall::Block => Wait::Forever,
            RuntimeCall::Netpoll => Wait::Io,
            RuntimeCall::Syscall => Wait::Syscall,
            RuntimeCall::Sleep => Wait::Sleep,
        };
        found = Some(wait);
    }
    let state = dump.state(stack).unwrap_or("");
    if state == "running" || state == "runnable" || helps_collector(dump, stack, depth) {
        return (Wait::Running, depth);
    }
    let wait = match found {
        // On its way into a lock, not parked there.
        Some(Wait::Lock(_) | Wait::Once) if !parked && stack.parked != Some(true) => Wait::Running,
        Some(wait) => wait,
        None => by_state(state).unwrap_or(match (stack.parked, stack.hidden) {
            // `gopark` and `selectgo`; an operation on a channel has two frames of its own.
            (Some(true), Some(2)) => Wait::Select,
            (Some(true), _) => Wait::Channel,
            (Some(false), _) => Wait::Running,
            (None, _) => Wait::Unknown,
        }),
    };
    let waits_for_peer = || {
        let mut names =
            stack.frames.iter().skip(depth).take(3).map(|f| Name::of(dump.function(f.function)));
        names.next().is_some_and(|n| is_remote(&n) || is_client(&n)) || names.any(|n| calls(&n))
    };
    match wait {
        Wait::Select | Wait::Receive | Wait::Channel | Wait::Condition if waits_for_peer() => {
            (Wait::Io, depth)
        }
        wait => (wait, depth),
    }
}

/// Whether it only waits for the garbage collector, on its way to memory: it is at work.
fn helps_collector(dump: &Dump, stack: &Stack, depth: usize) -> bool {
    stack.frames.iter().take(depth).any(|f| {
        matches!(
            dump.function(f.function),
            "runtime.gcAssistAlloc"
                | "runtime.gcParkAssist"
                | "runtime.gcStart"
                | "runtime.mallocgc"
        )
    })
}

/// Clients hand a call to a connection's own goroutines and wait on a channel: for whoever called,
/// that is I/O.
fn is_remote(name: &Name<'_>) -> bool {
    match (name.package, name.receiver) {
        ("net/http", Some(receiver)) => {
            matches!(receiver, "persistConn" | "Transport")
                || receiver.starts_with("http2") && {
                    let client = receiver.to_ascii_lowercase();
                    client.contains("client") || client.contains("transport")
                }
        }
        ("golang.org/x/net/http2", Some(receiver)) => {
            matches!(receiver, "ClientConn" | "clientStream" | "Transport")
        }
        ("net" | "os/exec", _) => true,
        (package, Some(receiver)) if package.starts_with("google.golang.org/grpc") => matches!(
            receiver,
            "ClientConn" | "clientStream" | "csAttempt" | "recvBufferReader" | "pickerWrapper"
        ),
        _ => false,
    }
}

/// A client of the program's own, by the names that such clients have.
fn is_client(name: &Name<'_>) -> bool {
    let receiver = name.receiver.unwrap_or("").to_ascii_lowercase();
    let message = ["recvmsg", "readmsg", "roundtrip", "waitreply", "waitresponse"];
    calls(name)
        || message.contains(&name.function.to_ascii_lowercase().as_str())
        || ["clientconn", "clientstream", "rpcclient", "rpcconn"].contains(&receiver.as_str())
}

/// Whether the function is a remote call.
fn calls(name: &Name<'_>) -> bool {
    name.receiver.is_some() && matches!(name.function, "Invoke" | "RoundTrip" | "invoke")
}

/// `debug=2` leaves out the runtime's frames; the header says instead.
fn by_state(state: &str) -> Option<Wait> {
    Some(match state {
        "" => return None,
        "chan send" => Wait::Send,
        "chan receive" => Wait::Receive,
        "select" => Wait::Select,
        "select (no cases)" | "chan receive (nil chan)" | "chan send (nil chan)" => Wait::Forever,
        "IO wait" => Wait::Io,
        "sleep" => Wait::Sleep,
        "syscall" => Wait::Syscall,
        // The program's own semaphores show frames of `sync`: this one is the runtime's.
        "semacquire" | "GC assist wait" | "GC assist marking" => Wait::Running,
        "sync.Mutex.Lock" => Wait::Lock(LockOp::Mutex),
        "sync.RWMutex.RLock" => Wait::Lock(LockOp::Read),
        "sync.RWMutex.Lock" => Wait::Lock(LockOp::HeadWrite),
        "sync.WaitGroup.Wait" => Wait::Group,
        "sync.Cond.Wait" => Wait::Condition,
        "running" | "runnable" | "copystack" | "preempted" | "debug call" => Wait::Running,
        _ => Wait::Idle,
    })
}

/// Whether the system call is one that a file system answers at once when it is well. Others, such
/// as a read from a pipe or a wait for a child, may take as long as they like.
pub(super) fn is_prompt_call(dump: &Dump, stack: &Stack) -> bool {
    const PROMPT: [&str; 22] = [
        "stat",
        "lstat",
        "fstat",
        "fstatat",
        "newfstatat",
        "statfs",
        "fstatfs",
        "open",
        "openat",
        "readdirent",
        "getdents",
        "readlink",
        "readlinkat",
        "mkdir",
        "mkdirat",
        "unlink",
        "unlinkat",
        "rename",
        "renameat",
        "fsync",
        "mount",
        "unmount",
    ];
    stack
        .frames
        .iter()
        .map(|f| Name::of(dump.function(f.function)))
        .take_while(|name| {
            matches!(name.package, "syscall" | "golang.org/x/sys/unix" | "runtime")
                || name.package.ends_with("runtime/syscall")
        })
        .any(|name| PROMPT.contains(&name.function.to_ascii_lowercase().as_str()))
}

/// Whether a package belongs to Go itself.
pub(super) fn is_std(package: &str) -> bool {
    const ROOTS: [&str; 53] = [
        "archive",
        "bufio",
        "bytes",
        "cmp",
        "compress",
        "container",
        "context",
        "crypto",
        "database",
        "debug",
        "embed",
        "encoding",
        "errors",
        "expvar",
        "flag",
        "fmt",
        "go",
        "hash",
        "html",
        "image",
        "index",
        "internal",
        "io",
        "iter",
        "log",
        "maps",
        "math",
        "mime",
        "net",
        "os",
        "path",
        "plugin",
        "reflect",
        "regexp",
        "runtime",
        "slices",
        "sort",
        "strconv",
        "strings",
        "structs",
        "sync",
        "syscall",
        "testing",
        "text",
        "time",
        "unicode",
        "unique",
        "unsafe",
        "vendor",
        "weak",
        "arena",
        "bootstrap",
        "simd",
    ];
    let root = package.split('/').next().unwrap_or(package);
    ROOTS.contains(&root)
}

/// The first frame from `depth` outwards that is not Go's own; else the one at `depth`.
pub(super) fn first_of_program<'d>(dump: &'d Dump, stack: &Stack, depth: usize) -> Option<&'d str> {
    let names = || stack.frames.iter().skip(depth).map(|f| dump.function(f.function));
    names().find(|f| !is_std(Name::of(f).package)).or_else(|| names().next())
}
