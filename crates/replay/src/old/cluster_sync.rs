//! Kite's `ClusterManager` before its locks (kite-org/kite#436):
//!
//! ```text
//! syncClusters, one goroutine             every HTTP request
//!   for each cluster, one after the other   cm.clusters[name]
//!     it changed:                           cm.errors[name]
//!       delete(cm.clusters, name)
//!       the old client is stopped, whoever uses it
//!       buildClientSet: TCP, TLS, a first request
//!       cm.clusters[name] = …, or cm.errors[name] = …
//!   for each that is no longer wanted:
//!     delete(cm.clusters, name); stop it
//! ```
//!
//! Go's maps have no lock there, and the process panics when a read meets a write. A model that is sound
//! can only show the rest of it, so each map has a lock of its own here, held for one access. Timeouts are
//! those of Go's transport: 10 s for a handshake that does not come.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::RwLock;
use stallproof::Tasks;

use crate::incident::cluster_sync::Load;
use crate::incident::{Cannot, Ran};
use crate::plan::Plan;
use crate::record::Recorder;
use crate::stage::fleet::{Fleet, Looked, Script};
use crate::stage::stand_in::{Manner, SERVER_NAME, StandIns, token};

/// `http.Transport.TLSHandshakeTimeout`.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// `K8sClient` and its caches.
pub(crate) struct ClientSet {
    client: kube::Client,
    /// What it was built from.
    generation: u32,
    stopped: AtomicBool,
}

#[derive(Clone, Default)]
struct ClusterManager {
    clusters: Arc<RwLock<HashMap<String, Arc<ClientSet>>>>,
    errors: Arc<RwLock<HashMap<String, String>>>,
}

impl ClusterManager {
    async fn sync(&self, wanted: &[(String, Manner)], generation: u32, stand_ins: &StandIns) {
        for (name, manner) in wanted {
            let generation = if *manner == Manner::Rotates { generation } else { 1 };
            let current = self.clusters.read().get(name).cloned();
            if current.as_ref().is_some_and(|current| current.generation == generation) {
                continue;
            }
            if let Some(current) = current {
                self.clusters.write().remove(name);
                current.stopped.store(true, Relaxed);
            }
            match build(name, *manner, generation, stand_ins).await {
                Ok(client) => {
                    self.errors.write().remove(name);
                    let set = ClientSet { client, generation, stopped: AtomicBool::new(false) };
                    self.clusters.write().insert(name.clone(), Arc::new(set));
                }
                Err(error) => {
                    self.errors.write().insert(name.clone(), error.to_string());
                }
            }
        }
        let wanted: HashSet<&String> = wanted.iter().map(|(name, _)| name).collect();
        let gone: Vec<String> =
            self.clusters.read().keys().filter(|name| !wanted.contains(name)).cloned().collect();
        for name in gone {
            if let Some(gone) = self.clusters.write().remove(&name) {
                gone.stopped.store(true, Relaxed);
            }
        }
    }
}

/// `buildClientSet`.
async fn build(
    name: &str,
    manner: Manner,
    generation: u32,
    stand_ins: &StandIns,
) -> Result<kube::Client, Cannot> {
    let mut config = kube::Config::new(stand_ins.server(name, manner).parse()?);
    config.root_cert = Some(stand_ins.authority_der());
    config.tls_server_name = Some(SERVER_NAME.to_owned());
    config.auth_info = serde_json::from_value(serde_json::json!({ "token": token(generation) }))?;
    let client = kube::Client::try_from(config)?;
    tokio::time::timeout(HANDSHAKE, client.apiserver_version()).await??;
    Ok(client)
}

impl Fleet for ClusterManager {
    type Connection = Arc<ClientSet>;

    fn look_up(&self, name: &str) -> Option<Self::Connection> {
        self.clusters.read().get(name).cloned()
    }

    fn look(&self, load: &Load) -> Looked {
        // As the handler of the list does: one map, then the other.
        let clusters = self.clusters.read().clone();
        let errors = self.errors.read().clone();
        let is_known = |name: &String| clusters.contains_key(name) || errors.contains_key(name);
        let only_errors = errors.keys().filter(|name| !clusters.contains_key(*name)).count();
        Looked::new(load, clusters.len() + only_errors, is_known)
    }

    async fn call(&self, connection: &Self::Connection) -> Result<(), Cannot> {
        if connection.stopped.load(Relaxed) {
            return Err("the client was stopped under its user".into());
        }
        connection.client.apiserver_version().await?;
        Ok(())
    }
}

pub(crate) fn run(plan: &Plan, recorder: &Recorder) -> Ran {
    let runtime = tokio::runtime::Runtime::new()?;
    let load = Load::of(plan);
    let tasks = Tasks::new("old");
    runtime.block_on(async {
        let stand_ins = Arc::new(StandIns::start(&tasks)?);
        let manager = ClusterManager::default();
        recorder.staged();
        let script = Script::begin(manager.clone(), &load, plan, recorder, &tasks);
        let (level, watched, wanted) = (recorder.clone(), manager.clone(), load.clone());
        let stop = tasks.stopping();
        tasks.spawn("level", async move {
            let well = |name: &&String| {
                let manner = wanted.clusters.iter().find(|(of, _)| of == *name).map(|(_, m)| *m);
                matches!(manner, Some(Manner::Well | Manner::Rotates))
            };
            let look = async {
                loop {
                    let clusters = watched.clusters.read().clone();
                    level.level(clusters.len() as f64);
                    level.figure("wellUsable", clusters.keys().filter(well).count() as f64);
                    level.figure("deadNamed", watched.errors.read().len() as f64);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            stop.bound(look).await;
        });
        manager.sync(&load.generation(false), 1, &stand_ins).await;
        let held = script.hold_those_that_leave();
        manager.sync(&load.generation(true), 2, &stand_ins).await;
        script.after_removal(&held).await;
        script.end().await;
        Ok(())
    })
}
