//! Deleting one object, and saying what became of it.
//!
//! Contract: the answer is what the API server shows after its "yes", since the "yes" itself looks
//! the same for what is gone and for what is only marked. It does not wait: what waits on finalizers
//! may do so for ever, and who asked decides how long to look on.

use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use serde::{Deserialize, Serialize};
use stallproof::Deadline;

use super::Target;
use crate::{Connection, Error};

/// How to delete. The default is what the kind itself prefers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct How {
    pub propagation: Option<Propagation>,
    /// Zero kills at once, without a word to the containers.
    pub grace_seconds: Option<u32>,
    /// Asks the server whether it would, and changes nothing.
    pub dry_run: bool,
    /// Delete this very object, not a later one of the same name.
    pub uid: Option<String>,
}

/// What becomes of what the object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Propagation {
    /// Deleted afterwards.
    Background,
    /// Deleted first: the object waits for it.
    Foreground,
    /// Left alone.
    Orphan,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
pub enum Deleted {
    Gone,
    /// Marked, and still there: until each of the finalizers is taken off by the one who put it on,
    /// and, for a pod, until its containers have stopped or the grace has passed.
    #[serde(rename_all = "camelCase")]
    Waiting {
        finalizers: Vec<String>,
        grace_seconds: Option<i64>,
    },
    /// A dry run: the server would have done it.
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
    // A status means gone. An object may mean either: some kinds answer with what they have deleted.
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
