//! Clusters are looked up and called: the real fleet on a kubeconfig file, over real TLS to stand-ins,
//! each behind a proxy that can fail.
//!
//! What must hold: every cluster but the one with the fault stays usable, and its calls succeed, also
//! while credentials rotate; what a list shows is one generation of the file; a cluster that hangs or
//! refuses is named, with a reason; one that is removed serves whoever still has it, is found by nobody
//! else, and its connections end with its last user; a kind that a cluster did not have is found soon
//! after it has it.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fleet::{Connection, Fleet, FleetConfig, Timing};
use objects::Objects;
use parking_lot::Mutex;
use serde_json::{Value, json};
use stallproof::ledger::LedgerConfig;
use stallproof::{Deadline, Ledger, Tasks};
use testkit::{Fault as Broken, Proxy};
use tokio::runtime::Runtime;

use super::ledger::{Explained, Names, late};
use super::{Drive, Fault, Planned, Ran, Stage, Work};
use crate::incident::Cannot;
use crate::stage::stand_in::{Manner, SERVER_NAME, StandIns, token};

const CLUSTERS: usize = 8;
const CALLERS: usize = 4;
/// Between two calls of one caller: an answer is 200 ms away.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two looks at the list.
const LOOK: Duration = Duration::from_millis(5);
/// For a call.
const CALL: Duration = Duration::from_secs(8);
const LATE: Duration = Duration::from_secs(3);
/// Within which a cluster that does not answer is named.
const WITHIN: Duration = Duration::from_secs(5);
/// For a cluster to be usable again after its fault, and for a new generation of the file to be seen:
/// it is looked at every second.
const RECOVERY: Duration = Duration::from_secs(15);
/// That there is no such kind may be kept for five seconds, twice.
const NO: Duration = Duration::from_secs(12);
/// Between two questions whether it is there now.
const AGAIN: Duration = Duration::from_secs(1);
/// For connections to end with their last user.
const ENDED: Duration = Duration::from_secs(10);

struct Cluster {
    name: String,
    proxy: Proxy,
    /// Of its credentials.
    generation: u32,
    is_there: bool,
}

/// What users share with who checks them.
struct Shared {
    fleet: Fleet,
    names: Vec<String>,
    /// Of whom nothing is expected, and until when if that is known.
    excused: Mutex<HashMap<usize, Option<Instant>>>,
    /// What the file holds is the last; of those before, when they were replaced, if not long ago.
    generations: Mutex<Vec<(BTreeSet<String>, Option<Instant>)>>,
    broken: Mutex<Vec<String>>,
    done: AtomicU64,
    looks: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn is_excused(&self, cluster: usize) -> bool {
        let excused = self.excused.lock().get(&cluster).copied();
        excused.is_some_and(|until| until.is_none_or(|until| Instant::now() < until))
    }

    fn tell(&self, what: String) {
        self.broken.lock().push(what);
    }

    async fn call(&self, mut random: fastrand::Rng) {
        loop {
            let cluster = random.usize(..self.names.len());
            let name = &self.names[cluster];
            // Before and after: a fault may begin or end while it is called.
            let excused = self.is_excused(cluster);
            let called = match self.fleet.connection(name) {
                Ok(connection) => ask(&connection).await,
                Err(error) => Err(error),
            };
            match called {
                Ok(()) => {
                    self.done.fetch_add(1, Relaxed);
                }
                Err(error) if !excused && !self.is_excused(cluster) => {
                    self.tell(format!(
                        "a call of {name}, which is well: {}",
                        stallproof::sentence(&error)
                    ));
                }
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What a list shows is what the file holds, or what it held a while ago: never a part of both.
    fn look(&self) {
        while !self.stop.load(Relaxed) {
            {
                let mut generations = self.generations.lock();
                generations
                    .retain(|(_, until)| until.is_none_or(|until| until.elapsed() < RECOVERY));
                let view = self.fleet.view();
                let seen: BTreeSet<&str> = view.clusters.keys().map(|name| &**name).collect();
                let is_one = generations
                    .iter()
                    .any(|(held, _)| held.iter().map(String::as_str).eq(seen.iter().copied()));
                if !is_one {
                    self.tell(format!("a list showed {seen:?}, which the file does not hold"));
                }
            }
            self.looks.fetch_add(1, Relaxed);
            std::thread::sleep(LOOK);
        }
    }
}

async fn ask(connection: &Connection) -> Result<(), fleet::Error> {
    let ask = |client: kube::Client| async move { client.apiserver_version().await };
    connection.call("a user's request", Deadline::after(CALL), ask).await.map(|_| ())
}

pub(super) fn play(stage: &Stage<'_>, drive: &mut Drive<'_>) -> Ran {
    let runtime = Runtime::new()?;
    let tasks = Tasks::new("fleet");
    let dir = stage.soak.dir.join("fleet");
    std::fs::create_dir(&dir)?;
    let entered = runtime.enter();
    let stand_ins = StandIns::start(&tasks)?;
    let well = stand_ins.server("", Manner::Well);
    let well = well.trim_start_matches("https://").split('/').next().unwrap_or_default();
    let well = well.parse()?;
    let clusters = (0..CLUSTERS).map(|number| Cluster {
        name: format!("c{number}"),
        proxy: Proxy::start(well),
        generation: 1,
        is_there: true,
    });
    let clusters: Vec<Cluster> = clusters.collect();
    let file = dir.join("kubeconfig");
    write(&file, &clusters, &stand_ins)?;
    let objects = Objects::embedded(&dir.join("objects"), &tasks)?;
    let ledger = Ledger::new(LedgerConfig { late_after: LATE });
    // Looks and tries again more often than anybody does: a minute has to show what a day does.
    let timing = Timing {
        probe: Duration::from_secs(2),
        retry: Duration::from_secs(2),
        ..Timing::default()
    };
    let config = FleetConfig { kubeconfigs: vec![file.clone()], timing, ..FleetConfig::default() };
    let fleet = Fleet::start(config, objects, ledger.clone(), &tasks);
    let names: Vec<String> = clusters.iter().map(|cluster| cluster.name.clone()).collect();
    let all: BTreeSet<String> = names.iter().cloned().collect();
    let shared = Arc::new(Shared {
        fleet,
        names,
        excused: Mutex::default(),
        generations: Mutex::new(vec![(all, None)]),
        broken: Mutex::default(),
        done: AtomicU64::new(0),
        looks: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    drop(entered);
    let mut job = Job {
        runtime: &runtime,
        shared: Arc::clone(&shared),
        stand_ins,
        file,
        clusters,
        ledger,
        names: Names::default(),
        held: None,
        fault: None,
        kinds: Kinds::default(),
    };
    let until = Instant::now() + RECOVERY;
    let left = wait(until, || job.unusable(true));
    if !left.is_empty() {
        return Err(left.join("; ").into());
    }
    for caller in 0..CALLERS {
        let random = fastrand::Rng::with_seed(stage.soak.seed ^ (caller as u64 + 1));
        let (shared, stop) = (Arc::clone(&shared), tasks.stopping());
        let _entered = runtime.enter();
        tasks.spawn("caller", async move {
            stop.bound(shared.call(random)).await;
        });
    }
    let looking = Arc::clone(&shared);
    let reader = std::thread::spawn(move || looking.look());
    let driven = drive(&mut job);
    shared.stop.store(true, Relaxed);
    let _ = reader.join();
    job.held = None;
    runtime.block_on(tasks.shutdown(Duration::from_secs(10)));
    runtime.shutdown_background();
    driven
}

/// In one step, as careful programs do it.
fn write(file: &PathBuf, clusters: &[Cluster], stand_ins: &StandIns) -> Ran {
    let authority = BASE64_STANDARD.encode(stand_ins.authority_pem());
    let there: Vec<&Cluster> = clusters.iter().filter(|cluster| cluster.is_there).collect();
    let all = |make: &dyn Fn(&Cluster) -> Value| -> Vec<Value> {
        there.iter().map(|cluster| make(cluster)).collect()
    };
    let config = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": all(&|Cluster { name, proxy, .. }| json!({ "name": name, "cluster": {
            "server": format!("https://{}/clusters/{name}", proxy.address()),
            "tls-server-name": SERVER_NAME, "certificate-authority-data": authority,
        } })),
        "users": all(&|Cluster { name, generation, .. }| {
            json!({ "name": name, "user": { "token": token(*generation) } })
        }),
        "contexts": all(&|Cluster { name, .. }| {
            json!({ "name": name, "context": { "cluster": name, "user": name } })
        }),
    });
    let new = file.with_extension("new");
    std::fs::write(&new, config.to_string())?;
    Ok(std::fs::rename(new, file)?)
}

struct Job<'a> {
    runtime: &'a Runtime,
    shared: Arc<Shared>,
    stand_ins: StandIns,
    file: PathBuf,
    clusters: Vec<Cluster>,
    ledger: Ledger,
    names: Names,
    /// The last user of a cluster that was removed.
    held: Option<Connection>,
    /// With its victim, since when, and whether it was named.
    fault: Option<(Fault, usize, Instant, bool)>,
    kinds: Kinds,
}

/// Kinds that clusters have been taught.
#[derive(Default)]
struct Kinds {
    count: usize,
    /// Where, what, and since when.
    awaited: Vec<(usize, String, Instant)>,
    asked: Option<Instant>,
}

impl Work for Job<'_> {
    fn begin(&mut self, planned: &Planned) -> Ran {
        let victim = (planned.pick % CLUSTERS as u64) as usize;
        let name = self.clusters[victim].name.clone();
        // Who gets new credentials, or learns something, is as well as any other.
        if !matches!(planned.fault, Fault::FleetRotate | Fault::FleetKind) {
            self.shared.excused.lock().insert(victim, None);
        }
        match planned.fault {
            Fault::FleetRotate => {
                self.clusters[victim].generation += 1;
                self.write()?;
            }
            Fault::FleetKind => self.teach(victim),
            Fault::FleetRemove => {
                // None while it recovers from another fault.
                self.held = self.shared.fleet.connection(&name).ok();
                self.clusters[victim].is_there = false;
                self.write()?;
            }
            Fault::FleetSlow => {
                self.clusters[victim].proxy.inject(Broken::Delay(Duration::from_millis(700)));
            }
            Fault::FleetRefuse => {
                self.clusters[victim].proxy.inject(Broken::Refuse);
                self.clusters[victim].proxy.cut();
            }
            _ => self.clusters[victim].proxy.inject(Broken::BlackHole),
        }
        let may = Box::new(move |late: &super::ledger::Late| late.tenant == name);
        self.names.begin(Explained { may, must: None }, Instant::now());
        self.fault = Some((planned.fault, victim, Instant::now(), false));
        Ok(())
    }

    fn end(&mut self, planned: &Planned) -> Ran {
        let Some((_, victim, ..)) = self.fault.take() else { return Ok(()) };
        match planned.fault {
            Fault::FleetRotate | Fault::FleetKind => {}
            Fault::FleetRemove => {
                self.after_removal(victim);
                self.clusters[victim].is_there = true;
                self.write()?;
            }
            _ => self.clusters[victim].proxy.heal(),
        }
        if let Some(until @ None) = self.shared.excused.lock().get_mut(&victim) {
            *until = Some(Instant::now() + RECOVERY);
        }
        self.names.end(Instant::now());
        Ok(())
    }

    fn check(&mut self) -> Vec<String> {
        let mut broken = std::mem::take(&mut *self.shared.broken.lock());
        let late = late(&self.ledger);
        broken.extend(self.names.check(&late, Instant::now()));
        let view = self.shared.fleet.view();
        if let Some((Fault::FleetBlackHole | Fault::FleetRefuse, victim, since, named)) =
            &mut self.fault
        {
            let name = &self.shared.names[*victim];
            let told =
                view.clusters.get(name.as_str()).is_some_and(|cluster| cluster.why.is_some());
            *named |= told || late.iter().any(|late| late.tenant == *name);
            if !*named && since.elapsed() > WITHIN {
                *named = true;
                broken.push(format!("{name} does not answer, and nothing says so"));
            }
        }
        broken.extend(self.unusable(false));
        broken.extend(self.look_for_kinds());
        broken
    }

    fn load(&self) -> u64 {
        self.shared.done.load(Relaxed)
    }

    fn finish(&mut self, until: Instant) -> Vec<String> {
        let mut broken = wait(until, || self.unusable(true));
        while !self.kinds.awaited.is_empty() && Instant::now() < until {
            broken.extend(self.look_for_kinds());
            std::thread::sleep(AGAIN);
        }
        for name in &self.shared.names {
            let called = self.shared.fleet.connection(name);
            let called = called.and_then(|connection| self.runtime.block_on(ask(&connection)));
            if let Err(error) = called {
                broken.push(format!("{name} after it all: {}", stallproof::sentence(&error)));
            }
        }
        if self.shared.looks.load(Relaxed) == 0 {
            broken.push("nobody looked at a list".to_owned());
        }
        broken.extend(self.check());
        broken
    }
}

impl Job<'_> {
    /// The lock is kept over the change, so that a look is at one side of it.
    fn write(&self) -> Ran {
        let there = self.clusters.iter().filter(|cluster| cluster.is_there);
        let there = there.map(|cluster| cluster.name.clone()).collect();
        let mut generations = self.shared.generations.lock();
        write(&self.file, &self.clusters, &self.stand_ins)?;
        if let Some((_, until)) = generations.last_mut() {
            *until = Some(Instant::now());
        }
        generations.push((there, None));
        Ok(())
    }

    /// All of them, or those of which something is expected.
    fn unusable(&self, all: bool) -> Vec<String> {
        let view = self.shared.fleet.view();
        let expected = self.shared.names.iter().enumerate();
        let expected = expected.filter(|(number, _)| all || !self.shared.is_excused(*number));
        let unusable = expected.filter_map(|(_, name)| match view.clusters.get(name.as_str()) {
            Some(cluster) if cluster.is_usable() => None,
            Some(cluster) => Some(format!("{name} is {}: {:?}", cluster.state.name(), cluster.why)),
            None => Some(format!("{name} is not there")),
        });
        unusable.collect()
    }

    fn find(&self, cluster: usize, kind: &str) -> Result<(), fleet::Error> {
        let connection = self.shared.fleet.connection(&self.shared.names[cluster])?;
        let found = connection.find(kind, Deadline::after(CALL));
        self.runtime.block_on(found).map(|_| ())
    }

    /// Its "no" first.
    fn teach(&mut self, cluster: usize) {
        self.kinds.count += 1;
        let kind = format!("lates{}", self.kinds.count);
        match self.find(cluster, &kind) {
            Err(fleet::Error::NoSuchKind { .. }) => {
                self.stand_ins.teach(&self.shared.names[cluster], &kind);
                self.kinds.awaited.push((cluster, kind, Instant::now()));
            }
            // It still recovers from another fault.
            Err(_) if self.shared.is_excused(cluster) => {}
            Err(error) => {
                self.shared.tell(format!("looking for {kind}: {}", stallproof::sentence(&error)));
            }
            Ok(()) => self.shared.tell(format!("{kind} was found before it was there")),
        }
    }

    fn look_for_kinds(&mut self) -> Vec<String> {
        if self.kinds.asked.is_some_and(|asked| asked.elapsed() < AGAIN) {
            return Vec::new();
        }
        self.kinds.asked = Some(Instant::now());
        let mut broken = Vec::new();
        for (cluster, kind, since) in std::mem::take(&mut self.kinds.awaited) {
            let excused = self.shared.is_excused(cluster);
            match self.find(cluster, &kind) {
                Ok(()) => {}
                Err(fleet::Error::NoSuchKind { .. }) if since.elapsed() > NO => {
                    broken.push(format!(
                        "{} has had {kind} for {:?}, and it is not found",
                        self.shared.names[cluster],
                        since.elapsed()
                    ));
                }
                // What cannot be asked now says nothing of what is kept.
                Err(_) if excused => self.kinds.awaited.push((cluster, kind, Instant::now())),
                Err(_) => self.kinds.awaited.push((cluster, kind, since)),
            }
        }
        broken
    }

    fn after_removal(&mut self, victim: usize) {
        let name = &self.shared.names[victim];
        let seen = wait(Instant::now() + RECOVERY, || {
            let found = self.shared.fleet.connection(name).is_ok();
            if found { vec![format!("{name} was removed, and is still found")] } else { Vec::new() }
        });
        seen.into_iter().for_each(|what| self.shared.tell(what));
        if let Some(held) = self.held.take()
            && let Err(error) = self.runtime.block_on(ask(&held))
        {
            let error = stallproof::sentence(&error);
            self.shared.tell(format!("who still had {name} when it was removed: {error}"));
        }
        // That was its last user.
        let port = self.clusters[victim].proxy.address().port();
        let open = wait(Instant::now() + ENDED, || match connections_to(port) {
            Ok(0) => Vec::new(),
            Ok(open) => vec![format!("{open} connections to {name} are open after its last user")],
            Err(error) => vec![format!("connections cannot be counted: {error}")],
        });
        open.into_iter().for_each(|what| self.shared.tell(what));
    }
}

/// Connections that stand, at a port of this machine.
fn connections_to(port: u16) -> Result<usize, Cannot> {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp")?;
    let suffix = format!(":{port:04X}");
    let stands = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        let is_there = fields.next().is_some_and(|local| local.ends_with(&suffix));
        is_there && fields.nth(1) == Some(ESTABLISHED)
    };
    Ok(table.lines().filter(stands).count())
}

/// What is still wrong at `until`.
fn wait(until: Instant, wrong: impl Fn() -> Vec<String>) -> Vec<String> {
    loop {
        let found = wrong();
        if found.is_empty() || Instant::now() >= until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
