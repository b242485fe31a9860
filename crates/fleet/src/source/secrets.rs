//! Clusters from Secrets that hold a kubeconfig: those with our label, and Cluster API's own.
//!
//! - `fairlead.dev/cluster: NAME` (or what is configured) marks a Secret; without a value the
//!   Secret's name is the cluster's. The kubeconfig is under `kubeconfig`, `value` or `config`; the
//!   annotation `fairlead.dev/context` says which context, if not the current one.
//! - Cluster API keeps `<cluster>-kubeconfig` of type `cluster.x-k8s.io/secret`, key `value`.
//! - The Secret's labels are the cluster's.
//! - Of two with one name the older has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use objects::{Event, Id, Objects, Watch, Within};

use super::kubeconfig::sent;
use super::{Offer, SourceOutput};
use crate::config::Secrets;
use crate::view::{Source, SourceKind};

const LABEL: &str = "fairlead.dev/cluster";
const CONTEXT: &str = "fairlead.dev/context";
/// Cluster API puts it on everything that belongs to a cluster.
const CAPI_LABEL: &str = "cluster.x-k8s.io/cluster-name";
const CAPI_TYPE: &str = "cluster.x-k8s.io/secret";
const KEYS: [&str; 3] = ["kubeconfig", "value", "config"];

pub(super) async fn run(config: Secrets, objects: Objects, output: SourceOutput) {
    let namespace = config.namespace;
    let within = |labels| Within { namespace: namespace.clone(), labels: Some(labels) };
    let mut marked = objects.watch::<Secret>(within(config.selector));
    let theirs = CAPI_LABEL.parse().expect("a label's name is a selector");
    let mut cluster_api = config.cluster_api.then(|| objects.watch::<Secret>(within(theirs)));
    let (mut ours, mut theirs) = (Known::default(), Known::default());
    loop {
        tokio::select! {
            event = marked.next() => match event {
                Some(event) => ours.learn(event),
                None => return,
            },
            event = next(cluster_api.as_mut()) => match event {
                Some(event) => theirs.learn(event),
                None => return,
            },
        }
        let told = ours.complete && (theirs.complete || cluster_api.is_none());
        if told {
            let theirs = theirs.secrets.iter().filter(|(id, _)| !ours.secrets.contains_key(id));
            let theirs = theirs.filter_map(|(id, secret)| {
                Some((secret.creation_timestamp(), id, of_cluster_api(id, secret)?))
            });
            let ours = ours.secrets.iter();
            let ours =
                ours.map(|(id, secret)| (secret.creation_timestamp(), id, of_label(id, secret)));
            let mut all: Vec<_> = ours.chain(theirs).collect();
            all.sort_by(|(a, a_id, _), (b, b_id, _)| (a, a_id).cmp(&(b, b_id)));
            output.tell(all.into_iter().map(|(_, _, offer)| offer).collect());
        }
    }
}

async fn next(watch: Option<&mut Watch<Secret>>) -> Option<Event<Secret>> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

/// What a watch has told so far.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) secrets: BTreeMap<Id, Secret>,
    /// Whether it has told everything there was.
    pub(super) complete: bool,
}

impl Known {
    pub(super) fn learn(&mut self, event: Event<Secret>) {
        match event {
            Event::Restarted(all) => {
                self.secrets = all.into_iter().map(|secret| (Id::of(&secret), secret)).collect();
                self.complete = true;
            }
            Event::Applied(secret) => {
                self.secrets.insert(Id::of(&secret), secret);
            }
            Event::Deleted(secret) => {
                self.secrets.remove(&Id::of(&secret));
            }
        }
    }
}

fn of_label(id: &Id, secret: &Secret) -> Offer {
    let named = secret.labels().get(LABEL).filter(|name| !name.is_empty());
    offer(named.unwrap_or(&id.name), id, secret)
}

fn of_cluster_api(id: &Id, secret: &Secret) -> Option<Offer> {
    let name = id.name.strip_suffix("-kubeconfig").filter(|name| !name.is_empty())?;
    (secret.type_.as_deref() == Some(CAPI_TYPE)).then(|| offer(name, id, secret))
}

fn offer(name: &str, id: &Id, secret: &Secret) -> Offer {
    let context = secret.annotations().get(CONTEXT).map(String::as_str);
    let access = text(secret, &KEYS)
        .and_then(|text| sent(&text, context))
        .map_err(|why| format!("Secret {id}: {why}"));
    Offer {
        name: name.into(),
        source: Source { kind: SourceKind::Secret, place: id.to_string() },
        labels: secret.labels().clone(),
        enabled: true,
        access: access.map(Arc::new),
    }
}

/// The first of these keys that it has.
pub(super) fn text(secret: &Secret, keys: &[&str]) -> Result<String, String> {
    let data = secret.data.as_ref();
    let found = keys.iter().find_map(|key| data?.get(*key));
    let found = found.ok_or_else(|| format!("it has no key {}", keys.join(" or ")))?;
    String::from_utf8(found.0.clone()).map_err(|_| "the kubeconfig is not text".to_owned())
}
