//! What a thread waits for, read from the frames above the program's own and from its state.

use super::dump::{Draft, Runtime, State, ThreadDump};
use super::name;

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Wait {
    Lock(Lock),
    /// A condition, or a monitor's `wait`, without a time limit.
    Condition,
    /// Another's result or end: a future, a latch, a join.
    Future,
    /// The next element of a queue or channel.
    Take,
    /// Room in a queue or channel.
    Put,
    /// A permit of a semaphore.
    Permit,
    Io,
    Sleep,
    /// Anything that ends by itself at a time.
    Timed,
    /// Work, as a thread of a pool, or the runtime's own business.
    Idle,
    Running,
    /// The form does not say.
    Unknown,
}

/// Kinds of locks, as they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lock {
    Mutex,
    Read,
    Write,
    /// A class or a value that another thread initialises.
    Once,
}

impl Wait {
    /// Whether a waiter has given up the monitor that it waits on.
    pub(super) fn gives_up(self) -> bool {
        matches!(self, Self::Condition | Self::Timed | Self::Take | Self::Put | Self::Io)
    }

    /// Whether only somebody else can wake it.
    pub(super) fn is_blocked(self) -> bool {
        !matches!(self, Self::Running | Self::Idle | Self::Unknown | Self::Timed)
    }

    /// In words, for "it waits for …".
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Lock(Lock::Once) => "an initialisation",
            Self::Lock(_) => "a lock",
            Self::Condition => "a condition",
            Self::Future => "another's result",
            Self::Take => "the next element of a queue",
            Self::Put => "room in a queue",
            Self::Permit => "a permit",
            Self::Io => "I/O",
            Self::Sleep => "a sleep",
            Self::Timed => "something, with a time limit",
            Self::Idle => "work",
            Self::Running => "nothing: it is running",
            Self::Unknown => "something that this form does not show",
        }
    }
}

/// What a thread waits for, the index of its first frame of the program, and the address of the
/// lock where a frame shows it.
pub(super) fn classify(dump: &ThreadDump, draft: &Draft) -> (Wait, usize, Option<u64>) {
    let frames = &draft.frames;
    let text = |i: usize| (dump.text(frames[i].function), dump.text(frames[i].place));
    let depth = (0..frames.len())
        .find(|&i| {
            let (function, place) = text(i);
            name::is_program(dump.runtime, function, place)
        })
        .unwrap_or(frames.len());
    let own = (0..depth).map(text);
    let wait = match dump.runtime {
        Runtime::Java => java(draft, own, depth == frames.len()),
        Runtime::Python => python(draft, own, depth == 0, depth == frames.len()),
        Runtime::Native => native(draft, own, depth == frames.len()),
    };
    let address = match wait {
        Wait::Lock(_) => draft
            .values
            .iter()
            .filter(|(frame, _)| usize::from(*frame) < depth)
            .map(|(_, value)| *value)
            .next(),
        _ => None,
    };
    (wait, depth, address)
}

fn java<'a>(
    draft: &Draft,
    own: impl Iterator<Item = (&'a str, &'a str)>,
    no_program: bool,
) -> Wait {
    match draft.state {
        // Without the lock it waits for, it has just been given it.
        State::Blocked if draft.on.is_none() && !draft.holds.is_empty() => return Wait::Running,
        State::Blocked => return Wait::Lock(Lock::Mutex),
        State::Initialising => return Wait::Lock(Lock::Once),
        _ => {}
    }
    let mut found = None;
    let (mut idle, mut parked) = (false, false);
    for (function, _) in own {
        let (class, method) = function.rsplit_once('.').unwrap_or(("", function));
        let simple = class.rsplit('.').next().unwrap_or(class);
        let wait = match (simple, method) {
            (
                "ReentrantReadWriteLock$ReadLock" | "StampedLock$ReadLockView",
                "lock" | "lockInterruptibly",
            )
            | ("StampedLock", "readLock" | "acquireRead") => Wait::Lock(Lock::Read),
            (
                "ReentrantReadWriteLock$WriteLock" | "StampedLock$WriteLockView",
                "lock" | "lockInterruptibly",
            )
            | ("StampedLock", "writeLock" | "acquireWrite") => Wait::Lock(Lock::Write),
            ("ReentrantLock" | "ReentrantLock$Sync" | "ReentrantLock$NonfairSync", _)
                if method.starts_with("lock") =>
            {
                Wait::Lock(Lock::Mutex)
            }
            ("Semaphore", _) => Wait::Permit,
            ("CountDownLatch" | "CyclicBarrier" | "Phaser" | "Exchanger", _)
            | ("FutureTask", "get" | "awaitDone")
            | ("CompletableFuture", "get" | "join" | "waitingGet")
            | ("ForkJoinTask", "get" | "join" | "awaitDone" | "invoke")
            | ("Thread", "join") => Wait::Future,
            ("ThreadPoolExecutor", "getTask")
            | ("ForkJoinPool", "awaitWork" | "runWorker")
            | ("ReferenceQueue" | "Reference", _)
            | ("TimerThread", "mainLoop") => {
                idle = true;
                Wait::Idle
            }
            (
                "ThreadPoolExecutor"
                | "ForkJoinWorkerThread"
                | "Thread"
                | "ThreadPoolExecutor$Worker",
                "run" | "runWorker" | "runWith",
            ) => {
                continue;
            }
            (queue, "take" | "poll" | "takeFirst" | "pollFirst")
                if queue.contains("Queue") || queue.contains("Deque") =>
            {
                Wait::Take
            }
            (queue, "put" | "putFirst" | "putLast" | "offer" | "transfer")
                if queue.contains("Queue") || queue.contains("Deque") =>
            {
                Wait::Put
            }
            ("AbstractQueuedSynchronizer$ConditionObject", _) | ("Object", "wait" | "wait0") => {
                Wait::Condition
            }
            ("Thread", "sleep" | "sleep0" | "sleepNanos" | "sleepNanos0")
            | ("TimeUnit", "sleep") => Wait::Sleep,
            ("ProcessImpl" | "Process" | "ProcessHandleImpl", _) => Wait::Io,
            ("LockSupport" | "Unsafe" | "VirtualThread", _) if method.starts_with("park") => {
                parked = true;
                continue;
            }
            ("VirtualThread", "yieldContinuation") => {
                parked = true;
                continue;
            }
            _ if is_java_io(class, method) => Wait::Io,
            _ => continue,
        };
        found = Some(wait);
    }
    if idle && no_program {
        return Wait::Idle;
    }
    match (found, draft.state) {
        (
            Some(Wait::Condition | Wait::Take | Wait::Permit | Wait::Future | Wait::Put),
            State::TimedWaiting,
        ) => Wait::Timed,
        (Some(wait), _) => wait,
        (None, _) if no_program => Wait::Idle,
        (None, State::TimedWaiting) => Wait::Timed,
        (None, State::Waiting) => Wait::Condition,
        (None, _) if parked => Wait::Condition,
        (None, _) => Wait::Running,
    }
}

fn is_java_io(class: &str, method: &str) -> bool {
    let native_read =
        ["read", "write", "accept", "connect", "poll", "select", "wait", "send", "receive"]
            .iter()
            .any(|verb| method.starts_with(verb) || method.ends_with("0"));
    (class.starts_with("sun.nio.ch.") && native_read)
        || class.starts_with("java.net.Socket")
        || class.starts_with("java.net.Plain")
        || class.starts_with("java.net.ServerSocket")
        || class.starts_with("java.net.Inet")
        || class.starts_with("java.net.http.")
        || class.starts_with("jdk.internal.net.http.")
        || class.starts_with("sun.net.www.")
        || matches!(
            class,
            "java.io.FileInputStream" | "java.io.FileOutputStream" | "java.io.RandomAccessFile"
        )
}

fn python<'a>(
    draft: &Draft,
    own: impl Iterator<Item = (&'a str, &'a str)>,
    bare: bool,
    no_program: bool,
) -> Wait {
    let mut found = None;
    for (function, place) in own {
        let file = place.rsplit_once(':').map_or(place, |(file, _)| file);
        let base = file.rsplit('/').next().unwrap_or(file);
        let method = function.rsplit('.').next().unwrap_or(function);
        let wait = match (base, method) {
            ("threading.py", "acquire" | "__enter__") => match function.split('.').next() {
                Some("Semaphore" | "BoundedSemaphore") => Wait::Permit,
                _ if found == Some(Wait::Condition) => Wait::Permit,
                _ => Wait::Lock(Lock::Mutex),
            },
            ("threading.py", "join" | "_wait_for_tstate_lock") => Wait::Future,
            ("threading.py", "wait" | "wait_for") => {
                // `Event.wait` calls `Condition.wait`; names without classes tell by the order.
                if found == Some(Wait::Condition) { Wait::Future } else { Wait::Condition }
            }
            ("threading.py", "_shutdown") => Wait::Idle,
            ("queue.py", "get") => Wait::Take,
            ("queue.py", "put") => Wait::Put,
            ("_base.py", "result" | "exception" | "wait") => Wait::Future,
            ("thread.py", "_worker") => Wait::Idle,
            ("subprocess.py", _) | ("popen_fork.py", _) => Wait::Io,
            ("socket.py" | "ssl.py" | "socketserver.py", _) => Wait::Io,
            ("selectors.py", _) => Wait::Io,
            ("client.py", _) if file.contains("http") => Wait::Io,
            (_, name) if is_c(base) => match native_call(name) {
                Some(wait) => wait,
                None if name.contains("acquire_lock")
                    || name.starts_with("rlock_acquire")
                    || name.contains("rlock_acquire") =>
                {
                    Wait::Lock(Lock::Mutex)
                }
                None if name == "time_sleep" || name == "pysleep" => Wait::Sleep,
                None if name.starts_with("sock_")
                    || name.starts_with("os_")
                    || name.starts_with("_io_") =>
                {
                    Wait::Io
                }
                None => continue,
            },
            _ => continue,
        };
        found = Some(wait);
    }
    match (found, draft.state) {
        (Some(wait), _) => wait,
        (None, State::Running) => Wait::Running,
        (None, _) if no_program => Wait::Idle,
        // The interpreter's own calls have no frames: it may wait for anything.
        (None, _) if bare => Wait::Unknown,
        (None, _) => Wait::Unknown,
    }
}

fn is_c(base: &str) -> bool {
    base.contains(".so") || base.ends_with(".c") || base.starts_with("python")
}

fn native<'a>(
    draft: &Draft,
    own: impl Iterator<Item = (&'a str, &'a str)>,
    no_program: bool,
) -> Wait {
    let mut found = None;
    let mut in_kernel = false;
    for (i, (function, _)) in own.enumerate() {
        // Functions of the C library have no path: whoever stands there may sleep in the kernel.
        in_kernel |= i == 0 && !function.contains("::");
        let method = function.rsplit("::").next().unwrap_or(function);
        let has = |part: &str| function.contains(part);
        let wait = if has("sync::mutex::")
            || has("raw_mutex::RawMutex::lock")
            || has("mutex::Mutex::lock")
        {
            Wait::Lock(Lock::Mutex)
        } else if has("rwlock") || has("RwLock") {
            match method {
                m if m.contains("read") || m.contains("shared") => Wait::Lock(Lock::Read),
                _ => Wait::Lock(Lock::Write),
            }
        } else if has("pthread_mutex_lock") || has("lll_lock_wait") {
            Wait::Lock(Lock::Mutex)
        } else if has("pthread_rwlock") {
            if has("rd") { Wait::Lock(Lock::Read) } else { Wait::Lock(Lock::Write) }
        } else if has("once::") && (method == "call" || method == "wait") {
            Wait::Lock(Lock::Once)
        } else if has("wait_timeout")
            || has("timedwait")
            || has("park_timeout")
            || has("recv_timeout")
        {
            Wait::Timed
        } else if has("tokio::runtime::") {
            Wait::Idle
        } else if has("Condvar::wait") || has("condvar::") || has("pthread_cond_wait") {
            match found {
                Some(Wait::Timed) => Wait::Timed,
                _ => Wait::Condition,
            }
        } else if has("mpmc::") || has("mpsc::") || has("crossbeam_channel::") || has("SyncSender")
        {
            if has("send") { Wait::Put } else { Wait::Take }
        } else if has("JoinHandle")
            || has("JoinInner")
            || has("pthread_join")
            || has("Thread::join")
        {
            Wait::Future
        } else if let Some(wait) = native_call(method) {
            wait
        } else if method == "park" {
            Wait::Condition
        } else if (has("std::net::")
            || has("std::process::")
            || has("std::fs::")
            || has("std::io::"))
            && found.is_none_or(|w| !w.is_blocked())
        {
            Wait::Io
        } else {
            continue;
        };
        found = Some(wait);
    }
    match (found, draft.state) {
        (Some(wait), _) => wait,
        (None, State::Running) => Wait::Running,
        (None, _) if no_program => Wait::Idle,
        (None, State::Unknown) if !in_kernel => Wait::Running,
        (None, _) => Wait::Unknown,
    }
}

/// A system call by the name of its function in the C library.
fn native_call(function: &str) -> Option<Wait> {
    let bare = function
        .trim_start_matches("__GI_")
        .trim_start_matches("__libc_")
        .trim_start_matches('_')
        .split('@')
        .next()
        .unwrap_or("");
    Some(match bare {
        "recv" | "recvfrom" | "recvmsg" | "read" | "write" | "send" | "sendto" | "sendmsg"
        | "poll" | "ppoll" | "select" | "pselect" | "epoll_wait" | "epoll_pwait" | "accept"
        | "accept4" | "connect" | "wait4" | "waitpid" | "waitid" | "fsync" | "fdatasync"
        | "openat" | "open" | "flock" | "getaddrinfo" | "pread64" | "pwrite64" | "readv"
        | "writev" => Wait::Io,
        "nanosleep" | "clock_nanosleep" | "usleep" | "sleep" => Wait::Sleep,
        _ => return None,
    })
}
