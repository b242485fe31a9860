//! Whom to trust, where everybody may read it: the bundle of an authority in a ConfigMap, kept there by
//! the leader.
//!
//! Contract: what is there is the bundle that is current, within [`LOOK`] also after somebody has edited
//! or deleted it. Certificates are not secret; the Secret beside it has the keys.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use objects::{Error, Expected, Id, Leader, Objects};
use stallproof::{Backoff, Deadline, Snapshot};
use tracing::{info, warn};

use crate::state::{LOOK, RETRY};

/// The key of the bundle (PEM), as in a service account's own ConfigMap.
pub const KEY: &str = "ca.crt";

/// For one request to the store.
const REQUEST: Duration = Duration::from_secs(10);

/// Keeps the bundle of `kept` in the ConfigMap `id` until the term ends.
pub(crate) async fn keep_published<T>(
    leader: Leader,
    id: Id,
    kept: Snapshot<Option<T>>,
    bundle: fn(&T) -> String,
) where
    T: Clone + Send + Sync + 'static,
{
    let stop = leader.tasks.stopping();
    let mut changes = kept.subscribe();
    let mut backoff = Backoff::new(RETRY);
    loop {
        let wanted = kept.read(|kept| kept.as_ref().map(bundle));
        let published = async {
            match wanted {
                Some(wanted) => publish(&leader.objects, &id, &wanted).await,
                None => Ok(()),
            }
        };
        let wait = match stop.bound(published).await {
            None => return,
            Some(Ok(())) => {
                backoff.succeeded();
                LOOK
            }
            Some(Err(error)) => {
                let retry = backoff.failed();
                if retry.attempt == 1 {
                    let error = stallproof::sentence(&error);
                    warn!(configmap = %id, error, "cannot publish whom to trust, trying on");
                }
                retry.wait
            }
        };
        let something = async {
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        };
        if stop.bound(something).await.is_none() {
            return;
        }
    }
}

async fn publish(objects: &Objects, id: &Id, bundle: &str) -> Result<(), Error> {
    let found = objects.get::<ConfigMap>(id, Deadline::after(REQUEST)).await?;
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
    objects.apply(&map, Expected::Any, Deadline::after(REQUEST)).await?;
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
