//! kilo-clustermesh-operator before its fixes (#15 and #17):
//!
//! ```text
//! Reconcile(ClusterMesh), when the object changes, or again after an error
//!   for each source:  nodes := List(NodeList)      none yet: none, and no error
//!   for each target:  List(PeerList)
//!                       mapper: "no such kind" is kept for the life of the cluster's client
//!                     create what is missing
//!   no error: done, until the object changes
//! ```
//!
//! An error is tried again after 5 ms, then twice that, and so on, up to 1000 s. Nothing watches the
//! nodes of other clusters.
//!
//! The API servers are real, and so is the first answer to "which kinds are there".

use std::time::Duration;

use kube::Api;
use kube::api::PostParams;
use mesh::Peer;
use serde_json::json;

use crate::incident::late_crd::Load;
use crate::incident::{Cannot, Ran};
use crate::plan::Plan;
use crate::record::Recorder;
use crate::stage::tenants::Tenant;

/// controller-runtime's rate limiter of items.
const FIRST: Duration = Duration::from_millis(5);
const MOST: Duration = Duration::from_secs(1000);

/// `*apiutil.mapper`: what it was told once it knows.
#[derive(Debug, Default)]
struct Mapper {
    no_such_kind: bool,
}

impl Mapper {
    async fn peers(&mut self, target: &Tenant) -> Result<Api<Peer>, Cannot> {
        const NO_KIND_MATCH: &str =
            "no matches for kind \"Peer\" in version \"kilo.squat.ai/v1alpha1\"";
        if self.no_such_kind {
            return Err(NO_KIND_MATCH.into());
        }
        let found = target.client.list_api_group_resources("kilo.squat.ai/v1alpha1").await;
        let is_there = match found {
            Ok(list) => list.resources.iter().any(|resource| resource.name == "peers"),
            Err(kube::Error::Api(status)) if status.code == 404 => false,
            Err(error) => return Err(error.into()),
        };
        if !is_there {
            self.no_such_kind = true;
            return Err(NO_KIND_MATCH.into());
        }
        Ok(Api::all(target.client.clone()))
    }
}

/// One mesh of two clusters.
struct Operator<'a> {
    clusters: [&'a Tenant; 2],
    mappers: [Mapper; 2],
    recorder: &'a Recorder,
}

impl Operator<'_> {
    async fn reconcile(&mut self) -> Result<(), Cannot> {
        for (target, source) in [(0, 1), (1, 0)] {
            let nodes = self.clusters[source].nodes().await?;
            let peers = self.mappers[target].peers(self.clusters[target]).await?;
            for (i, node) in nodes.iter().enumerate() {
                let name = node.metadata.name.clone().unwrap_or_default();
                let peer: Peer = serde_json::from_value(json!({
                    "apiVersion": "kilo.squat.ai/v1alpha1", "kind": "Peer",
                    "metadata": {"name": format!("{}-{name}", self.clusters[source].name)},
                    "spec": {
                        "allowedIPs": [format!("10.{}.{i}.0/24", 200 + source)],
                        "publicKey": format!("key-{source}-{i}"),
                    },
                }))?;
                match peers.create(&PostParams::default(), &peer).await {
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    other => drop(other?),
                }
            }
        }
        Ok(())
    }

    /// From the object's creation on; it does not change again.
    async fn run(&mut self) {
        let (mut pause, mut errors) = (FIRST, 0);
        while let Err(error) = self.reconcile().await {
            errors += 1;
            self.recorder.figure("reconcilesFailed", f64::from(errors));
            if errors == 1 {
                self.recorder.note(stallproof::sentence(&*error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MOST);
        }
        self.recorder.figure("reconciledWithoutError", 1.0);
        std::future::pending::<()>().await;
    }
}

/// The CRD of the tenant lands after the first reconcile.
pub(crate) fn run_crd(plan: &Plan, recorder: &Recorder) -> Ran {
    run(
        plan,
        recorder,
        async |load: &Load, tenant: &Tenant| {
            for i in 1..=load.nodes {
                tenant.add_node(i).await?;
            }
            Ok(())
        },
        async |_: &Load, tenant: &Tenant| tenant.teach().await,
    )
}

/// The nodes of the tenant join after the first reconcile.
pub(crate) fn run_node(plan: &Plan, recorder: &Recorder) -> Ran {
    run(
        plan,
        recorder,
        async |_: &Load, tenant: &Tenant| tenant.teach().await,
        async |load: &Load, tenant: &Tenant| {
            for i in 1..=load.nodes {
                tenant.add_node(i).await?;
            }
            Ok(())
        },
    )
}

fn run(
    plan: &Plan,
    recorder: &Recorder,
    before: impl AsyncFnOnce(&Load, &Tenant) -> Result<(), Cannot>,
    late: impl AsyncFnOnce(&Load, &Tenant) -> Result<(), Cannot>,
) -> Ran {
    let load = Load::of(plan);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let (home, tenant) = futures::join!(Tenant::start("home", 1), Tenant::start("late", 2));
        home.teach().await?;
        for i in 1..=load.nodes {
            home.add_node(i).await?;
        }
        before(&load, &tenant).await?;
        recorder.figure("converged", 0.0);
        recorder.staged();
        let mut operator = Operator {
            clusters: [&home, &tenant],
            mappers: [Mapper::default(), Mapper::default()],
            recorder,
        };
        let happens = async {
            tokio::time::sleep(load.late_by).await;
            late(&load, &tenant).await?;
            let asked = recorder.begin();
            loop {
                let mut there = 0;
                for cluster in [&home, &tenant] {
                    there += cluster.peers().await.map_or(0, |peers| peers.len());
                }
                recorder.level(there as f64);
                if there == load.nodes * 2 {
                    asked.answered();
                    recorder.figure("converged", 1.0);
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        };
        tokio::select! {
            () = operator.run() => Ok(()),
            happened = happens => happened,
        }
    })
}
