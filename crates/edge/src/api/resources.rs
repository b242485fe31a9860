//! The objects of one cluster: read, changed, described.

use std::collections::BTreeMap;

use ::access::{Ask, Verb};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::Json;
use fleet::resources::{self, ListQuery, Table, Target};
use fleet::{Connection, Found};
use futures::StreamExt;
use http::{HeaderMap, StatusCode, header};
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};

use super::door::Asker;
use super::problem::{Code, Problem};
use super::scope::{Scope, resource};
use super::{Api, sse};
use crate::reply::Asked;

/// One page of objects.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Objects {
    #[schema(value_type = Vec<Object>)]
    items: Vec<DynamicObject>,
    /// Where to go on, if this is not all.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    more: Option<String>,
    /// How many there are beyond these, as far as it is known and may be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<i64>,
}

/// How objects are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum As {
    #[default]
    Object,
    /// As kubectl prints them.
    Table,
    /// As kubectl prints them with `-o wide`.
    Wide,
}

#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    /// All namespaces when none is named.
    pub(crate) namespace: Option<String>,
    /// A label selector: `app=web,tier!=cache`.
    pub(crate) labels: Option<String>,
    /// A field selector: `status.phase=Running`.
    pub(crate) fields: Option<String>,
    pub(crate) limit: Option<u32>,
    /// Where an earlier list stopped.
    #[serde(rename = "continue")]
    pub(crate) more: Option<String>,
    #[serde(default, rename = "as")]
    pub(crate) form: As,
    /// Seconds, or a duration such as `1m30s`.
    pub(crate) timeout: Option<String>,
}

impl Listed {
    pub(crate) fn query(&self, found: &Found) -> ListQuery {
        ListQuery {
            kind: exact(found),
            namespace: self.namespace.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            limit: self.limit,
            continue_token: self.more.clone(),
        }
    }
}

/// The word that means this kind and no other: what was decided on is what is asked for.
pub(crate) fn exact(found: &Found) -> String {
    let kind = &found.resource;
    format!("{}.{}.{}", kind.plural, kind.version, kind.group)
}

pub(crate) async fn list(
    State(api): State<Api>,
    asker: Asker,
    Path((cluster, kind)): Path<(String, String)>,
    Asked(asked): Asked<Listed>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let connection = api.fleet.connection(&cluster)?;
    let found = connection.find(&kind, asker.deadline).await?;
    if sse::wanted(&headers) {
        return super::watch::open(&api, &asker, &cluster, &found, &asked).await;
    }
    let scope = Scope::list(&asker, &cluster, &found, asked.namespace.as_deref(), Verb::List)?;
    let query = asked.query(&found);
    Ok(match asked.form {
        As::Object => Json(objects(&connection, &scope, &query, &asker).await?).into_response(),
        form => Json(table(&connection, &scope, &query, form, &asker).await?).into_response(),
    })
}

async fn objects(
    connection: &Connection,
    scope: &Scope,
    query: &ListQuery,
    asker: &Asker,
) -> Result<Objects, Problem> {
    if scope.is_empty() {
        return Ok(Objects { items: Vec::new(), more: None, remaining: None });
    }
    let page = resources::list(connection, query, asker.deadline).await?;
    Ok(seen(page, scope))
}

/// What of a page may be seen.
pub(crate) fn seen(page: resources::Page<DynamicObject>, scope: &Scope) -> Objects {
    let mut items = page.items;
    items.retain(|item| scope.has_object(item));
    for item in &mut items {
        item.metadata.managed_fields = None;
    }
    let remaining = page.remaining.filter(|_| scope.is_whole());
    Objects { items, more: page.continue_token, remaining }
}

pub(crate) async fn table(
    connection: &Connection,
    scope: &Scope,
    query: &ListQuery,
    form: As,
    asker: &Asker,
) -> Result<Table, Problem> {
    if scope.is_empty() {
        return Ok(Table::default());
    }
    let table = resources::table(connection, query, asker.deadline).await?;
    Ok(seen_rows(table, scope, form))
}

/// What of a table may be seen, in the width that is wanted.
pub(crate) fn seen_rows(mut table: Table, scope: &Scope, form: As) -> Table {
    table.rows.retain(|row| scope.has(row.namespace.as_deref(), &row.name));
    table.remaining = table.remaining.filter(|_| scope.is_whole());
    if form == As::Table {
        narrow(&mut table);
    }
    table
}

/// Leaves out what kubectl shows only with `-o wide`.
fn narrow(table: &mut Table) {
    let shown: Vec<bool> = table.columns.iter().map(|column| column.priority == 0).collect();
    for row in &mut table.rows {
        let mut shown = shown.iter();
        row.cells.retain(|_| shown.next().copied().unwrap_or(true));
    }
    table.columns.retain(|column| column.priority == 0);
}

/// One object of one cluster, and what may be done with it.
pub(crate) struct Chosen {
    pub(crate) connection: Connection,
    pub(crate) found: Found,
    pub(crate) target: Target,
}

/// Looks up the kind and decides. An object in a namespace that may not be seen is not there.
pub(crate) async fn choose(
    api: &Api,
    asker: &Asker,
    (cluster, kind, name): (&str, &str, &str),
    namespace: Option<&str>,
    verb: Verb,
) -> Result<Chosen, Problem> {
    let connection = api.fleet.connection(cluster)?;
    let found = connection.find(kind, asker.deadline).await?;
    let target = Target::new(&found, namespace, name)?;
    let resource = resource(&found);
    let hidden = match target.namespace() {
        Some(namespace) => !asker.permissions.may_see_namespace(cluster, namespace),
        None => resource == "namespaces" && !asker.permissions.may_see_namespace(cluster, name),
    };
    if hidden {
        return Err(absent(cluster, &resource, name));
    }
    asker.may(&Ask { cluster, namespace: target.namespace(), resource: &resource, verb })?;
    Ok(Chosen { connection, found, target })
}

/// In the words of an API server, so that what may not be seen cannot be told from what is not there.
fn absent(cluster: &str, resource: &str, name: &str) -> Problem {
    let status = kube::core::Status::failure(&format!("{resource} \"{name}\" not found"), "NotFound")
        .with_code(404)
        .boxed();
    Problem::from(fleet::Error::Refused { cluster: cluster.to_owned(), status })
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    /// Of objects that live in one.
    pub(crate) namespace: Option<String>,
    /// Seconds, or a duration such as `1m30s`.
    pub(crate) timeout: Option<String>,
}

type One = Path<(String, String, String)>;

pub(crate) async fn get(
    State(api): State<Api>,
    asker: Asker,
    Path((cluster, kind, name)): One,
    Asked(asked): Asked<Named>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let chosen =
        choose(&api, &asker, (&cluster, &kind, &name), asked.namespace.as_deref(), Verb::Get).await?;
    let Chosen { connection, found, target } = &chosen;
    let mut object =
        resources::get(connection, &exact(found), target.namespace(), &name, asker.deadline).await?;
    object.metadata.managed_fields = None;
    if headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/yaml") {
        let yaml = resources::yaml(&object, false)?;
        return Ok(([(header::CONTENT_TYPE, "application/yaml")], yaml).into_response());
    }
    Ok(Json(object).into_response())
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Deleting {
    namespace: Option<String>,
    #[serde(default)]
    dry_run: bool,
    /// Zero kills at once.
    grace_seconds: Option<u32>,
    #[param(value_type = Option<String>)]
    propagation: Option<resources::delete::Propagation>,
    /// This very object, not a later one of the same name.
    uid: Option<String>,
    timeout: Option<String>,
}

pub(crate) async fn delete(
    State(api): State<Api>,
    asker: Asker,
    Path((cluster, kind, name)): One,
    Asked(asked): Asked<Deleting>,
) -> Result<Response, Problem> {
    let namespace = asked.namespace.as_deref();
    let chosen = choose(&api, &asker, (&cluster, &kind, &name), namespace, Verb::Delete).await?;
    let how = resources::delete::How {
        propagation: asked.propagation,
        grace_seconds: asked.grace_seconds,
        dry_run: asked.dry_run,
        uid: asked.uid,
    };
    let deleted =
        resources::delete::delete(&chosen.connection, &chosen.target, &how, asker.deadline).await?;
    Ok(Json(deleted).into_response())
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scaling {
    replicas: u32,
}

pub(crate) async fn scale(
    State(api): State<Api>,
    asker: Asker,
    Path((cluster, kind, name)): One,
    Asked(asked): Asked<Named>,
    Json(scaling): Json<Scaling>,
) -> Result<Response, Problem> {
    let namespace = asked.namespace.as_deref();
    let chosen = choose(&api, &asker, (&cluster, &kind, &name), namespace, Verb::Scale).await?;
    let Chosen { connection, target, .. } = &chosen;
    let scaled =
        resources::scale::scale(connection, target, scaling.replicas, asker.deadline).await?;
    Ok(Json(scaled).into_response())
}

pub(crate) async fn restart(
    State(api): State<Api>,
    asker: Asker,
    Path((cluster, kind, name)): One,
    Asked(asked): Asked<Named>,
) -> Result<Response, Problem> {
    let namespace = asked.namespace.as_deref();
    let chosen = choose(&api, &asker, (&cluster, &kind, &name), namespace, Verb::Restart).await?;
    let restarted =
        resources::restart::restart(&chosen.connection, &chosen.target, asker.deadline).await?;
    Ok(Json(restarted).into_response())
}

type OneNode = Path<(String, String)>;

pub(crate) async fn cordon(
    State(api): State<Api>,
    asker: Asker,
    Path((cluster, node)): OneNode,
) -> Result<StatusCode, Problem> {
    let chosen = choose(&api, &asker, (&cluster, "nodes", &node), None, Verb::Cordon).await?;
    resources::nodes::cordon(&chosen.connection, &node, asker.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn uncordon(
    State(api): State<Api>,
    asker: Asker,
    Path((cluster, node)): OneNode,
) -> Result<StatusCode, Problem> {
    let chosen = choose(&api, &asker, (&cluster, "nodes", &node), None, Verb::Cordon).await?;
    resources::nodes::uncordon(&chosen.connection, &node, asker.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Empties a node. What happens to each pod comes as it happens (server-sent events), or all of it at
/// the end.
pub(crate) async fn drain(
    State(api): State<Api>,
    asker: Asker,
    Path((cluster, node)): OneNode,
    headers: HeaderMap,
    Json(allow): Json<resources::nodes::Allow>,
) -> Result<Response, Problem> {
    let chosen = choose(&api, &asker, (&cluster, "nodes", &node), None, Verb::Drain).await?;
    let progress = resources::nodes::drain(&chosen.connection, &node, allow, asker.deadline);
    if sse::wanted(&headers) {
        let events = progress.map(|progress| sse::event("progress", &progress));
        return sse::stream(&api, events);
    }
    let all: Vec<_> = progress.collect().await;
    Ok(Json(serde_json::json!({ "progress": all })).into_response())
}

/// An object with its events, its owners and what it owns: as far as each may be seen.
pub(crate) async fn describe(
    State(api): State<Api>,
    asker: Asker,
    Path((cluster, kind, name)): One,
    Asked(asked): Asked<Named>,
) -> Result<Response, Problem> {
    let chosen =
        choose(&api, &asker, (&cluster, &kind, &name), asked.namespace.as_deref(), Verb::Get).await?;
    let Chosen { connection, found, target } = &chosen;
    let described =
        resources::describe(connection, &exact(found), target.namespace(), &name, asker.deadline);
    let mut description = described.await?;
    let kinds = kinds_of(connection, &description, asker.deadline).await;
    let seen = |node: &resources::Node| {
        let Some(resource) = kinds.get(&(node.api_version.clone(), node.kind.clone())) else {
            return false;
        };
        let ask =
            Ask { cluster: &cluster, namespace: node.namespace.as_deref(), resource, verb: Verb::Get };
        asker.may(&ask).is_ok()
    };
    description.tree.owners.retain(&seen);
    prune(&mut description.tree.owned, &seen);
    let ask = Ask {
        cluster: &cluster,
        namespace: target.namespace(),
        resource: "events",
        verb: Verb::List,
    };
    if asker.may(&ask).is_err() {
        description.events.clear();
    }
    Ok(Json(description).into_response())
}

/// What the kinds around an object are called by roles. One that cannot be found is not shown.
async fn kinds_of(
    connection: &Connection,
    description: &resources::Description,
    deadline: flow::Deadline,
) -> BTreeMap<(String, String), String> {
    fn gather(branches: &[resources::Branch], kinds: &mut BTreeMap<(String, String), String>) {
        for branch in branches {
            let kind = (branch.node.api_version.clone(), branch.node.kind.clone());
            kinds.insert(kind, String::new());
            gather(&branch.owned, kinds);
        }
    }
    let mut kinds = BTreeMap::new();
    for owner in &description.tree.owners {
        kinds.insert((owner.api_version.clone(), owner.kind.clone()), String::new());
    }
    gather(&description.tree.owned, &mut kinds);
    let mut named = BTreeMap::new();
    for (kind, _) in kinds {
        if let Ok(found) = connection.find_kind(&kind.0, &kind.1, deadline).await {
            named.insert(kind, resource(&found));
        }
    }
    named
}

fn prune(branches: &mut Vec<resources::Branch>, seen: &impl Fn(&resources::Node) -> bool) {
    branches.retain(|branch| seen(&branch.node));
    for branch in branches {
        prune(&mut branch.owned, seen);
    }
}

/// Events of a namespace, or of all, the latest first.
pub(crate) async fn events(
    State(api): State<Api>,
    asker: Asker,
    Path(cluster): Path<String>,
    Asked(asked): Asked<Named>,
) -> Result<Response, Problem> {
    let connection = api.fleet.connection(&cluster)?;
    let events = events_of(&connection, &asker, &cluster, asked.namespace.as_deref()).await?;
    Ok(Json(serde_json::json!({ "items": events })).into_response())
}

pub(crate) async fn events_of(
    connection: &Connection,
    asker: &Asker,
    cluster: &str,
    namespace: Option<&str>,
) -> Result<Vec<resources::Event>, Problem> {
    let found = connection.find("events.v1.", asker.deadline).await?;
    let scope = Scope::list(asker, cluster, &found, namespace, Verb::List)?;
    if scope.is_empty() {
        return Ok(Vec::new());
    }
    let about = namespace.map_or(resources::About::All, resources::About::Namespace);
    let mut events = resources::events(connection, about, asker.deadline).await?;
    events.retain(|event| scope.has(event.namespace.as_deref(), ""));
    Ok(events)
}
