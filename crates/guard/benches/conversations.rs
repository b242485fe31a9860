//! Counting conversations: shards with one owner each, against the old design in the same run: one
//! lock around one map, written under it and read by walking it under the same lock.
//!
//! `cargo bench -p guard --bench conversations -- [CONVERSATIONS] [ROUNDS]`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::collections::HashMap;
use std::env;
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use guard::conversations::{
    Directory, Labels, Level, Limits, Moment, PodFacts, Protocol, Readers, Record, Report, Router,
    Shard, Totals, shards,
};
use parking_lot::RwLock;

const NODES: u32 = 50;
const PODS: u32 = 20_000;
const BATCH: usize = 1000;
/// Conversations of one client with one server: a port and a metrics port, say.
const PER_PAIR: u32 = 2;

fn main() {
    // cargo adds `--bench`.
    let mut args = env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let count = args.next().map_or(1_000_000, |count| count.parse().unwrap());
    let rounds = args.next().map_or(2, |rounds| rounds.parse().unwrap());
    if cfg!(debug_assertions) {
        println!("a build with debug assertions: the ratios count, the figures do not");
    }
    let world = World::new(count);
    println!("{count} conversations of {PODS} pods on {NODES} nodes, {PER_PAIR} to a pair");

    let old = Old::default();
    let (old_one, old_beside) = old.run(&world, rounds);
    println!("one lock, one thread                {old_one:10.0} records/s");
    println!(
        "          a reader walks it         {old_beside:10.0} records/s, {:.2}x",
        old_beside / old_one
    );

    for threads in [1, 2] {
        let (mut parts, readers, router) = new(threads);
        let first = ingest(&world, router, &mut parts, &readers, 0, false);
        let mut rates = Vec::new();
        let mut beside = Vec::new();
        for round in 1..=rounds {
            rates.push(ingest(&world, router, &mut parts, &readers, 2 * round - 1, false));
            beside.push(ingest(&world, router, &mut parts, &readers, 2 * round, true));
        }
        let (rate, beside) = (best(&rates), best(&beside));
        println!(
            "shards, {threads} thread(s), first seen       {first:10.0} records/s, {:.1}x one lock",
            first / old_one
        );
        println!(
            "                     seen again     {rate:10.0} records/s, {:.1}x",
            rate / old_one
        );
        println!(
            "                     a reader walks {beside:10.0} records/s, {:.1}x one lock with its reader, {:.2}x alone",
            beside / old_beside,
            beside / rate
        );
        if threads == 2 {
            sizes(&parts);
            publishing(&mut parts);
            graphs(&readers);
            saving(&parts);
        }
    }
}

fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
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
    let router = Router::new([0x5eed, 0xfeed], threads * 4);
    let limits =
        Limits { rows: 1 << 22, totals: 1 << 23, totals_per_agent: 1 << 20, ..Limits::default() };
    let (shards, readers) = shards(router, limits);
    (shards, readers, router)
}

/// Routes and applies everything, and publishes ten times on the way. Several threads route a part
/// of the reports each, then own a part of the shards each.
fn ingest(
    world: &World,
    router: Router,
    shards: &mut [Shard],
    readers: &Readers,
    round: u32,
    reader: bool,
) -> f64 {
    let reports: Vec<_> = world.reports.iter().map(|report| grown(report, round)).collect();
    let every = (reports.len() / 10).max(1);
    let done = AtomicBool::new(false);
    let threads = shards.len() / 4;
    let seconds = thread::scope(|scope| {
        if reader {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let view = readers.view();
                    black_box(
                        view.conversations(|_| true, Moment(0))
                            .map(|it| it.totals.bytes)
                            .sum::<u64>(),
                    );
                }
            });
        }
        let started = Instant::now();
        if threads == 1 {
            for (n, report) in reports.iter().enumerate() {
                let routed = router.route(report, &world.directory, |_| true);
                for (shard, batch) in shards.iter_mut().zip(&routed.batches) {
                    shard.apply(batch, Moment(100_000));
                    if n % every == 0 {
                        shard.publish();
                    }
                }
            }
        } else {
            let parts: Vec<_> = reports.chunks(reports.len().div_ceil(threads)).collect();
            let routed: Vec<_> = thread::scope(|scope| {
                let workers: Vec<_> = parts
                    .iter()
                    .map(|part| {
                        scope.spawn(|| {
                            part.iter()
                                .map(|report| router.route(report, &world.directory, |_| true))
                                .collect::<Vec<_>>()
                        })
                    })
                    .collect();
                workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
            });
            let mut queues: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
            for routed in routed {
                let mut batches = routed.batches.into_iter();
                for queue in &mut queues {
                    queue.push(batches.by_ref().take(4).collect::<Vec<_>>());
                }
            }
            thread::scope(|scope| {
                for (mine, queue) in shards.chunks_mut(4).zip(&queues) {
                    scope.spawn(move || {
                        for (n, batches) in queue.iter().enumerate() {
                            for (shard, batch) in mine.iter_mut().zip(batches) {
                                shard.apply(batch, Moment(100_000));
                                if n % every == 0 {
                                    shard.publish();
                                }
                            }
                        }
                    });
                }
            });
        }
        let seconds = started.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        seconds
    });
    shards.iter_mut().for_each(Shard::publish);
    world.records() as f64 / seconds
}

fn sizes(shards: &[Shard]) {
    let rows: usize = shards.iter().map(Shard::rows).sum();
    let pairs: usize = shards.iter().map(Shard::pairs).sum();
    let bytes: usize = shards.iter().map(Shard::footprint).sum();
    println!(
        "{rows} conversations, {pairs} pairs: {:.0} bytes a conversation, with what exactly-once needs",
        bytes as f64 / rows as f64
    );
}

/// Against a persistent vector of rows of the same size.
fn publishing(shards: &mut [Shard]) {
    let idle = timed(|| shards.iter_mut().for_each(Shard::publish));
    println!("publishing all shards, nothing changed   {idle:10.1?}");
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
        println!(
            "{changes:7} rows changed and published: imbl {imbl:10.1?}, chunks {chunked:10.1?}, {:.1}x",
            imbl.as_secs_f64() / chunked.as_secs_f64()
        );
    }
}

fn graphs(readers: &Readers) {
    let view = readers.view();
    for level in [Level::Namespace, Level::Group, Level::Workload] {
        let mut size = (0, 0);
        let time = timed(|| {
            let graph = view.graph(level, Moment(0));
            size = (graph.nodes.len(), graph.edges.len());
        });
        println!("graph by {level:?}: {} nodes, {} edges in {time:.1?}", size.0, size.1);
    }
}

fn saving(shards: &[Shard]) {
    let mut bytes = 0;
    let time = timed(|| bytes = shards.iter().map(|shard| shard.save().len()).sum());
    println!("a checkpoint's shards: {} MB in {time:.1?}", bytes / 1_000_000);
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

/// As NeuVector's controller has it: a report is taken in under the lock that readers walk the map
/// under.
#[derive(Default)]
struct Old {
    map: RwLock<HashMap<(Arc<str>, Arc<str>, u16, u8), (u64, u64, u64)>>,
    names: RwLock<HashMap<IpAddr, Arc<str>>>,
}

impl Old {
    fn run(&self, world: &World, rounds: u32) -> (f64, f64) {
        for pod in 0..PODS {
            let name = format!("namespace-{}/workload-{}-{pod}", pod / 200, pod / 10);
            self.names.write().insert(address(pod), name.into());
        }
        self.ingest(world, false);
        let mut rates = (0.0, 0.0);
        for _ in 0..rounds {
            rates = (
                f64::max(rates.0, self.ingest(world, false)),
                f64::max(rates.1, self.ingest(world, true)),
            );
        }
        rates
    }

    fn ingest(&self, world: &World, reader: bool) -> f64 {
        let done = AtomicBool::new(false);
        let seconds = thread::scope(|scope| {
            if reader {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let map = self.map.read();
                        black_box(map.values().map(|totals| totals.0).sum::<u64>());
                    }
                });
            }
            let started = Instant::now();
            for report in &world.reports {
                for record in &report.records {
                    let (client, server) = {
                        let names = self.names.read();
                        (Arc::clone(&names[&record.client]), Arc::clone(&names[&record.server]))
                    };
                    let mut map = self.map.write();
                    let key = (client, server, record.port, record.protocol.0);
                    let totals = map.entry(key).or_default();
                    totals.0 += record.totals.bytes;
                    totals.1 += record.totals.packets;
                    totals.2 += record.totals.sessions;
                }
            }
            let seconds = started.elapsed().as_secs_f64();
            done.store(true, Ordering::Relaxed);
            seconds
        });
        world.records() as f64 / seconds
    }
}
