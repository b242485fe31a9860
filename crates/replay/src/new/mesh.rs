//! The real mesh controller, led by a real election, on three real API servers: its own cluster, a tenant
//! to whom something comes late, and a tenant of another mesh beside it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use mesh::label;
use objects::kinds::{ClusterMesh, MeshState};
use objects::{Expected, Id, Objects};
use prometheus_client::registry::Registry;
use stallproof::Tasks;

use crate::incident::late_crd::Load;
use crate::incident::{Cannot, Ran};
use crate::outcome::Named;
use crate::plan::Plan;
use crate::record::{Recorder, ms};
use crate::stage::replica::{self, Replica};
use crate::stage::tenants::{
    NAMESPACE, PATIENCE, Tenant, is_ready, joined, otherwise, planned, secret, soon,
};

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

        // And then something to do with them.
        let rotated = otherwise(&kubeconfig)?;
        scene
            .converges("rotatedMs", async || {
                scene.give_secret(&scene.late, &rotated).await?;
                scene.late.add_node(load.nodes + 1).await
            })
            .await
    })
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
        let replica = Replica::start(&scene.home, &scene.objects, &plan.dir, &tasks)?;
        scene.write(BESIDE, &scene.beside).await?;
        scene.converged(BESIDE, &scene.beside).await?;
        // Its status is written after its peers, and then it rests.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (before, terms) = (scene.peers_of(BESIDE).await, replica::terms(&scene.home).await?);

        recorder.staged();
        happen(&scene, &load).await?;

        let after = scene.peers_of(BESIDE).await;
        let same =
            after.iter().filter(|(name, version)| before.get(*name) == Some(version)).count();
        let changed = before.len().max(after.len()) - same;
        recorder.figure("besidePeers", before.len() as f64);
        recorder.figure("besideChanged", changed as f64);
        recorder.figure("newTerms", (replica::terms(&scene.home).await? - terms) as f64);
        recorder.figure("panics", panics(&tasks));
        drop(replica);
        Ok(())
    })
}

fn panics(tasks: &Tasks) -> f64 {
    let (mut registry, mut text) = (Registry::default(), String::new());
    tasks.register(&mut registry);
    // Into a string, which takes everything.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    let line = text.lines().find_map(|line| line.strip_prefix("tasks_panicked_total "));
    line.and_then(|count| count.parse().ok()).unwrap_or(f64::NAN)
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
        let mesh = joined(name, &self.home, tenant)?;
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
            let (planned, there) = planned(&mesh, [&self.home, tenant]).await?;
            if name == LATE {
                self.recorder.level(there as f64);
            }
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
}
