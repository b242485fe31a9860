//! Counting conversations: shards with one owner each, against the old design in the same run: one
//! lock around one map, written under it and read by walking it under the same lock.
//!
//! `cargo bench -p traffic --bench conversations -- [CONVERSATIONS] [ROUNDS]`

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::cmp::Reverse;
use std::collections::HashMap;
use std::env;
use std::hint::black_box;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use admission::{Unknown, decide};
use bench::{Table, in_turn};
use objects::kinds::GroupMode;
use parking_lot::RwLock;
use traffic::conversations::{
    Directory, Labels, Level, Limits, Moment, PodFacts, Protocol, Readers, Record, Report, Router,
    Shard, ShardReport, Totals, shards,
};
use traffic::groups::Groups;
use traffic::ingest::Query;

#[path = "../../admission/benches/reviews/mod.rs"]
mod reviews;

use reviews::{ADMITTING, Admitting, CPU_OF_THREAD, PACE};

const NODES: u32 = 50;
const PODS: u32 = 20_000;
const BATCH: usize = 1000;
/// Conversations of one client with one server: a port and a metrics port, say.
const PER_PAIR: u32 = 2;
/// Of each thread.
const SHARDS: usize = 4;
/// Beside admission and alone.
const PAIRS: usize = 7;
/// Long enough for a rate of what would take minutes.
const LONG: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let mut args = env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let count = args.next().map_or(1_000_000, |count| count.parse().unwrap());
    let rounds = args.next().map_or(2, |rounds| rounds.parse().unwrap());
    let world = World::new(count);
    let mut table = Table::new("conversations");

    let (old, old_beside) = Old::default().run(&world, rounds);
    for threads in [1, 2] {
        let (mut parts, readers, router) = new(threads);
        // Totals grow, so that all of them have something to tell.
        let mut round = 0..;
        let mut run = |beside: Beside| {
            let admitting = match beside {
                Beside::Admission(pace) => Some(Admitting::start(pace, |program, request| {
                    black_box(decide(program, request, &Unknown).allowed);
                })),
                Beside::Nothing | Beside::Reader => None,
            };
            let reader = matches!(beside, Beside::Reader);
            let rate = ingest(&world, router, &mut parts, &readers, round.next().unwrap(), reader);
            admitting.map(Admitting::stop);
            rate
        };
        let first = run(Beside::Nothing);
        let beside = (0..rounds).map(|_| run(Beside::Reader)).fold(Rate::default(), Rate::best);
        // Once: all that this program does then takes five times as long.
        let flooded = run(Beside::Admission(None));
        let measure =
            |admits| run(if admits { Beside::Admission(Some(PACE)) } else { Beside::Nothing });
        let [again, paced] = in_turn(PAIRS, measure, |rate| rate.cpu);
        let what = |what: &str| format!("{what}, {threads} of our threads");
        // The writers' own time: what the work costs, whoever else uses the machine.
        let rivals = [("one lock around one map", old.cpu)];
        table.row(&what("records of new conversations, of CPU time"), "/s", first.cpu, &rivals);
        table.row(&what("records of known ones, of CPU time"), "/s", again.cpu, &rivals);
        if threads == 2 {
            table.must("at least 1,000,000/s", again.clock >= 1e6);
        }
        let alone = [("alone", again.cpu)];
        let deciding = format!("the same, {ADMITTING} threads deciding {PACE} reviews/s meanwhile");
        table.row(&what(&deciding), "/s", paced.cpu, &alone);
        table.must("at most 5 % lost", paced.cpu >= 0.95 * again.cpu);
        // They share nothing but caches, which eight busy threads leave cold.
        let deciding = format!("the same, {ADMITTING} threads deciding without pause");
        table.row(&what(&deciding), "/s", flooded.cpu, &alone);
        // By the clock, which also tells what was waited for.
        let rivals = [("one lock around one map", old_beside.clock)];
        table.row(&what("records while a reader walks all"), "/s", beside.clock, &rivals);
        if threads == 1 {
            sizes(&mut table, &parts);
            phases(&mut table, &world, router, &mut parts, round.next().unwrap());
            publishing(&mut table, &world, router, &mut parts, round.next().unwrap());
            graphs(&mut table, &readers);
            pages(&mut table, &readers);
            saving(&mut table, &parts);
        }
    }
    table.finish()
}

/// What else goes on.
enum Beside {
    Nothing,
    /// Who walks all conversations again and again.
    Reader,
    /// At this pace, or without pause.
    Admission(Option<f64>),
}

/// Records a second. The machine may be busy with other things: CPU time says what the work costs,
/// the clock also what was waited for.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    cpu: f64,
    clock: f64,
}

impl Rate {
    fn best(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), clock: self.clock.max(other.clock) }
    }
}

/// Of this thread.
fn cpu() -> Duration {
    reviews::cpu(CPU_OF_THREAD)
}

/// What the agents know, batch by batch.
struct World {
    directory: Directory,
    reports: Vec<Report>,
}

fn address(pod: u32) -> IpAddr {
    let [_, high, middle, low] = pod.to_be_bytes();
    IpAddr::from([10, high, middle, low])
}

impl World {
    fn new(count: u32) -> Self {
        let mut directory = Directory::new();
        directory.set_ranges(&["10.0.0.0/8".parse().unwrap()]);
        for pod in 0..PODS {
            let facts = PodFacts {
                uid: pod.to_string().into(),
                namespace: format!("namespace-{}", pod / 200).into(),
                name: format!("workload-{}-{pod}", pod / 10).into(),
                owner: Some(format!("Deployment/workload-{}", pod / 10).into()),
                node: node(pod),
                addresses: vec![address(pod)],
                images: Vec::new(),
                labels: Labels::new(),
                from: Moment(0),
                until: None,
            };
            directory.apply_pod(&facts, Moment(0));
        }
        let mut by_node: Vec<Vec<Record>> = vec![Vec::new(); NODES as usize];
        for n in 0..count {
            let pair = n / PER_PAIR;
            let client = pair.wrapping_mul(2_654_435_761) % PODS;
            let server = (pair / PODS * 7919 + pair * 31 + 1) % PODS;
            by_node[(server % NODES) as usize].push(Record {
                client: address(client),
                server: address(server),
                port: 8000 + (n % PER_PAIR) as u16,
                protocol: Protocol::TCP,
                application: None,
                totals: Totals { bytes: 1000, packets: 10, sessions: 1 },
                first: Moment(1000),
                last: Moment(100_000),
            });
        }
        let reports = by_node.into_iter().enumerate().flat_map(|(number, records)| {
            let batches: Vec<_> = records.chunks(BATCH).map(<[Record]>::to_vec).collect();
            batches.into_iter().enumerate().map(move |(sequence, records)| Report {
                agent: node(number as u32),
                incarnation: 1,
                sequence: sequence as u64 + 1,
                records,
                ..Report::default()
            })
        });
        Self { directory, reports: reports.collect() }
    }

    fn records(&self) -> usize {
        self.reports.iter().map(|report| report.records.len()).sum()
    }
}

fn node(pod: u32) -> Arc<str> {
    format!("node-{}", pod % NODES).into()
}

fn grown(report: &Report, round: u32) -> Report {
    let mut report = report.clone();
    for record in &mut report.records {
        record.totals.bytes += u64::from(round) * 1000;
        record.totals.packets += u64::from(round) * 10;
    }
    report
}

fn new(threads: usize) -> (Vec<Shard>, Readers, Router) {
    let router = Router::new([0x5eed, 0xfeed], threads * SHARDS);
    let limits =
        Limits { rows: 1 << 22, totals: 1 << 23, totals_per_agent: 1 << 20, ..Limits::default() };
    let (shards, readers) = shards(router, limits);
    (shards, readers, router)
}

/// Routes and applies everything, and publishes twice on the way: at half a million records a second,
/// once a second. Several threads route a part of the reports each, then own a part of the shards
/// each.
fn ingest(
    world: &World,
    router: Router,
    shards: &mut [Shard],
    readers: &Readers,
    round: u32,
    reader: bool,
) -> Rate {
    let reports: Vec<_> = world.reports.iter().map(|report| grown(report, round)).collect();
    let every = reports.len().div_ceil(2).max(1);
    let done = AtomicBool::new(false);
    let threads = shards.len() / SHARDS;
    let route = |reports: &[Report]| {
        let route = |report| router.route(report, &world.directory, |_| true);
        reports.iter().map(route).collect::<Vec<_>>()
    };
    let (cpu_seconds, seconds) = thread::scope(|scope| {
        if reader {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let view = readers.view();
                    let all = view.conversations(|_| true, Moment(0));
                    black_box(all.map(|it| it.totals().bytes).sum::<u64>());
                }
            });
        }
        let started = Instant::now();
        let spent = if threads == 1 {
            let before = cpu();
            for (n, report) in reports.iter().enumerate() {
                let routed = router.route(report, &world.directory, |_| true);
                own(shards, &routed.parts, n % every == 0);
            }
            cpu() - before
        } else {
            let parts = reports.chunks(reports.len().div_ceil(threads));
            let mut spent = Duration::ZERO;
            let mut queues: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
            let routed = thread::scope(|scope| {
                let measured = |part| {
                    let before = cpu();
                    (route(part), cpu() - before)
                };
                let workers: Vec<_> =
                    parts.map(|part| scope.spawn(move || measured(part))).collect();
                workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
            });
            for (routed, took) in routed {
                spent += took;
                for routed in routed {
                    let mut batches = routed.parts.into_iter();
                    for queue in &mut queues {
                        queue.push(batches.by_ref().take(SHARDS).collect::<Vec<_>>());
                    }
                }
            }
            let owners = thread::scope(|scope| {
                let work = |(mine, queue): (&mut [Shard], Vec<Vec<_>>)| {
                    let before = cpu();
                    for (n, batches) in queue.iter().enumerate() {
                        own(mine, batches, n % every == 0);
                    }
                    cpu() - before
                };
                let owners: Vec<_> = shards
                    .chunks_mut(SHARDS)
                    .zip(queues)
                    .map(|part| scope.spawn(move || work(part)))
                    .collect();
                owners.into_iter().map(|owner| owner.join().unwrap()).sum::<Duration>()
            });
            spent + owners
        };
        let seconds = started.elapsed();
        done.store(true, Ordering::Relaxed);
        (spent.as_secs_f64(), seconds.as_secs_f64())
    });
    shards.iter_mut().for_each(Shard::publish);
    let records = world.records() as f64;
    // What each of them spent: two threads that cost no more than one are twice as fast.
    Rate { cpu: records / cpu_seconds * threads as f64, clock: records / seconds }
}

fn own(shards: &mut [Shard], parts: &[ShardReport], publish: bool) {
    for (shard, part) in shards.iter_mut().zip(parts) {
        shard.apply(part, Moment(100_000));
        if publish {
            shard.publish();
        }
    }
}

/// What of it is finding out who it was, and what is counting.
fn phases(table: &mut Table, world: &World, router: Router, shards: &mut [Shard], round: u32) {
    let reports: Vec<_> = world.reports.iter().map(|report| grown(report, round)).collect();
    let mut routed = Vec::new();
    let route = timed(|| {
        let route = |report| router.route(report, &world.directory, |_| true);
        routed = reports.iter().map(route).collect();
    });
    let apply = timed(|| routed.iter().for_each(|routed| own(shards, &routed.parts, false)));
    let records: usize = reports.iter().map(|report| report.records.len()).sum();
    let each = |time: Duration| time.as_nanos() as f64 / records as f64;
    table.row("routing a record", "ns", each(route), &[]);
    table.row("counting it", "ns", each(apply), &[]);
}

fn sizes(table: &mut Table, shards: &[Shard]) {
    let rows: usize = shards.iter().map(Shard::rows).sum();
    let pairs: usize = shards.iter().map(Shard::pairs).sum();
    let bytes: usize = shards.iter().map(Shard::footprint).sum();
    let what = format!("a conversation, of {rows} in {pairs} pairs, with what exactly-once needs");
    table.row(&what, "B", bytes as f64 / rows as f64, &[]);
    table.must("at most 140 bytes", bytes <= 140 * rows);
}

/// Against a persistent vector of rows of the same size.
fn publishing(table: &mut Table, world: &World, router: Router, shards: &mut [Shard], round: u32) {
    let report = grown(&world.reports[0], round);
    let routed = router.route(&report, &world.directory, |_| true);
    own(shards, &routed.parts, false);
    let publish = timed(|| shards.iter_mut().for_each(Shard::publish));
    let what = format!("publishing all after {} records", report.records.len());
    table.row(&what, "ns", publish.as_nanos() as f64, &[]);
    let rows: usize = shards.iter().map(Shard::rows).sum();
    let mut vector: imbl::Vector<[u64; 6]> = (0..rows).map(|n| [n as u64; 6]).collect();
    let mut chunks: Vec<Arc<[[u64; 6]; 128]>> =
        (0..rows.div_ceil(128)).map(|n| Arc::new([[n as u64; 6]; 128])).collect();
    for changes in [1000_usize, 100_000] {
        let places: Vec<_> = (0..changes).map(|n| n.wrapping_mul(7_368_787) % rows).collect();
        let (mut kept_vector, mut kept_chunks) = (vector.clone(), chunks.clone());
        let imbl = timed(|| {
            for place in &places {
                vector.get_mut(*place).unwrap()[0] += 1;
            }
            kept_vector = vector.clone();
        });
        let chunked = timed(|| {
            for place in &places {
                Arc::make_mut(&mut chunks[place / 128])[place % 128][0] += 1;
            }
            kept_chunks = chunks.clone();
        });
        black_box((&kept_vector, &kept_chunks));
        let what = format!("{changes} of {rows} rows changed and published");
        let rivals = [("imbl's vector", imbl.as_nanos() as f64)];
        table.row(&what, "ns", chunked.as_nanos() as f64, &rivals);
    }
}

fn graphs(table: &mut Table, readers: &Readers) {
    let view = readers.view();
    for level in [Level::Namespace, Level::Group, Level::Workload] {
        let mut size = (0, 0);
        let time = timed(|| {
            let graph = view.graph(level, Moment(0));
            size = (graph.nodes.len(), graph.edges.len());
        });
        let (nodes, edges) = size;
        let what = format!("the graph by {level:?}, {nodes} nodes and {edges} edges");
        table.row(&what, "ns", time.as_nanos() as f64, &[]);
    }
}

/// All were last seen in one second here, so that no line is out by its time alone.
fn pages(table: &mut Table, readers: &Readers) {
    let (view, groups) = (readers.view(), Groups::new(GroupMode::Discover));
    let copied = timed(|| {
        let all = view.conversations(|_| true, Moment(0));
        let mut all: Vec<_> = all.filter_map(|it| it.to_conversation()).collect();
        all.sort_unstable_by_key(|it| (Reverse(it.last), it.client.address, it.server.address));
        all.truncate(50);
        black_box(all);
    });
    let query = Query { limit: 50, ..Query::default() };
    let mut matched = 0;
    let time = timed(|| matched = black_box(query.run(&view, &groups)).matched);
    let what = format!("the latest 50 of {matched}, and what all come to");
    let rivals = [("copying and sorting all", copied.as_nanos() as f64)];
    table.row(&what, "ns", time.as_nanos() as f64, &rivals);
}

fn saving(table: &mut Table, shards: &[Shard]) {
    let mut bytes = 0;
    let time = timed(|| bytes = shards.iter().map(|shard| shard.save().len()).sum());
    let what = format!("a checkpoint's shards, {} MB", bytes / 1_000_000);
    table.row(&what, "ns", time.as_nanos() as f64, &[]);
}

/// In CPU time.
fn timed(work: impl FnOnce()) -> Duration {
    let before = cpu();
    work();
    cpu() - before
}

type Key = (Arc<str>, Arc<str>, u16, u8);

/// As NeuVector's controller has it: a report is taken in under the lock that readers walk the map
/// under.
#[derive(Default)]
struct Old {
    map: RwLock<HashMap<Key, Totals>>,
    names: RwLock<HashMap<IpAddr, Arc<str>>>,
}

impl Old {
    fn run(&self, world: &World, rounds: u32) -> (Rate, Rate) {
        for pod in 0..PODS {
            let name = format!("namespace-{}/workload-{}-{pod}", pod / 200, pod / 10);
            self.names.write().insert(address(pod), name.into());
        }
        self.ingest(world, false);
        let (mut alone, mut beside) = (Rate::default(), Rate::default());
        for _ in 0..rounds {
            alone = alone.best(self.ingest(world, false));
            beside = beside.best(self.ingest(world, true));
        }
        (alone, beside)
    }

    fn ingest(&self, world: &World, reader: bool) -> Rate {
        let done = AtomicBool::new(false);
        let (records, spent, seconds) = thread::scope(|scope| {
            if reader {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let map = self.map.read();
                        black_box(map.values().map(|totals| totals.bytes).sum::<u64>());
                    }
                });
            }
            let (started, before) = (Instant::now(), cpu());
            let mut counted = 0;
            for report in &world.reports {
                if started.elapsed() > LONG {
                    break;
                }
                counted += report.records.len();
                for record in &report.records {
                    let (client, server) = {
                        let names = self.names.read();
                        (Arc::clone(&names[&record.client]), Arc::clone(&names[&record.server]))
                    };
                    let mut map = self.map.write();
                    let key = (client, server, record.port, record.protocol.0);
                    *map.entry(key).or_default() += record.totals;
                }
            }
            let spent = (counted as f64, cpu() - before, started.elapsed());
            done.store(true, Ordering::Relaxed);
            spent
        });
        Rate { cpu: records / spent.as_secs_f64(), clock: records / seconds.as_secs_f64() }
    }
}
