//! Connections counted over real gRPC, against the old design behind the same wire: one lock around
//! one map, under which agents report and pods are admitted. Both alone, and with eight threads that
//! decide admissions. Then what an agent costs while it is connected and quiet.
//!
//! `cargo bench -p edge --bench agents -- [SECONDS] [AGENTS]`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::collections::HashMap;
use std::env;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use admission::{Program, Request, Unknown, decide};
use bench::Table;
use edge::agents::{Server, start};
use node::Identity;
use node::client::{Client, Endpoint};
use objects::kinds::GroupMode;
use objects::{Election, Id, Objects, Timing};
use parking_lot::Mutex;
use pki::agents::{Authority, LIFETIME, lead};
use protocol::Answer;
use stallproof::ledger::LedgerConfig;
use stallproof::{Deadline, Ledger, Map, Op, Snapshot, Tasks};
use traffic::agents::{Agents, JoinFacts, Limits};
use traffic::conversations::{Moment, Protocol, Record, Report, Totals};
use traffic::ingest::{self, ActiveIngest, AgentPolicy, Counted, NotCounted, ReportSink};

#[path = "../../admission/benches/reviews/mod.rs"]
mod reviews;

use reviews::{ADMITTING, Admitting, CPU_OF_PROCESS, PACE, cpu};

const SENDERS: u32 = 8;
const RECORDS: u32 = 2000;
/// Of an agent that is quiet.
const QUIET: u32 = 64;

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let mut args = env::args().skip(1).filter(|arg| arg != "--bench");
    let first = args.next();
    if first.as_deref() == Some("clients") {
        clients(&args.collect::<Vec<_>>());
        return ExitCode::SUCCESS;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if first.as_deref() == Some("memory") {
        let [agents, tls] = &args.collect::<Vec<_>>()[..] else { panic!("memory AGENTS TLS") };
        let each = memory(agents.parse().unwrap(), tls.parse().unwrap());
        println!("{}", runtime.block_on(each));
        return ExitCode::SUCCESS;
    }
    let seconds = first.map_or(3, |seconds| seconds.parse().unwrap());
    let agents = args.next().map_or(10_000, |agents| agents.parse().unwrap());
    runtime.block_on(run(Duration::from_secs(seconds), agents)).finish()
}

async fn run(time: Duration, agents: u32) -> Table {
    let locked = Locked::default();
    let counts = Snapshot::new(Some(locked.clone()));
    let old = beside_admission(&counts, time, move |program, request| {
        // The old controller's map and its rules are behind one lock.
        let _all = locked.0.all.lock();
        black_box(decide(program, request, &Unknown).allowed);
    });
    let old = old.await;

    let (tasks, dir) = (Tasks::new("bench"), tempfile::tempdir().unwrap());
    let seat = ActiveIngest::default();
    let settings = ingest::Settings::new(dir.path().to_owned());
    tasks.spawn("term", seat.clone().hold(settings, ledger(), tasks.child("term"), |_| {}));
    while seat.ingest().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let new = beside_admission(seat.current(), time, |program, request| {
        black_box(decide(program, request, &Unknown).allowed);
    });
    let new = new.await;
    tasks.stop("done");

    let mut table = Table::new("agents over gRPC, both ends on the same cores");
    let what = format!("records counted, {SENDERS} agents, {RECORDS} a batch");
    table.row(&what, "/s", new.alone.clock, &[("one lock around one map", old.alone.clock)]);
    let what =
        format!("the same, {ADMITTING} threads deciding {PACE} reviews/s meanwhile, of CPU time");
    let rivals = [("alone", new.alone.cpu), ("one lock, likewise", old.paced.cpu)];
    table.row(&what, "/s", new.paced.cpu, &rivals);
    table.must("at most 5 % lost", new.paced.cpu >= 0.95 * new.alone.cpu);
    // Who is busy all the time takes a part of the cores from anybody: what is left is worth as much.
    let what = format!("the same, {ADMITTING} threads deciding without pause, of CPU time");
    table.row(&what, "/s", new.flooded.cpu, &[("alone", new.alone.cpu)]);
    let what = format!("the same, {ADMITTING} threads deciding without pause");
    table.row(&what, "/s", new.flooded.clock, &[("one lock, likewise", old.flooded.clock)]);
    table.row("reviews decided meanwhile", "/s", new.reviews, &[("one lock", old.reviews)]);
    for (tls, agents) in [(false, agents), (true, agents.min(2000))] {
        let what = if tls { "with TLS" } else { "without TLS" };
        let what =
            format!("memory for each of {agents} agents that are connected and quiet, {what}");
        // In a process of its own: what another one gave back would not be counted.
        let own = Command::new(env::current_exe().unwrap())
            .args(["memory", &agents.to_string(), &tls.to_string()])
            .output()
            .unwrap();
        let each = String::from_utf8(own.stdout).unwrap().trim().parse().unwrap();
        table.row(&what, "B", each, &[]);
    }
    table
}

fn ledger() -> Ledger {
    Ledger::new(LedgerConfig { late_after: Duration::from_secs(10) })
}

fn unpaced() -> Limits {
    Limits { pace: Duration::ZERO, ..Limits::default() }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn facts(node: String) -> JoinFacts {
    JoinFacts { node, incarnation: 1, version: "0.1.0".to_owned(), ..JoinFacts::default() }
}

struct Beside {
    alone: Rate,
    paced: Rate,
    flooded: Rate,
    /// A second, in the flood.
    reviews: f64,
}

async fn beside_admission<C: ReportSink>(
    counts: &Snapshot<Option<C>>,
    time: Duration,
    decide: impl Fn(&Program, &Request) + Clone + Send + 'static,
) -> Beside {
    let alone = rate(counts, time, None).await;
    let admitting = Admitting::start(Some(PACE), decide.clone());
    let paced = rate(counts, time, Some(&admitting)).await;
    admitting.stop();
    let admitting = Admitting::start(None, decide);
    let flooded = rate(counts, time, Some(&admitting)).await;
    Beside { alone, paced, flooded, reviews: admitting.stop() }
}

/// Records that were acknowledged: in a second, and in a second of what both ends spend.
struct Rate {
    clock: f64,
    cpu: f64,
}

async fn rate<C: ReportSink>(
    counts: &Snapshot<Option<C>>,
    time: Duration,
    beside: Option<&Admitting>,
) -> Rate {
    let tasks = Tasks::new("rate");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let agents = Agents::new(unpaced());
    start(Server::new(agents, counts.clone(), None, ledger(), &tasks), listener).unwrap();
    let counted = Arc::new(AtomicU64::new(0));
    // Incarnations go up from run to run.
    let incarnation = Moment::now().0;
    for n in 0..SENDERS {
        let (counted, tasks) = (counted.clone(), tasks.clone());
        tasks.clone().spawn("sender", async move {
            let endpoint = Endpoint { addresses: vec![at.to_string()], identity: None };
            let facts = JoinFacts { incarnation, ..facts(format!("node-{n}")) };
            let (client, _) = Client::join(&endpoint, &facts, &tasks, soon()).await.unwrap();
            let mut stream = client.report(soon()).await.unwrap();
            let mut batch = batch(n, incarnation, RECORDS);
            for sequence in 1.. {
                batch.sequence = sequence;
                for record in &mut batch.records {
                    record.totals += Totals { bytes: 1500, packets: 1, sessions: 0 };
                }
                // The server stops when enough was measured.
                let Ok(()) = stream.send(&batch).await else { return };
                match stream.next().await {
                    Ok(Answer::Counted { .. }) => {
                        counted.fetch_add(u64::from(RECORDS), Relaxed);
                    }
                    Ok(Answer::ComeBack { after }) => tokio::time::sleep(after).await,
                    Err(_) => return,
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let spent = || cpu(CPU_OF_PROCESS) - beside.map_or(Duration::ZERO, Admitting::cpu);
    let (before, began, spent_before) = (counted.load(Relaxed), Instant::now(), spent());
    tokio::time::sleep(time).await;
    let records = (counted.load(Relaxed) - before) as f64;
    let rate = Rate {
        clock: records / began.elapsed().as_secs_f64(),
        cpu: records / (spent() - spent_before).as_secs_f64(),
    };
    tasks.stop("done");
    tasks.shutdown(Duration::from_millis(100)).await;
    rate
}

fn batch(agent: u32, incarnation: u64, records: u32) -> Report {
    let now = Moment::now();
    let address = |n: u32| IpAddr::from([10, (agent >> 8) as u8, agent as u8, n as u8]);
    let records = (0..records).map(|n| Record {
        // Each pod of a node talks to a few others.
        client: address(n / 8),
        server: IpAddr::from([10, 200, (n % 64) as u8, 7]),
        port: 443 + (n % 8) as u16,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes: 1500, packets: 3, sessions: 1 },
        first: now,
        last: now,
    });
    Report { incarnation, sequence: 1, records: records.collect(), ..Report::default() }
}

/// The old design.
#[derive(Clone, Debug)]
struct Locked(Arc<Behind>);

#[derive(Debug)]
struct Behind {
    all: Mutex<HashMap<(IpAddr, IpAddr, u16), Totals>>,
    policy: Snapshot<AgentPolicy>,
}

impl Default for Locked {
    fn default() -> Self {
        let (rules, groups) = (Map::new(), Map::new());
        let policy = AgentPolicy { version: 0, rules, groups, mode: GroupMode::Discover };
        Self(Arc::new(Behind { all: Mutex::default(), policy: Snapshot::new(policy) }))
    }
}

impl ReportSink for Locked {
    async fn offer(
        &self,
        report: &Report,
        _alive: impl Fn(&str) -> bool + Send,
        _deadline: Deadline,
        _op: &Op,
    ) -> Result<Counted, NotCounted> {
        let mut all = self.0.all.lock();
        for record in &report.records {
            let totals = all.entry((record.client, record.server, record.port)).or_default();
            *totals += record.totals.growth(*totals);
        }
        Ok(Counted { through: report.sequence, durable: 0 })
    }

    fn epoch(&self) -> u64 {
        1
    }

    fn forget_agent(&self, _node: &str) {}

    fn set_node_addresses(&self, _node: &str, _addresses: &[IpAddr], _local: &[IpAddr]) {}

    fn agent_policy(&self) -> &Snapshot<AgentPolicy> {
        &self.0.policy
    }
}

/// What this process holds, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// The agents are in a process of their own.
async fn memory(agents: u32, tls: bool) -> f64 {
    let (tasks, data) = (Tasks::new("memory"), tempfile::tempdir().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let registry = Agents::new(unpaced());
    let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
    let authority = tls.then(|| Authority::follow(&objects, "fairlead", LIFETIME, &tasks));
    if let Some(led) = authority.clone() {
        let lease = Id::namespaced("fairlead", "lease");
        let (election, all) =
            (Election::new(objects, lease, "bench", Timing::default()), tasks.clone());
        tasks.spawn("election", async move {
            election.run(&all, |leader| lead(&leader, &led)).await;
        });
    }
    let counts = Snapshot::new(Some(Locked::default()));
    let server = Server::new(registry.clone(), counts, authority.clone(), ledger(), &tasks);
    start(server, listener).unwrap();
    let mut token = "-".to_owned();
    while let Some(authority) = &authority {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (hour, soon) = (Duration::from_secs(3600), Deadline::after(Duration::from_secs(5)));
        if let Ok(made) = authority.make_token(None, hour, "bench", soon).await {
            made.token.expose().clone_into(&mut token);
            break;
        }
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = resident();
    let program = env::current_exe().unwrap();
    let (address, count) = (at.to_string(), agents.to_string());
    let mut child = Command::new(program)
        .args(["clients", &address, &count, &token])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.stdout.take().unwrap();
    let told = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        line
    });
    assert_eq!(told.await.unwrap().trim(), "connected");
    assert_eq!(registry.count(), agents as usize);
    let each = resident().saturating_sub(before) as f64 / f64::from(agents);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child.wait().unwrap();
    tasks.stop("done");
    tasks.shutdown(Duration::from_millis(200)).await;
    each
}

/// Connects so many agents, says so, and leaves when told.
fn clients(args: &[String]) {
    let [at, agents, token] = args else { panic!("clients ADDRESS AGENTS TOKEN") };
    let (at, agents): (SocketAddr, u32) = (at.parse().unwrap(), agents.parse().unwrap());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let tasks = Tasks::new("clients");
    let data = tempfile::tempdir().unwrap();
    let open = runtime.block_on(async {
        let mut open = Vec::new();
        let mut joining = Vec::new();
        for n in 0..agents {
            let (tasks, token) = (tasks.clone(), token.clone());
            let dir = data.path().join(n.to_string());
            joining.push(tasks.clone().spawn("agent", async move {
                let (node, addresses) = (format!("node-{n}"), vec![at.to_string()]);
                let mut identity = None;
                if token != "-" {
                    // All of them come from one address, whose handshakes have a rate.
                    while identity.is_none() {
                        let enrol =
                            Identity::enrol(&addresses, &token, &node, &dir, &tasks, soon());
                        identity = enrol.await.ok();
                    }
                }
                let (endpoint, facts) = (Endpoint { addresses, identity }, facts(node));
                let (client, _) = loop {
                    match Client::join(&endpoint, &facts, &tasks, soon()).await {
                        Ok(joined) => break joined,
                        Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                    }
                };
                let mut stream = client.report(soon()).await.unwrap();
                stream.send(&batch(n, 1, QUIET)).await.unwrap();
                assert!(matches!(stream.next().await.unwrap(), Answer::Counted { .. }));
                (client, stream)
            }));
            // A few at a time: this is about who is connected, not about who knocks.
            if joining.len() == 32 {
                for joined in joining.drain(..) {
                    open.push(joined.await.unwrap());
                }
            }
        }
        for joined in joining {
            open.push(joined.await.unwrap());
        }
        open
    });
    println!("connected");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    drop(open);
    runtime.shutdown_background();
}
