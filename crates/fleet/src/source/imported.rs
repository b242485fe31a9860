//! Clusters that were imported: `Cluster` objects, each with the Secret that it names.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use objects::kinds::Cluster;
use objects::{Id, Objects, Watched, WatchedIn, Within};

use super::kubeconfig::sent_by_others;
use super::secrets::text;
use super::{Offer, SourceOutput};
use crate::view::{Source, SourceKind};

/// Secrets are watched in the namespaces that clusters name and nowhere else: a store may be a
/// Kubernetes cluster with thousands of them. `local` allows addresses of this machine.
pub(super) async fn run(objects: Objects, local: bool, output: SourceOutput) {
    let mut watch = objects.watch::<Cluster>(Within::default());
    let mut clusters = Watched::<String, Arc<Cluster>>::default();
    let mut secrets = WatchedIn::<Secret>::new(&objects);
    loop {
        tokio::select! {
            event = watch.next() => {
                let Some(event) = event else { return };
                clusters.take(event, |cluster| Some(Arc::new(cluster)));
                let named = clusters.values().map(|cluster| &cluster.spec.kubeconfig_secret.namespace);
                secrets.watch(&named.cloned().collect::<BTreeSet<_>>());
            }
            () = secrets.changed() => {}
        }
        // Before every Secret has been read, a cluster without one may still have it.
        if clusters.synced && secrets.synced() {
            output.tell(clusters.values().map(|cluster| offer(cluster, &secrets, local)).collect());
        }
    }
}

fn offer(cluster: &Cluster, secrets: &WatchedIn<Secret>, local: bool) -> Offer {
    let from = &cluster.spec.kubeconfig_secret;
    let id = Id::namespaced(&from.namespace, &from.name);
    let secret = secrets.get(&from.namespace, &from.name);
    let access = secret
        .ok_or_else(|| {
            format!("its Secret {id} is not there; create it, or import the cluster again")
        })
        .and_then(|secret| text(secret, &[&from.key]).map_err(|why| format!("Secret {id}: {why}")))
        .and_then(|text| sent_by_others(&text, cluster.spec.context.as_deref(), local))
        .and_then(|access| match &cluster.spec.impersonation {
            Some(impersonation) => access.impersonating(impersonation.clone()),
            None => Ok(access),
        });
    let name = cluster.name_any();
    Offer {
        source: Source { kind: SourceKind::Imported, place: name.clone() },
        name: name.into(),
        labels: cluster.labels().clone(),
        enabled: cluster.spec.enabled,
        access: access.map(Arc::new),
    }
}
