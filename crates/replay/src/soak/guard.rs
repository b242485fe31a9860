//! Agents report to an ingest: over real gRPC on loopback, through a proxy that can cut them off, to the
//! real server, shards, learner and checkpoints.
//!
//! An agent here does what its contract says (`traffic::conversations::Report`): running totals, a change
//! is sent until it is counted, everything again to who it joins. It knows the truth, so what is counted
//! can be compared with it.
//!
//! What must hold: never is more counted than was sent; when all has settled, exactly what was sent,
//! also after wall clocks have jumped by days. A shard that hangs is named, and nothing but those who
//! wait for it. Under memory pressure agents are refused with a time to come back, and really are.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use edge::agents::{Server, start};
use node::client::{Answer, Client, ClientError, Endpoint, Reporting};
use parking_lot::Mutex;
use stallproof::ledger::LedgerConfig;
use stallproof::memory_guard::Usage;
use stallproof::tasks::TaskHandle;
use stallproof::{Deadline, Ledger, MemoryGuard, Tasks};
use testkit::Proxy;
use tokio::runtime::Runtime;
use traffic::agents::{Agents, JoinFacts, Limits};
use traffic::conversations::{Moment, Protocol, Record, Report, Totals};
use traffic::faults;
use traffic::ingest::{ActiveIngest, Settings};

use super::ledger::{Explained, Names, late};
use super::{Drive, Fault, Planned, Ran, Stage, Work};
use crate::incident::Cannot;

const AGENTS: usize = 6;
/// Of each agent.
const TOTALS: usize = 200;
/// That grow between two batches.
const GROWING: usize = 20;
/// Between two batches of an agent.
const PAUSE: Duration = Duration::from_millis(250);
const SHARDS: usize = 2;
/// When the ledger calls anything late; a shard has a time of its own.
const LATE: Duration = Duration::from_secs(3);
/// For a join, and for an answer: a shard may be held for longer.
const WAIT: Duration = Duration::from_secs(20);
/// For a term to end and to begin.
const TERM: Duration = Duration::from_secs(20);
/// Shards publish twice a second.
const PUBLISHED: Duration = Duration::from_millis(1500);
/// For somebody to be refused under pressure.
const REFUSED: Duration = Duration::from_secs(10);
/// By how much a clock jumps: more than the day after which agents and conversations are forgotten.
const LEAST_HOURS: u64 = 25;
const HOURS: u64 = 72;
const HOUR_MS: i64 = 60 * 60 * 1000;

type Key = (IpAddr, IpAddr, u16);

/// What agents share with who checks them.
#[derive(Default)]
struct Shared {
    /// What was sent, or is about to be. Written before it is sent.
    truth: Mutex<HashMap<Key, Totals>>,
    counted: AtomicU64,
    /// Send twice, and in another order.
    repeat: AtomicBool,
    /// No more growth: only what is not counted yet is sent.
    settle: AtomicBool,
    settled: Mutex<[bool; AGENTS]>,
    /// How far the agents' clocks are off, in milliseconds.
    off: AtomicI64,
    /// Reports and joins that were told when to come back.
    reports_refused: AtomicU64,
    joins_refused: AtomicU64,
}

impl Shared {
    /// The agents' wall clock.
    fn clock(&self) -> Moment {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Moment(now.saturating_add_signed(self.off.load(Relaxed)))
    }

    fn refused(&self) -> Refused {
        let [reports, joins] =
            [&self.reports_refused, &self.joins_refused].map(|n| n.load(Relaxed));
        Refused { reports, joins }
    }
}

/// How often, so far.
#[derive(Clone, Copy, Debug)]
struct Refused {
    reports: u64,
    joins: u64,
}

/// Whose clock jumps, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Jump {
    controller: i64,
    agents: i64,
    /// The ingest is stopped meanwhile, and begins again.
    restarts: bool,
}

impl Jump {
    fn of(mut pick: u64) -> Self {
        let mut choose = |of: u64| {
            let chosen = pick % of;
            pick /= of;
            chosen
        };
        let hours = i64::try_from(LEAST_HOURS + choose(HOURS)).unwrap_or_default();
        let by = if choose(2) == 0 { hours * HOUR_MS } else { -hours * HOUR_MS };
        let (controller, agents) = [(by, by), (by, 0), (0, by)][choose(3) as usize];
        Self { controller, agents, restarts: choose(2) == 0 }
    }
}

/// One agent's table.
struct Table {
    number: usize,
    incarnation: u64,
    sequence: u64,
    records: Vec<Record>,
    /// Those whose last change is not counted, as far as it was told.
    changed: Vec<bool>,
    random: fastrand::Rng,
}

fn key(record: &Record) -> Key {
    (record.client, record.server, record.port)
}

impl Table {
    fn new(number: usize, seed: u64, now: Moment) -> Self {
        let record = |total: usize| Record {
            client: Ipv4Addr::new(198, 18, number as u8, total as u8).into(),
            server: Ipv4Addr::new(203, 0, 113, (total % 50) as u8).into(),
            port: 1000 + (total % 7) as u16,
            protocol: Protocol::TCP,
            application: None,
            totals: Totals::ZERO,
            first: now,
            last: now,
        };
        Self {
            number,
            incarnation: now.0,
            sequence: 0,
            records: (0..TOTALS).map(record).collect(),
            changed: vec![false; TOTALS],
            random: fastrand::Rng::with_seed(seed ^ (number as u64 + 1)),
        }
    }

    fn grow(&mut self, shared: &Shared) {
        let mut truth = shared.truth.lock();
        for _ in 0..GROWING {
            let place = self.random.usize(..TOTALS);
            let record = &mut self.records[place];
            let packets = self.random.u64(1..10);
            let bytes = packets * self.random.u64(60..1500);
            record.totals += Totals { bytes, packets, sessions: self.random.u64(..2) };
            record.last = shared.clock();
            truth.insert(key(record), record.totals);
            self.changed[place] = true;
        }
    }

    /// What is not counted, and which they are.
    fn batch(&mut self) -> (Report, Vec<usize>) {
        self.sequence += 1;
        let places: Vec<usize> = (0..TOTALS).filter(|place| self.changed[*place]).collect();
        let batch = Report {
            incarnation: self.incarnation,
            sequence: self.sequence,
            records: places.iter().map(|place| self.records[*place].clone()).collect(),
            ..Report::default()
        };
        (batch, places)
    }

    fn counted(&mut self, places: &[usize]) {
        places.iter().for_each(|place| self.changed[*place] = false);
    }

    /// Until the connection ends.
    async fn report(
        &mut self,
        reporting: &mut Reporting,
        shared: &Shared,
    ) -> Result<(), ClientError> {
        // Whom it has joined may have lost what the one before knew.
        for (changed, record) in self.changed.iter_mut().zip(&self.records) {
            *changed = !record.totals.is_zero();
        }
        loop {
            if shared.settle.load(Relaxed) {
                let settled = !self.changed.contains(&true);
                shared.settled.lock()[self.number] = settled;
                if settled {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            } else {
                self.grow(shared);
            }
            let (first, _) = self.batch();
            let mut batches = vec![first];
            if shared.repeat.load(Relaxed) {
                if !shared.settle.load(Relaxed) {
                    self.grow(shared);
                }
                // The later one first, then the one before, which says less; each twice.
                let (later, _) = self.batch();
                batches.insert(0, later);
                batches.extend(batches.clone());
            }
            self.send(reporting, &batches, shared).await?;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// One after the other; the first of them holds all that changed.
    async fn send(
        &mut self,
        reporting: &mut Reporting,
        batches: &[Report],
        shared: &Shared,
    ) -> Result<(), ClientError> {
        let places: Vec<usize> = (0..TOTALS).filter(|place| self.changed[*place]).collect();
        for (number, batch) in batches.iter().enumerate() {
            reporting.send(batch).await?;
            let answer = Deadline::after(WAIT).bound(reporting.next()).await;
            match answer.map_err(|_| ClientError::Over("no answer".to_owned()))?? {
                Answer::Counted { .. } => {
                    shared.counted.fetch_add(1, Relaxed);
                    if number == 0 {
                        self.counted(&places);
                    }
                }
                Answer::ComeBack { after } => {
                    shared.reports_refused.fetch_add(1, Relaxed);
                    tokio::time::sleep(after.min(Duration::from_secs(2))).await;
                }
            }
        }
        Ok(())
    }
}

async fn agent(mut table: Table, endpoint: Endpoint, shared: Arc<Shared>, tasks: Tasks) {
    let facts = JoinFacts {
        node: format!("node-{}", table.number),
        incarnation: table.incarnation,
        ..JoinFacts::default()
    };
    loop {
        // Whatever ends it, another one joins.
        let connections = tasks.child("connection");
        let joining = Client::join(&endpoint, &facts, &connections, Deadline::after(WAIT));
        match Box::pin(joining).await {
            Ok((client, _)) => {
                if let Ok(mut reporting) = client.report(Deadline::after(WAIT)).await {
                    let _ = table.report(&mut reporting, &shared).await;
                }
            }
            Err(ClientError::ComeBack { .. }) => {
                shared.joins_refused.fetch_add(1, Relaxed);
            }
            Err(_) => {}
        }
        shared.settled.lock()[table.number] = false;
        connections.stop("joining again");
        tokio::time::sleep(PAUSE).await;
    }
}

pub(super) fn play(stage: &Stage<'_>, drive: &mut Drive<'_>) -> Ran {
    let runtime = Runtime::new()?;
    let tasks = Tasks::new("guard");
    let ledger = Ledger::new(LedgerConfig { late_after: LATE });
    let dir = stage.soak.dir.join("guard");
    let shared = Arc::<Shared>::default();
    let entered = runtime.enter();
    let seat = ActiveIngest::default();
    // Agents here are faster than real ones.
    let limits = Limits { pace: Duration::from_millis(20), burst: 64, ..Limits::default() };
    let server =
        Server::new(Agents::new(limits), seat.current().clone(), None, ledger.clone(), &tasks);
    let used = Arc::<AtomicU64>::default();
    let percent = Arc::clone(&used);
    let reading = move || Some(Usage { used: percent.load(Relaxed), limit: 100 });
    let memory = MemoryGuard::of(reading, None);
    server.heed(&memory);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let proxy = Proxy::start(listener.local_addr()?);
    start(server, listener)?;
    let settings = Settings { shards: SHARDS, ..Settings::new(dir) };
    let mut job = Guard {
        runtime: &runtime,
        tasks: tasks.clone(),
        ledger,
        seat,
        settings,
        proxy,
        shared: Arc::clone(&shared),
        term: None,
        kept: None,
        hold: None,
        jump: None,
        memory,
        used,
        refused: shared.refused(),
        fault: None,
        names: Names::default(),
    };
    job.begin_term()?;
    let endpoint = Endpoint { addresses: vec![job.proxy.address().to_string()], identity: None };
    for number in 0..AGENTS {
        let table = Table::new(number, stage.soak.seed, shared.clock());
        let (own, stop) = (tasks.child("agent"), tasks.stopping());
        let working = agent(table, endpoint.clone(), Arc::clone(&shared), own);
        tasks.spawn("agent", async move {
            stop.bound(Box::pin(working)).await;
        });
    }
    drop(entered);
    let driven = drive(&mut job);
    (job.hold, job.jump) = (None, None);
    runtime.block_on(tasks.shutdown(TERM));
    runtime.shutdown_background();
    driven
}

struct Guard<'a> {
    runtime: &'a Runtime,
    tasks: Tasks,
    ledger: Ledger,
    seat: ActiveIngest,
    settings: Settings,
    proxy: Proxy,
    shared: Arc<Shared>,
    /// None while nobody counts.
    term: Option<(Tasks, TaskHandle<()>)>,
    /// What was on disk when the ingest was gone.
    kept: Option<Vec<u8>>,
    hold: Option<faults::Hold>,
    jump: Option<faults::Jump>,
    memory: MemoryGuard,
    /// Of the memory, in percent.
    used: Arc<AtomicU64>,
    /// Before there was pressure.
    refused: Refused,
    fault: Option<Fault>,
    names: Names,
}

impl Work for Guard<'_> {
    fn begin(&mut self, planned: &Planned) -> Ran {
        let explained = match planned.fault {
            Fault::GuardHold => {
                let shard = (planned.pick % SHARDS as u64) as usize;
                self.hold = Some(faults::hold_shard(shard));
                let held = shard.to_string();
                Explained {
                    may: Box::new(|late| {
                        ["shard", "report", "agent-report", "checkpoint"]
                            .contains(&late.kind.as_str())
                    }),
                    must: Some(Box::new(move |late| late.kind == "shard" && late.key == held)),
                }
            }
            Fault::GuardClock => {
                let jump = Jump::of(planned.pick);
                self.jump = Some(faults::jump_clock(jump.controller));
                self.shared.off.store(jump.agents, Relaxed);
                if jump.restarts {
                    self.end_term()?;
                    self.begin_term()?;
                    Explained::anything()
                } else {
                    Explained::nothing()
                }
            }
            Fault::GuardPressure => {
                self.refused = self.shared.refused();
                let is_critical = is_critical(planned);
                self.press(if is_critical { CRITICAL } else { SHEDDING });
                if is_critical {
                    // So that somebody joins.
                    self.proxy.cut();
                }
                Explained::nothing()
            }
            fault => {
                match fault {
                    Fault::GuardRepeat => self.shared.repeat.store(true, Relaxed),
                    Fault::GuardRestart => self.end_term()?,
                    Fault::GuardCrash => {
                        // What is written while it ends is as if it had never been.
                        self.kept = Some(std::fs::read(self.checkpoint())?);
                        self.end_term()?;
                    }
                    _ => self.proxy.cut(),
                }
                Explained::anything()
            }
        };
        self.names.begin(explained, Instant::now());
        self.fault = Some(planned.fault);
        Ok(())
    }

    fn end(&mut self, planned: &Planned) -> Ran {
        self.fault = None;
        (self.hold, self.jump) = (None, None);
        self.shared.repeat.store(false, Relaxed);
        self.shared.off.store(0, Relaxed);
        let refused = if planned.fault == Fault::GuardPressure {
            self.was_refused(is_critical(planned))
        } else {
            Ok(())
        };
        self.press(PLENTY);
        if let Some(kept) = self.kept.take() {
            std::fs::write(self.checkpoint(), kept)?;
        }
        if matches!(planned.fault, Fault::GuardRestart | Fault::GuardCrash) {
            self.begin_term()?;
        }
        self.names.end(Instant::now());
        refused
    }

    fn check(&mut self) -> Vec<String> {
        if self.fault == Some(Fault::GuardCut) {
            self.proxy.cut();
        }
        let mut broken = self.names.check(&late(&self.ledger), Instant::now());
        // The view first: the truth only grows.
        let Counted { each, all } = self.counted();
        let truth = self.shared.truth.lock();
        let sent = sum(&truth);
        if !all.growth(sent).is_zero() {
            broken.push(format!("{all:?} was counted in all, {sent:?} was sent"));
        }
        for (key, counted) in each {
            let sent = truth.get(&key).copied().unwrap_or_default();
            if !counted.growth(sent).is_zero() {
                broken.push(format!("{key:?}: {counted:?} was counted, {sent:?} was sent"));
            }
        }
        broken
    }

    fn load(&self) -> u64 {
        self.shared.counted.load(Relaxed)
    }

    fn finish(&mut self, until: Instant) -> Vec<String> {
        self.shared.settle.store(true, Relaxed);
        let truth = loop {
            std::thread::sleep(PAUSE);
            let settled = self.shared.settled.lock().iter().filter(|settled| **settled).count();
            if settled == AGENTS {
                break self.shared.truth.lock().clone();
            }
            if Instant::now() > until {
                return vec![format!("{settled} of {AGENTS} agents were heard to the end")];
            }
        };
        std::thread::sleep(PUBLISHED);
        let Counted { each, all } = self.counted();
        let mut broken = Vec::new();
        if all != sum(&truth) {
            broken.push(format!("{:?} was sent, {all:?} is counted in all", sum(&truth)));
        }
        for (key, sent) in &truth {
            let counted = each.get(key).copied().unwrap_or_default();
            if counted != *sent {
                broken.push(format!("{key:?}: {sent:?} was sent, {counted:?} is counted"));
            }
        }
        if each.len() != truth.len() {
            let (counted, sent) = (each.len(), truth.len());
            broken.push(format!("{counted} conversations are known, and {sent} were told"));
        }
        broken.extend(self.check());
        broken
    }
}

/// Of the memory, in percent: past what `MemoryGuard` calls by these names.
const PLENTY: u64 = 10;
const SHEDDING: u64 = 85;
const CRITICAL: u64 = 95;

/// Also joins are refused.
fn is_critical(planned: &Planned) -> bool {
    planned.pick.is_multiple_of(2)
}

impl Guard<'_> {
    fn press(&self, used: u64) {
        self.used.store(used, Relaxed);
        self.memory.check();
    }

    /// Waits until somebody was refused: pressure that nobody feels shows nothing.
    fn was_refused(&self, is_critical: bool) -> Ran {
        let until = Instant::now() + REFUSED;
        loop {
            let now = self.shared.refused();
            let joins = !is_critical || now.joins > self.refused.joins;
            // Who is cut off under critical pressure may have no report to be refused.
            if joins && (is_critical || now.reports > self.refused.reports) {
                return Ok(());
            }
            if Instant::now() > until {
                let what = if is_critical { "join" } else { "report" };
                return Err(format!("no {what} was refused under memory pressure").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn checkpoint(&self) -> PathBuf {
        self.settings.dir.join("conversations")
    }

    fn begin_term(&mut self) -> Ran {
        let term = self.tasks.child("term");
        let hold = self.seat.clone().hold(
            self.settings.clone(),
            self.ledger.clone(),
            term.clone(),
            |_| {},
        );
        let entered = self.runtime.enter();
        let held = term.spawn("guard", hold);
        drop(entered);
        self.term = Some((term, held));
        let until = Instant::now() + TERM;
        // The first checkpoint is written at once: without one there is nothing to begin from.
        while self.seat.ingest().is_none() || !self.checkpoint().exists() {
            if Instant::now() > until {
                return Err("the ingest does not begin".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn end_term(&mut self) -> Ran {
        let Some((term, held)) = self.term.take() else { return Ok(()) };
        term.stop("the term is over");
        let ended = self.runtime.block_on(async { Deadline::after(TERM).bound(held).await });
        ended.map_err(|_| Cannot::from("the ingest does not end"))??;
        self.runtime.block_on(term.shutdown(TERM));
        Ok(())
    }

    fn counted(&self) -> Counted {
        let mut counted = Counted::default();
        let Some(ingest) = self.seat.ingest() else { return counted };
        let view = ingest.view();
        counted.all = view.totals();
        for conversation in view.conversations(|_| true, Moment(0)) {
            let port = conversation.service().map_or(0, |(_, port)| port);
            let ends = (conversation.client().address, conversation.server().address);
            *counted.each.entry((ends.0, ends.1, port)).or_default() += conversation.totals();
        }
        counted
    }
}

/// What an ingest has counted.
#[derive(Default)]
struct Counted {
    each: HashMap<Key, Totals>,
    /// With what is not kept by itself any more.
    all: Totals,
}

fn sum(all: &HashMap<Key, Totals>) -> Totals {
    let mut sum = Totals::ZERO;
    all.values().for_each(|totals| sum += *totals);
    sum
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_kind_of_jump_comes_and_none_is_nothing() {
        let jumps: Vec<Jump> = (0..12 * HOURS).map(Jump::of).collect();
        let kinds: HashSet<_> = jumps
            .iter()
            .map(|jump| (jump.controller.signum(), jump.agents.signum(), jump.restarts))
            .collect();
        assert_eq!(kinds.len(), 12);
        for Jump { controller, agents, .. } in jumps {
            let by = controller.abs().max(agents.abs());
            assert!((25 * HOUR_MS..=96 * HOUR_MS).contains(&by), "{by} ms");
        }
    }
}
