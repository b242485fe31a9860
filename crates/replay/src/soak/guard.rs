//! Agents report to an ingest: over real gRPC on loopback, through a proxy that can cut them off, to the
//! real server, shards, learner and checkpoints.
//!
//! An agent here does what its contract says (`guard::conversations::Report`): running totals, a change
//! is sent until it is counted, everything again to who it joins. It knows the truth, so what is counted
//! can be compared with it.
//!
//! What must hold: never is more counted than was sent; when all has settled, exactly what was sent. A
//! shard that hangs is named, and nothing but those who wait for it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use edge::agents::client::{Answer, Client, ClientError, Endpoint, Reporting};
use edge::agents::{Batch, Server, start};
use flow::ledger::LedgerConfig;
use flow::tasks::TaskHandle;
use flow::{Deadline, Ledger, Tasks};
use guard::agents::{Agents, Dropped, JoinFacts, Limits};
use guard::conversations::{Moment, Protocol, Record, Totals};
use guard::faults;
use guard::ingest::{Seat, Settings};
use parking_lot::Mutex;
use testkit::Proxy;
use tokio::runtime::Runtime;

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
    fn new(number: usize, seed: u64) -> Self {
        let now = Moment::now();
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
            record.last = Moment::now();
            truth.insert(key(record), record.totals);
            self.changed[place] = true;
        }
    }

    /// What is not counted, and which they are.
    fn batch(&mut self) -> (Batch, Vec<usize>) {
        self.sequence += 1;
        let places: Vec<usize> = (0..TOTALS).filter(|place| self.changed[*place]).collect();
        let batch = Batch {
            incarnation: self.incarnation,
            sequence: self.sequence,
            records: places.iter().map(|place| self.records[*place].clone()).collect(),
            dropped: Dropped::default(),
            workloads: None,
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
        batches: &[Batch],
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
        let joined = Box::pin(joining).await;
        if let Ok((client, _)) = joined
            && let Ok(mut reporting) = client.report(Deadline::after(WAIT)).await
        {
            let _ = table.report(&mut reporting, &shared).await;
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
    let seat = Seat::default();
    // Agents here are faster than real ones.
    let limits = Limits { pace: Duration::from_millis(20), burst: 64, ..Limits::default() };
    let server =
        Server::new(Agents::new(limits), seat.current().clone(), None, ledger.clone(), &tasks);
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
        fault: None,
        names: Names::default(),
    };
    job.begin_term()?;
    let endpoint = Endpoint { addresses: vec![job.proxy.address().to_string()], identity: None };
    for number in 0..AGENTS {
        let table = Table::new(number, stage.soak.seed);
        let (own, stop) = (tasks.child("agent"), tasks.stopping());
        let working = agent(table, endpoint.clone(), Arc::clone(&shared), own);
        tasks.spawn("agent", async move {
            stop.bound(Box::pin(working)).await;
        });
    }
    drop(entered);
    let driven = drive(&mut job);
    job.hold = None;
    runtime.block_on(tasks.shutdown(TERM));
    runtime.shutdown_background();
    driven
}

struct Guard<'a> {
    runtime: &'a Runtime,
    tasks: Tasks,
    ledger: Ledger,
    seat: Seat,
    settings: Settings,
    proxy: Proxy,
    shared: Arc<Shared>,
    /// None while nobody counts.
    term: Option<(Tasks, TaskHandle<()>)>,
    /// What was on disk when the ingest was gone.
    kept: Option<Vec<u8>>,
    hold: Option<faults::Hold>,
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
        self.hold = None;
        self.shared.repeat.store(false, Relaxed);
        if let Some(kept) = self.kept.take() {
            std::fs::write(self.checkpoint(), kept)?;
        }
        if matches!(planned.fault, Fault::GuardRestart | Fault::GuardCrash) {
            self.begin_term()?;
        }
        self.names.end(Instant::now());
        Ok(())
    }

    fn check(&mut self) -> Vec<String> {
        if self.fault == Some(Fault::GuardCut) {
            self.proxy.cut();
        }
        let mut broken = self.names.check(&late(&self.ledger), Instant::now());
        // The view first: the truth only grows.
        let counted = self.counted();
        let truth = self.shared.truth.lock();
        for (key, counted) in counted {
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
        let counted = self.counted();
        let mut broken = Vec::new();
        for (key, sent) in &truth {
            let counted = counted.get(key).copied().unwrap_or_default();
            if counted != *sent {
                broken.push(format!("{key:?}: {sent:?} was sent, {counted:?} is counted"));
            }
        }
        if counted.len() != truth.len() {
            let (counted, sent) = (counted.len(), truth.len());
            broken.push(format!("{counted} conversations are known, and {sent} were told"));
        }
        broken.extend(self.check());
        broken
    }
}

impl Guard<'_> {
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

    fn counted(&self) -> HashMap<Key, Totals> {
        let mut counted = HashMap::<Key, Totals>::new();
        let Some(ingest) = self.seat.ingest() else { return counted };
        let view = ingest.view();
        for conversation in view.conversations(|_| true, Moment(0)) {
            let port = conversation.about.as_ref().map_or(0, |about| about.port);
            let key = (conversation.client.address, conversation.server.address, port);
            *counted.entry(key).or_default() += conversation.totals;
        }
        counted
    }
}
