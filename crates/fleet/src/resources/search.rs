//! Searches for a text in the names, addresses, labels, images and namespaces of objects, in many
//! clusters at once.
//!
//! Contract:
//! - `allowed` decides about every object first: an object that the caller may not see is neither
//!   returned nor counted, and does not use up the limit.
//! - The best hits come first: names, then addresses, labels, images, namespaces; within each, the
//!   whole value, then its beginning, then its middle.
//! - An address, or the beginning of one, is found at pods, Services (cluster, external and load
//!   balancer addresses), Ingresses and Nodes. A whole address is also found in the AddressBlock that
//!   contains it. Kinds with addresses are read whole only for a text that may be an address.
//! - Each cluster has the same limit, so that one with many hits hides no other. The result names what
//!   was cut off and what could not be read.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures::{StreamExt, stream};
use kube::core::{ApiResource, DynamicObject};
use serde::{Deserialize, Serialize};
use stallproof::{Deadline, sentence};

use super::list::{ListQuery, each_page};
use super::list_format::{Metadata, Objects, RawList};
use crate::connection::Connection;
use crate::discovery::ServedKind;
use crate::error::Error;
use crate::fan::{ClusterTarget, Missing, fan};

mod address;

/// Kinds that are read from one cluster concurrently.
const KINDS_AT_ONCE: usize = 4;
/// The most objects of one kind that are read from one cluster.
const MOST: u32 = 20_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchQuery {
    /// The text to find, in any case.
    pub text: String,
    /// The kinds to search; by default those that users look for.
    pub kinds: Vec<String>,
    /// The namespace to search; `None` means all.
    pub namespace: Option<String>,
    /// The most hits from each cluster.
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    pub cluster: String,
    pub api_version: String,
    pub kind: String,
    /// The plural, as a request needs it.
    pub resource: String,
    pub namespace: Option<String>,
    pub name: String,
    pub matched: Matched,
}

/// The value that the text was found in. The order is the order of hits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Matched {
    pub field: Field,
    pub how: How,
    /// The value as it is in the object.
    pub value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    Name,
    Address,
    Label,
    Image,
    Namespace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Exact,
    Prefix,
    Contains,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SearchResult {
    /// The hits, the best first.
    pub hits: Vec<Hit>,
    /// Clusters that had more hits than the limit.
    pub truncated: Vec<String>,
    /// Kinds that could not be searched, or not completely, and why.
    pub incomplete: Vec<Incomplete>,
    /// Clusters that did not answer, and why.
    pub missing: Vec<Missing>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Incomplete {
    pub cluster: String,
    pub kind: String,
    pub why: String,
}

/// The hits of one cluster.
#[derive(Debug, Default)]
struct ClusterHits {
    hits: Vec<Hit>,
    truncated: bool,
    incomplete: Vec<Incomplete>,
}

impl Default for SearchQuery {
    fn default() -> Self {
        let kinds = [
            "pods",
            "services",
            "configmaps",
            "secrets",
            "persistentvolumeclaims",
            "namespaces",
            "nodes",
            "deployments.apps",
            "statefulsets.apps",
            "daemonsets.apps",
            "jobs.batch",
            "cronjobs.batch",
            "ingresses.networking.k8s.io",
        ];
        Self {
            text: String::new(),
            kinds: kinds.map(ToOwned::to_owned).to_vec(),
            namespace: None,
            limit: 50,
        }
    }
}

/// Searched only for a whole address, because few clusters have the kind.
const BLOCKS: &str = "addressblocks.fairlead.dev";

impl SearchQuery {
    /// Adds address blocks when the kinds are the default ones and the text is an address.
    fn with_blocks(&self, text: &str) -> Self {
        let mut query = self.clone();
        if text.parse::<IpAddr>().is_ok() && query.kinds == Self::default().kinds {
            query.kinds.push(BLOCKS.to_owned());
        }
        query
    }
}

/// Searches every chosen cluster at once. `allowed(cluster, namespace, resource)` decides about each
/// object; the namespace is `None` for kinds without namespaces.
pub async fn search(
    chosen: impl IntoIterator<Item = ClusterTarget>,
    query: &SearchQuery,
    allowed: impl Fn(&str, Option<&str>, &ApiResource) -> bool,
    deadline: Deadline,
) -> Result<SearchResult, Error> {
    let text = query.text.trim().to_lowercase();
    if text.is_empty() {
        return Err(Error::Invalid("say what to search for".to_owned()));
    }
    let query = &query.with_blocks(&text);
    let (text, allowed) = (text.as_str(), &allowed);
    let ask = |connection: Connection, deadline| async move {
        one_cluster(&connection, query, text, allowed, deadline).await
    };
    let mut result = SearchResult::default();
    let mut replies = std::pin::pin!(fan(chosen, deadline, ask));
    while let Some(reply) = replies.next().await {
        match reply.into_result() {
            Err(missing) => result.missing.push(missing),
            Ok((cluster, part)) => {
                result.hits.extend(part.hits);
                result.incomplete.extend(part.incomplete);
                result.truncated.extend(part.truncated.then_some(cluster));
            }
        }
    }
    result.sort();
    Ok(result)
}

async fn one_cluster(
    connection: &Connection,
    query: &SearchQuery,
    text: &str,
    allowed: &impl Fn(&str, Option<&str>, &ApiResource) -> bool,
    deadline: Deadline,
) -> Result<ClusterHits, Error> {
    let (mut part, mut answered, mut failed) = (ClusterHits::default(), false, None);
    let read = |kind: &String| {
        let kind = kind.clone();
        async move { (one_kind(connection, query, &kind, text, allowed, deadline).await, kind) }
    };
    // The futures are made first, because ones that borrow cannot live in a mapped stream.
    let reads: Vec<_> = query.kinds.iter().map(read).collect();
    let mut kinds = std::pin::pin!(stream::iter(reads).buffer_unordered(KINDS_AT_ONCE));
    while let Some((read, kind)) = kinds.next().await {
        match read {
            Err(Error::NoSuchKind { .. }) => answered = true,
            Ok(found) => {
                answered = true;
                part.truncated |= found.truncated;
                part.hits.extend(found.hits);
                part.incomplete.extend(found.incomplete);
                part.trim(query.limit);
            }
            Err(error) => {
                part.incomplete.push(Incomplete {
                    cluster: connection.cluster().to_owned(),
                    kind,
                    why: sentence(&error),
                });
                failed.get_or_insert(error);
            }
        }
    }
    // A cluster whose kinds could not be read at all did not answer.
    match failed {
        Some(error) if !answered => Err(error),
        _ => Ok(part),
    }
}

/// Searches one kind page by page, and keeps only the hits of each page.
async fn one_kind(
    connection: &Connection,
    query: &SearchQuery,
    kind: &str,
    text: &str,
    allowed: &impl Fn(&str, Option<&str>, &ApiResource) -> bool,
    deadline: Deadline,
) -> Result<ClusterHits, Error> {
    let mut part = ClusterHits::default();
    let found = connection.find(kind, deadline).await?;
    let cluster = connection.cluster();
    let namespace = query.namespace.as_deref();
    let somewhere = match namespace {
        _ if !found.namespaced => namespace.is_none() && allowed(cluster, None, &found.resource),
        Some(namespace) => allowed(cluster, Some(namespace), &found.resource),
        None => true,
    };
    if !somewhere {
        return Ok(part);
    }
    let mut list = ListQuery::of(kind).within(namespace);
    list.limit = Some(MOST);
    let mut look = |page: RawList<DynamicObject>| {
        let seen = |object: &&DynamicObject| {
            allowed(cluster, object.metadata.namespace.as_deref(), &found.resource)
        };
        let seen = page.items.iter().filter(seen);
        part.hits.extend(seen.filter_map(|object| hit(cluster, &found, object, text)));
        part.trim(query.limit);
    };
    // Whole objects are read only of pods, for their images, and for addresses of kinds that have some.
    let whole = found.resource.kind == "Pod"
        || (address::may_be(text) && address::has_some(&found.resource));
    let all = if whole {
        each_page::<Objects>(connection, &list, deadline, &mut look).await?
    } else {
        each_page::<Metadata>(connection, &list, deadline, &mut look).await?
    };
    if !all {
        part.incomplete.push(Incomplete {
            cluster: cluster.to_owned(),
            kind: kind.to_owned(),
            why: "not all of them could be read in time".to_owned(),
        });
    }
    Ok(part)
}

fn hit(cluster: &str, found: &ServedKind, object: &DynamicObject, text: &str) -> Option<Hit> {
    let matched = matched(&found.resource, object, text)?;
    Some(Hit {
        cluster: cluster.to_owned(),
        api_version: found.resource.api_version.clone(),
        kind: found.resource.kind.clone(),
        resource: found.resource.plural.clone(),
        namespace: object.metadata.namespace.clone(),
        name: object.metadata.name.clone().unwrap_or_default(),
        matched,
    })
}

/// Returns the best match of `text`, which is in lower case.
fn matched(kind: &ApiResource, object: &DynamicObject, text: &str) -> Option<Matched> {
    let metadata = &object.metadata;
    let name = metadata.name.iter().filter_map(|name| at(Field::Name, name, text));
    let namespace =
        metadata.namespace.iter().filter_map(|namespace| at(Field::Namespace, namespace, text));
    let empty = BTreeMap::new();
    let labels = metadata.labels.as_ref().unwrap_or(&empty).iter().filter_map(|(key, value)| {
        // Both `nginx` and `app=nginx` match the whole of the label.
        let whole = at(Field::Label, &format!("{key}={value}"), text)?;
        let how = how(value, text).map_or(whole.how, |how| how.min(whole.how));
        Some(Matched { how, ..whole })
    });
    let images = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|containers| object.data["spec"][containers].as_array().into_iter().flatten());
    let images = images
        .filter_map(|container| container["image"].as_str())
        .filter_map(|image| at(Field::Image, image, text));
    let addresses = address::found(kind, object, text);
    name.chain(addresses).chain(labels).chain(images).chain(namespace).min()
}

fn at(field: Field, value: &str, text: &str) -> Option<Matched> {
    how(value, text).map(|how| Matched { field, how, value: value.to_owned() })
}

fn how(value: &str, text: &str) -> Option<How> {
    let value = value.to_lowercase();
    match value.find(text)? {
        0 if value.len() == text.len() => Some(How::Exact),
        0 => Some(How::Prefix),
        _ => Some(How::Contains),
    }
}

impl ClusterHits {
    fn trim(&mut self, limit: usize) {
        self.hits.sort_by(better);
        if self.hits.len() > limit {
            self.hits.truncate(limit);
            self.truncated = true;
        }
    }
}

impl SearchResult {
    fn sort(&mut self) {
        self.hits.sort_by(better);
        self.truncated.sort();
        self.incomplete
            .sort_by(|one, other| (&one.cluster, &one.kind).cmp(&(&other.cluster, &other.kind)));
        self.missing.sort_by(|one, other| one.cluster.cmp(&other.cluster));
    }
}

/// Orders hits by their match, then by name; the rest makes the order stable.
fn better(one: &Hit, other: &Hit) -> std::cmp::Ordering {
    fn key(hit: &Hit) -> impl Ord + '_ {
        let Hit { cluster, resource, namespace, name, matched, api_version, .. } = hit;
        (matched.field, matched.how, name, cluster, namespace, resource, api_version)
    }
    key(one).cmp(&key(other))
}

#[cfg(test)]
mod tests;
