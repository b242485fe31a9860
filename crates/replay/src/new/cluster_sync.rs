//! The real fleet on a kubeconfig file, which is replaced under it: every client, handshake and call is
//! its own, over real TLS.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fleet::{Connection, FleetConfig, State};
use objects::Objects;
use serde_json::{Value, json};
use stallproof::{Deadline, Ledger, Tasks};

use crate::incident::cluster_sync::Load;
use crate::incident::{Cannot, Ran};
use crate::outcome::Named;
use crate::plan::Plan;
use crate::record::{Recorder, ms};
use crate::stage::fleet::{Fleet, Looked, Script};
use crate::stage::stand_in::{Manner, SERVER_NAME, StandIns, token};

/// For all of it; a fleet takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the reader has the fleet to itself at the end.
const IDLE: Duration = Duration::from_secs(2);
/// Between two looks at all clusters: to look at each change would be work that the fleet waits for.
const LOOK: Duration = Duration::from_millis(5);
/// One alone is measured this often; the middle one counts.
const ALONE: usize = 3;

pub(crate) fn run(plan: &Plan, recorder: &Recorder) -> Ran {
    let runtime = tokio::runtime::Runtime::new()?;
    let tasks = Tasks::new("new");
    runtime.block_on(async {
        let stand_ins = StandIns::start(&tasks)?;
        let alone = alone(&plan.dir, &stand_ins).await?;
        recorder.figure("connectAloneMs", ms(alone));
        replay(plan, recorder, &tasks, &stand_ins, alone).await
    })
}

/// How long one cluster takes that has the machine to itself.
async fn alone(dir: &Path, stand_ins: &StandIns) -> Result<Duration, Cannot> {
    let mut took = Vec::new();
    for i in 0..ALONE {
        let tasks = Tasks::new("alone");
        let one = [(format!("alone-{i}"), Manner::Well)];
        let file = dir.join(format!("alone-{i}.kubeconfig"));
        write(&file, &one, 1, stand_ins)?;
        let began = Instant::now();
        let fleet = start(&dir.join(format!("alone-{i}")), file, &tasks)?;
        until(&fleet, |fleet| usable(fleet, &one[0].0)).await?;
        took.push(began.elapsed());
        tasks.shutdown(Duration::from_secs(10)).await;
    }
    took.sort_unstable();
    Ok(took[ALONE / 2])
}

async fn replay(
    plan: &Plan,
    recorder: &Recorder,
    tasks: &Tasks,
    stand_ins: &StandIns,
    alone: Duration,
) -> Ran {
    let load = Load::of(plan);
    let file = plan.dir.join("kubeconfig");
    write(&file, &load.generation(false), 1, stand_ins)?;
    recorder.staged();
    let began = Instant::now();
    let fleet = start(&plan.dir.join("fleet"), file.clone(), tasks)?;
    let script = Script::begin(fleet.clone(), &load, plan, recorder, tasks);
    let watched = watch(&fleet, &load, recorder, tasks, began);
    let is = |manners: &[Manner], state: fn(State) -> bool| {
        let names = load.clusters.iter().filter(|(_, manner)| manners.contains(manner));
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        move |fleet: &fleet::Fleet| {
            let view = fleet.view();
            names
                .iter()
                .filter(|n| view.clusters.get(n.as_str()).is_some_and(|c| state(c.state)))
                .count()
        }
    };
    let usable = |state| matches!(state, State::Ready | State::Degraded);
    let well = is(&[Manner::Well, Manner::Rotates], usable);
    let slow = is(&[Manner::SlowToShakeHands], usable);
    let dead = is(&[Manner::Refuses, Manner::BlackHole], |state| state == State::Unreachable);
    let all = [&[Manner::Well, Manner::Rotates][..], &[Manner::SlowToShakeHands]];
    let (wells, slows) = (load.count(all[0]), load.count(all[1]));
    let deads = load.count(&[Manner::Refuses, Manner::BlackHole]);
    let settled =
        until(&fleet, |fleet| (well(fleet), slow(fleet), dead(fleet)) == (wells, slows, deads));
    // What did not come is a figure that does not hold.
    let _ = settled.await;
    recorder.figure("wellUsable", well(&fleet) as f64);
    recorder.figure("slowUsable", slow(&fleet) as f64);
    recorder.figure("deadNamed", dead_with_reason(&fleet, &load) as f64);
    let p99 = watched.p99(&load);
    recorder.figure("connectP99Ms", ms(p99));
    recorder.figure("connectRatio", p99.as_secs_f64() / alone.as_secs_f64());

    let held = script.hold_those_that_leave();
    let rotating: HashMap<String, Connection> = rotating(&load)
        .filter_map(|name| Some((name.clone(), fleet.connection(name).ok()?)))
        .collect();
    write(&file, &load.generation(true), 2, stand_ins)?;
    let rotated = |fleet: &fleet::Fleet| {
        let other = |(name, before): &(&String, &Connection)| {
            fleet.connection(name).is_ok_and(|now| !now.is_same_client(before))
        };
        rotating.iter().filter(other).count()
    };
    let come = |fleet: &fleet::Fleet| load.coming.iter().all(|(name, _)| self::usable(fleet, name));
    let _ = until(&fleet, |fleet| come(fleet) && rotated(fleet) == rotating.len()).await;
    recorder.figure("rotated", rotated(&fleet) as f64);
    script.after_removal(&held).await;
    script.idle();
    tokio::time::sleep(IDLE).await;
    script.end().await;
    tasks.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

fn rotating(load: &Load) -> impl Iterator<Item = &String> {
    load.clusters.iter().filter(|(_, m)| *m == Manner::Rotates).map(|(name, _)| name)
}

pub(crate) fn start(dir: &Path, file: PathBuf, tasks: &Tasks) -> Result<fleet::Fleet, Cannot> {
    let objects = Objects::embedded(dir, tasks)?;
    let config = FleetConfig { kubeconfigs: vec![file], ..FleetConfig::default() };
    Ok(fleet::Fleet::start(config, objects, Ledger::default(), tasks))
}

/// In one step, as careful programs do it.
pub(crate) fn write(
    file: &Path,
    clusters: &[(String, Manner)],
    generation: u32,
    stand_ins: &StandIns,
) -> Result<(), Cannot> {
    let authority = BASE64_STANDARD.encode(stand_ins.authority_pem());
    let all = |make: &dyn Fn(&str, Manner) -> Value| -> Vec<Value> {
        clusters.iter().map(|(name, manner)| make(name, *manner)).collect()
    };
    let config = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": all(&|name, manner| json!({ "name": name, "cluster": {
            "server": stand_ins.server(name, manner), "tls-server-name": SERVER_NAME,
            "certificate-authority-data": authority,
        } })),
        "users": all(&|name, manner| json!({ "name": name, "user": {
            "token": token(if manner == Manner::Rotates { generation } else { 1 }),
        } })),
        "contexts": all(&|name, _| json!({ "name": name, "context": { "cluster": name, "user": name } })),
    });
    let new = file.with_extension("new");
    std::fs::write(&new, config.to_string())?;
    std::fs::rename(new, file)?;
    Ok(())
}

fn usable(fleet: &fleet::Fleet, name: &str) -> bool {
    fleet.view().clusters.get(name).is_some_and(|cluster| cluster.is_usable())
}

async fn until(fleet: &fleet::Fleet, is_so: impl Fn(&fleet::Fleet) -> bool) -> Result<(), Cannot> {
    let wait = async {
        while !is_so(fleet) {
            tokio::time::sleep(LOOK).await;
        }
    };
    let deadline = Deadline::after(PATIENCE);
    deadline.bound(wait).await.map_err(|_| "the fleet did not come as far as it should".into())
}

fn dead_with_reason(fleet: &fleet::Fleet, load: &Load) -> usize {
    let view = fleet.view();
    let dead = |manner| matches!(manner, Manner::Refuses | Manner::BlackHole);
    let dead = load.clusters.iter().filter(|(_, manner)| dead(*manner));
    dead.filter(|(name, _)| {
        let found = view.clusters.get(name.as_str());
        found.is_some_and(|c| c.state == State::Unreachable && c.why.is_some())
    })
    .count()
}

/// When each cluster was first usable.
#[derive(Clone)]
struct Watched(Arc<parking_lot::Mutex<HashMap<String, Duration>>>);

impl Watched {
    /// Of those that are well; as long as anything if one never was.
    fn p99(&self, load: &Load) -> Duration {
        let first = self.0.lock();
        let well =
            load.clusters.iter().filter(|(_, m)| matches!(m, Manner::Well | Manner::Rotates));
        let mut took: Vec<Duration> =
            well.map(|(name, _)| first.get(name).copied().unwrap_or(PATIENCE)).collect();
        took.sort_unstable();
        let rank = (took.len() as f64 * 0.99).ceil() as usize;
        took.get(rank.saturating_sub(1)).copied().unwrap_or(PATIENCE)
    }
}

/// Notes when each is usable, how many are, and when a black hole was called that.
fn watch(
    fleet: &fleet::Fleet,
    load: &Load,
    recorder: &Recorder,
    tasks: &Tasks,
    began: Instant,
) -> Watched {
    let watched = Watched(Arc::default());
    let hole = load.clusters.iter().find(|(_, manner)| *manner == Manner::BlackHole);
    let hole = hole.map(|(name, _)| name.clone());
    let (first, fleet, recorder, stop) =
        (watched.clone(), fleet.clone(), recorder.clone(), tasks.stopping());
    tasks.spawn("watch", async move {
        let mut changes = fleet.changes();
        let watching = async {
            loop {
                let view = fleet.view();
                let mut usable = 0;
                for (name, cluster) in &view.clusters {
                    if cluster.is_usable() {
                        usable += 1;
                        let mut first = first.0.lock();
                        if !first.contains_key(&**name) {
                            first.insert(name.to_string(), began.elapsed());
                        }
                    }
                    let why = cluster.why.as_ref().filter(|_| cluster.state == State::Unreachable);
                    if let Some(why) = why.filter(|_| Some(&**name) == hole.as_deref()) {
                        let (what, after_ms) = (format!("{name}: {why}"), ms(began.elapsed()));
                        recorder.named(Named { what, step: "tls".to_owned(), after_ms });
                    }
                }
                recorder.level(f64::from(usable));
                tokio::time::sleep(LOOK).await;
                changes.changed().await;
            }
        };
        stop.bound(watching).await;
    });
    watched
}

impl Fleet for fleet::Fleet {
    type Connection = Connection;

    fn look_up(&self, name: &str) -> Option<Connection> {
        self.connection(name).ok()
    }

    fn look(&self, load: &Load) -> Looked {
        let view = self.view();
        let is_known = |name: &String| view.clusters.contains_key(name.as_str());
        Looked::new(load, view.clusters.len(), is_known)
    }

    async fn call(&self, connection: &Connection) -> Result<(), Cannot> {
        let ask = |client: kube::Client| async move { client.apiserver_version().await };
        connection.call("a user's request", Deadline::after(PATIENCE), ask).await?;
        Ok(())
    }
}
