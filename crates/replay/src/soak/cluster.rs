//! The soak on a real cluster: three nodes with Fairlead on them, steady work from outside, faults from a
//! seed, and checks that look on all the time.
//!
//! ```text
//! seed ─► fault::schedule ─► inject ──► nodes, control plane, controllers, agents, wire
//!                              │            ▲
//!                            scope          │ work (through the API, as users), watch (from outside)
//!                              └─► checks ◄─┘ ─► report
//! ```
//!
//! Contract:
//! - Each check is a module of its own that judges plain values, with tests that plant what it must find.
//! - A fault says what it may disturb and until when. That excuses what is late or missing there, and
//!   nothing else; what must never happen has no excuse.
//! - A run that did less than its minimum, or during which the machine had no time for it, is void.

mod addresses;
mod alarms;
mod audit;
mod client;
mod counters;
mod deadlines;
mod fault;
mod history;
mod inject;
mod leaders;
mod liar;
mod machine;
mod packets;
mod report;
mod resources;
mod scope;
mod second;
mod stage;
mod streams;
mod watch;
mod work;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use fault::{Kind, Planned, schedule};
pub use report::{Report, html, text};

use crate::incident::Cannot;
use crate::run::CannotRun;
use alarms::Alarms;
use counters::Made;
use history::History;
use leaders::Claim;
use packets::Packets;
use report::{Check, Event, Injected, Work};
use resources::Sample;
use scope::{Ms, Part, Scope, now};
use stage::Stage;

const NODES: u32 = 3;
/// Between two looks of the driver.
const EVERY: Duration = Duration::from_millis(200);
/// Such a soak is at least this long: one fault, and its recovery.
pub const SHORTEST: Duration = Duration::from_secs(60);

/// For each minute, on a busy machine and under faults; tokens, rules and policies change more seldom.
const MINIMUM: [(&str, f64); 13] = [
    ("writes", 20.0),
    ("reads", 40.0),
    ("reviews", 15.0),
    ("probes", 100.0),
    ("pods", 2.0),
    ("looks", 5.0),
    ("reports", 1.0),
    ("policies", 0.5),
    ("rules", 0.3),
    ("faults", 0.8),
    ("watched", 15.0),
    ("typed", 10.0),
    ("nodes", 0.5),
];

const CHECKS: [(&str, &str); 15] = [
    ("history", "nothing acknowledged is lost, no read goes back in time"),
    ("leader", "one leads at a time"),
    ("fence", "no write of an earlier term over one of a later"),
    ("addresses", "no address is given twice"),
    ("packets", "none passes that policy forbids, none is stopped that it allows"),
    ("reviews", "nothing forbidden is admitted, nothing allowed is refused"),
    ("tokens", "a new token is taken, a revoked one is refused, by every replica"),
    ("answers", "nothing stays unanswered past its deadline"),
    ("alarms", "every injected stall is named in time, and nothing else"),
    ("flat", "memory, descriptors, threads and disk of each process"),
    ("audit", "an entry for every acknowledged write"),
    ("counters", "conversations are counted exactly"),
    ("watches", "a watch is told every acknowledged write, and never goes back"),
    ("shells", "a shell says back what is typed"),
    ("peers", "the mesh has the nodes of the second cluster as peers"),
];

/// What is told while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// How far it is; takes the place of what was told last.
    Progress(&'a str),
    /// A fault begins or ends, or something does not hold.
    Event(&'a str),
}

type Tell<'a> = dyn FnMut(Told<'_>) + 'a;

/// How to soak.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub time: Duration,
    /// The faults that are wanted; none is all.
    pub only: Vec<Kind>,
    /// For everything that is written; gone afterwards.
    pub dir: PathBuf,
    pub plugin: PathBuf,
    /// This program.
    pub program: PathBuf,
    /// Where logs are kept; none keeps none.
    pub logs: Option<PathBuf>,
}

/// A soak that runs: what work, checks and faults share.
struct Run<'a> {
    plan: &'a Plan,
    stage: &'a Stage,
    began: Ms,
    /// Written by the driver as faults begin and end; read by every check.
    scope: Mutex<Scope>,
    history: Mutex<History>,
    packets: Mutex<Packets>,
    claims: Mutex<Vec<Claim>>,
    alarms: Mutex<Alarms>,
    made: Mutex<BTreeMap<(u32, u32), Made>>,
    lives: Mutex<BTreeMap<String, Vec<Sample>>>,
    checks: Mutex<BTreeMap<&'static str, Check>>,
    done: Mutex<BTreeMap<&'static str, u64>>,
    ledger: Mutex<Vec<Event>>,
    /// The fault that lasts, or that was the last.
    fault: Mutex<Option<String>>,
    over: AtomicBool,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, stage: &'a Stage) -> Self {
        let mut checks =
            BTreeMap::from(CHECKS.map(|(name, about)| (name, Check { about, ..Check::default() })));
        let about = "a pod is ready within two minutes";
        checks.insert("pods", Check { about, looked: 1, ..Check::default() });
        Self {
            plan,
            stage,
            began: now(),
            scope: Mutex::default(),
            history: Mutex::default(),
            packets: Mutex::default(),
            claims: Mutex::default(),
            alarms: Mutex::default(),
            made: Mutex::default(),
            lives: Mutex::default(),
            checks: Mutex::new(checks),
            done: Mutex::default(),
            ledger: Mutex::default(),
            fault: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Sleeps, but not past the end.
    fn sleep(&self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        while !self.is_over() && Instant::now() < until {
            std::thread::sleep(EVERY.min(until.saturating_duration_since(Instant::now())));
        }
    }

    fn did(&self, work: &'static str) {
        *self.done.lock().entry(work).or_default() += 1;
    }

    fn looked(&self, check: &'static str) {
        self.checks.lock().entry(check).or_default().looked += 1;
    }

    fn figure(&self, check: &'static str, name: &'static str, value: f64) {
        self.checks.lock().entry(check).or_default().figures.insert(name, value);
    }

    /// Since the load began.
    fn elapsed(&self) -> Ms {
        now().saturating_sub(self.began)
    }

    fn tell(&self, what: String) {
        self.ledger.lock().push(Event { at_ms: self.elapsed(), what });
    }

    fn broken(&self, check: &'static str, what: Option<String>) {
        let Some(what) = what else { return };
        let during = self.fault.lock().clone();
        let is_new =
            self.checks.lock().entry(check).or_default().note(self.elapsed(), what.clone(), during);
        if is_new {
            self.tell(format!("BROKEN {check}: {what}"));
        }
    }

    /// Whether one of these was disturbed since then.
    fn excuses(&self, parts: &[Part], since: Ms) -> bool {
        self.scope.lock().excuses(parts, since, now())
    }
}

/// Why it cannot be run here, if so.
pub fn missing(plan: &Plan) -> Vec<String> {
    stage::missing(plan)
}

/// Runs it.
pub fn soak(plan: &Plan, tell: &mut Tell<'_>) -> Result<Report, CannotRun> {
    let missing = missing(plan);
    if !missing.is_empty() {
        return Err(CannotRun(missing.join("; ")));
    }
    let began = Instant::now();
    let stage = Stage::set(plan, tell).map_err(|why| CannotRun(stallproof::sentence(&*why)))?;
    let started_in_s = began.elapsed().as_secs_f64();
    let planned = schedule(plan.seed, plan.time, &plan.only);
    let run = Run::new(plan, &stage);
    let faults = std::thread::scope(|scope| {
        let run = &run;
        for number in 0..2 {
            scope.spawn(move || work::writes(run, number));
            scope.spawn(move || work::reads(run, number + 1));
        }
        let loops: [fn(&Run<'_>); 14] = [
            work::reviews,
            work::gate,
            work::churn,
            work::tokens,
            work::looks,
            streams::watches,
            streams::shells,
            second::nodes,
            watch::packets,
            watch::figures,
            watch::objects,
            watch::processes_are_flat,
            machine::processors,
            machine::links,
        ];
        for work in loops {
            scope.spawn(move || work(run));
        }
        let faults = drive(run, &planned, tell);
        run.over.store(true, Relaxed);
        faults
    });
    tell(Told::Event("the load has ended; what is left is looked at"));
    watch::finish(&run);
    if let Some(dir) = &plan.logs
        && let Err(why) = stage.keep_logs(dir)
    {
        tell(Told::Event(&stallproof::sentence(&*why)));
    }
    Ok(judge(run, faults, started_in_s))
}

/// A fault that lasts: what it is, its window in the scope, and when it ends.
struct Lasting {
    present: inject::Present,
    planned: Planned,
    window: usize,
    ends: Ms,
}

/// Injects the faults at their time, until the time is up.
fn drive(run: &Run<'_>, planned: &[Planned], tell: &mut Tell<'_>) -> Vec<Injected> {
    let mut faults: Vec<Injected> = Vec::new();
    let mut waiting = planned.iter().peekable();
    let mut lasting: Option<Lasting> = None;
    // How much later than planned it has become: to start a node takes its time.
    let (mut shift, mut shown) = (0, 0);
    run.tell("the load begins".to_owned());
    let time = u64::try_from(run.plan.time.as_millis()).unwrap_or(u64::MAX);
    while run.elapsed() < time || lasting.is_some() {
        if let Some(over) = lasting.take_if(|it| run.elapsed() >= it.ends) {
            let due = over.planned.at_ms + over.planned.lasts_ms;
            end(run, over, faults.last_mut());
            shift = run.elapsed().saturating_sub(due).max(shift);
        }
        let is_due = |next: &&Planned| lasting.is_none() && run.elapsed() >= next.at_ms + shift;
        if let Some(next) = waiting.next_if(is_due)
            && run.elapsed() + next.lasts_ms <= time
        {
            lasting = begin(run, next, &mut faults);
        }
        events(run, &mut shown, tell);
        tell(Told::Progress(&progress(run, time)));
        std::thread::sleep(EVERY);
    }
    faults
}

/// Tells what the ledger has since `shown`.
fn events(run: &Run<'_>, shown: &mut usize, tell: &mut Tell<'_>) {
    let new: Vec<String> = {
        let ledger = run.ledger.lock();
        ledger[*shown..]
            .iter()
            .map(|it| format!("{:.1} s: {}", it.at_ms as f64 / 1000.0, it.what))
            .collect()
    };
    *shown += new.len();
    new.iter().for_each(|it| tell(Told::Event(it)));
}

fn begin(run: &Run<'_>, planned: &Planned, faults: &mut Vec<Injected>) -> Option<Lasting> {
    let aimed = inject::aim(run.stage, planned);
    let (name, parts, at_ms) = (aimed.named(), aimed.disturbs(), run.elapsed());
    let window = run.scope.lock().open(&parts, now());
    *run.fault.lock() = Some(name.clone());
    run.tell(format!("{name} begins"));
    match inject::begin(run.stage, &aimed) {
        Ok(present) => {
            run.did("faults");
            let ends = run.elapsed() + aimed.lasts_ms;
            faults.push(Injected {
                fault: aimed.kind,
                what: name,
                at_ms,
                until_ms: ends,
                recovered_by_ms: ends + aimed.kind.recovery(),
                may_disturb: parts,
                stayed: None,
            });
            Some(Lasting { present, planned: aimed, window, ends })
        }
        Err(why) => {
            run.tell(format!("{name} cannot be begun: {}", stallproof::sentence(&*why)));
            run.scope.lock().close(window, now() + aimed.kind.recovery());
            None
        }
    }
}

fn end(run: &Run<'_>, over: Lasting, injected: Option<&mut Injected>) {
    let Lasting { present, planned, window, .. } = over;
    let name = planned.named();
    let named_by = now();
    let stayed = present.end(run.stage).err().map(|why| stallproof::sentence(&*why));
    if let Some(why) = &stayed {
        run.tell(format!("{name} cannot be ended: {why}"));
    }
    run.scope.lock().close(window, now() + planned.kind.recovery());
    run.tell(format!("{name} ends"));
    let Some(injected) = injected else { return };
    injected.stayed = stayed;
    injected.until_ms = run.elapsed();
    injected.recovered_by_ms = injected.until_ms + planned.kind.recovery();
    if planned.kind.must_be_named() {
        run.looked("alarms");
        let (from, who) = (run.began + injected.at_ms, format!("agent on node {}", planned.node));
        if !run.alarms.lock().was_named(&who, from, named_by) {
            run.broken("alarms", Some(format!("{name}: the agent did not name what hangs")));
        }
    }
}

fn progress(run: &Run<'_>, time: Ms) -> String {
    let seconds = |ms: Ms| ms / 1000;
    let broken: Vec<String> = run
        .checks
        .lock()
        .iter()
        .filter(|(_, check)| !check.broken.is_empty())
        .map(|(name, check)| format!("{name} BROKEN {}", check.broken.len() as u64 + check.more))
        .collect();
    let done = run.done.lock();
    let work: Vec<String> = done.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let fault = run.fault.lock().clone().unwrap_or_else(|| "calm".to_owned());
    let holds = if broken.is_empty() { "all holds".to_owned() } else { broken.join(", ") };
    format!(
        "{} of {} s · {fault} · {holds} · {}",
        seconds(run.elapsed()),
        seconds(time),
        work.join(", ")
    )
}

fn judge(run: Run<'_>, faults: Vec<Injected>, started_in_s: f64) -> Report {
    let minutes = run.plan.time.as_secs_f64() / 60.0;
    let done = run.done.into_inner();
    let work = MINIMUM.map(|(name, each)| {
        let minimum = (each * minutes).floor() as u64;
        (name, Work { done: done.get(name).copied().unwrap_or_default(), minimum })
    });
    let mut checks = run.checks.into_inner();
    let packets = run.packets.into_inner();
    if let Some(check) = checks.get_mut("packets") {
        check.figures.insert("stopped as they should", packets.stopped as f64);
        check.figures.insert("failures that were brief or explained", packets.brief as f64);
    }
    if let Some(check) = checks.get_mut("alarms") {
        check.figures.insert("explained by faults", run.alarms.into_inner().explained as f64);
    }
    let starved_ms = run.scope.into_inner().starved(now());
    Report {
        on: "cluster",
        seed: run.plan.seed,
        minutes,
        started_in_s,
        faults,
        work: BTreeMap::from(work),
        checks,
        elsewhere: fault::ELSEWHERE.to_vec(),
        starved_ms,
        ledger: run.ledger.into_inner(),
        void: None,
        ok: false,
    }
    .judge()
}
