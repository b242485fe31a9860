//! The clusters that somebody disabled here although another source has them: one ConfigMap in the
//! store, so that it lasts on both engines, and a person can read and mend it.
//!
//! It is a list of names and not a `Cluster` each, because contexts are called what no object may
//! be called (`arn:aws:eks:…`).

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::{Event, Expected, Id, Objects, Selector, Version, Within};
use stallproof::{Deadline, Snapshot};
use tokio::sync::Notify;
use tracing::warn;

use crate::error::Error;

const NAME: &str = "fairlead-disabled-clusters";
/// A JSON array: names may hold any character.
const KEY: &str = "names";
const LABEL: (&str, &str) = ("fairlead.dev/part-of", "fleet");
/// Each was beaten by another writer, who got on.
const TRIES: usize = 10;

/// Publishes the names, now and whenever they change.
pub(super) async fn watch(
    objects: Objects,
    namespace: String,
    names: Snapshot<Option<BTreeSet<String>>>,
    told: Arc<Notify>,
) {
    let labels = Selector::label(LABEL.0, LABEL.1).ok();
    let mut events = objects.watch::<ConfigMap>(Within { namespace: Some(namespace), labels });
    while let Some(event) = events.next().await {
        let is_ours = |map: &ConfigMap| map.name_any() == NAME;
        let found = match event {
            Event::Restarted(all) => {
                all.iter().find(|map| is_ours(map)).map(read).unwrap_or_default()
            }
            Event::Applied(map) if is_ours(&map) => read(&map),
            Event::Deleted(map) if is_ours(&map) => BTreeSet::new(),
            _ => continue,
        };
        if names.publish(Some(found)) {
            told.notify_one();
        }
    }
}

fn read(map: &ConfigMap) -> BTreeSet<String> {
    let text = map.data.as_ref().and_then(|data| data.get(KEY)).map_or("[]", String::as_str);
    serde_json::from_str(text).unwrap_or_else(|error| {
        warn!(%error, "ConfigMap {NAME} cannot be read: no cluster is disabled by it");
        BTreeSet::new()
    })
}

/// Adds the name to the list, or takes it off.
pub(super) async fn set(
    objects: &Objects,
    namespace: &str,
    name: &str,
    disabled: bool,
    deadline: Deadline,
) -> Result<(), Error> {
    let id = Id::namespaced(namespace, NAME);
    for _ in 0..TRIES {
        let current = objects.get::<ConfigMap>(&id, deadline).await?;
        let mut names = current.as_ref().map(read).unwrap_or_default();
        let changed = if disabled { names.insert(name.to_owned()) } else { names.remove(name) };
        if !changed {
            return Ok(());
        }
        let text = serde_json::to_string(&names).unwrap_or_else(|_| "[]".to_owned());
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(namespace.to_owned()),
                labels: Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([(KEY.to_owned(), text)].into()),
            ..ConfigMap::default()
        };
        let written = match current.and_then(|map| map.metadata.resource_version) {
            Some(version) => {
                objects.apply(&map, Expected::Version(Version(version)), deadline).await
            }
            None => objects.create(&map, deadline).await,
        };
        match written {
            Err(objects::Error::Conflict { .. } | objects::Error::Exists { .. }) => {}
            other => return other.map(|_| ()).map_err(Error::from),
        }
    }
    Err(Error::Invalid(format!(
        "the list of disabled clusters is being changed by too many at once; try {name} again"
    )))
}
