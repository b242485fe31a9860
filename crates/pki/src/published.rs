//! Whom to trust, where everybody may read it: the bundle of an authority in a ConfigMap, kept there by
//! the leader.
//!
//! Contract: what is there is the bundle that is current, within a minute or so also after somebody has edited
//! or deleted it. Certificates are not secret; the Secret beside it has the keys.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use objects::{Attempt, Error, Expected, Id, Leader, Next, Objects, Pace, Reconciler};
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Snapshot};
use tracing::info;

/// The key of the bundle (PEM), as in a service account's own ConfigMap.
pub const KEY: &str = "ca.crt";

struct Publisher<T> {
    objects: Objects,
    id: Id,
    kept: Snapshot<Option<T>>,
    changes: Changes<Option<T>>,
    bundle: fn(&T) -> String,
}

/// Keeps the bundle of `kept` in the ConfigMap `id` until the term ends. Returns at once.
pub(crate) fn publish<T>(
    leader: &Leader,
    id: Id,
    kept: &Snapshot<Option<T>>,
    bundle: fn(&T) -> String,
) where
    T: Clone + Send + Sync + 'static,
{
    let publisher = Publisher {
        objects: leader.objects.clone(),
        id: id.clone(),
        kept: kept.clone(),
        changes: kept.subscribe(),
        bundle,
    };
    leader.reconcile("publish-bundle", id, Pace::default(), publisher);
}

impl<T: Clone + Send + Sync + 'static> Reconciler for Publisher<T> {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        if let Some(wanted) = self.kept.read(|kept| kept.as_ref().map(self.bundle)) {
            write(&self.objects, &self.id, &wanted, attempt.deadline).await?;
        }
        Ok(Next::OnChange)
    }

    async fn changed(&mut self) {
        self.changes.changed().await;
    }
}

async fn write(objects: &Objects, id: &Id, bundle: &str, deadline: Deadline) -> Result<(), Error> {
    let found = objects.get::<ConfigMap>(id, deadline).await?;
    if found.as_ref().and_then(published).is_some_and(|there| there == bundle) {
        return Ok(());
    }
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(id.name.clone()),
            namespace: id.namespace.clone(),
            ..ObjectMeta::default()
        },
        data: Some([(KEY.to_owned(), bundle.to_owned())].into()),
        ..ConfigMap::default()
    };
    objects.apply(&map, Expected::Any, deadline).await?;
    info!(configmap = %id, "whom to trust was published");
    Ok(())
}

/// The bundle in such a ConfigMap.
pub fn published(map: &ConfigMap) -> Option<&str> {
    let bundle = map.data.as_ref()?.get(KEY)?.as_str();
    (!bundle.is_empty()).then_some(bundle)
}

#[cfg(test)]
mod tests;
