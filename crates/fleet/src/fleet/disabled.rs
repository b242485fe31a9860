//! The clusters that a user disabled although another source offers them. The list is one ConfigMap in
//! the store, so that it survives a restart on both engines and a person can read and repair it.
//!
//! It is a list of names and not one `Cluster` object each, because contexts have names that no object
//! may have (`arn:aws:eks:…`).
//!
//! A list that cannot be read is never taken for an empty one: the names that were known before still
//! hold, and a change is refused until somebody has repaired it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use objects::{Expected, Id, Invalid, Objects, Selector, Version};
use stallproof::{Deadline, Snapshot, Tasks};
use tracing::error;

use crate::error::Error;

const NAME: &str = "fairlead-disabled-clusters";
/// Its value is a JSON array, because names may hold any character.
const KEY: &str = "names";
const LABEL: (&str, &str) = ("fairlead.dev/part-of", "fleet");
/// Each attempt that fails was beaten by another writer, who succeeded.
const ATTEMPTS: usize = 10;

/// Publishes the names, now and whenever they change; `None` until the store has told.
pub(super) fn watch(
    objects: &Objects,
    namespace: &str,
    tasks: &Tasks,
) -> Snapshot<Option<BTreeSet<String>>> {
    let labels = Selector::label(LABEL.0, LABEL.1).ok();
    let id = Id::namespaced(namespace, NAME);
    objects.watched_one(&id, labels, tasks, |map: Option<ConfigMap>| match read(map.as_ref()) {
        Ok(names) => Some(names),
        Err(error) => {
            error!(%error, "the clusters that were disabled before stay disabled");
            None
        }
    })
}

fn read(map: Option<&ConfigMap>) -> Result<BTreeSet<String>, objects::Error> {
    let Some(map) = map else { return Ok(BTreeSet::new()) };
    let text = map.data.as_ref().and_then(|data| data.get(KEY)).map_or("[]", String::as_str);
    serde_json::from_str(text).map_err(|error| {
        let mut problems = Invalid::default();
        problems.add(
            format!("data.{KEY}"),
            format!(
                "it is not a JSON array of the names of disabled clusters ({error}); repair it, or \
                 delete the ConfigMap to enable every cluster"
            ),
        );
        objects::Error::Invalid { kind: "ConfigMap", id: Id::of(map), problems }
    })
}

/// Adds the name to the list, or removes it.
pub(super) async fn set(
    objects: &Objects,
    namespace: &str,
    name: &str,
    disabled: bool,
    deadline: Deadline,
) -> Result<(), Error> {
    let id = Id::namespaced(namespace, NAME);
    for _ in 0..ATTEMPTS {
        let current = objects.get::<ConfigMap>(&id, deadline).await?;
        // What cannot be read must not be written over: it may name other clusters.
        let mut names = read(current.as_ref())?;
        let changed = if disabled { names.insert(name.to_owned()) } else { names.remove(name) };
        if !changed {
            return Ok(());
        }
        let text = serde_json::Value::from_iter(names).to_string();
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
        "others keep changing the list of disabled clusters; try {name} again"
    )))
}

#[cfg(test)]
mod tests;
