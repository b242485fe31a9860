//! Helm's releases, as Helm keeps them: a Secret for each revision, of type `helm.sh/release.v1`.
//!
//! Contract: lists and histories tell what Helm's own lists tell (names, charts, versions, times). Values and
//! manifests, which may hold secrets, are told by [`values`] and [`manifest`] alone, masked unless asked for. A
//! list reads metadata alone.
//!
//! ```text
//! releases, history ──► Secrets of type helm.sh/release.v1
//! values, manifest  ──► one revision, decoded ──► contents (masked)
//! rollback          ──► two revisions ──► merge (pure) ──► objects ──► a new revision
//! ```

mod contents;
mod merge;
pub mod rollback;

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stallproof::Deadline;

use super::check_segment;
use super::list::{ListQuery, gather_whole};
use super::list_format::{Metadata, Objects};
use crate::{Connection, Error};

/// The most that one revision is unpacked to: Helm refuses charts of more than a megabyte, compressed.
const LARGEST: u64 = 32 << 20;

/// A release in its newest revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Release {
    pub namespace: String,
    pub name: String,
    pub revision: u32,
    /// Such as `deployed`, `failed`, `pending-upgrade`.
    pub status: String,
    pub updated: Option<Timestamp>,
}

/// One revision of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReleaseRevision {
    pub revision: u32,
    pub status: String,
    /// Name and version of the chart: `redis-18.1.0`.
    pub chart: Option<String>,
    pub app_version: Option<String>,
    pub description: Option<String>,
    /// As Helm wrote it.
    pub updated: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    info: StoredInfo,
    chart: StoredChart,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredInfo {
    description: Option<String>,
    last_deployed: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredChart {
    metadata: StoredChartMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StoredChartMetadata {
    name: Option<String>,
    version: Option<String>,
    app_version: Option<String>,
}

/// Lists the releases of one namespace, or of all.
pub async fn releases(
    connection: &Connection,
    namespace: Option<&str>,
    deadline: Deadline,
) -> Result<Vec<Release>, Error> {
    let query = query(namespace, "owner=helm".to_owned());
    let all = gather_whole::<Metadata>(connection, &query, deadline.remaining()).await?;
    let mut newest = BTreeMap::<_, Release>::new();
    for release in all.items.iter().filter_map(release) {
        let key = (release.namespace.clone(), release.name.clone());
        let known = newest.get(&key).map_or(0, |known| known.revision);
        if release.revision >= known {
            newest.insert(key, release);
        }
    }
    Ok(newest.into_values().collect())
}

/// Lists the revisions of a release that Helm has kept, the newest first.
pub async fn history(
    connection: &Connection,
    namespace: &str,
    name: &str,
    deadline: Deadline,
) -> Result<Vec<ReleaseRevision>, Error> {
    let kept = kept(connection, (namespace, name), deadline).await?;
    Ok(kept.iter().rev().filter_map(|one| revision(&one.secret)).collect())
}

/// A hook of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hook {
    pub kind: String,
    pub name: String,
    /// Such as `pre-rollback`.
    pub events: Vec<String>,
}

/// The values of a revision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReleaseValues {
    pub revision: u32,
    pub values: Value,
    /// How many of them are masked.
    pub masked: usize,
}

/// The manifest of a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReleaseManifest {
    pub revision: u32,
    pub manifest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    pub hooks: Vec<Hook>,
    /// How many values are masked.
    pub masked: usize,
}

/// Reads the values of a revision, the newest unless said: those that were given, or with `all` those of the
/// chart too.
pub async fn values(
    connection: &Connection,
    (namespace, name): (&str, &str),
    revision: Option<u32>,
    (all, reveal): (bool, bool),
    deadline: Deadline,
) -> Result<ReleaseValues, Error> {
    let (revision, stored) = one(connection, (namespace, name), revision, deadline).await?;
    let given = stored.get("config").filter(|it| it.is_object()).cloned();
    let given = given.unwrap_or_else(|| json!({}));
    let mut values = match stored.pointer("/chart/values").filter(|_| all) {
        Some(chart) => contents::coalesce(chart, &given),
        None => given,
    };
    let masked = if reveal { 0 } else { contents::mask_values(&mut values) };
    Ok(ReleaseValues { revision, values, masked })
}

/// Reads the manifest of a revision, the newest unless said.
pub async fn manifest(
    connection: &Connection,
    (namespace, name): (&str, &str),
    revision: Option<u32>,
    reveal: bool,
    deadline: Deadline,
) -> Result<ReleaseManifest, Error> {
    let (revision, stored) = one(connection, (namespace, name), revision, deadline).await?;
    let text = stored.get("manifest").and_then(Value::as_str).unwrap_or_default();
    let (manifest, masked) =
        if reveal { (text.to_owned(), 0) } else { contents::mask_manifest(text) };
    let notes = stored.pointer("/info/notes").and_then(Value::as_str);
    // Notes often repeat how to read a password, and now and then the password.
    let notes = notes.filter(|notes| !notes.is_empty() && reveal).map(ToOwned::to_owned);
    Ok(ReleaseManifest { revision, manifest, notes, hooks: hooks(&stored), masked })
}

/// One revision as Helm wrote it, the newest unless said.
async fn one(
    connection: &Connection,
    (namespace, name): (&str, &str),
    revision: Option<u32>,
    deadline: Deadline,
) -> Result<(u32, Value), Error> {
    let kept = kept(connection, (namespace, name), deadline).await?;
    let found = match revision {
        None => kept.last(),
        Some(revision) => kept.iter().find(|one| one.revision == revision),
    };
    let found = found.ok_or_else(|| no_revision(name, revision, &kept))?;
    Ok((found.revision, decode(&found.secret)?))
}

/// A revision with the Secret that keeps it.
struct Kept {
    revision: u32,
    status: String,
    secret: DynamicObject,
}

/// The revisions of a release that Helm has kept, the oldest first.
async fn kept(
    connection: &Connection,
    (namespace, name): (&str, &str),
    deadline: Deadline,
) -> Result<Vec<Kept>, Error> {
    check_segment("release", name)?;
    let query = query(Some(namespace), format!("owner=helm,name={name}"));
    let all = gather_whole::<Objects>(connection, &query, deadline.remaining()).await?;
    let mut kept: Vec<_> = all
        .items
        .into_iter()
        .filter_map(|secret| {
            let Release { revision, status, .. } = release(&secret)?;
            Some(Kept { revision, status, secret })
        })
        .collect();
    kept.sort_by_key(|one| one.revision);
    if kept.is_empty() {
        return Err(Error::Invalid(format!("Helm has no release {name} in {namespace}")));
    }
    Ok(kept)
}

fn no_revision(name: &str, revision: Option<u32>, kept: &[Kept]) -> Error {
    let known: Vec<_> = kept.iter().map(|one| one.revision.to_string()).collect();
    let revision = revision.unwrap_or_default();
    Error::Invalid(format!(
        "Helm has kept no revision {revision} of {name}; it has {}",
        known.join(", ")
    ))
}

fn hooks(stored: &Value) -> Vec<Hook> {
    let hooks = stored.get("hooks").and_then(Value::as_array).into_iter().flatten();
    let word = |hook: &Value, key: &str| hook[key].as_str().unwrap_or_default().to_owned();
    let one = |hook: &Value| Hook {
        kind: word(hook, "kind"),
        name: word(hook, "name"),
        events: hook["events"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|event| event.as_str().map(ToOwned::to_owned))
            .collect(),
    };
    hooks.map(one).collect()
}

fn query(namespace: Option<&str>, labels: String) -> ListQuery {
    ListQuery {
        labels: Some(labels),
        fields: Some("type=helm.sh/release.v1".to_owned()),
        ..ListQuery::of("secrets.v1.").within(namespace)
    }
}

fn label<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a str> {
    object.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn release(object: &DynamicObject) -> Option<Release> {
    let modified = label(object, "modifiedAt").and_then(|seconds| seconds.parse().ok());
    let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    Some(Release {
        namespace: object.metadata.namespace.clone()?,
        name: label(object, "name")?.to_owned(),
        revision: label(object, "version")?.parse().ok()?,
        status: label(object, "status").unwrap_or("unknown").to_owned(),
        updated: modified.and_then(|seconds| Timestamp::from_second(seconds).ok()).or(created),
    })
}

fn revision(object: &DynamicObject) -> Option<ReleaseRevision> {
    let known = release(object)?;
    // A revision that cannot be read has what its labels say.
    let stored = stored(object).unwrap_or_default();
    let StoredChartMetadata { name, version, app_version } = stored.chart.metadata;
    Some(ReleaseRevision {
        revision: known.revision,
        status: known.status,
        chart: name.map(|name| format!("{name}-{}", version.unwrap_or_default())),
        app_version,
        description: stored.info.description,
        updated: stored.info.last_deployed.or(known.updated.map(|time| time.to_string())),
    })
}

fn stored(object: &DynamicObject) -> Option<Stored> {
    serde_json::from_reader(GzDecoder::new(&packed(object)?[..]).take(LARGEST)).ok()
}

/// A Secret's value is base64; Helm's own text in it is base64 of gzipped JSON.
fn packed(object: &DynamicObject) -> Option<Vec<u8>> {
    let text = object.data.pointer("/data/release")?.as_str()?;
    STANDARD.decode(STANDARD.decode(text).ok()?).ok()
}

/// A revision as Helm wrote it.
fn decode(object: &DynamicObject) -> Result<Value, Error> {
    let unreadable = || {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        Error::Invalid(format!(
            "the Secret {name} does not hold what Helm writes there, or holds more than {} MiB",
            LARGEST >> 20
        ))
    };
    let packed = packed(object).ok_or_else(unreadable)?;
    let unpacked = GzDecoder::new(&packed[..]).take(LARGEST);
    serde_json::from_reader(unpacked).map_err(|_| unreadable())
}

/// The reverse of [`decode`], as a Secret's value.
fn encode(stored: &Value) -> Result<String, Error> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let written = serde_json::to_writer(&mut gzip, stored).map_err(|error| error.to_string());
    let packed = written.and_then(|()| gzip.finish().map_err(|error| error.to_string()));
    let packed = packed
        .map_err(|error| Error::Invalid(format!("the revision cannot be written: {error}")))?;
    Ok(STANDARD.encode(STANDARD.encode(packed)))
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
