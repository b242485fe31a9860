//! The topics `rows` and `events`: tables of one or several clusters, each cluster's part a stream of
//! its own, so that a dead one is a state and never a wait for the others.
//!
//! Contract: what may not be seen is in no frame, not even its uid. A part goes on only as long as the
//! scope that it was opened with is that of its user.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use access::{Identity, Permissions, Verb};
use fleet::resources::{
    Column, Entry, LiveRow, TableForm, TableKey, TableState, TableSubscription, TableView,
};
use fleet::{Error, FleetView, State as ClusterWell};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use objects::Selector;
use serde::Deserialize;
use serde_json::Value;
use stallproof::Deadline;
use stallproof::snapshot::Changes;
use tokio::time::{Instant, sleep_until};

use super::frames::{self, ClusterState};
use super::{CLUSTERS, Frames};
use crate::api::listing::exact;
use crate::api::rights::LOST;
use crate::api::scope::{Scope, resource};
use crate::api::trail::Trail;
use crate::api::{Api, Caller, ErrorCode, Problem, Rights, sse};

/// The most often that changes are told.
const PACE: Duration = Duration::from_millis(100);
/// Rows of one frame: some hundred kilobytes, which take a millisecond to compress.
const CHUNK: usize = 400;
/// For finding the kind in a cluster.
const FIND: Duration = Duration::from_secs(10);
/// How long until a cluster that could not be asked for the kind is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// How often the state is looked at when nothing happens: the latency is news, too.
const LOOK: Duration = Duration::from_secs(5);
/// Namespaces of one query.
pub(super) const NAMESPACES: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowsParams {
    clusters: Vec<String>,
    kind: String,
    /// All that one may see unless said.
    namespaces: Option<Vec<String>>,
    labels: Option<String>,
    fields: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsParams {
    clusters: Vec<String>,
    namespaces: Option<Vec<String>>,
}

/// What is asked of each cluster: of 1 to [`NAMESPACES`] namespaces, or of all.
#[derive(Clone, Debug)]
pub(super) struct RowsQuery {
    kind: String,
    pub(super) namespaces: Option<Vec<String>>,
    labels: Option<(String, Selector)>,
    fields: Option<String>,
    form: TableForm,
}

/// Which clusters are asked, 1 to [`CLUSTERS`], and what.
pub(super) type ClustersAndQuery = (Vec<String>, RowsQuery);

impl RowsQuery {
    pub(super) fn rows(params: RowsParams) -> Result<ClustersAndQuery, Problem> {
        let RowsParams { clusters, kind, namespaces, labels, fields } = params;
        let labels = labels.filter(|labels| !labels.is_empty()).map(|text| {
            let selector = text.parse::<Selector>();
            selector.map(|selector| (text, selector))
        });
        let query = Self {
            kind,
            namespaces,
            labels: labels.transpose().map_err(|error| Problem::invalid(error.to_string()))?,
            fields: fields.filter(|fields| !fields.is_empty()),
            form: TableForm::Printed,
        };
        query.of(clusters)
    }

    pub(super) fn events(params: EventsParams) -> Result<ClustersAndQuery, Problem> {
        let EventsParams { clusters, namespaces } = params;
        let kind = "events.v1.".to_owned();
        Self { kind, namespaces, labels: None, fields: None, form: TableForm::Events }.of(clusters)
    }

    /// Of these clusters, within the bounds of both.
    fn of(self, clusters: Vec<String>) -> Result<ClustersAndQuery, Problem> {
        if clusters.is_empty() || clusters.len() > CLUSTERS {
            let detail = format!("say which clusters, 1 to {CLUSTERS} of them");
            return Err(Problem::invalid(detail));
        }
        let named = self.namespaces.as_ref();
        if named.is_some_and(|named| named.is_empty() || named.len() > NAMESPACES) {
            let detail = format!("name 1 to {NAMESPACES} namespaces, or none for all");
            return Err(Problem::invalid(detail));
        }
        Ok((clusters, self))
    }

    /// What a token is good for: these parameters, and what this user may see by them.
    fn seal(&self, permissions: &Permissions) -> u64 {
        let mut hasher = DefaultHasher::new();
        let labels = self.labels.as_ref().map(|(text, _)| text);
        (&self.kind, &self.namespaces, labels, &self.fields).hash(&mut hasher);
        format!("{permissions:?}").hash(&mut hasher);
        hasher.finish()
    }
}

/// A stream for each cluster.
pub(super) fn streams(
    api: &Api,
    caller: &Caller,
    id: u64,
    (clusters, query): &ClustersAndQuery,
    resume: Option<&Value>,
) -> Vec<Frames> {
    let alone = clusters.len() == 1;
    let token = |cluster: &str| match resume? {
        Value::String(token) => alone.then_some(token.as_str()),
        tokens => tokens.get(cluster)?.as_str(),
    };
    let part = |cluster: &String| {
        let resume = token(cluster).and_then(Token::read);
        ClusterRows::open(api, caller, id, cluster, query.clone(), resume)
    };
    clusters.iter().map(part).collect()
}

/// Where a reader is: `EPOCH.REVISION.SEAL`, in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    epoch: u64,
    revision: u64,
    seal: u64,
}

impl Token {
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(|part| u64::from_str_radix(part, 16).ok());
        let token = Self { epoch: parts.next()??, revision: parts.next()??, seal: parts.next()?? };
        parts.next().is_none().then_some(token)
    }

    pub(super) fn text(self) -> String {
        format!("{:x}.{:x}.{:x}", self.epoch, self.revision, self.seal)
    }
}

/// Which rows a reader is shown.
#[derive(Debug)]
struct Filter {
    scope: Scope,
    labels: Option<Selector>,
    /// The only namespace that is asked for, if there is one.
    namespace: Option<String>,
}

impl Filter {
    fn new(
        caller: &Caller,
        cluster: &str,
        found: &fleet::ServedKind,
        query: &RowsQuery,
    ) -> Result<Self, Problem> {
        let named = query.namespaces.as_deref().unwrap_or_default();
        let only = match named {
            [only] if found.namespaced => Some(only.clone()),
            _ => None,
        };
        Ok(Self {
            scope: Scope::list_among(caller, cluster, found, named, Verb::Watch)?,
            labels: query.labels.as_ref().map(|(_, selector)| selector.clone()),
            namespace: only,
        })
    }

    /// Whether the object may be seen and is asked for, as far as its name says.
    fn shows(&self, namespace: Option<&str>, name: &str) -> bool {
        self.namespace.as_deref().is_none_or(|only| namespace == Some(only))
            && self.scope.has(namespace, name)
    }

    fn selects(&self, row: &LiveRow) -> bool {
        self.labels.as_ref().is_none_or(|labels| labels.matches(Some(&row.labels())))
    }

    fn is_whole(&self) -> bool {
        self.labels.is_none() && self.namespace.is_none() && self.scope.is_whole()
    }
}

/// One cluster's part of a subscription.
struct ClusterRows {
    api: Api,
    who: Identity,
    trail: Trail,
    id: u64,
    cluster: String,
    query: RowsQuery,
    resume: Option<Token>,
    seal: u64,
    fleet: Changes<FleetView>,
    told_state: Option<ClusterState>,
    frames: VecDeque<String>,
    rights: Rights,
    /// Whether it has gone over to the table of the one namespace that is asked for.
    in_namespace: bool,
    stage: Stage,
}

enum Stage {
    /// The kind is not known yet: the cluster does not answer.
    Opening {
        not_before: Instant,
        why: Option<String>,
    },
    Open(Box<Reader>),
    Ended,
}

/// Reads a table.
struct Reader {
    filter: Arc<Filter>,
    /// None of a part in which nothing can be.
    table: Option<TableSubscription>,
    changes: Option<Changes<TableView>>,
    cursor: u64,
    columns: Arc<[Column]>,
    /// Whether the first list was told to its end.
    synced: bool,
    /// Whether it goes on from where the client was.
    resumed: bool,
    not_before: Instant,
}

impl ClusterRows {
    fn open(
        api: &Api,
        caller: &Caller,
        id: u64,
        cluster: &str,
        query: RowsQuery,
        resume: Option<Token>,
    ) -> Frames {
        let key = format!("rows {}", query.kind);
        let place = match sse::open(api, caller, "subscription", key, cluster.to_owned()) {
            Ok(place) => place,
            Err(problem) => {
                let end = frames::end(Some(id), Some(cluster), &problem);
                return stream::iter([end]).boxed();
            }
        };
        let seal = query.seal(&caller.permissions);
        let named = cluster.to_owned();
        let part = Self {
            api: api.clone(),
            who: caller.who.clone(),
            trail: caller.trail.clone(),
            id,
            cluster: cluster.to_owned(),
            query,
            resume: resume.filter(|token| token.seal == seal),
            seal,
            fleet: api.fleet.changes(),
            told_state: None,
            frames: VecDeque::new(),
            rights: Rights::new(api, caller, move |now| now.may_see_cluster(&named)),
            in_namespace: false,
            stage: Stage::Opening { not_before: Instant::now(), why: None },
        };
        let frames = stream::unfold(part, async |mut part| Some((part.next().await?, part)));
        let stopping = {
            let problem = Problem::new(ErrorCode::NotReady, sse::STOPPING);
            let end = frames::end(Some(id), Some(cluster), &problem);
            move || end
        };
        sse::until_stopped(api, place, frames, stopping).boxed()
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                if matches!(self.stage, Stage::Ended) || self.rights.are_held() {
                    return Some(frame);
                }
                self.lose();
                continue;
            }
            match &mut self.stage {
                Stage::Ended => return None,
                Stage::Opening { .. } => self.try_open().await,
                Stage::Open(_) => self.read().await,
            }
        }
    }

    fn end(&mut self, problem: &Problem) {
        self.frames.clear();
        self.frames.push_back(frames::end(Some(self.id), Some(&self.cluster), problem));
        self.stage = Stage::Ended;
    }

    fn lose(&mut self) {
        self.end(&Problem::new(ErrorCode::Forbidden, LOST));
    }

    /// The caller with the permissions of this moment.
    fn caller(&self, permissions: Arc<Permissions>) -> Caller {
        let (who, trail) = (self.who.clone(), self.trail.clone());
        Caller { who, permissions, deadline: Deadline::after(FIND), trail }
    }

    /// Looks for the kind, decides, and subscribes; or waits until the cluster may answer.
    async fn try_open(&mut self) {
        let Stage::Opening { not_before, why } = &self.stage else { return };
        let (not_before, why) = (*not_before, why.clone());
        let permissions = self.api.access.permissions(&self.who);
        let there = self.api.fleet.view().clusters.contains_key(self.cluster.as_str());
        if !there || !permissions.may_see_cluster(&self.cluster) {
            return self.end(&Problem::no_such_cluster(&self.cluster));
        }
        let now = Instant::now();
        let found = match self.caller(permissions.clone()).connection(&self.api, &self.cluster) {
            Ok(connection) if not_before <= now => {
                self.tell_state(None, why.as_deref());
                if !self.frames.is_empty() {
                    // It says that it is connecting before it waits for the cluster.
                    return;
                }
                let finding = connection.find(&self.query.kind, Deadline::after(FIND));
                tokio::select! {
                    found = finding => found,
                    () = self.rights.lost() => return self.lose(),
                }
            }
            connection => {
                self.tell_state(None, why.as_deref());
                if self.frames.is_empty() {
                    // Until the fleet says otherwise, or it is time to ask again.
                    let until = if connection.is_ok() { not_before } else { now + LOOK };
                    tokio::select! {
                        _ = self.fleet.changed() => {}
                        () = sleep_until(until) => {}
                        () = self.rights.lost() => self.lose(),
                    }
                }
                return;
            }
        };
        let caller = self.caller(permissions);
        match found {
            Ok(found) => {
                if let Err(problem) = self.subscribe(&caller, &found, None) {
                    self.end(&problem);
                }
            }
            Err(error @ (Error::NoSuchKind { .. } | Error::Invalid(_))) => {
                self.end(&Problem::from(error));
            }
            Err(error) => {
                let not_before = Instant::now() + AGAIN;
                self.stage = Stage::Opening { not_before, why: Some(stallproof::sentence(&error)) };
            }
        }
    }

    /// Subscribes to the table of all namespaces, or to that of one.
    fn subscribe(
        &mut self,
        caller: &Caller,
        found: &fleet::ServedKind,
        namespace: Option<String>,
    ) -> Result<(), Problem> {
        let filter = Arc::new(Filter::new(caller, &self.cluster, found, &self.query)?);
        let within = (self.cluster.as_str(), namespace.as_deref());
        caller.note_secret(&self.api, Verb::Watch, within, (&resource(&found.resource), None))?;
        let view = self.api.fleet.view();
        // Where users act under their own names, nobody sees what another was shown.
        let identity = view.is_impersonating(&self.cluster).then(|| caller.actor(&self.api));
        let held = Arc::clone(&filter);
        self.rights = Rights::new(&self.api, caller, move |now| filter.scope.holds(now));
        let filter = held;
        let table = if filter.scope.is_empty() {
            None
        } else {
            Some(self.api.fleet.table(TableKey {
                cluster: self.cluster.as_str().into(),
                kind: exact(found),
                namespace,
                fields: self.query.fields.clone(),
                identity,
                form: self.query.form,
            })?)
        };
        let resume = self.resume.take().zip(table.as_ref()).filter(|(token, table)| {
            let view = table.view();
            view.synced && view.can_resume(token.epoch, token.revision)
        });
        let cursor = resume.map_or(0, |(token, _)| token.revision);
        let resumed = resume.is_some();
        if !resumed {
            self.frames.push_back(frames::reset(self.id, &self.cluster));
        }
        self.stage = Stage::Open(Box::new(Reader {
            filter,
            changes: table.as_ref().map(TableSubscription::changes),
            table,
            cursor,
            columns: Arc::new([]),
            synced: false,
            resumed,
            not_before: Instant::now(),
        }));
        Ok(())
    }

    /// Tells what there is to tell, or waits until there is something.
    async fn read(&mut self) {
        let Stage::Open(reader) = &mut self.stage else { return };
        let Some(view) = reader.table.as_ref().map(TableSubscription::view) else {
            if !std::mem::replace(&mut reader.synced, true) {
                let token = Token { epoch: 0, revision: 0, seal: self.seal };
                let synced = frames::synced(self.id, &self.cluster, 0, &token.text());
                self.frames.push_back(synced);
            }
            self.tell_state(None, None);
            return self.wait().await;
        };
        match &view.state {
            TableState::Ended(why) => {
                let problem = Problem::new(ErrorCode::Overloaded, why.to_string());
                return self.retry_in_namespace(problem.of_cluster(&self.cluster)).await;
            }
            TableState::Interrupted { refused: true, why, .. } if !view.synced => {
                let problem = Problem::new(ErrorCode::Refused, why.to_string());
                if reader.filter.namespace.is_some() && !self.in_namespace {
                    return self.retry_in_namespace(problem.of_cluster(&self.cluster)).await;
                }
            }
            _ => {}
        }
        self.tell_state(Some(&view), None);
        let Stage::Open(reader) = &mut self.stage else { return };
        if *reader.columns != *view.columns {
            reader.columns = Arc::clone(&view.columns);
            let columns = frames::columns(self.id, &self.cluster, &view.columns);
            self.frames.push_back(columns);
        }
        if reader.not_before <= Instant::now() {
            let told = reader.chunk(&view, (self.id, &self.cluster, self.seal));
            self.frames.extend(told);
        }
        if self.frames.is_empty() {
            self.wait().await;
        }
    }

    /// Where the whole table cannot be had and one namespace is asked for, that one may be.
    async fn retry_in_namespace(&mut self, problem: Problem) {
        let Stage::Open(reader) = &self.stage else { return };
        let namespace = reader.filter.namespace.clone();
        let (Some(namespace), false) = (namespace, self.in_namespace) else {
            return self.end(&problem);
        };
        let caller = self.caller(self.api.access.permissions(&self.who));
        let found = match caller.connection(&self.api, &self.cluster) {
            Ok(connection) => connection.find(&self.query.kind, Deadline::after(FIND)).await,
            Err(error) => Err(error),
        };
        let subscribed = found
            .map_err(Problem::from)
            .and_then(|found| self.subscribe(&caller, &found, Some(namespace)));
        match subscribed {
            Ok(()) => self.in_namespace = true,
            Err(problem) => self.end(&problem),
        }
    }

    /// Waits until something may be new.
    async fn wait(&mut self) {
        let Stage::Open(reader) = &mut self.stage else { return };
        let Self { fleet, rights, .. } = self;
        let pace = reader.not_before;
        let changed = async {
            match &mut reader.changes {
                Some(changes) => drop(changes.changed().await),
                None => std::future::pending().await,
            }
            sleep_until(pace).await;
        };
        tokio::select! {
            () = changed => {}
            // What was not told for the sake of the pace.
            () = sleep_until(pace), if pace > Instant::now() => {}
            _ = fleet.changed() => {}
            () = sleep_until(Instant::now() + LOOK) => {}
            () = rights.lost() => self.lose(),
        }
    }

    /// Says how it stands with the cluster, if that is news.
    fn tell_state(&mut self, table: Option<&TableView>, why: Option<&str>) {
        let fleet = self.api.fleet.view();
        let Some(cluster) = fleet.clusters.get(self.cluster.as_str()) else {
            return self.end(&Problem::no_such_cluster(&self.cluster));
        };
        let has_rows = table.is_some_and(|table| table.synced);
        let away = if has_rows { "stale" } else { "unreachable" };
        let nothing = matches!(&self.stage, Stage::Open(reader) if reader.table.is_none());
        let mut state = ClusterState {
            state: "live",
            since: cluster.since,
            why: cluster.why.clone(),
            next_try_at: cluster.next_try,
            latency_ms: cluster.heartbeat.latency().map(|time| time.as_secs_f64() * 1000.0),
        };
        if cluster.is_usable() {
            state.next_try_at = None;
            match table.map(|table| &table.state) {
                Some(TableState::Interrupted { since, why, refused, next_try }) => {
                    state.state = if *refused && !has_rows { "forbidden" } else { away };
                    (state.since, state.why) = (*since, Some(why.to_string()));
                    state.next_try_at = Some(*next_try);
                }
                Some(TableState::Live) => {}
                Some(TableState::Listing | TableState::Ended(_)) => state.state = "connecting",
                None if nothing => {}
                None => {
                    state.state = if why.is_some() { "unreachable" } else { "connecting" };
                    state.why = why.map(ToOwned::to_owned).or(state.why);
                }
            }
        } else {
            state.state = match cluster.state {
                ClusterWell::Connecting if !has_rows => "connecting",
                ClusterWell::Unauthorised if !has_rows => "forbidden",
                _ => away,
            };
            let disabled = cluster.state == ClusterWell::Disabled && state.why.is_none();
            if disabled {
                state.why = Some("it is disabled; enable it first".to_owned());
            }
        }
        if self.told_state.as_ref().is_none_or(|told| is_news(told, &state)) {
            self.frames.push_back(frames::state(self.id, &self.cluster, &state));
            self.told_state = Some(state);
        }
    }
}

/// Whether a state says something else. A latency does when it has changed by a quarter.
fn is_news(told: &ClusterState, now: &ClusterState) -> bool {
    let latency = |state: &ClusterState| state.latency_ms.unwrap_or(-1.0);
    let (before, after) = (latency(told), latency(now));
    let moved = (before - after).abs() > (before.abs() / 4.0).max(5.0);
    let without = |state: &ClusterState| ClusterState {
        latency_ms: None,
        // The time of the last probe; a state is news when it is another one.
        since: if state.state == "live" { Timestamp::UNIX_EPOCH } else { state.since },
        ..state.clone()
    };
    moved || without(told) != without(now)
}

impl Reader {
    /// The next frames: rows of the first list, what changed since, that the list is complete.
    fn chunk(&mut self, view: &TableView, (id, cluster, seal): (u64, &str, u64)) -> Vec<String> {
        let (mut rows, mut deleted, mut count) = (String::new(), String::new(), 0);
        let mut cursor = self.cursor;
        for (revision, entry) in view.since(self.cursor) {
            let (target, value) = match entry {
                Entry::Row(row) if !self.filter.shows(row.namespace.as_deref(), &row.name) => {
                    cursor = revision;
                    continue;
                }
                Entry::Row(row) if self.filter.selects(row) => (&mut rows, Ok(&*row.json)),
                // It may have been selected before: its labels have changed.
                Entry::Row(row) => (&mut deleted, Err(&*row.uid)),
                Entry::Removed(row) if self.filter.shows(row.namespace.as_deref(), &row.name) => {
                    (&mut deleted, Err(&*row.uid))
                }
                Entry::Removed(_) => {
                    cursor = revision;
                    continue;
                }
            };
            if count == CHUNK {
                break;
            }
            cursor = revision;
            // Nothing was told yet that could be taken back.
            if value.is_err() && self.cursor == 0 {
                continue;
            }
            count += 1;
            if !target.is_empty() {
                target.push(',');
            }
            match value {
                Ok(json) => target.push_str(json),
                Err(uid) => target.push_str(&Value::from(uid).to_string()),
            }
        }
        let complete = count < CHUNK;
        self.cursor = if complete { view.revision } else { cursor };
        let resume = Token { epoch: view.epoch, revision: self.cursor, seal }.text();
        let mut told = Vec::new();
        if !self.synced && !self.resumed && !rows.is_empty() {
            let head = frames::head(Some(id), Some(cluster), "rows");
            told.push(format!("{head},\"rows\":[{rows}]}}"));
            rows.clear();
        }
        if !rows.is_empty() || !deleted.is_empty() {
            let head = frames::head(Some(id), Some(cluster), "changes");
            told.push(format!(
                "{head},\"applied\":[{rows}],\"deleted\":[{deleted}],\"resume\":\"{resume}\"}}"
            ));
        }
        if complete && view.synced && !self.synced {
            self.synced = true;
            let count = self.count(view);
            told.push(frames::synced(id, cluster, count, &resume));
        }
        if complete && self.synced && !told.is_empty() {
            self.not_before = Instant::now() + PACE;
        }
        told
    }

    /// How many rows the client has by now.
    fn count(&self, view: &TableView) -> usize {
        if self.filter.is_whole() {
            return view.count;
        }
        let is_shown = |entry: &Entry| match entry {
            Entry::Row(row) => {
                self.filter.shows(row.namespace.as_deref(), &row.name) && self.filter.selects(row)
            }
            Entry::Removed(_) => false,
        };
        view.since(0).filter(|(_, entry)| is_shown(entry)).count()
    }
}

#[cfg(test)]
mod tests;
