//! Clusters from Secrets with a kubeconfig: those with Fairlead's label, and those of Cluster API.
//!
//! - The label `fairlead.dev/cluster: NAME` (or the configured one) marks a Secret. Without a value the
//!   cluster has the Secret's name. The kubeconfig is under the key `kubeconfig`, `value` or `config`;
//!   the annotation `fairlead.dev/context` names its context, if that is not the current one.
//! - Cluster API has Secrets `<cluster>-kubeconfig` of type `cluster.x-k8s.io/secret`, key `value`.
//! - A cluster has the labels of its Secret.
//! - Of two Secrets with one name the older one has it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use objects::{Id, Objects, Watched, Within};
use stallproof::{Snapshot, Tasks};

use super::kubeconfig::sent_by_others;
use super::{Offer, SourceOutput};
use crate::config::Secrets;
use crate::view::{Source, SourceKind};

const LABEL: &str = "fairlead.dev/cluster";
const CONTEXT: &str = "fairlead.dev/context";
/// Cluster API's label of everything that belongs to a cluster.
const CAPI_LABEL: &str = "cluster.x-k8s.io/cluster-name";
const CAPI_TYPE: &str = "cluster.x-k8s.io/secret";
const KEYS: [&str; 3] = ["kubeconfig", "value", "config"];

pub(super) async fn run(
    config: Secrets,
    local: bool,
    objects: Objects,
    output: SourceOutput,
    tasks: Tasks,
) {
    let within = |labels| Within {
        namespace: config.namespace.clone(),
        labels: Some(labels),
        ..Within::default()
    };
    let watched = |labels| objects.watched::<Secret, Id>(within(labels), &tasks);
    let capi =
        config.cluster_api.then(|| CAPI_LABEL.parse().expect("a label's name is a selector"));
    let labelled = watched(config.selector.clone());
    let of_capi = capi.map_or_else(|| Snapshot::new(Watched::from_iter([])), watched);
    let (mut labelled_changes, mut capi_changes) = (labelled.subscribe(), of_capi.subscribe());
    loop {
        let (ours, theirs) = (labelled.load(), of_capi.load());
        if ours.synced && theirs.synced {
            output.tell(offers(&ours, &theirs, local));
        }
        drop((ours, theirs));
        tokio::select! {
            _ = labelled_changes.changed() => {}
            _ = capi_changes.changed() => {}
        }
    }
}

type KnownSecrets = Watched<Id, Arc<Secret>>;

/// Returns the clusters of all Secrets, the oldest first. A Secret that has both labels counts as ours.
fn offers(labelled: &KnownSecrets, cluster_api: &KnownSecrets, local: bool) -> Vec<Offer> {
    let ours = labelled.iter().map(|(id, secret)| (secret, id, of_label(id, secret, local)));
    let theirs = cluster_api.iter().filter(|(id, _)| !labelled.contains_key(*id));
    let theirs =
        theirs.filter_map(|(id, secret)| Some((secret, id, of_cluster_api(id, secret, local)?)));
    let mut all: Vec<_> = ours.chain(theirs).collect();
    all.sort_by_key(|(secret, id, _)| (secret.creation_timestamp(), *id));
    all.into_iter().map(|(_, _, offer)| offer).collect()
}

fn of_label(id: &Id, secret: &Secret, local: bool) -> Offer {
    let named = secret.labels().get(LABEL).filter(|name| !name.is_empty());
    offer(named.unwrap_or(&id.name), id, secret, local)
}

fn of_cluster_api(id: &Id, secret: &Secret, local: bool) -> Option<Offer> {
    let name = id.name.strip_suffix("-kubeconfig").filter(|name| !name.is_empty())?;
    (secret.type_.as_deref() == Some(CAPI_TYPE)).then(|| offer(name, id, secret, local))
}

fn offer(name: &str, id: &Id, secret: &Secret, local: bool) -> Offer {
    let context = secret.annotations().get(CONTEXT).map(String::as_str);
    let access = text(secret, &KEYS)
        .and_then(|text| sent_by_others(&text, context, local))
        .map_err(|why| format!("Secret {id}: {why}"));
    Offer {
        name: name.into(),
        source: Source { kind: SourceKind::Secret, place: id.to_string() },
        labels: secret.labels().clone(),
        enabled: true,
        access: access.map(Arc::new),
    }
}

/// Returns the value of the first of these keys that the Secret has.
pub(super) fn text(secret: &Secret, keys: &[&str]) -> Result<String, String> {
    let data = secret.data.as_ref();
    let found = keys.iter().find_map(|key| data?.get(*key));
    let found = found.ok_or_else(|| format!("it has no key {}", keys.join(" or ")))?;
    String::from_utf8(found.0.clone()).map_err(|_| "the kubeconfig is not text".to_owned())
}
