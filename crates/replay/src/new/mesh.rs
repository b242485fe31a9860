//! The real mesh controller, led by a real election, on three real API servers: its own cluster, a tenant
//! to whom something comes late, and a tenant of another mesh beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use fleet::{Fleet, FleetConfig, InCluster};
use flow::{Deadline, Ledger, Tasks};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt};
use mesh::{Input, Seen, View, controller, label};
use objects::kinds::{ClusterMesh, MeshState};
use objects::{Election, Expected, Id, Objects, Timing};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::incident::late_crd::Load;
use crate::incident::{Cannot, Ran};
use crate::outcome::Named;
use crate::plan::Plan;
use crate::record::{Recorder, ms};
use crate::stage::tenants::{NAMESPACE, PATIENCE, Tenant, secret};

const LEASE: &str = "fairlead-controller";
/// The first term of all begins after one duration; nobody needs to wait 15 s for that here.
const TERM: Duration = Duration::from_secs(3);
const LATE: &str = "late";
const BESIDE: &str = "beside";

pub(crate) fn run_crd(plan: &Plan, recorder: &Recorder) -> Ran {
    on_stage(plan, recorder, async |scene: &Scene, load: &Load| {
        scene.give_secret(&scene.late, scene.late.server.access().kubeconfig()).await?;
        for i in 1..=load.nodes {
            scene.late.add_node(i).await?;
        }
        let written = scene.write_late_mesh().await?;
        scene.waits_for("the Peer CRD", written).await?;
        tokio::time::sleep(load.late_by.saturating_sub(written.elapsed())).await;
        scene.converges("crdMs", async || scene.late.teach().await).await
    })
}

pub(crate) fn run_node(plan: &Plan, recorder: &Recorder) -> Ran {
    on_stage(plan, recorder, async |scene: &Scene, load: &Load| {
        scene.late.teach().await?;
        let written = scene.write_late_mesh().await?;
        scene.waits_for("Secret", written).await?;
        tokio::time::sleep(load.late_by.saturating_sub(written.elapsed())).await;

        let kubeconfig = scene.late.server.access().kubeconfig().to_owned();
        let began = Instant::now();
        scene.give_secret(&scene.late, &kubeconfig).await?;
        scene.says(MeshState::Waiting, "nodes").await?;
        scene.recorder.figure("secretMs", ms(began.elapsed()));

        scene
            .converges("nodesMs", async || {
                for i in 1..=load.nodes {
                    scene.late.add_node(i).await?;
                }
                Ok(())
            })
            .await?;

        // Other credentials of the same administrator, and then something to do with them.
        let [certificate, token] = ["certificate", "token"].map(current_context);
        let rotated = kubeconfig.replace(&certificate, &token);
        if rotated == kubeconfig {
            return Err("the kubeconfig has no credentials to rotate to".into());
        }
        scene
            .converges("rotatedMs", async || {
                scene.give_secret(&scene.late, &rotated).await?;
                scene.late.add_node(load.nodes + 1).await
            })
            .await
    })
}

fn current_context(name: &str) -> String {
    format!(r#""current-context": "{name}""#)
}

struct Scene {
    home: Tenant,
    late: Tenant,
    beside: Tenant,
    objects: Objects,
    recorder: Recorder,
}

/// Sets the stage, lets `happen` what happens to the late mesh, and says what the rest noticed of it.
fn on_stage(
    plan: &Plan,
    recorder: &Recorder,
    happen: impl AsyncFnOnce(&Scene, &Load) -> Result<(), Cannot>,
) -> Ran {
    let load = Load::of(plan);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let scene = Scene::set(&load, recorder).await?;
        let tasks = Tasks::new("replica");
        let replica = Replica::start(&scene, &plan.dir, &tasks)?;
        scene.write(BESIDE, &scene.beside).await?;
        scene.converged(BESIDE, &scene.beside).await?;
        // Its status is written after its peers, and then it rests.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (before, terms) = (scene.peers_of(BESIDE).await, scene.terms().await?);

        recorder.staged();
        happen(&scene, &load).await?;

        let after = scene.peers_of(BESIDE).await;
        let same =
            after.iter().filter(|(name, version)| before.get(*name) == Some(version)).count();
        let changed = before.len().max(after.len()) - same;
        recorder.figure("besidePeers", before.len() as f64);
        recorder.figure("besideChanged", changed as f64);
        recorder.figure("newTerms", (scene.terms().await? - terms) as f64);
        recorder.figure("panics", panics(&tasks));
        drop(replica);
        Ok(())
    })
}

/// One that may lead, as a process has it.
struct Replica {
    _fleet: Fleet,
}

impl Replica {
    /// As a pod of the home cluster.
    fn start(scene: &Scene, dir: &Path, tasks: &Tasks) -> Result<Self, Cannot> {
        let address = scene.home.server.address();
        let config = FleetConfig {
            namespace: NAMESPACE.to_owned(),
            in_cluster: Some(InCluster {
                name: "in-cluster".to_owned(),
                host: address.ip().to_string(),
                port: address.port(),
                mounted: mounted(&scene.home, dir)?,
            }),
            ..FleetConfig::default()
        };
        let objects = &scene.objects;
        let fleet = Fleet::start(config, objects.clone(), Ledger::default(), tasks);
        let lease = Id::namespaced(NAMESPACE, LEASE);
        let election = Election::new(objects.clone(), lease, "replay", Timing::of(TERM));
        let (all, led, ledger) = (tasks.clone(), fleet.clone(), Ledger::default());
        tasks.spawn("election", async move {
            election.run(&all, |leader| controller::start(&leader, &led, &ledger)).await;
        });
        Ok(Self { _fleet: fleet })
    }
}

/// What a kubelet mounts into a pod.
fn mounted(home: &Tenant, dir: &Path) -> Result<PathBuf, Cannot> {
    let kubeconfig: Value = serde_json::from_str(home.server.access().kubeconfig())?;
    let ca = kubeconfig.pointer("/clusters/0/cluster/certificate-authority-data");
    let ca = ca.and_then(Value::as_str).ok_or("a kubeconfig without an authority")?;
    let mounted = dir.join("mounted");
    std::fs::create_dir_all(&mounted)?;
    std::fs::write(mounted.join("ca.crt"), base64::prelude::BASE64_STANDARD.decode(ca)?)?;
    std::fs::write(mounted.join("token"), home.server.token())?;
    Ok(mounted)
}

fn panics(tasks: &Tasks) -> f64 {
    let (mut registry, mut text) = (Registry::default(), String::new());
    tasks.register(&mut registry);
    // Into a string, which takes everything.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    let line = text.lines().find_map(|line| line.strip_prefix("tasks_panicked_total "));
    line.and_then(|count| count.parse().ok()).unwrap_or(f64::NAN)
}

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

impl Scene {
    async fn set(load: &Load, recorder: &Recorder) -> Result<Self, Cannot> {
        let (home, late, beside) = futures::join!(
            Tenant::start("home", 1),
            Tenant::start(LATE, 2),
            Tenant::start(BESIDE, 3)
        );
        objects::install(home.client.clone(), soon()).await?;
        home.make_namespace().await?;
        for tenant in [&home, &beside] {
            tenant.teach().await?;
            for i in 1..=load.nodes {
                tenant.add_node(i).await?;
            }
        }
        let objects = Objects::kubernetes(home.client.clone(), "fairlead");
        let scene = Self { home, late, beside, objects, recorder: recorder.clone() };
        let kubeconfig = scene.beside.server.access().kubeconfig().to_owned();
        scene.give_secret(&scene.beside, &kubeconfig).await?;
        Ok(scene)
    }

    async fn give_secret(&self, tenant: &Tenant, kubeconfig: &str) -> Result<(), Cannot> {
        self.objects.apply(&secret(tenant.name, kubeconfig), Expected::Any, soon()).await?;
        Ok(())
    }

    /// A mesh of the home cluster and a tenant.
    async fn write(&self, name: &str, tenant: &Tenant) -> Result<(), Cannot> {
        let reference = json!({"kubeconfigSecretRef": {"name": tenant.name}});
        let mesh: ClusterMesh = serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"clusters": [
                self.home.in_mesh(&json!({"local": true})), tenant.in_mesh(&reference),
            ]},
        }))?;
        self.objects.apply(&mesh, Expected::Any, soon()).await?;
        Ok(())
    }

    async fn write_late_mesh(&self) -> Result<Instant, Cannot> {
        let began = Instant::now();
        self.write(LATE, &self.late).await?;
        Ok(began)
    }

    async fn read(&self, mesh: &str) -> Result<ClusterMesh, Cannot> {
        let found = self.objects.get(&Id::namespaced(NAMESPACE, mesh), soon()).await?;
        Ok(found.ok_or("the mesh is gone")?)
    }

    /// Waits until the late mesh says that it waits for `what`.
    async fn waits_for(&self, what: &str, since: Instant) -> Result<(), Cannot> {
        let said = self.says(MeshState::Waiting, what).await?;
        self.recorder.figure("waited", 1.0);
        let named = format!("mesh {LATE}: {said}");
        let after_ms = ms(since.elapsed());
        self.recorder.named(Named { what: named, step: "waiting".to_owned(), after_ms });
        Ok(())
    }

    /// Waits until the late tenant is in this state, for this reason, in the status of its mesh.
    async fn says(&self, state: MeshState, why: &str) -> Result<String, Cannot> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.read(LATE).await?.status.unwrap_or_default();
            let found = status.clusters.into_iter().find(|cluster| cluster.name == LATE);
            let said = found.filter(|found| found.state == state).and_then(|found| found.why);
            match said.filter(|said| said.contains(why)) {
                Some(said) => return Ok(said),
                None if Instant::now() > deadline => {
                    return Err(format!("the mesh does not say that it waits for {why}").into());
                }
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Does `what`, and waits until the late mesh is what its plan says. How long that took is a figure.
    async fn converges(
        &self,
        figure: &str,
        what: impl AsyncFnOnce() -> Result<(), Cannot>,
    ) -> Result<(), Cannot> {
        let (asked, began) = (self.recorder.begin(), Instant::now());
        what().await?;
        self.converged(LATE, &self.late).await?;
        asked.answered();
        self.recorder.figure(figure, ms(began.elapsed()));
        Ok(())
    }

    /// Waits until the peers are exactly what a plan of what is there says, and the status says so.
    async fn converged(&self, name: &str, tenant: &Tenant) -> Result<(), Cannot> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mesh = self.read(name).await?;
            let mut views = BTreeMap::new();
            let mut there = 0;
            for cluster in [&self.home, tenant] {
                let peers = cluster.peers().await;
                there += peers.as_ref().map_or(0, |peers| {
                    let of_mesh = |peer: &&mesh::Peer| {
                        peer.labels().get(label::MESH).is_some_and(|m| m == name)
                    };
                    peers.iter().filter(of_mesh).count()
                });
                let peers =
                    peers.map_or_else(|| Seen::Waiting("the Peer CRD".to_owned()), Seen::Known);
                let view = View { nodes: Seen::Known(cluster.nodes().await?), peers };
                views.insert(cluster.name.to_owned(), view);
            }
            if name == LATE {
                self.recorder.level(there as f64);
            }
            let planned =
                mesh::plan(Input { mesh: &mesh, others: &[], views: &views, adopt: false });
            let is_ready = |conditions: &[objects::kinds::MeshCondition]| {
                conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True")
            };
            let status = mesh.status.clone().unwrap_or_default();
            if planned.is_empty()
                && is_ready(&planned.status.conditions)
                && is_ready(&status.conditions)
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("mesh {name} does not converge: {:?}", mesh.status).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The peers of a mesh, each with its version: equal only if nobody wrote.
    async fn peers_of(&self, mesh: &str) -> BTreeMap<String, Option<String>> {
        let mut all = BTreeMap::new();
        for cluster in [&self.home, &self.late, &self.beside] {
            let peers = cluster.peers().await.unwrap_or_default();
            let of_mesh = peers
                .iter()
                .filter(|peer| peer.labels().get(label::MESH).is_some_and(|of| of == mesh));
            all.extend(of_mesh.map(|peer| {
                (format!("{}/{}", cluster.name, peer.name_any()), peer.resource_version())
            }));
        }
        all
    }

    async fn terms(&self) -> Result<i64, Cannot> {
        let lease =
            Api::<Lease>::namespaced(self.home.client.clone(), NAMESPACE).get(LEASE).await?;
        Ok(lease.spec.and_then(|spec| spec.lease_transitions).unwrap_or(0).into())
    }
}
