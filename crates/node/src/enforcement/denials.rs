//! What rules stopped or told of: packets of the kernel's log group, with the rule that each met.
//!
//! ```text
//! kernel: a rule, at most ten packets a second ─► thread: PacketLog ─► queue (bounded) ─► Watcher ─► controller
//! ```
//!
//! Contract: the kernel waits for nobody, and neither does the thread. What finds no room, what the kernel
//! had no room for and what names no rule of the program is counted.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use kernel::packet_log::{Logged, PacketLog};
use policy::program::{
    CounterId, Direction, PolicyKind, Program, Protocol, Rule, Source, TierKind, Verdict,
};
use stallproof::{Snapshot, Tasks, TrackedMutex, sentence};
use tokio::sync::oneshot;
use tracing::{error, warn};

use super::ruleset::LOG_GROUP;

/// How many denials wait to be told. A node's rules tell of ten packets a second each, and the queue is
/// emptied several times a second.
const WAITING: usize = 4096;
/// How long the thread waits for packets before it looks whether to end.
const WAKE: Duration = Duration::from_millis(200);

/// A rule of the program that packets met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRule {
    pub direction: Direction,
    pub tier: TierKind,
    pub verdict: Verdict,
    /// The rules of policies that it stands for: where several are merged, it was one of them.
    pub sources: Arc<[Source]>,
}

/// One packet that a rule denied or told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: Protocol,
    /// The destination's; zero where the protocol has none.
    pub port: u16,
    pub rule: Arc<NamedRule>,
}

/// How often each thing happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenialCounters {
    pub seen: u64,
    /// There was no room in the queue.
    pub dropped: u64,
    /// Times that the kernel had told more than was read.
    pub overruns: u64,
    /// Packets that named no rule of the program.
    pub unknown: u64,
}

#[derive(Debug, Default)]
struct Counters {
    seen: AtomicU64,
    dropped: AtomicU64,
    overruns: AtomicU64,
    unknown: AtomicU64,
}

pub(super) type RuleNames = BTreeMap<CounterId, Arc<NamedRule>>;

/// Where denials wait. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct Denials {
    /// The thread writes, the watcher takes.
    queue: Arc<TrackedMutex<VecDeque<Denial>>>,
    counters: Arc<Counters>,
    names: Snapshot<RuleNames>,
}

impl NamedRule {
    /// The policy and its rule, in words; none if it was for want of a rule of guard.
    pub fn in_words(&self) -> Option<String> {
        let first = self.sources.first()?;
        let name = match first.kind {
            PolicyKind::Group => return None,
            // As a controller names it that judges conversations by guard's rules itself.
            PolicyKind::NetworkRule => first.policy.to_string(),
            _ => first.to_string(),
        };
        let more = self.sources.len() - 1;
        Some(if more == 0 { name } else { format!("{name} and {more} more") })
    }
}

/// The rules of a program by their counters.
pub(super) fn names(program: &Program) -> RuleNames {
    let mut names = RuleNames::new();
    for chain in program.chains.values() {
        for (tier, rule) in chain.rules() {
            let Rule { verdict, sources, .. } = rule;
            names.entry(rule.counter(chain.direction, tier)).or_insert_with(|| {
                let (direction, verdict) = (chain.direction, *verdict);
                Arc::new(NamedRule { direction, tier, verdict, sources: sources.as_slice().into() })
            });
        }
    }
    names
}

impl Denials {
    pub(super) fn new(program: &Program) -> Self {
        let queue = TrackedMutex::new("denials", VecDeque::new());
        Self {
            queue: Arc::new(queue),
            counters: Arc::default(),
            names: Snapshot::new(names(program)),
        }
    }

    /// The rules that packets name from now on.
    pub(super) fn publish(&self, program: &Program) {
        self.names.publish(names(program));
    }

    /// What has come since this was asked last.
    pub fn take(&self) -> Vec<Denial> {
        self.queue.lock().drain(..).collect()
    }

    pub fn counters(&self) -> DenialCounters {
        let Counters { seen, dropped, overruns, unknown } = &*self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DenialCounters {
            seen: load(seen),
            dropped: load(dropped),
            overruns: load(overruns),
            unknown: load(unknown),
        }
    }

    fn add(&self, logged: &Logged, names: &RuleNames) {
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        let id = u128::from_str_radix(&logged.prefix, 16).ok().map(CounterId);
        let Some(rule) = id.and_then(|id| names.get(&id)) else {
            count(&self.counters.unknown);
            return;
        };
        count(&self.counters.seen);
        let denial = Denial {
            source: logged.source.to_canonical(),
            destination: logged.destination.to_canonical(),
            protocol: Protocol(logged.protocol),
            port: logged.destination_port,
            rule: Arc::clone(rule),
        };
        let mut queue = self.queue.lock();
        if queue.len() < WAITING {
            queue.push_back(denial);
        } else {
            drop(queue);
            count(&self.counters.dropped);
        }
    }

    /// Reads the log of the calling thread's network namespace, on a thread of its own, until the tasks
    /// stop.
    pub fn follow(&self, tasks: &Tasks) -> io::Result<()> {
        let mut log = PacketLog::open(LOG_GROUP)?;
        let (denials, stop) = (self.clone(), tasks.stopping());
        let (ended, end) = oneshot::channel::<()>();
        thread::Builder::new().name("policy-log".to_owned()).spawn(move || {
            let mut wrong = false;
            while !stop.is_stopped() {
                let names = denials.names.load();
                match log.read(WAKE, |logged| denials.add(&logged, &names)) {
                    Ok(lost) => {
                        wrong = false;
                        denials.counters.overruns.fetch_add(u64::from(lost), Ordering::Relaxed);
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut wrong, true) {
                            let error = sentence(&error);
                            warn!(error, "denied packets are not told of: the log cannot be read");
                        }
                        thread::sleep(WAKE);
                    }
                }
            }
            let _ = ended.send(());
        })?;
        tasks.spawn("policy-log", async move {
            if end.await.is_err() {
                error!("denied packets are not told of any more: the thread has panicked");
            }
        });
        Ok(())
    }
}
