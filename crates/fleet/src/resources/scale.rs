//! Scales any kind that has a scale subresource.

use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use stallproof::Deadline;

use super::{FIELD_MANAGER, Target};
use crate::{Connection, Error};

/// The number of replicas before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Scaled {
    pub before: i32,
    pub after: i32,
}

pub async fn scale(
    connection: &Connection,
    target: &Target,
    replicas: u32,
    deadline: Deadline,
) -> Result<Scaled, Error> {
    if !target.has_subresource("scale") {
        return Err(Error::Invalid(format!("{target} cannot be scaled: its kind has no scale")));
    }
    let replicas = i32::try_from(replicas).map_err(|_| {
        Error::Invalid(format!("{replicas} replicas are more than Kubernetes counts"))
    })?;
    let before = connection
        .call("reading the scale", deadline, |client| async move {
            target.api(client).get_scale(target.name()).await
        })
        .await?;
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
    let after = connection
        .call("scaling", deadline, |client| async move {
            target.api(client).patch_scale(target.name(), &params, &patch).await
        })
        .await?;
    let replicas = |spec: Option<k8s_openapi::api::autoscaling::v1::ScaleSpec>| {
        spec.and_then(|spec| spec.replicas).unwrap_or_default()
    };
    Ok(Scaled { before: replicas(before.spec), after: replicas(after.spec) })
}
