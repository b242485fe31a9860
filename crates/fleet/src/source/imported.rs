//! Clusters that were imported: `Cluster` objects, each with the Secret that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use objects::kinds::Cluster;
use objects::{Event, Id, Objects, Within};

use super::kubeconfig::sent;
use super::secrets::{Known, text};
use super::{Offer, SourceOutput};
use crate::view::{Source, SourceKind};

/// Secrets are watched in the namespaces that clusters name and nowhere else: a store may be a
/// Kubernetes cluster with thousands of them.
pub(super) async fn run(objects: Objects, output: SourceOutput) {
    let mut clusters = objects.watch::<Cluster>(Within::default());
    let mut known: BTreeMap<String, Cluster> = BTreeMap::new();
    let mut complete = false;
    let mut namespaces = BTreeSet::new();
    let mut secrets: BTreeMap<String, Known> = BTreeMap::new();
    let mut events = objects.watch_in::<Secret>(&namespaces);
    loop {
        tokio::select! {
            event = clusters.next() => {
                match event {
                    Some(Event::Restarted(all)) => {
                        known = all.into_iter().map(|cluster| (cluster.name_any(), cluster)).collect();
                        complete = true;
                    }
                    Some(Event::Applied(cluster)) => {
                        known.insert(cluster.name_any(), cluster);
                    }
                    Some(Event::Deleted(cluster)) => {
                        known.remove(&cluster.name_any());
                    }
                    None => return,
                }
                let named = known.values().map(|cluster| cluster.spec.kubeconfig_secret.namespace.clone());
                let named: BTreeSet<_> = named.collect();
                if named != namespaces {
                    secrets.retain(|namespace, _| named.contains(namespace));
                    events = objects.watch_in::<Secret>(&named);
                    namespaces = named;
                }
            }
            Some((namespace, event)) = events.next() => {
                secrets.entry(namespace).or_default().learn(event);
            }
        }
        // A cluster whose Secret has not been told of yet is not one without a Secret.
        let told = |namespace: &String| secrets.get(namespace).is_some_and(|known| known.complete);
        if complete && namespaces.iter().all(told) {
            output.tell(known.values().map(|cluster| offer(cluster, &secrets)).collect());
        }
    }
}

fn offer(cluster: &Cluster, secrets: &BTreeMap<String, Known>) -> Offer {
    let from = &cluster.spec.kubeconfig_secret;
    let id = Id::namespaced(&from.namespace, &from.name);
    let secret = secrets.get(&from.namespace).and_then(|known| known.secrets.get(&id));
    let access = secret
        .ok_or_else(|| {
            format!("its Secret {id} is not there; create it, or import the cluster again")
        })
        .and_then(|secret| text(secret, &[&from.key]).map_err(|why| format!("Secret {id}: {why}")))
        .and_then(|text| sent(&text, cluster.spec.context.as_deref()));
    let name = cluster.name_any();
    Offer {
        source: Source { kind: SourceKind::Imported, place: name.clone() },
        name: name.into(),
        labels: cluster.labels().clone(),
        enabled: cluster.spec.enabled,
        access: access.map(Arc::new),
    }
}
