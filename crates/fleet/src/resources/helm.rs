//! Helm's releases, as Helm keeps them: a Secret for each revision, of type `helm.sh/release.v1`.
//!
//! Contract: what is told is what Helm's own lists tell (names, charts, versions, times); values and
//! manifests, which may hold secrets, are not. A list reads metadata alone; only a history decodes.

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
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
    check_segment("release", name)?;
    let query = query(Some(namespace), format!("owner=helm,name={name}"));
    let all = gather_whole::<Objects>(connection, &query, deadline.remaining()).await?;
    let mut revisions: Vec<_> = all.items.iter().filter_map(revision).collect();
    revisions.sort_by_key(|revision| std::cmp::Reverse(revision.revision));
    if revisions.is_empty() {
        return Err(Error::Invalid(format!("Helm has no release {name} in {namespace}")));
    }
    Ok(revisions)
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

/// A Secret's value is base64; Helm's own text in it is base64 of gzipped JSON.
fn stored(object: &DynamicObject) -> Option<Stored> {
    let text = object.data.pointer("/data/release")?.as_str()?;
    let gzip = STANDARD.decode(STANDARD.decode(text).ok()?).ok()?;
    serde_json::from_reader(GzDecoder::new(&gzip[..]).take(LARGEST)).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_revision_is_read_as_helm_wrote_it_and_has_no_values() {
        let release = json!({ "name": "web", "config": { "password": "hunter2" },
            "info": { "description": "Upgrade complete", "last_deployed": "2026-01-02T03:04:05Z" },
            "chart": { "metadata": { "name": "nginx", "version": "1.2.3", "appVersion": "9" } } });
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(release.to_string().as_bytes()).unwrap();
        let text = STANDARD.encode(STANDARD.encode(gzip.finish().unwrap()));
        let secret: DynamicObject = serde_json::from_value(json!({
            "metadata": { "name": "sh.helm.release.v1.web.v2", "namespace": "shop",
                "labels": { "name": "web", "owner": "helm", "status": "deployed", "version": "2",
                    "modifiedAt": "1767323045" } },
            "data": { "release": text },
        }))
        .unwrap();
        let told = revision(&secret).unwrap();
        assert_eq!((told.revision, told.chart.as_deref()), (2, Some("nginx-1.2.3")));
        assert_eq!(told.description.as_deref(), Some("Upgrade complete"));
        assert!(!serde_json::to_string(&told).unwrap().contains("hunter2"));
        let mut broken = secret;
        broken.data["data"]["release"] = json!("not base64");
        assert_eq!(revision(&broken).unwrap().status, "deployed");
    }
}
