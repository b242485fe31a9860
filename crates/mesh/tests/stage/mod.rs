//! What tests of meshes on real API servers have in common: a store with the kubeconfigs of clusters, and a
//! controller that leads.

#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use fleet::{Fleet, FleetConfig};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use mesh::controller;
use objects::{Election, Id, Objects, Timing};
use stallproof::{Deadline, Ledger, Tasks};

pub(crate) const NAMESPACE: &str = "fairlead";
/// Whatever is awaited here takes seconds; a machine that is busy with something else gets more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// Waits until something holds, and says how long that took.
pub(crate) async fn eventually<F: Future<Output = bool>>(
    what: &str,
    mut holds: impl FnMut() -> F,
) -> Duration {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    began.elapsed()
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// The Secret of a mesh's namespace that leads to a cluster.
pub(crate) fn secret(name: &str, kubeconfig: &str) -> Secret {
    let kubeconfig = ByteString(kubeconfig.as_bytes().to_vec());
    let metadata = ObjectMeta { namespace: Some(NAMESPACE.to_owned()), ..named(name) };
    let data = BTreeMap::from([("kubeconfig".to_owned(), kubeconfig)]);
    Secret { metadata, data: Some(data), ..Secret::default() }
}

/// The store of a server, with a Secret for each cluster by its name.
pub(crate) async fn store(client: &Client, kubeconfigs: &[(&str, &str)]) -> Objects {
    objects::install(client.clone(), soon()).await.unwrap();
    let namespace = Namespace { metadata: named(NAMESPACE), ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    for (name, kubeconfig) in kubeconfigs {
        let api = Api::namespaced(client.clone(), NAMESPACE);
        api.create(&PostParams::default(), &secret(name, kubeconfig)).await.unwrap();
    }
    Objects::kubernetes(client.clone(), "fairlead")
}

/// Starts a controller that leads.
pub(crate) fn lead(objects: &Objects, tasks: &Tasks) {
    let config = FleetConfig { namespace: NAMESPACE.to_owned(), ..FleetConfig::default() };
    let fleet = Fleet::start(config, objects.clone(), Ledger::default(), tasks);
    let lease = Id::namespaced(NAMESPACE, "fairlead-controller");
    let timing = Timing::of(Duration::from_secs(3));
    let election = Election::new(objects.clone(), lease, "controller", timing);
    let all = tasks.clone();
    tasks.spawn("election", async move {
        election.run(&all, |leader| controller::start(&leader, &fleet, &Ledger::default())).await;
    });
}
