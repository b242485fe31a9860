//! An object with what is around it, and what happened: as far as each may be seen.

use std::collections::BTreeMap;

use access::{AccessRequest, Permissions, Verb};
use axum::Json;
use axum::extract::{Path, State};
use fleet::Connection;
use fleet::resources::{self, About, Branch, Node};
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde::Serialize;
use stallproof::Deadline;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::listing::exact;
use super::resources::{Chosen, Within, choose};
use super::scope::{Scope, is_visible, resource};
use super::{Api, Caller, Problem, Query, Route, Routes};

/// The events of the core group, which every server has.
const EVENTS: &str = "events.v1.";

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list(), routes!(describe))
        .with(Route::list(), routes!(events_of_object))
        .with(Route::list(), routes!(events))
}

/// What Kubernetes says that happened.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) last_seen: Option<Timestamp>,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    object: Involved,
    message: String,
    count: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    source: String,
}

/// Whom it happened to.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Involved {
    kind: String,
    name: String,
}

impl Event {
    pub(crate) fn of(mut self, cluster: &str) -> Self {
        self.cluster = Some(cluster.to_owned());
        self
    }
}

impl From<resources::Event> for Event {
    fn from(event: resources::Event) -> Self {
        let (kind, name) = event.object.split_once('/').unwrap_or(("", &event.object));
        Self {
            cluster: None,
            namespace: event.namespace,
            last_seen: event.last_seen,
            kind: event.kind,
            reason: event.reason,
            object: Involved { kind: kind.to_owned(), name: name.to_owned() },
            message: event.message,
            count: event.count,
            source: event.source,
        }
    }
}

/// The events of a cluster, or of one object, that the caller may see; the latest first.
pub(crate) async fn events_seen(
    connection: &Connection,
    caller: &Caller,
    about: About<'_>,
    deadline: Deadline,
) -> Result<Result<Vec<Event>, Problem>, fleet::Error> {
    let namespace = match about {
        About::All => None,
        About::Namespace(namespace) => Some(namespace),
        About::Object(object) => object.metadata.namespace.as_deref(),
    };
    let cluster = connection.cluster();
    let found = connection.find(EVENTS, deadline).await?;
    let scope = match Scope::list(caller, cluster, &found, namespace, Verb::List) {
        Ok(scope) if scope.is_empty() => return Ok(Ok(Vec::new())),
        Ok(scope) => scope,
        Err(refused) => return Ok(Err(refused)),
    };
    let events = resources::events(connection, about, deadline).await?.items.into_iter();
    let seen = events.filter(|event| scope.has(event.namespace.as_deref(), "")).map(Event::from);
    // What happens to a namespace is told in another one.
    let named = |event: &Event| {
        event.object.kind != "namespace"
            || caller.permissions.may_see_namespace(cluster, &event.object.name)
    };
    Ok(Ok(seen.filter(named).collect()))
}

#[derive(Debug, Serialize, ToSchema)]
struct Events {
    /// The latest first.
    events: Vec<Event>,
}

/// Events of a namespace, or of all
#[utoipa::path(
    get, path = "/clusters/{cluster}/events", tag = "resources", params(Within),
    responses((status = 200, description = "The latest first", body = Events))
)]
async fn events(
    State(api): State<Api>,
    caller: Caller,
    Path(cluster): Path<String>,
    Query(asked): Query<Within>,
) -> Result<Json<Events>, Problem> {
    let connection = caller.connection(&api, &cluster)?;
    let about = asked.namespace.as_deref().map_or(About::All, About::Namespace);
    let events = events_seen(&connection, &caller, about, caller.deadline).await??;
    Ok(Json(Events { events }))
}

/// Events of one object
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/{kind}/{name}/events", tag = "resources",
    params(Within), responses((status = 200, description = "The latest first", body = Events))
)]
async fn events_of_object(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Within>,
) -> Result<Json<Events>, Problem> {
    let object = (&*cluster, &*kind, &*name);
    let Chosen { connection, found, target } =
        choose(&api, &caller, object, asked.namespace.as_deref(), Verb::Get).await?;
    let object =
        resources::get(&connection, &exact(&found), target.namespace(), &name, caller.deadline)
            .await?;
    let about = About::Object(&object);
    let events = events_seen(&connection, &caller, about, caller.deadline).await??;
    Ok(Json(Events { events }))
}

#[derive(Debug, Serialize, ToSchema)]
struct Description {
    #[schema(value_type = Object)]
    object: DynamicObject,
    /// In a word, as kubectl's STATUS has it.
    state: String,
    /// The latest first.
    events: Vec<Event>,
    /// The nearest first.
    owners: Vec<Related>,
    /// What it owns, and what that owns.
    owned: Vec<Related>,
    /// What could not be found out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Related {
    api_version: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    status: String,
}

impl From<&Node> for Related {
    fn from(node: &Node) -> Self {
        Self {
            api_version: node.api_version.clone(),
            kind: node.kind.clone(),
            namespace: node.namespace.clone(),
            name: node.name.clone(),
            status: node.state.clone(),
        }
    }
}

/// An object with its events, its owners and what it owns
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/{kind}/{name}/describe", tag = "resources",
    params(Within),
    responses((status = 200, description = "As far as each may be seen", body = Description))
)]
async fn describe(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Within>,
) -> Result<Json<Description>, Problem> {
    let object = (&*cluster, &*kind, &*name);
    let Chosen { connection, found, target } =
        choose(&api, &caller, object, asked.namespace.as_deref(), Verb::Get).await?;
    let (kind, deadline) = (exact(&found), caller.deadline);
    let within = (&*cluster, target.namespace());
    caller.note_secret(&api, Verb::Get, within, (&resource(&found.resource), Some(&name)))?;
    let mut object =
        resources::get(&connection, &kind, target.namespace(), &name, deadline).await?;
    super::listing::tidy(&mut object);
    let (events, tree) = futures::join!(
        events_seen(&connection, &caller, About::Object(&object), deadline),
        resources::tree(&connection, &object, deadline),
    );
    let mut problems = Vec::new();
    let events = events.map_err(Problem::from).flatten().unwrap_or_else(|problem| {
        problems.push(format!("events: {}", problem.detail()));
        Vec::new()
    });
    if target.namespace().is_some() {
        problems.extend(tree.incomplete);
    } else if !tree.incomplete.is_empty() {
        // What was cut short counts what is in every namespace.
        problems.push("not everything around it could be read".to_owned());
    }
    let around = Around::of(&connection, &tree.owners, &tree.owned, deadline).await;
    let seen = |node: &&Node| around.shows(&caller.permissions, &cluster, node);
    let owners = tree.owners.iter().filter(seen).map(Related::from).collect();
    let mut owned = Vec::new();
    each(&tree.owned, &mut |node| owned.extend(Some(node).filter(seen).map(Related::from)));
    let state = resources::state(&object);
    Ok(Json(Description { object, state, events, owners, owned, problems }))
}

pub(super) fn each<'a>(branches: &'a [Branch], look: &mut impl FnMut(&'a Node)) {
    for branch in branches {
        look(&branch.node);
        each(&branch.owned, look);
    }
}

/// The kinds around an object: what roles call them, and whether they are in namespaces. An object of
/// a kind that cannot be found is not shown: nobody can say whether it may be.
pub(super) struct Around(BTreeMap<(String, String), (String, bool)>);

impl Around {
    pub(super) async fn of(
        connection: &Connection,
        owners: &[Node],
        owned: &[Branch],
        deadline: Deadline,
    ) -> Self {
        let mut kinds = BTreeMap::new();
        let mut note = |node: &Node| {
            kinds.insert((node.api_version.clone(), node.kind.clone()), None);
        };
        owners.iter().for_each(&mut note);
        each(owned, &mut note);
        for ((api_version, kind), named) in &mut kinds {
            if let Ok(found) = connection.find_kind(api_version, kind, deadline).await {
                *named = Some((resource(&found.resource), found.namespaced));
            }
        }
        Self(kinds.into_iter().filter_map(|(kind, named)| Some((kind, named?))).collect())
    }

    pub(super) fn shows(&self, permissions: &Permissions, cluster: &str, node: &Node) -> bool {
        let kind = (node.api_version.clone(), node.kind.clone());
        self.0.get(&kind).is_some_and(|(resource, namespaced)| {
            let namespace = node.namespace.as_deref().filter(|_| *namespaced);
            let ask = AccessRequest { cluster, namespace, resource, verb: Verb::Get };
            is_visible(permissions, cluster, namespace, resource, &node.name)
                && access::decide(permissions, &ask).is_allowed()
        })
    }
}

#[cfg(test)]
mod tests;
