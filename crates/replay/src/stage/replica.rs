//! One that may lead, as a process has it: the real fleet, election and mesh controller, as a pod of the
//! home cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use fleet::{Fleet, FleetConfig, InCluster};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use mesh::controller;
use objects::{Election, Id, Objects, Timing};
use serde_json::Value;
use stallproof::{Ledger, Tasks};

use super::tenants::{NAMESPACE, Tenant};
use crate::incident::Cannot;

const LEASE: &str = "fairlead-controller";
/// The first term of all begins after one duration; nobody needs to wait 15 s for that here.
pub(crate) const TERM: Duration = Duration::from_secs(3);

pub(crate) struct Replica {
    _fleet: Fleet,
}

impl Replica {
    pub(crate) fn start(
        home: &Tenant,
        objects: &Objects,
        dir: &Path,
        tasks: &Tasks,
    ) -> Result<Self, Cannot> {
        let address = home.server.address();
        let config = FleetConfig {
            namespace: NAMESPACE.to_owned(),
            in_cluster: Some(InCluster {
                name: "in-cluster".to_owned(),
                host: address.ip().to_string(),
                port: address.port(),
                mounted: mounted(home, dir)?,
            }),
            ..FleetConfig::default()
        };
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

/// How many terms there have been.
pub(crate) async fn terms(home: &Tenant) -> Result<i64, Cannot> {
    let lease = Api::<Lease>::namespaced(home.client.clone(), NAMESPACE).get(LEASE).await?;
    Ok(lease.spec.and_then(|spec| spec.lease_transitions).unwrap_or(0).into())
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
