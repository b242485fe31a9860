//! Deletes one object and reports the result.
//!
//! Contract: the result is read from the API server after it has accepted the deletion, because its
//! answer looks the same for an object that is gone and for one that is only marked. It does not wait:
//! finalizers may keep an object for ever, and the caller decides how long to watch.

use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use serde::{Deserialize, Serialize};
use stallproof::Deadline;

use super::Target;
use crate::{Connection, Error};

/// How to delete. The default is the kind's own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct How {
    pub propagation: Option<Propagation>,
    /// The grace period in seconds; zero kills the containers at once.
    pub grace_seconds: Option<u32>,
    /// Whether the server only checks the deletion.
    pub dry_run: bool,
    /// Deletes this very object and not a later one with the same name.
    pub uid: Option<String>,
}

/// The treatment of the objects that the object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first, and the object waits for them.
    Foreground,
    /// They stay.
    Orphan,
}

/// The result of a deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
pub enum Deleted {
    Gone,
    /// The object is marked for deletion. It stays until each finalizer is removed and, for a pod, until
    /// its containers have stopped or the grace period is over.
    #[serde(rename_all = "camelCase")]
    Waiting {
        finalizers: Vec<String>,
        grace_seconds: Option<i64>,
    },
    /// The server would delete it: this was a dry run.
    WouldDelete,
}

pub async fn delete(
    connection: &Connection,
    target: &Target,
    how: &How,
    deadline: Deadline,
) -> Result<Deleted, Error> {
    let params = DeleteParams {
        dry_run: how.dry_run,
        grace_period_seconds: how.grace_seconds,
        propagation_policy: how.propagation.map(Into::into),
        preconditions: how
            .uid
            .clone()
            .map(|uid| Preconditions { uid: Some(uid), resource_version: None }),
    };
    let answer = connection
        .call("deleting", deadline, |client| async move {
            target.api(client).delete(target.name(), &params).await
        })
        .await?;
    if how.dry_run {
        return Ok(Deleted::WouldDelete);
    }
    // A status means that it is gone. An object may mean either: some kinds return what they deleted.
    let Some(marked) = answer.left() else { return Ok(Deleted::Gone) };
    let now = connection
        .call("looking whether it is gone", deadline, |client| async move {
            target.api(client).get_metadata_opt(target.name()).await
        })
        .await?;
    Ok(match now {
        Some(now)
            if now.metadata.uid == marked.metadata.uid
                && now.metadata.deletion_timestamp.is_some() =>
        {
            Deleted::Waiting {
                finalizers: now.metadata.finalizers.unwrap_or_default(),
                grace_seconds: now.metadata.deletion_grace_period_seconds,
            }
        }
        _ => Deleted::Gone,
    })
}

impl From<Propagation> for PropagationPolicy {
    fn from(propagation: Propagation) -> Self {
        match propagation {
            Propagation::Background => Self::Background,
            Propagation::Foreground => Self::Foreground,
            Propagation::Orphan => Self::Orphan,
        }
    }
}
