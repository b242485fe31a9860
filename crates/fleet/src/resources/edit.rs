//! Replaces one object by an edited copy of it, as `kubectl edit` does.
//!
//! Contract:
//! - The copy has the version that was read. An object that was changed since is not overwritten: the
//!   refusal names who changed it last.
//! - What the copy leaves out is removed, whoever manages it. A server-side apply cannot do that.
//! - A dry run asks the server the same and changes nothing. Both say what differs; values of Secrets
//!   are in neither.

use std::collections::BTreeSet;

use kube::api::PostParams;
use kube::core::DynamicObject;
use stallproof::Deadline;

use super::apply::diff::Diff;
use super::apply::{Changed, read};
use super::secret_values::{is_secret, restore};
use super::{FIELD_MANAGER, Target};
use crate::{Connection, Error};

/// An object after an edit.
#[derive(Clone, Debug)]
pub struct Edited {
    pub object: DynamicObject,
    /// A unified diff of the YAML; empty when nothing changed.
    pub diff: String,
    pub changed: Changed,
}

/// Replaces `target` by the one document of `input`, YAML or JSON.
pub async fn edit(
    connection: &Connection,
    target: &Target,
    input: &str,
    dry_run: bool,
    deadline: Deadline,
) -> Result<Edited, Error> {
    let mut edited = parse(target, input)?;
    let before = get(connection, target, deadline).await?;
    if is_secret(&before) {
        restore(&mut edited, &before)?;
    }
    let params = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
    let sent = &edited;
    let replaced = connection
        .call("replacing an object", deadline, |client| async move {
            target.api(client).replace(target.name(), &params, sent).await
        })
        .await;
    let object = match replaced {
        Err(Error::Refused { cluster, mut status }) if is_conflict(&status) => {
            // What is there now says who was faster; without it the refusal is as it came.
            if let Ok(now) = get(connection, target, deadline).await {
                status.message = conflict(target, &now);
            }
            return Err(Error::Refused { cluster, status });
        }
        replaced => replaced?,
    };
    let secret = is_secret(&before);
    let plain = |object: &DynamicObject| serde_json::to_value(object).unwrap_or_default();
    let difference = Diff { before: Some(plain(&before)), after: plain(&object), secret };
    let (diff, changed) = difference.compare();
    Ok(Edited { object, diff, changed })
}

async fn get(
    connection: &Connection,
    target: &Target,
    deadline: Deadline,
) -> Result<DynamicObject, Error> {
    let get = |client| async move { target.api(client).get(target.name()).await };
    connection.call("reading what is there", deadline, get).await
}

fn parse(target: &Target, input: &str) -> Result<DynamicObject, Error> {
    let invalid = |why: String| Error::Invalid(why);
    let mut documents = read(input).map_err(Error::Invalid)?;
    let (Some(document), true) = (documents.pop(), documents.is_empty()) else {
        return Err(invalid("send one object, the one that is edited".to_owned()));
    };
    let resource = target.resource();
    let same = (document.api_version.as_str(), document.kind.as_str(), document.name.as_str())
        == (resource.api_version.as_str(), resource.kind.as_str(), target.name())
        && document.namespace.as_deref().is_none_or(|named| Some(named) == target.namespace());
    if !same {
        return Err(invalid(format!(
            "this is {} {} of {}, and {target} is edited: apiVersion, kind, name and namespace stay \
             as they are",
            document.kind, document.name, document.api_version
        )));
    }
    let mut edited: DynamicObject = serde_json::from_value(document.object)
        .map_err(|error| invalid(format!("this is no object of Kubernetes: {error}")))?;
    if edited.metadata.resource_version.is_none() {
        return Err(invalid(
            "metadata.resourceVersion is missing: send the version that was read, so that nobody \
             else's change is overwritten"
                .to_owned(),
        ));
    }
    edited.metadata.namespace = target.namespace().map(ToOwned::to_owned);
    Ok(edited)
}

fn is_conflict(status: &kube::core::Status) -> bool {
    status.code == 409 && status.reason == "Conflict"
}

/// Names who changed the object last. Times are of whole seconds: of several in the same one, all are
/// named.
fn conflict(target: &Target, now: &DynamicObject) -> String {
    let again = "read it again, and make your change to that";
    let entries = || now.metadata.managed_fields.iter().flatten();
    let Some(last) = entries().filter_map(|entry| Some(entry.time.as_ref()?.0)).max() else {
        return format!("{target} was changed since you read it; {again}");
    };
    let latest = entries().filter(|entry| entry.time.as_ref().is_some_and(|time| time.0 == last));
    let named = latest.map(|entry| {
        let manager = entry.manager.as_deref().unwrap_or("somebody");
        match entry.subresource.as_deref().filter(|part| !part.is_empty()) {
            Some(part) => format!("{manager} ({part})"),
            None => manager.to_owned(),
        }
    });
    let named: BTreeSet<_> = named.collect();
    let named: Vec<_> = named.into_iter().collect();
    format!(
        "{target} was changed since you read it, last by {} at {last}; {again}",
        named.join(" or ")
    )
}
