//! Restarts a workload: its pods are replaced by the workload's own strategy.
//!
//! The annotation is the same as kubectl's, so that `kubectl rollout history` shows the restart.

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use stallproof::Deadline;

use super::{FIELD_MANAGER, Target};
use crate::{Connection, Error};

const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restarted {
    pub restarted_at: Timestamp,
}

pub async fn restart(
    connection: &Connection,
    target: &Target,
    deadline: Deadline,
) -> Result<Restarted, Error> {
    let kind = (target.resource().group.as_str(), target.resource().plural.as_str());
    if !matches!(kind, ("apps", "deployments" | "statefulsets" | "daemonsets")) {
        return Err(Error::Invalid(format!(
            "{target} cannot be restarted; deployments, statefulsets and daemonsets can"
        )));
    }
    let object = connection
        .call("reading the workload", deadline, |client| async move {
            target.api(client).get(target.name()).await
        })
        .await?;
    // The restart would happen when somebody resumes the workload, without anybody expecting it.
    if object.data["spec"]["paused"] == true {
        return Err(Error::Invalid(format!(
            "{target} is paused and would not restart; set spec.paused to false first"
        )));
    }
    let restarted_at = Timestamp::now();
    let patch = Patch::Merge(json!({ "spec": { "template": { "metadata": { "annotations": {
        RESTARTED_AT: restarted_at.to_string()
    } } } } }));
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
    connection
        .call("restarting", deadline, |client| async move {
            target.api(client).patch(target.name(), &params, &patch).await
        })
        .await?;
    Ok(Restarted { restarted_at })
}
