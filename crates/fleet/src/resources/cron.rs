//! CronJobs: run now, suspended, resumed.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use stallproof::Deadline;

use super::{FIELD_MANAGER, Target};
use crate::{Connection, Error};

/// The longest name of a Job: its pods carry it in a label.
const LONGEST: usize = 63;

/// Runs a CronJob now: makes a Job of its template, as `kubectl create job --from` does. Returns the name
/// of the Job.
pub async fn trigger(
    connection: &Connection,
    target: &Target,
    deadline: Deadline,
) -> Result<String, Error> {
    check(target)?;
    let get = |client| async move { target.api(client).get(target.name()).await };
    let cron = connection.call("reading a CronJob", deadline, get).await?;
    let job = job_of(target, &cron, Timestamp::now())?;
    let (namespace, sent) = (target.namespace().unwrap_or_default(), &job);
    let params =
        PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let made = connection
        .call("making a Job", deadline, |client| async move {
            Api::<Job>::namespaced(client, namespace).create(&params, sent).await
        })
        .await?;
    Ok(made.name_any())
}

/// Suspends a CronJob, or lets it run again.
pub async fn suspend(
    connection: &Connection,
    target: &Target,
    suspended: bool,
    deadline: Deadline,
) -> Result<(), Error> {
    check(target)?;
    let patch = &json!({ "spec": { "suspend": suspended } });
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    connection
        .call("suspending a CronJob", deadline, |client| async move {
            target.api(client).patch(target.name(), &params, &Patch::Merge(patch)).await
        })
        .await?;
    Ok(())
}

fn check(target: &Target) -> Result<(), Error> {
    let resource = target.resource();
    if (resource.group.as_str(), resource.plural.as_str()) == ("batch", "cronjobs") {
        return Ok(());
    }
    let plural = &resource.plural;
    Err(Error::Invalid(format!("{plural} are not triggered or suspended; CronJobs are")))
}

fn job_of(target: &Target, cron: &DynamicObject, now: Timestamp) -> Result<Job, Error> {
    let template = cron.data.pointer("/spec/jobTemplate").cloned().unwrap_or_default();
    let ending = format!("-manual-{:x}", now.as_millisecond());
    let base: String = target.name().chars().take(LONGEST - ending.len()).collect();
    let mut annotations = template.pointer("/metadata/annotations").cloned().unwrap_or_default();
    if annotations.is_null() {
        annotations = json!({});
    }
    annotations["cronjob.kubernetes.io/instantiate"] = "manual".into();
    let job = json!({
        "metadata": {
            "name": format!("{base}{ending}"),
            "labels": template.pointer("/metadata/labels").cloned().unwrap_or(Value::Null),
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": target.resource().api_version, "kind": target.resource().kind,
                "name": target.name(), "uid": cron.metadata.uid, "controller": true,
            }],
        },
        "spec": template.get("spec").cloned().unwrap_or_default(),
    });
    serde_json::from_value(job)
        .map_err(|error| Error::Invalid(format!("{target} has no template of a Job: {error}")))
}
