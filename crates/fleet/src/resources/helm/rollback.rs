//! Goes back to an older revision of a release, as `helm rollback` does: a new revision with the old one's
//! chart, values and manifest.
//!
//! Contract:
//! - Everything is looked at before anything is written: both revisions, every object, every permission.
//!   What cannot be done rightly is refused then: a revision that cannot be read, an object that is there
//!   and is not of this release, a release that Helm applies server-side.
//! - Objects are merged three-way ([`merge`](super::merge)) and replaced at the version that was read, in
//!   the manifest's order; then those go that the old revision has not, unless they are marked to be kept.
//! - The new revision is `pending-rollback` while it is worked on, and then `deployed`, with every other
//!   `superseded`; or `failed`, with the newest before it superseded. A process that dies in between leaves
//!   `pending-rollback`, and another rollback is the way out; so it is with Helm.
//! - Hooks are not run, and said to be. Nothing waits until pods are ready.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::api::{DeleteParams, PostParams, PropagationPolicy};
use kube::core::{DynamicObject, Status};
use serde::Serialize;
use serde_json::{Map, Value, json};
use stallproof::{Deadline, sentence};

use super::super::apply::diff::Diff;
use super::super::apply::{self, Document};
use super::super::{Target, check_segment};
use super::{Hook, Kept, decode, encode, hooks, kept, no_revision};
use crate::{Connection, Error};

/// Helm's name in `managedFields`: it writes these objects again at its next upgrade, and must not find
/// another manager there.
const MANAGER: &str = "helm";
/// The largest Secret that etcd takes, with room for its metadata.
const LARGEST: usize = 1_000_000;
const KEEP: &str = "helm.sh/resource-policy";

/// What came of a rollback, or what would.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolledBack {
    /// The new revision.
    pub revision: u32,
    /// The revision that was gone back to.
    pub to: u32,
    /// The newest revision before.
    pub from: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    pub objects: Vec<RolledBackObject>,
    pub hooks_not_run: Vec<Hook>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl RolledBack {
    pub fn failed(&self) -> usize {
        self.objects.iter().filter(|object| object.problem.is_some()).count()
    }
}

/// One object of a release.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolledBackObject {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    /// created, configured, unchanged, deleted, kept or failed.
    pub outcome: &'static str,
    /// Unified, of YAML. Values of Secrets are not in it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub diff: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What is done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Replace,
    Delete,
}

/// A rollback that was looked at, and can be done.
pub struct Plan {
    connection: Connection,
    namespace: String,
    revision: u32,
    to: u32,
    from: u32,
    /// The new revision as Helm writes it, still pending.
    release: Value,
    /// Labels that somebody gave the old revision.
    labels: BTreeMap<String, String>,
    newest: DynamicObject,
    deployed: Vec<DynamicObject>,
    steps: Vec<Step>,
    warnings: Vec<String>,
}

/// `Debug` does not show the objects and the values, which may be secret.
impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rollback to {} of {} objects", self.to, self.steps.len())
    }
}

struct Step {
    target: Target,
    doing: Doing,
    live: Option<DynamicObject>,
    /// What is sent; of an object that goes, null.
    object: Value,
    secret: bool,
    kept: bool,
}

/// Looks at everything. `permit` decides about each object.
pub async fn plan(
    connection: &Connection,
    (namespace, name): (&str, &str),
    revision: Option<u32>,
    permit: impl Fn(&Target, Doing) -> Result<(), Error>,
    deadline: Deadline,
) -> Result<Plan, Error> {
    check_segment("namespace", namespace)?;
    let mut all = kept(connection, (namespace, name), deadline).await?;
    let newest = all.last().map_or(0, |newest| newest.revision);
    let to = revision.unwrap_or_else(|| newest.saturating_sub(1));
    let Some(place) = all.iter().position(|one| one.revision == to) else {
        return Err(no_revision(name, Some(to), &all));
    };
    let (current, old) = (decode(&all[all.len() - 1].secret)?, decode(&all[place].secret)?);
    refuse_server_side(&current, &old)?;
    let mut warnings = Vec::new();
    if matches!(all[place].status.as_str(), "failed" | "pending-install" | "pending-upgrade") {
        warnings.push(format!("revision {to} is {}: it was never all there", all[place].status));
    }
    let (before, now) = (objects_of(&current, namespace)?, objects_of(&old, namespace)?);
    let planner = Planner { connection, release: (namespace, name), deadline };
    let mut steps = Vec::new();
    for document in now.values() {
        let original = before.get(&identity(document, namespace));
        let step = planner.replace(document, original).await?;
        permit(&step.target, Doing::Replace)?;
        steps.push((document.place, step));
    }
    let mut gone = Vec::new();
    for (identity, document) in &before {
        if now.contains_key(identity) {
            continue;
        }
        if let Some(step) = planner.delete(document).await? {
            permit(&step.target, Doing::Delete)?;
            gone.push((document.place, step));
        }
    }
    steps.sort_by_key(|(place, _)| *place);
    // What was made last goes first.
    gone.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
    let labels = own_labels(&all[place].secret);
    let release = pending(&current, &old, (name, namespace), newest + 1, to);
    if encode(&release)?.len() > LARGEST {
        let detail =
            format!("the revision would be larger than {LARGEST} bytes, which etcd refuses");
        return Err(Error::Invalid(detail));
    }
    let deployed = |one: &Kept| one.status == "deployed";
    let newest_secret = all[all.len() - 1].secret.clone();
    let deployed = all.drain(..).filter(deployed).map(|one| one.secret).collect();
    Ok(Plan {
        connection: connection.clone(),
        namespace: namespace.to_owned(),
        revision: newest + 1,
        to,
        from: newest,
        release,
        labels,
        newest: newest_secret,
        deployed,
        steps: steps.into_iter().chain(gone).map(|(_, step)| step).collect(),
        warnings,
    })
}

/// Helm 4 may apply server-side, and then owns fields in a way that a replacement would break.
fn refuse_server_side(current: &Value, old: &Value) -> Result<(), Error> {
    let server_side = |release: &Value| release["apply_method"] == "ssa";
    if server_side(current) || server_side(old) {
        return Err(Error::Invalid(
            "Helm applies this release server-side, which owns its fields in another way; go back with \
             `helm rollback`"
                .to_owned(),
        ));
    }
    Ok(())
}

/// An object of a manifest with its place there.
struct Rendered {
    place: usize,
    document: Document,
}

impl std::ops::Deref for Rendered {
    type Target = Document;

    fn deref(&self) -> &Document {
        &self.document
    }
}

type Identity = (String, String, String, String);

fn identity(document: &Document, namespace: &str) -> Identity {
    document.identity(namespace)
}

fn objects_of(release: &Value, namespace: &str) -> Result<BTreeMap<Identity, Rendered>, Error> {
    let manifest = release.get("manifest").and_then(Value::as_str).unwrap_or_default();
    let blank = |line: &str| line.trim().is_empty() || line.starts_with('#') || line == "---";
    if manifest.lines().all(blank) {
        return Ok(BTreeMap::new());
    }
    let documents = apply::read(manifest).map_err(|why| {
        Error::Invalid(format!("the manifest of a revision cannot be read: {why}"))
    })?;
    let documents = documents.into_iter().enumerate().map(|(place, mut document)| {
        if document.is_secret() {
            plain_data(&mut document.object);
        }
        (identity(&document, namespace), Rendered { place, document })
    });
    Ok(documents.collect())
}

/// A server takes `stringData` for `data` and does not keep it: as `data`, what is gone can be told.
fn plain_data(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret.as_object_mut().and_then(|it| it.remove("stringData"))
    else {
        return;
    };
    let encoded: Map<String, Value> = texts
        .into_iter()
        .map(|(key, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            (key, STANDARD.encode(text).into())
        })
        .collect();
    if !secret["data"].is_object() {
        secret["data"] = json!({});
    }
    if let Some(data) = secret["data"].as_object_mut() {
        data.extend(encoded);
    }
}

struct Planner<'a> {
    connection: &'a Connection,
    release: (&'a str, &'a str),
    deadline: Deadline,
}

impl Planner<'_> {
    async fn replace(&self, now: &Rendered, before: Option<&Rendered>) -> Result<Step, Error> {
        let (target, live) = self.find(now).await?;
        let mut object = now.object.clone();
        self.mark(&mut object);
        let secret = now.is_secret();
        let Some(live) = live else {
            let step = Step { target, doing: Doing::Replace, live, object, secret, kept: false };
            return Ok(step);
        };
        if before.is_none() && !self.is_ours(&live) {
            return Err(Error::Invalid(format!(
                "{target} is there and is not of this release: it would be overwritten; delete or rename \
                 it, or go back with Helm"
            )));
        }
        let there = serde_json::to_value(&live).unwrap_or_default();
        let built_in = is_built_in(&now.api_version);
        let mut before = before.map(|before| before.object.clone());
        if let Some(before) = &mut before {
            self.mark(before);
        }
        let object = super::merge::three_way(before.as_ref(), &object, &there, built_in);
        let live = Some(live);
        Ok(Step { target, doing: Doing::Replace, live, object, secret, kept: false })
    }

    /// None if it is gone already.
    async fn delete(&self, before: &Rendered) -> Result<Option<Step>, Error> {
        let (target, live) = self.find(before).await?;
        let Some(live) = live else { return Ok(None) };
        let keep = live.metadata.annotations.as_ref().and_then(|all| all.get(KEEP));
        let kept = keep.is_some_and(|policy| policy == "keep");
        let secret = before.is_secret();
        let (doing, live) = (Doing::Delete, Some(live));
        Ok(Some(Step { target, doing, live, object: Value::Null, secret, kept }))
    }

    async fn find(&self, document: &Document) -> Result<(Target, Option<DynamicObject>), Error> {
        let Document { api_version, kind, namespace, name, .. } = document;
        let found = self.connection.find_kind(api_version, kind, self.deadline).await?;
        let namespace = namespace.as_deref().unwrap_or(self.release.0);
        let target = Target::new(&found, Some(namespace), name)?;
        let get = |client| {
            let target = target.clone();
            async move { target.api(client).get_opt(target.name()).await }
        };
        let live = self.connection.call("reading what is there", self.deadline, get).await?;
        Ok((target, live))
    }

    /// The labels and annotations by which Helm knows its objects.
    fn mark(&self, object: &mut Value) {
        let (namespace, name) = self.release;
        let metadata = &mut object["metadata"];
        for (place, key, value) in [
            ("labels", "app.kubernetes.io/managed-by", "Helm"),
            ("annotations", "meta.helm.sh/release-name", name),
            ("annotations", "meta.helm.sh/release-namespace", namespace),
        ] {
            if !metadata[place].is_object() {
                metadata[place] = json!({});
            }
            metadata[place][key] = value.into();
        }
    }

    fn is_ours(&self, live: &DynamicObject) -> bool {
        let (namespace, name) = self.release;
        let annotations = live.metadata.annotations.as_ref();
        let says = |key: &str, value: &str| {
            annotations.and_then(|all| all.get(key)).is_some_and(|it| it == value)
        };
        says("meta.helm.sh/release-name", name) && says("meta.helm.sh/release-namespace", namespace)
    }
}

/// Kubernetes' own groups: those without a dot, and those of `k8s.io` that are no definition's.
fn is_built_in(api_version: &str) -> bool {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    !group.contains('.') || (group.ends_with(".k8s.io") && !group.contains(".x-k8s.io"))
}

/// Labels of a revision's Secret that are not Helm's own.
fn own_labels(secret: &DynamicObject) -> BTreeMap<String, String> {
    const OWN: [&str; 6] = ["name", "owner", "status", "version", "createdAt", "modifiedAt"];
    let labels = secret.metadata.labels.iter().flatten();
    let labels = labels.filter(|(key, _)| !OWN.contains(&key.as_str()));
    labels.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn pending(
    current: &Value,
    old: &Value,
    (name, namespace): (&str, &str),
    revision: u32,
    to: u32,
) -> Value {
    let mut release = json!({
        "name": name,
        "namespace": namespace,
        "version": revision,
        "info": {
            "first_deployed": current["info"]["first_deployed"],
            "last_deployed": Timestamp::now().to_string(),
            "deleted": "",
            "description": format!("Rollback to {to}"),
            "status": "pending-rollback",
            "notes": old["info"]["notes"],
        },
    });
    for part in ["chart", "config", "manifest", "hooks", "apply_method"] {
        if let Some(value) = old.get(part) {
            release[part] = value.clone();
        }
    }
    if let Some(info) = release["info"].as_object_mut() {
        info.retain(|_, value| !value.is_null());
    }
    release
}

impl Plan {
    /// Does it, or with `dry_run` asks the server what would come of each object.
    pub async fn run(self, dry_run: bool, deadline: Deadline) -> Result<RolledBack, Error> {
        let hooks_not_run = hooks(&self.release);
        let mut done = RolledBack {
            revision: self.revision,
            to: self.to,
            from: self.from,
            dry_run,
            objects: Vec::new(),
            hooks_not_run,
            warnings: self.warnings.clone(),
        };
        if dry_run {
            for step in &self.steps {
                done.objects.push(self.step(step, true, deadline).await);
            }
            return Ok(done);
        }
        let secret = self.write_release(&self.release, None, deadline).await?;
        for step in &self.steps {
            // As Helm does it: nothing goes while something of the new revision is missing.
            if step.doing == Doing::Delete && done.failed() > 0 {
                continue;
            }
            done.objects.push(self.step(step, false, deadline).await);
        }
        let mut release = self.release.clone();
        let superseded = if done.failed() > 0 {
            let why = done.objects.iter().find_map(|object| {
                Some(format!("{}/{}: {}", object.kind, object.name, object.problem.as_ref()?))
            });
            release["info"]["status"] = "failed".into();
            let why = why.unwrap_or_default();
            release["info"]["description"] =
                format!("Rollback to {} failed: {why}", self.to).into();
            vec![&self.newest]
        } else {
            release["info"]["status"] = "deployed".into();
            self.deployed.iter().collect()
        };
        for secret in superseded {
            if let Err(error) = self.supersede(secret, deadline).await {
                let name = secret.metadata.name.as_deref().unwrap_or_default();
                let why = sentence(&error);
                done.warnings.push(format!("{name} could not be marked as superseded: {why}"));
            }
        }
        self.write_release(&release, Some(secret), deadline).await?;
        Ok(done)
    }

    async fn step(&self, step: &Step, dry_run: bool, deadline: Deadline) -> RolledBackObject {
        let target = &step.target;
        let result = match step.doing {
            Doing::Delete if step.kept => Ok(("kept", String::new())),
            Doing::Delete => self.delete(step, dry_run, deadline).await,
            Doing::Replace => self.replace(step, dry_run, deadline).await,
        };
        let (outcome, diff, problem) = match result {
            Ok((outcome, diff)) => (outcome, diff, None),
            Err(error) => ("failed", String::new(), Some(apply::reason(&error, step.secret))),
        };
        RolledBackObject {
            api_version: target.resource().api_version.clone(),
            kind: target.resource().kind.clone(),
            namespace: target.namespace().map(ToOwned::to_owned),
            name: target.name().to_owned(),
            outcome,
            diff,
            problem,
        }
    }

    async fn replace(
        &self,
        step: &Step,
        dry_run: bool,
        deadline: Deadline,
    ) -> Result<(&'static str, String), Error> {
        let target = &step.target;
        let plain = |object: &DynamicObject| serde_json::to_value(object).unwrap_or_default();
        let before = step.live.as_ref().map(plain);
        if before.as_ref() == Some(&step.object) {
            return Ok(("unchanged", String::new()));
        }
        let object: DynamicObject = serde_json::from_value(step.object.clone())
            .map_err(|error| Error::Invalid(format!("{target} is no object: {error}")))?;
        let (sent, is_new) = (&object, before.is_none());
        let params = PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) };
        let written = self
            .connection
            .call("rolling an object back", deadline, |client| async move {
                if is_new {
                    target.api(client).create(&params, sent).await
                } else {
                    target.api(client).replace(target.name(), &params, sent).await
                }
            })
            .await?;
        let difference = Diff { before, after: plain(&written), secret: step.secret };
        let (diff, _) = difference.compare();
        let outcome = match (is_new, diff.is_empty()) {
            (true, _) => "created",
            (false, true) => "unchanged",
            (false, false) => "configured",
        };
        Ok((outcome, diff))
    }

    async fn delete(
        &self,
        step: &Step,
        dry_run: bool,
        deadline: Deadline,
    ) -> Result<(&'static str, String), Error> {
        let target = &step.target;
        let params = DeleteParams {
            dry_run,
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let deleted = self
            .connection
            .call("deleting an object of a release", deadline, |client| async move {
                target.api(client).delete(target.name(), &params).await
            })
            .await;
        match deleted {
            Ok(_) => Ok(("deleted", String::new())),
            Err(Error::Refused { status, .. }) if status.code == 404 => {
                Ok(("deleted", String::new()))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the new revision's Secret: makes it, or replaces what was made.
    async fn write_release(
        &self,
        release: &Value,
        made: Option<DynamicObject>,
        deadline: Deadline,
    ) -> Result<DynamicObject, Error> {
        let name = release["name"].as_str().unwrap_or_default();
        let status = release["info"]["status"].as_str().unwrap_or_default();
        let mut labels = self.labels.clone();
        for (key, value) in [
            ("name", name.to_owned()),
            ("owner", "helm".to_owned()),
            ("status", status.to_owned()),
            ("version", self.revision.to_string()),
        ] {
            labels.insert(key.to_owned(), value);
        }
        let now = Timestamp::now().as_second().to_string();
        labels.insert(if made.is_some() { "modifiedAt" } else { "createdAt" }.to_owned(), now);
        let version = made.as_ref().and_then(|made| made.metadata.resource_version.clone());
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
            "metadata": {
                "name": format!("sh.helm.release.v1.{name}.v{}", self.revision),
                "namespace": self.namespace, "labels": labels, "resourceVersion": version,
            },
            "data": { "release": encode(release)? },
        });
        self.write_secret(secret, made.is_some(), deadline).await.map_err(|error| match error {
            Error::Refused { cluster, status } if status.code == 409 && made.is_none() => {
                let message = format!(
                    "somebody else is working on {name}: there is a revision {} already; look at its \
                     history, and try again",
                    self.revision
                );
                let status = Status { message, ..*status };
                Error::Refused { cluster, status: Box::new(status) }
            }
            error => error,
        })
    }

    async fn write_secret(
        &self,
        secret: Value,
        replaces: bool,
        deadline: Deadline,
    ) -> Result<DynamicObject, Error> {
        let found = self.connection.find("secrets.v1.", deadline).await?;
        let name = secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let target = &Target::new(&found, Some(&self.namespace), &name)?;
        let sent: &DynamicObject = &serde_json::from_value(secret)
            .map_err(|error| Error::Invalid(format!("the revision cannot be written: {error}")))?;
        let params = PostParams { dry_run: false, field_manager: Some(MANAGER.to_owned()) };
        self.connection
            .call("writing a revision", deadline, |client| async move {
                if replaces {
                    target.api(client).replace(&name, &params, sent).await
                } else {
                    target.api(client).create(&params, sent).await
                }
            })
            .await
    }

    async fn supersede(&self, secret: &DynamicObject, deadline: Deadline) -> Result<(), Error> {
        let mut release = decode(secret)?;
        release["info"]["status"] = "superseded".into();
        let mut secret = serde_json::to_value(secret).unwrap_or_default();
        secret["apiVersion"] = "v1".into();
        secret["kind"] = "Secret".into();
        secret["data"]["release"] = encode(&release)?.into();
        secret["metadata"]["labels"]["status"] = "superseded".into();
        let now = Timestamp::now().as_second().to_string();
        secret["metadata"]["labels"]["modifiedAt"] = now.into();
        self.write_secret(secret, true, deadline).await.map(drop)
    }
}
