//! The words for what the report counts as values.

use crate::report::{
    EntryKind, EventKind, Evidence, FaultClass, HeldMode, Holder, Level, ResourceKind, Severity,
};

pub(super) fn class(class: FaultClass) -> &'static str {
    match class {
        FaultClass::LockOrderInversion => "locks taken in opposite orders",
        FaultClass::RecursiveReadLock => "recursive read lock with a writer queued between",
        FaultClass::SelfDeadlock => "a lock taken twice by its own holder",
        FaultClass::Deadlock => "deadlock",
        FaultClass::HeldAcrossIo => "lock held across I/O",
        FaultClass::HeldAcrossLock => "lock held across another lock",
        FaultClass::HeldAcrossChannel => "lock held across a channel",
        FaultClass::HeldAcrossWork => "held across slow work",
        FaultClass::LostUnlock => "lost unlock",
        FaultClass::ExhaustedPool => "exhausted pool",
        FaultClass::SlowConsumer => "slow consumer",
        FaultClass::StuckIo => "stuck I/O",
        FaultClass::SilentProducer => "silent producer",
        FaultClass::Leak => "leaked goroutines",
        FaultClass::RetryStorm => "retry storm",
        FaultClass::StaleCache => "stale cache",
        FaultClass::LeaderLoss => "leader loss",
        FaultClass::MemoryOverLimit => "memory over its limit",
        FaultClass::UnansweredRequests => "unanswered requests",
        FaultClass::HotLock => "hot lock",
        FaultClass::Queue => "queue",
    }
}

pub(super) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "critical",
        Severity::Serious => "serious",
        Severity::Minor => "minor",
    }
}

pub(super) fn level(level: Level) -> &'static str {
    match level {
        Level::Certain => "certain",
        Level::Likely => "likely",
        Level::Possible => "possible",
    }
}

pub(super) fn mode(mode: HeldMode) -> &'static str {
    match mode {
        HeldMode::Read => "for reading",
        HeldMode::Write => "for writing",
        HeldMode::Unknown => "in a way that the evidence does not say",
    }
}

pub(super) fn resource(kind: ResourceKind) -> &'static str {
    match kind {
        ResourceKind::Mutex => "mutex",
        ResourceKind::RwMutex => "read-write mutex",
        ResourceKind::Lock => "lock",
        ResourceKind::Once => "sync.Once",
        ResourceKind::Channel => "channel",
        ResourceKind::WaitGroup => "wait group",
        ResourceKind::Condition => "condition",
        ResourceKind::Semaphore => "semaphore",
        ResourceKind::Pool => "pool",
        ResourceKind::Io => "I/O",
        ResourceKind::Memory => "memory",
        ResourceKind::Requests => "requests",
        ResourceKind::Leadership => "leadership",
        ResourceKind::Cache => "cache",
        ResourceKind::Other => "",
    }
}

pub(super) fn entry(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Grpc => "gRPC",
        EntryKind::Http => "HTTP",
        EntryKind::Webhook => "webhook",
        EntryKind::Timer => "timer",
        EntryKind::Watcher => "watcher",
        EntryKind::Worker => "worker",
        EntryKind::Main => "main",
        EntryKind::Thread => "thread",
        EntryKind::Goroutine => "goroutine",
    }
}

pub(super) fn event(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Onset => "onset",
        EventKind::Anomaly => "anomaly",
        EventKind::Loop => "loop",
        EventKind::Leader => "leader",
        EventKind::Restart => "restart",
        EventKind::Memory => "memory",
        EventKind::Dump => "dump",
        EventKind::Metric => "metric",
    }
}

/// `thread "refresher"`, `4 threads such as "pool-1-thread-1"`.
pub(super) fn threads(holder: &Holder) -> String {
    let name = holder.thread.as_deref().unwrap_or("");
    match holder.count {
        0 | 1 => format!("thread \"{name}\""),
        n => format!("{n} threads such as \"{name}\""),
    }
}

/// `input:line`, as an editor takes it.
pub(super) fn place(evidence: &Evidence) -> String {
    match evidence.line {
        Some(line) => format!("{}:{line}", evidence.input),
        None => evidence.input.clone(),
    }
}

/// `no stall found`, `1 finding`.
pub(super) fn verdict(findings: usize) -> String {
    match findings {
        0 => "no stall found".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    }
}
