//! What a template's words give away. Looked at once a template, not once a line.

use super::line::Record;

/// Something that an engineer would stop scrolling at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sign {
    LeaderLost,
    LeaderAbsent,
    LeaderWon,
    /// Names both the old and the new leader; which of the two is empty tells.
    LeaderMoved,
    Exit,
    Crash,
    OutOfMemory,
    QueueFull,
    LimitExceeded,
    NoSuchKind,
    Timeout,
}

impl Sign {
    /// Whether it alone says that something is wrong.
    pub(crate) fn is_anomaly(self) -> bool {
        !matches!(self, Self::LeaderWon | Self::LeaderMoved)
    }
}

/// In order: the first that fits is taken. All words of an entry must be there.
const SIGNS: &[(Sign, &[&str])] = &[
    (Sign::LeaderMoved, &["newlead=", "oldlead="]),
    (Sign::LeaderLost, &["lead loss"]),
    (Sign::LeaderLost, &["leadership lost"]),
    (Sign::LeaderLost, &["lost leadership"]),
    (Sign::LeaderLost, &["lost leader"]),
    (Sign::LeaderLost, &["leaderelection lost"]),
    (Sign::LeaderLost, &["leader election lost"]),
    (Sign::LeaderLost, &["stopped leading"]),
    (Sign::LeaderLost, &["stepping down"]),
    (Sign::LeaderLost, &["failed to renew lease"]),
    (Sign::LeaderLost, &["peer has newer term"]),
    (
        Sign::LeaderLost,
        &["heartbeat timeout reached, starting election"],
    ),
    (Sign::LeaderAbsent, &["no cluster leader"]),
    (Sign::LeaderAbsent, &["not the leader"]),
    (Sign::LeaderAbsent, &["cannot locate lead"]),
    (Sign::LeaderAbsent, &["no leader"]),
    (Sign::LeaderAbsent, &["leader changed"]),
    (Sign::LeaderWon, &["lead elected"]),
    (Sign::LeaderWon, &["new leader elected"]),
    (Sign::LeaderWon, &["became leader"]),
    (Sign::LeaderWon, &["elected leader"]),
    (Sign::LeaderWon, &["entering leader state"]),
    (Sign::LeaderWon, &["successfully acquired lease"]),
    (Sign::OutOfMemory, &["oomkilled"]),
    (Sign::OutOfMemory, &["out of memory"]),
    (Sign::OutOfMemory, &["oom-kill"]),
    (Sign::OutOfMemory, &["cannot allocate memory"]),
    (Sign::Crash, &["panic:"]),
    (Sign::Crash, &["fatal error:"]),
    (Sign::Crash, &["segmentation violation"]),
    (Sign::Exit, &["exit status"]),
    (Sign::Exit, &["exited with code"]),
    (Sign::Exit, &["signal: killed"]),
    (Sign::Exit, &["back-off restarting"]),
    (Sign::Exit, &["crashloopbackoff"]),
    (Sign::QueueFull, &["queue full"]),
    (Sign::QueueFull, &["queue is full"]),
    (Sign::QueueFull, &["buffer full"]),
    (Sign::QueueFull, &["channel full"]),
    (Sign::LimitExceeded, &["max_conns", "exceeded"]),
    (Sign::LimitExceeded, &["too many connections"]),
    (Sign::LimitExceeded, &["too many open files"]),
    (Sign::LimitExceeded, &["connection pool", "exhausted"]),
    (Sign::LimitExceeded, &["too many requests"]),
    (Sign::LimitExceeded, &["rate limit", "exceeded"]),
    (Sign::NoSuchKind, &["no matches for kind"]),
    (Sign::NoSuchKind, &["nokindmatch"]),
    (Sign::Timeout, &["deadlineexceeded"]),
    (Sign::Timeout, &["deadline exceeded"]),
    (Sign::Timeout, &["deadline reached"]),
    (Sign::Timeout, &["i/o timeout"]),
    (Sign::Timeout, &["timed out"]),
    (Sign::Timeout, &["write timeout"]),
    (Sign::Timeout, &["rst_stream", "cancel"]),
];

/// How surely a line begins something that owes another line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Begins {
    #[default]
    No,
    /// `starting …`: believed only where others like it were seen to end.
    Perhaps,
    /// A request was taken in: somebody waits for the answer.
    Request,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traits {
    pub(crate) sign: Option<Sign>,
    pub(crate) begins: Begins,
    pub(crate) has_id: bool,
    pub(crate) has_memory: bool,
    pub(crate) has_duration: bool,
}

pub(crate) const ID_KEYS: &[&str] = &[
    "id",
    "request_id",
    "requestid",
    "req_id",
    "reqid",
    "request-id",
    "x-request-id",
    "req",
    "rid",
    "trace_id",
    "traceid",
    "correlation_id",
    "grpc.request_id",
    "uid",
    "uuid",
    "reconcileid",
    "container_id",
    "containerid",
    "podsandboxid",
    "xid",
];
pub(crate) const LIMIT_KEYS: &[&str] = &[
    "memlimit",
    "mem_limit",
    "memory_limit",
    "memorylimit",
    "memory.max",
    "limit_bytes",
];
pub(crate) const USED_KEYS: &[&str] = &[
    "workingset",
    "working_set",
    "working_set_bytes",
    "memory.current",
    "rss",
    "rss_bytes",
    "memusage",
    "mem_usage",
    "memory_usage",
    "memoryusage",
    "usage",
];
/// Keys of durations, and what a bare number under them means in milliseconds.
pub(crate) const DURATION_KEYS: &[(&str, f64)] = &[
    ("grpc.time_ms", 1.0),
    ("duration_ms", 1.0),
    ("latency_ms", 1.0),
    ("elapsed_ms", 1.0),
    ("took_ms", 1.0),
    ("time_ms", 1.0),
    ("grpc.duration", 1.0),
    ("duration", 1000.0),
    ("latency", 1000.0),
    ("elapsed", 1000.0),
    ("took", 1000.0),
    ("duration_seconds", 1000.0),
];

impl Traits {
    /// `text` is the template, source and all.
    pub(crate) fn of(text: &str, record: &Record<'_>) -> Self {
        let text = text.to_ascii_lowercase();
        let sign = SIGNS
            .iter()
            .find(|(_, words)| words.iter().all(|w| text.contains(w)))
            .map(|(sign, _)| *sign);
        let message = String::from_utf8_lossy(record.message).to_ascii_lowercase();
        let has_id = record.fields.get(ID_KEYS).is_some();
        Self {
            sign,
            begins: if has_id && sign.is_none() {
                begins(&message)
            } else {
                Begins::No
            },
            has_id,
            has_memory: record.fields.get(USED_KEYS).is_some(),
            has_duration: DURATION_KEYS
                .iter()
                .any(|(key, _)| record.fields.get(&[key]).is_some()),
        }
    }
}

fn begins(message: &str) -> Begins {
    const ENDS: &[&str] = &[
        "done",
        "finish",
        "complete",
        "succe",
        "fail",
        "error",
        "respon",
        "repl",
        "answer",
        "clos",
        "released",
        "acquired",
        "exit",
        "stopped",
        "cancel",
        "timeout",
        "timed out",
        "ended",
        "denied",
        "reject",
        "started",
        "deleted",
        "removed",
        "served",
    ];
    // Only the words, not the fields behind them: `error=` there says nothing about the message.
    let words = message.split(['=', '"']).next().unwrap_or_default();
    let has = |list: &[&str]| list.iter().any(|w| words.contains(w));
    if has(ENDS) {
        return Begins::No;
    }
    let request = has(&["request", "call", "query", "rpc", "lock"]);
    if request
        && has(&[
            "receiv",
            "handling",
            "processing",
            "accept",
            "incoming",
            "acquiring",
            "waiting",
            "serving",
        ])
    {
        Begins::Request
    } else if has(&[
        "starting",
        "start ",
        "begin",
        "handling",
        "processing",
        "receiv",
        "attempting",
        "connecting",
        "acquiring",
        "waiting",
    ]) {
        Begins::Perhaps
    } else {
        Begins::No
    }
}
