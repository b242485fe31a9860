//! `Discovery`: the kinds that a cluster serves, and which of them a word such as `po` names.
//!
//! Contract:
//! - The kind that a word names is kept for minutes; that there is none, for seconds, whoever asks. No
//!   "no" outlives [`NO`] twice, and a reset takes it back at once.
//! - Lookups are single-flight and read only the lists they need, in kubectl's order of preference:
//!   `pods` costs one request, whatever else the server has.
//! - A group that cannot be asked hides no other: it is skipped, named where its absence may matter,
//!   and asked again after seconds. A group that hangs holds up a word by [`PATIENCE`], once.
//! - The cache is reset by hand, by an answer that the kind is not there ([`Connection::on`]), and by a
//!   change of the definitions ([`watch_definitions`]). Every operation reads this one cache.
//!
//! It holds no client: a lookup uses the connection of its caller, with its queue and its breaker, so
//! that one `Discovery` outlives reconnects and new credentials.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList};
use kube::Api;
use kube::core::{ApiResource, DynamicObject, Status};
use serde::Serialize;
use stallproof::fresh::{FreshConfig, LookupError};
use stallproof::{Deadline, Fresh, Snapshot};
use tokio::sync::watch;

use crate::connection::Connection;
use crate::error::Error;
use crate::resources::check_segment;

mod definitions;
mod kind_query;

pub use definitions::watch_definitions;
use kind_query::{Group, Interpretation, KindQuery};

/// How long the kind that a word names is kept.
pub const YES: Duration = Duration::from_secs(10 * 60);
/// How long it is kept that a word names no kind, and how long the lists of groups are kept.
pub const NO: Duration = Duration::from_secs(5);

/// The limit for a whole lookup: the groups, then a few rounds of lists.
const LOOKUP: Duration = Duration::from_secs(30);
/// The limit for the list of groups, and for the list of the core group.
const LIST: Duration = Duration::from_secs(10);
/// The limit for the list of another group. It is less, because another server may be behind it.
const GROUP: Duration = Duration::from_secs(3);
/// How long a group that does not answer may hold up a kind that was found in a group after it.
const PATIENCE: Duration = Duration::from_millis(500);
/// Lists that one lookup reads at once: a server with 40 groups needs five rounds.
const LISTS_AT_ONCE: usize = 8;

/// A kind that the cluster serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServedKind {
    pub resource: ApiResource,
    pub singular: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    /// The subresources, such as `scale`, `status`, `log`.
    pub subresources: Vec<String>,
}

/// Every kind that the cluster serves, each in the version its group prefers.
#[derive(Clone, Debug, Serialize)]
pub struct Kinds {
    pub kinds: Vec<ServedKind>,
    /// The groups that could not be asked: their kinds are missing above.
    pub failed: Vec<FailedGroup>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FailedGroup {
    /// The group with its version, such as `metrics.k8s.io/v1beta1`.
    pub api_version: String,
    pub why: String,
}

/// The discovered kinds of one cluster; the module has the contract. Clones share everything.
#[derive(Clone)]
pub struct Discovery(Arc<KindCache>);

struct KindCache {
    words: Fresh<KindQuery, ServedKind, Error>,
    groups: Fresh<(), Vec<Group>, Error>,
    /// A list that could not be read is kept as well, so that it is not asked for with every word.
    lists: Fresh<String, List, Error>,
    /// The names that the last lookup without a result had to choose from, for hints.
    vocabulary: Snapshot<Vocabulary>,
    /// The number of resets. Whoever waits for a kind subscribes to it.
    resets: watch::Sender<u64>,
}

/// The kinds of one version of one group, or why it could not be asked.
type List = Result<Vec<ServedKind>, Error>;

#[derive(Clone, Default, PartialEq)]
struct Vocabulary {
    names: Vec<String>,
    failed: Vec<String>,
}

impl ServedKind {
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|has| has == verb)
    }

    /// The API of the objects of this kind, in `namespace`, which must have been checked, or in all
    /// namespaces. A kind without namespaces ignores it.
    pub(crate) fn api(&self, client: kube::Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace.filter(|_| self.namespaced) {
            None => Api::all_with(client, &self.resource),
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
        }
    }
}

impl Connection {
    /// Finds the kind that `word` names: plural, singular, kind or short name, also with its group or
    /// with its version and group.
    pub async fn find(&self, word: &str, deadline: Deadline) -> Result<ServedKind, Error> {
        self.resolve(KindQuery::word(word), word, deadline).await
    }

    /// Finds the kind that a manifest names.
    pub async fn find_kind(
        &self,
        api_version: &str,
        kind: &str,
        deadline: Deadline,
    ) -> Result<ServedKind, Error> {
        let ask = KindQuery::Kind { api_version: api_version.to_owned(), kind: kind.to_owned() };
        self.resolve(ask, &format!("{kind} of {api_version}"), deadline).await
    }

    /// Makes one call on the objects of the kind that `word` names, in `namespace` or everywhere. When
    /// the server answers that it has no such kind, the cache is reset and the call made once more.
    pub async fn on<T, F>(
        &self,
        word: &str,
        namespace: Option<&str>,
        doing: &'static str,
        deadline: Deadline,
        work: impl Fn(Api<DynamicObject>, ServedKind) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        if let Some(namespace) = namespace {
            check_segment("namespace", namespace)?;
        }
        let call = |found: ServedKind| {
            let work = &work;
            self.call(doing, deadline, move |client| work(found.api(client, namespace), found))
        };
        let first = call(self.find(word, deadline).await?).await;
        if !matches!(&first, Err(Error::Refused { status, .. }) if is_no_such_kind(status)) {
            return first;
        }
        self.discovery().reset_all();
        call(self.find(word, deadline).await?).await
    }

    /// Lists every kind that the cluster serves.
    pub async fn kinds(&self, deadline: Deadline) -> Result<Kinds, Error> {
        let own = self.as_itself();
        let known = own.discovery();
        let mut lists = vec![CORE.to_owned()];
        for group in known.groups(&own, deadline).await?.iter() {
            lists.extend(group.versions.iter().map(|version| format!("{}/{version}", group.name)));
        }
        let mut all = Kinds { kinds: Vec::new(), failed: Vec::new() };
        let mut read: Vec<_> = known.read(&own, &lists, deadline).collect().await;
        read.sort_by_key(|(index, _)| *index);
        for (index, list) in read {
            let why = match list.as_deref() {
                Ok(Ok(list)) => {
                    all.add(list);
                    continue;
                }
                Ok(Err(Error::Refused { status, .. })) => status.message.clone(),
                Ok(Err(_)) => format!("no answer within {GROUP:?}"),
                Err(Error::TooLate { .. }) if index > 0 => "no answer in time".to_owned(),
                Err(error) => return Err(error.clone()),
            };
            all.failed.push(FailedGroup { api_version: lists[index].clone(), why });
        }
        Ok(all)
    }

    async fn resolve(
        &self,
        ask: KindQuery,
        word: &str,
        deadline: Deadline,
    ) -> Result<ServedKind, Error> {
        // As Fairlead itself: every user's words are answered from one cache.
        let (connection, asked) = (self.as_itself(), ask.clone());
        let lookup = move |deadline| async move { look(&connection, &asked, deadline).await };
        let answer = self.discovery().0.words.get(&ask, deadline, lookup).await;
        match answer.map_err(|error| no_answer(self, error))?.value {
            Some(found) => Ok((*found).clone()),
            None => Err(Error::NoSuchKind {
                cluster: self.cluster().to_owned(),
                word: word.to_owned(),
                hint: self.discovery().0.vocabulary.load().hint(word),
            }),
        }
    }
}

/// The core group has this version alone.
const CORE: &str = "v1";

async fn look(
    connection: &Connection,
    ask: &KindQuery,
    deadline: Deadline,
) -> Result<Option<ServedKind>, Error> {
    let known = connection.discovery();
    let mut vocabulary = Vocabulary::default();
    for reading in ask.interpretations() {
        if reading.takes_core() {
            let lists = [CORE.to_owned()];
            let found = search(connection, &reading, lists, &mut vocabulary, deadline).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        if reading.group != Some("") {
            let lists = reading.lists(&known.groups(connection, deadline).await?);
            let found = search(connection, &reading, lists, &mut vocabulary, deadline).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    known.0.vocabulary.publish(vocabulary);
    Ok(None)
}

async fn search(
    connection: &Connection,
    reading: &Interpretation<'_>,
    lists: impl IntoIterator<Item = String>,
    vocabulary: &mut Vocabulary,
    deadline: Deadline,
) -> Result<Option<ServedKind>, Error> {
    let lists: Vec<_> = lists.into_iter().collect();
    let mut waited_for = vec![true; lists.len()];
    let mut best: Option<(usize, ServedKind)> = None;
    let (mut patience, mut failed) = (None, None);
    let mut read = std::pin::pin!(connection.discovery().read(connection, &lists, deadline));
    loop {
        let first = waited_for.iter().position(|waited_for| *waited_for);
        if best.as_ref().is_some_and(|(index, _)| first.is_none_or(|first| *index < first)) {
            break;
        }
        let next = patience.unwrap_or(deadline).bound(read.next()).await;
        let Ok(Some((index, list))) = next else { break };
        waited_for[index] = false;
        match &*list? {
            Ok(list) => {
                vocabulary.learn(list);
                if let Some(found) = reading.pick(list)
                    && best.as_ref().is_none_or(|(have, _)| index < *have)
                {
                    best = Some((index, found.clone()));
                    patience.get_or_insert_with(|| deadline.within(PATIENCE));
                }
            }
            Err(error) => {
                vocabulary.failed.push(lists[index].clone());
                failed.get_or_insert_with(|| error.clone());
            }
        }
    }
    match (best, failed) {
        (Some((_, found)), _) => Ok(Some(found)),
        // A caller who names the group is told what is wrong with it.
        (None, Some(error)) if reading.group.is_some() => Err(error),
        (None, _) if deadline.has_passed() => Err(too_late(connection)),
        (None, _) => Ok(None),
    }
}

impl Discovery {
    #[expect(clippy::new_without_default, reason = "an empty cache is no default of anything")]
    pub fn new() -> Self {
        // One lookup reads at most eight lists at once, and shares them with the other lookups.
        let words = FreshConfig {
            name: "discovery_words",
            yes: YES,
            no: NO,
            lookup: LOOKUP,
            answers: 4096,
            lookups: 64,
        };
        let lists = FreshConfig {
            name: "discovery_lists",
            yes: NO,
            no: NO,
            lookup: LIST + Duration::from_secs(1),
            answers: 4096,
            lookups: words.lookups * LISTS_AT_ONCE,
        };
        // There is one key; the rest is room for lookups that a reset has made void.
        let groups = FreshConfig { name: "discovery_groups", answers: 1, lookups: 64, ..lists };
        Self(Arc::new(KindCache {
            words: Fresh::new(words),
            groups: Fresh::new(groups),
            lists: Fresh::new(lists),
            vocabulary: Snapshot::new(Vocabulary::default()),
            resets: watch::Sender::new(0),
        }))
    }

    /// Forgets everything, so that the next call asks the server.
    pub fn reset_all(&self) {
        // Words come last: a lookup between two resets must not keep a result of the old lists.
        self.0.lists.reset_all();
        self.0.groups.reset_all();
        self.0.words.reset_all();
        self.0.resets.send_modify(|resets| *resets += 1);
    }

    /// Subscribes to resets: whoever waits for a kind that was not there asks again on each.
    pub fn resets(&self) -> watch::Receiver<u64> {
        self.0.resets.subscribe()
    }

    async fn groups(
        &self,
        connection: &Connection,
        deadline: Deadline,
    ) -> Result<Arc<Vec<Group>>, Error> {
        let asking = connection.clone();
        let lookup = move |deadline: Deadline| async move {
            let groups = asking
                .call(DOING, deadline, |client| async move { client.list_api_groups().await });
            groups.await.map(|groups| Some(announced(groups)))
        };
        let answer = self.0.groups.get(&(), deadline, lookup).await;
        let groups = answer.map_err(|error| no_answer(connection, error))?.value;
        Ok(groups.unwrap_or_default())
    }

    /// Reads the lists, several at once. Each comes with its index in `lists` as soon as it arrives.
    fn read(
        &self,
        connection: &Connection,
        lists: &[String],
        deadline: Deadline,
    ) -> impl Stream<Item = (usize, Result<Arc<List>, Error>)> {
        let one = move |(index, api_version): (usize, &String)| {
            let (asking, asked) = (connection.clone(), api_version.clone());
            let lookup = move |deadline: Deadline| async move {
                let most = if asked == CORE { LIST } else { GROUP };
                read(&asking, &asked, deadline.within(most)).await.map(Some)
            };
            let api_version = api_version.clone();
            async move {
                let answer = self.0.lists.get(&api_version, deadline, lookup).await;
                let answer = answer.map_err(|error| no_answer(connection, error));
                (
                    index,
                    answer.map(|answer| answer.value.unwrap_or_else(|| Arc::new(Ok(Vec::new())))),
                )
            }
        };
        let reading: Vec<_> = lists.iter().enumerate().map(one).collect();
        stream::iter(reading).buffer_unordered(LISTS_AT_ONCE)
    }
}

const DOING: &str = "discovering its kinds";

/// Reads one list. The inner error is the list's, the outer one the cluster's.
async fn read(
    connection: &Connection,
    api_version: &str,
    deadline: Deadline,
) -> Result<List, Error> {
    let root = if api_version == CORE { "api" } else { "apis" };
    let path = format!("/{root}/{api_version}");
    let list = connection.call(DOING, deadline, |client| async move {
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        client.request::<APIResourceList>(request).await
    });
    match list.await {
        Ok(list) => Ok(Ok(served(api_version, list))),
        // Without its core group nothing is known of a cluster.
        Err(error) if api_version == CORE => Err(error),
        // The last kind of the group was removed after the groups were read.
        Err(Error::Refused { status, .. }) if status.code == 404 => Ok(Ok(Vec::new())),
        Err(error @ (Error::Refused { .. } | Error::TooLate { .. })) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

fn announced(list: APIGroupList) -> Vec<Group> {
    let group = |group: k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup| {
        let preferred = group.preferred_version.map(|preferred| preferred.version);
        let mut versions: Vec<_> =
            group.versions.into_iter().map(|version| version.version).collect();
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        Group { name: group.name, versions }
    };
    list.groups.into_iter().map(group).collect()
}

fn served(api_version: &str, list: APIResourceList) -> Vec<ServedKind> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (subresources, kinds): (Vec<_>, Vec<_>) =
        list.resources.into_iter().partition(|resource| resource.name.contains('/'));
    let below = |plural: &str| {
        let names = subresources.iter().filter_map(|resource| resource.name.split_once('/'));
        names.filter(|(parent, _)| *parent == plural).map(|(_, name)| name.to_owned()).collect()
    };
    let found =
        |resource: k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource| ServedKind {
            subresources: below(&resource.name),
            // Older servers leave it out for built-in kinds.
            singular: Some(resource.singular_name)
                .filter(|singular| !singular.is_empty())
                .unwrap_or_else(|| resource.kind.to_lowercase()),
            resource: ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                api_version: api_version.to_owned(),
                kind: resource.kind,
                plural: resource.name,
            },
            namespaced: resource.namespaced,
            verbs: resource.verbs,
            short_names: resource.short_names.unwrap_or_default(),
            categories: resource.categories.unwrap_or_default(),
        };
    kinds.into_iter().map(found).collect()
}

/// Whether the server says that there is no such kind, as opposed to no such object. It says so in
/// plain text, or in a status that names no object.
pub(crate) fn is_no_such_kind(status: &Status) -> bool {
    let object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    status.code == 404 && !object
}

fn no_answer(connection: &Connection, error: LookupError<Error>) -> Error {
    let cluster = connection.cluster().to_owned();
    match error {
        LookupError::Failed(error) => (*error).clone(),
        LookupError::TooSlow(_) | LookupError::Expired => too_late(connection),
        LookupError::Busy { retry_after } => Error::Busy {
            cluster,
            why: "too many kinds are being looked up".to_owned(),
            retry_after,
        },
        LookupError::Panicked(_) => {
            Error::Unreachable { cluster, doing: DOING.to_owned(), source: Arc::new(error) }
        }
    }
}

fn too_late(connection: &Connection) -> Error {
    Error::TooLate { cluster: connection.cluster().to_owned(), doing: DOING.to_owned() }
}

impl Kinds {
    fn add(&mut self, list: &[ServedKind]) {
        for found in list {
            let same = |have: &&ServedKind| {
                have.resource.plural == found.resource.plural
                    && have.resource.group == found.resource.group
            };
            if !self.kinds.iter().any(|have| same(&have)) {
                self.kinds.push(found.clone());
            }
        }
    }
}

impl Vocabulary {
    fn learn(&mut self, list: &[ServedKind]) {
        for found in list {
            self.names.push(found.resource.plural.clone());
            self.names.extend(found.short_names.iter().cloned());
        }
    }

    fn hint(&self, word: &str) -> String {
        let mut hint = match kind_query::nearest(&word.to_lowercase(), &self.names).as_slice() {
            [] => String::new(),
            names => format!("; did you mean {}?", names.join(", ")),
        };
        if !self.failed.is_empty() {
            hint.push_str("; could not ask ");
            hint.push_str(&self.failed.join(", "));
        }
        hint
    }
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
