//! 500 clusters: what the unreachable ones cost the others, what a full sync costs readers, what a
//! cluster costs in memory. Every time is a ratio against the same thing from the same run.
//!
//! All contexts are one API server on this machine, so its handshakes and ours share the cores. Hence
//! two views: near, where the cores are all that counts, and the fair rival of "with black holes" is
//! the same fleet without them; and far, behind a proxy that delays every piece, where a connect takes
//! as long as it does in life, and the rival is one cluster alone.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::Table;
use fleet::{Fleet, FleetConfig};
use objects::Objects;
use serde_json::{Value, json};
use stallproof::{Deadline, Ledger, Tasks};
use testkit::{Fault, KubeServer, Proxy};

const HEALTHY: usize = 400;
const HOLES: usize = 100;
const ALONE: usize = 20;
/// Each way, of a cluster that is far.
const FAR: Duration = Duration::from_millis(250);
/// What a healthy cluster may take, as a multiple of its own connect alone.
const LIMIT: f64 = 1.2;

fn main() -> ExitCode {
    if let Err(why) = testkit::need::kube() {
        eprintln!("cannot measure: {why}");
        return ExitCode::from(2);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run()).finish()
}

async fn run() -> Table {
    let server = KubeServer::start().await;
    let hole = Proxy::start(server.address());
    hole.inject(Fault::BlackHole);
    let far = Proxy::start(server.address());
    far.inject(Fault::Delay(FAR));
    let lab = Lab { server, hole, far };

    let own = lab.alone(Distance::Near).await;
    let own_far = lab.alone(Distance::Far).await;
    let running = lab.start(HEALTHY, HOLES, Distance::Far);
    let distant = running.times(HEALTHY).await;
    running.stop().await;

    let running = lab.start(HEALTHY, 0, Distance::Near);
    let without = running.times(HEALTHY).await;
    running.stop().await;

    let before = resident();
    let running = lab.start(HEALTHY, HOLES, Distance::Near);
    let with = running.times(HEALTHY).await;
    let after = resident();

    let mut table = Table::new("fleet");
    let nanos = |time: Duration| time.as_nanos() as f64;
    let parts = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)];
    for (name, part) in parts {
        let what = format!(
            "a far cluster ({FAR:?} each way) is ready, {name} of {HEALTHY} beside {HOLES} black holes"
        );
        let rivals = [("one alone", nanos(own_far))];
        table.row(&what, "ns", nanos(at(&distant, part)), &rivals);
    }
    let holds = ratio(at(&distant, 1.0), own_far) <= LIMIT;
    table.must(&format!("within {LIMIT} times its own connect"), holds);
    for (name, part) in parts {
        let what =
            format!("a near cluster is ready, {name} of {HEALTHY} beside {HOLES} black holes");
        let rivals = [("no black holes", nanos(at(&without, part))), ("one alone", nanos(own))];
        table.row(&what, "ns", nanos(at(&with, part)), &rivals);
    }
    let held = after.saturating_sub(before) / (HEALTHY + HOLES);
    table.row("memory of a cluster", "B", held as f64, &[]);

    // Every context gets other credentials: each is parsed, connected anew and swapped.
    let idle = read_for(&running.fleet, tokio::time::sleep(Duration::from_secs(5))).await;
    let connects = running.connects();
    lab.write(&running.file(), HEALTHY, HOLES, Distance::Near, true);
    let resync = async {
        while running.connects() < connects + HEALTHY as f64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let busy = read_for(&running.fleet, resync).await;
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let what = format!("looking a cluster up during a full resync, {name}");
        let rivals = [("idle", nanos(at(&idle, part)))];
        table.row(&what, "ns", nanos(at(&busy, part)), &rivals);
    }
    running.stop().await;
    table
}

struct Lab {
    server: KubeServer,
    hole: Proxy,
    far: Proxy,
}

#[derive(Clone, Copy)]
enum Distance {
    Near,
    Far,
}

struct Running {
    fleet: Fleet,
    tasks: Tasks,
    dir: tempfile::TempDir,
}

impl Lab {
    /// How long one cluster takes that has the machine to itself: the median of some.
    async fn alone(&self, distance: Distance) -> Duration {
        let mut alone = Vec::new();
        for _ in 0..ALONE {
            let running = self.start(1, 0, distance);
            alone.extend(running.times(1).await);
            running.stop().await;
        }
        alone.sort();
        alone[ALONE / 2]
    }

    fn start(&self, healthy: usize, holes: usize, distance: Distance) -> Running {
        let dir = tempfile::tempdir().unwrap();
        self.write(&dir.path().join("kubeconfig"), healthy, holes, distance, false);
        let tasks = Tasks::new("bench");
        let objects = Objects::embedded(&dir.path().join("store"), &tasks).unwrap();
        let kubeconfigs = vec![dir.path().join("kubeconfig")];
        let config = FleetConfig { kubeconfigs, ..FleetConfig::default() };
        let fleet = Fleet::start(config, objects, Ledger::default(), &tasks);
        Running { fleet, tasks, dir }
    }

    fn write(&self, path: &Path, healthy: usize, holes: usize, distance: Distance, rotated: bool) {
        let access = match distance {
            Distance::Near => self.server.access().kubeconfig().to_owned(),
            Distance::Far => self.server.through(&self.far).kubeconfig().to_owned(),
        };
        let config: Value = serde_json::from_str(&access).unwrap();
        let cluster = &config["clusters"][0]["cluster"];
        let mut swallowed = cluster.clone();
        swallowed["server"] = format!("https://{}", self.hole.address()).into();
        let user = &config["users"][usize::from(!rotated)]["user"];
        // Holes among the healthy, so that order favours nobody.
        let every = (healthy + holes).checked_div(holes).unwrap_or(usize::MAX);
        let contexts = (0..healthy + holes).map(|index| {
            let cluster = if index % every == every - 1 { "hole" } else { "healthy" };
            json!({ "name": format!("{cluster}-{index}"), "context": { "cluster": cluster, "user": "u" } })
        });
        let kubeconfig = json!({
            "clusters": [
                { "name": "healthy", "cluster": cluster }, { "name": "hole", "cluster": swallowed },
            ],
            "users": [{ "name": "u", "user": user }],
            "contexts": contexts.collect::<Vec<_>>(),
        });
        let new = path.with_extension("new");
        fs::write(&new, kubeconfig.to_string()).unwrap();
        fs::rename(new, path).unwrap();
    }
}

impl Running {
    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// From being listed to being usable, each; sorted.
    async fn times(&self, wanted: usize) -> Vec<Duration> {
        let mut changes = self.fleet.changes();
        let mut listed = HashMap::new();
        let mut usable = HashMap::new();
        while usable.len() < wanted {
            let view = self.fleet.view();
            for (name, cluster) in &view.clusters {
                let began = *listed.entry(Arc::clone(name)).or_insert(cluster.since);
                if cluster.is_usable() && !usable.contains_key(name) {
                    let took = Duration::try_from(cluster.since.duration_since(began)).unwrap();
                    usable.insert(Arc::clone(name), took);
                }
            }
            let _ = Deadline::after(Duration::from_millis(100)).bound(changes.changed()).await;
        }
        let mut times: Vec<_> = usable.into_values().collect();
        times.sort();
        times
    }

    fn connects(&self) -> f64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.fleet.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("fleet_connects_total "));
        line.unwrap().parse().unwrap()
    }

    async fn stop(self) {
        self.tasks.shutdown(Duration::from_secs(30)).await;
    }
}

/// How long lookups take while `meanwhile` goes on, sorted. On a thread of its own, with pauses, as
/// a request path has them: a reader that spins would measure the scheduler.
async fn read_for(fleet: &Fleet, meanwhile: impl Future<Output = ()>) -> Vec<Duration> {
    let done = Arc::new(AtomicBool::new(false));
    let (stop, fleet) = (Arc::clone(&done), fleet.clone());
    let reader = std::thread::spawn(move || {
        let mut took = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..100 {
                let began = Instant::now();
                let _ = black_box(fleet.connection(black_box("healthy-0")));
                took.push(began.elapsed());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        took.sort();
        took
    });
    meanwhile.await;
    done.store(true, Ordering::Relaxed);
    reader.join().unwrap()
}

fn at(sorted: &[Duration], part: f64) -> Duration {
    let index = ((sorted.len() - 1) as f64 * part).round() as usize;
    sorted[index]
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64().max(1e-9)
}

fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
