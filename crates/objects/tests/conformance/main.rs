//! What every engine does, checked the same way on each: `checks` on a quiet store, `load` while its
//! engine goes away and comes back.

#![allow(clippy::unwrap_used, reason = "tests")]

mod checks;
mod embedded;
mod kube;
mod load;

use std::time::Duration;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use objects::kinds::{Cluster, ClusterSpec, KubeconfigSecret};
use objects::{Event, Id, Kind, Objects, Version, Watch};
use stallproof::Deadline;

/// A store to check, in which two namespaces are ours.
struct Fixture {
    objects: Objects,
    namespace: String,
    other_namespace: String,
}

/// For what is answered at once on a quiet machine.
fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn cluster(name: &str, context: &str) -> Cluster {
    let kubeconfig_secret = KubeconfigSecret {
        namespace: "fairlead".to_owned(),
        name: "kubeconfig".to_owned(),
        key: "kubeconfig".to_owned(),
    };
    let context = Some(context.to_owned());
    Cluster::new(
        name,
        ClusterSpec { kubeconfig_secret, context, enabled: true, impersonation: None },
    )
}

fn labelled(mut cluster: Cluster, key: &str, value: &str) -> Cluster {
    let labels = cluster.metadata.labels.get_or_insert_default();
    labels.insert(key.to_owned(), value.to_owned());
    cluster
}

fn secret(namespace: &str, name: &str) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.namespace = Some(namespace.to_owned());
    secret.metadata.name = Some(name.to_owned());
    secret
}

fn context(cluster: &Cluster) -> &str {
    cluster.spec.context.as_deref().unwrap()
}

fn version(object: &impl Kind) -> Version {
    Version(object.meta().resource_version.clone().unwrap())
}

fn name(object: &impl Kind) -> String {
    object.meta().name.clone().unwrap()
}

/// The next event, which is due.
async fn next<K: Kind>(watch: &mut Watch<K>) -> Event<K> {
    soon().bound(watch.next()).await.unwrap_or_else(|_| panic!("no event came")).unwrap()
}

/// An event in short: what happened, to whom.
fn short(event: &Event<Cluster>) -> String {
    match event {
        Event::Restarted(all) => {
            let all: Vec<_> =
                all.iter().map(|one| format!("{}={}", name(one), context(one))).collect();
            format!("restarted {}", all.join(" "))
        }
        Event::Applied(one) => format!("applied {}={}", name(one), context(one)),
        Event::Deleted(one) => format!("deleted {}", name(one)),
    }
}

/// Runs `work` for each of them, `at_once` at a time.
async fn each<T, F: Future>(
    items: impl IntoIterator<Item = T>,
    at_once: usize,
    work: impl Fn(T) -> F,
) -> Vec<F::Output> {
    stream::iter(items).map(work).buffer_unordered(at_once).collect().await
}

fn id(name: &str) -> Id {
    Id::cluster(name)
}
