//! Applies the objects of a file by server-side apply, and reports what changed.
//!
//! Contract:
//! - The whole input is parsed before anything is sent; an input that cannot be parsed changes nothing.
//! - Objects are applied in the order in which they need each other: namespaces, definitions, objects
//!   that others refer to, the rest, and last those that the API server itself calls (webhooks, API
//!   services). The objects of one step are applied concurrently.
//! - An object that fails stops no other. Each has its outcome and a diff from before to after; values
//!   of Secrets are in neither diff nor error.
//! - A field that another manager owns is not changed unless forced: the outcome names both.
//! - Each object has the warnings of the API server.
//! - A dry run asks the server the same and changes nothing. An object that needs another one of the
//!   same file is reported as failed, because that is not there.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stallproof::backoff::{Backoff, Curve};
use stallproof::{Deadline, sentence};
use tokio::time::sleep;

use super::{FIELD_MANAGER, Target};
use crate::warnings::listen;
use crate::{Connection, Error};

pub(super) mod diff;
mod documents;

pub use diff::Changed;
use diff::Diff;
pub use documents::{Document, LARGEST, read};

const DEFAULT_NAMESPACE: &str = "default";
/// Objects of one step that are applied concurrently; the cluster's other places stay free.
const AT_ONCE: usize = 8;
/// How long a kind may take to be served after its definition was applied.
const DEFINED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Curve = Curve { first: Duration::from_millis(100), most: Duration::from_secs(2) };

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct How {
    /// The namespace of objects that name none; `default` by default.
    pub namespace: Option<String>,
    /// Whether fields of other managers are changed.
    pub force: bool,
    pub dry_run: bool,
}

/// One object of the input and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    pub api_version: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
    #[serde(flatten)]
    pub outcome: ApplyOutcome,
    /// A unified diff of the YAML; empty when nothing changed.
    pub diff: String,
    /// For the audit; none where nothing changed.
    #[serde(skip)]
    pub changed: Option<Changed>,
    /// The warnings of the API server, such as a deprecated version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
pub enum ApplyOutcome {
    Created,
    Configured,
    Unchanged,
    Failed {
        why: String,
        /// The fields of other managers; `force` changes them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        conflicts: Vec<Conflict>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    pub field: String,
    pub manager: String,
}

/// Applies every object of an input, and returns their outcomes in its order. Only an input that cannot
/// be parsed is an error. `permit` decides about each object once its kind is known; its refusal is the
/// object's outcome. It permits reading as well, because the diff shows the present object.
pub async fn apply(
    connection: &Connection,
    input: &str,
    how: &How,
    permit: impl Fn(&Target) -> Result<(), String>,
    deadline: Deadline,
) -> Result<Vec<Applied>, Error> {
    let documents = read(input).map_err(Error::Invalid)?;
    // Two objects of one name would race each other within a step.
    let mut seen = BTreeSet::new();
    let mut answers = Vec::with_capacity(documents.len());
    let mut steps: [Vec<(usize, Document)>; STEPS] = Default::default();
    for (place, document) in documents.into_iter().enumerate() {
        if seen.insert(document.identity(how.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE))) {
            steps[step(&document)].push((place, document));
        } else {
            let twice = Failure::because("the input has it twice; take one of them out");
            answers.push((place, document.answer(None, Err(twice))));
        }
    }
    let defines = !how.dry_run && !steps[DEFINITIONS].is_empty();
    let one = &ApplyOne { connection, how, permit, defines, deadline };
    for step in steps {
        let applied = stream::iter(step)
            .map(|(place, document)| async move { (place, one.apply(document).await) });
        answers.extend(applied.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await);
    }
    answers.sort_by_key(|&(place, _)| place);
    Ok(answers.into_iter().map(|(_, applied)| applied).collect())
}

const STEPS: usize = 5;
const DEFINITIONS: usize = 1;

/// The step in which an object is applied.
fn step(document: &Document) -> usize {
    let group = document.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    match (group, document.kind.as_str()) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => DEFINITIONS,
        (
            "",
            "ConfigMap"
            | "Secret"
            | "ServiceAccount"
            | "LimitRange"
            | "ResourceQuota"
            | "PersistentVolume"
            | "PersistentVolumeClaim",
        )
        | ("rbac.authorization.k8s.io" | "scheduling.k8s.io" | "storage.k8s.io", _) => 2,
        ("admissionregistration.k8s.io" | "apiregistration.k8s.io", _) => 4,
        _ => 3,
    }
}

struct ApplyOne<'a, P> {
    connection: &'a Connection,
    how: &'a How,
    permit: P,
    /// Whether kinds that are missing may be served in a moment.
    defines: bool,
    deadline: Deadline,
}

impl<P: Fn(&Target) -> Result<(), String>> ApplyOne<'_, P> {
    async fn apply(&self, document: Document) -> Applied {
        let target = match self.find(&document).await {
            Ok(target) => target,
            Err(error) => return document.answer(None, Err(Failure::of(&error, false))),
        };
        let secret = document.is_secret();
        let (result, warnings) = match (self.permit)(&target) {
            Err(why) => (Err(Failure::because(&why)), Vec::new()),
            Ok(()) => {
                let (sent, warnings) = listen(self.send(&target, &document.object, secret)).await;
                (sent.map_err(|error| Failure::of(&error, secret)), warnings)
            }
        };
        Applied { warnings, ..document.answer(Some(&target), result) }
    }

    /// Finds the kind. One that was just defined may take a moment to be served.
    async fn find(&self, document: &Document) -> Result<Target, Error> {
        let Document { api_version, kind, namespace, name, .. } = document;
        let patience = self.deadline.within(DEFINED_WITHIN);
        let mut backoff = Backoff::new(LOOK_AGAIN);
        let found = loop {
            match self.connection.find_kind(api_version, kind, self.deadline).await {
                Err(Error::NoSuchKind { .. }) if self.defines && !patience.has_passed() => {
                    sleep(backoff.failed().wait.min(patience.remaining())).await;
                    self.connection.discovery().reset_all();
                }
                found => break found?,
            }
        };
        let namespace = namespace.as_deref().or(self.how.namespace.as_deref());
        Target::new(&found, Some(namespace.unwrap_or(DEFAULT_NAMESPACE)), name)
    }

    async fn send(&self, target: &Target, object: &Value, secret: bool) -> Result<Sent, Error> {
        let before = self
            .connection
            .call("reading what is there", self.deadline, |client| async move {
                target.api(client).get_opt(target.name()).await
            })
            .await?;
        let params = PatchParams {
            dry_run: self.how.dry_run,
            force: self.how.force,
            ..PatchParams::apply(FIELD_MANAGER).validation_strict()
        };
        let after = self
            .connection
            .call("applying", self.deadline, |client| async move {
                target.api(client).patch(target.name(), &params, &Patch::Apply(object)).await
            })
            .await?;
        let plain = |object| serde_json::to_value(object).unwrap_or_default();
        let created = before.is_none();
        let difference = Diff { before: before.map(plain), after: plain(after), secret };
        let (diff, changed) = difference.compare();
        let outcome = match (created, diff.is_empty()) {
            (true, _) => ApplyOutcome::Created,
            (false, true) => ApplyOutcome::Unchanged,
            (false, false) => ApplyOutcome::Configured,
        };
        Ok(Sent { outcome, diff, changed })
    }
}

/// An object as it was applied.
struct Sent {
    outcome: ApplyOutcome,
    diff: String,
    changed: Changed,
}

struct Failure {
    why: String,
    conflicts: Vec<Conflict>,
}

impl Failure {
    fn because(why: &str) -> Self {
        Self { why: why.to_owned(), conflicts: Vec::new() }
    }

    fn of(error: &Error, secret: bool) -> Self {
        let mut conflicts = Vec::new();
        if let Error::Refused { status, .. } = error {
            conflicts = conflicts_in(status);
        }
        Self { why: reason(error, secret), conflicts }
    }
}

/// Says why an object was refused, without quoting a Secret.
pub(super) fn reason(error: &Error, secret: bool) -> String {
    let why = sentence(error);
    if secret { without_quotation(&why).to_owned() } else { why }
}

/// Reads the fields and their managers from the API server's refusal, which has sentences such as
/// `conflict with "kubectl" using apps/v1 at 2026-01-01T00:00:00Z`.
fn conflicts_in(status: &Status) -> Vec<Conflict> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| Conflict {
            field: cause.field.clone(),
            manager: cause.message.split('"').nth(1).unwrap_or(&cause.message).to_owned(),
        })
        .collect()
}

/// An API server that cannot decode an object quotes it from this word on.
fn without_quotation(why: &str) -> &str {
    let end =
        ["error found in", "bigger context", "|"].iter().filter_map(|mark| why.find(mark)).min();
    why[..end.unwrap_or(why.len())].trim_end_matches([' ', ',', ':'])
}

impl Document {
    fn answer(self, target: Option<&Target>, result: Result<Sent, Failure>) -> Applied {
        let (outcome, diff, changed) = match result {
            Ok(Sent { outcome, diff, changed }) => {
                let changed = Some(changed).filter(|_| outcome != ApplyOutcome::Unchanged);
                (outcome, diff, changed)
            }
            Err(Failure { why, conflicts }) => {
                (ApplyOutcome::Failed { why, conflicts }, String::new(), None)
            }
        };
        Applied {
            api_version: self.api_version,
            kind: self.kind,
            namespace: match target {
                Some(target) => target.namespace().map(ToOwned::to_owned),
                None => self.namespace,
            },
            name: self.name,
            outcome,
            diff,
            changed,
            warnings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
