//! The objects of one cluster: listed, read, deleted, scaled, restarted.

use access::Verb;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use fleet::resources::{self, Target};
use fleet::warnings::listen;
use fleet::{Connection, ServedKind};
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::extract::whole;
use super::listing::{self, ListForm, ListParams, Objects, Table, exact, tidy};
use super::scope::{permit, resource};
use super::{Api, Body, Caller, Problem, Query, Route, Routes, sse, watch};

/// The largest object that etcd takes, with room for its YAML.
const LARGEST: usize = 4 << 20;

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list(), routes!(list))
        .with(Route::read(), routes!(get))
        .with(Route::write(Verb::Update, "-").body(LARGEST), routes!(edit))
        .with(
            Route::write(Verb::Delete, "-").recording(&["gracePeriod", "propagation", "uid"]),
            routes!(delete),
        )
        .with(Route::write(Verb::Scale, "-").recording(&["replicas"]), routes!(scale))
        .with(Route::write(Verb::Restart, "-"), routes!(restart))
}

/// As what was asked for.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum List {
    Objects(Objects),
    Table(Table),
}

/// Objects of one kind
///
/// The kind is any word for it: `po`, `deployments.apps`, `Knot`. With `Accept: text/event-stream`
/// they are watched: `restarted` with all of them, then `applied` and `deleted` with one each, and
/// `interrupted` (`why`) while the cluster cannot be heard; `end` (`reason`) when one may no longer.
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/{kind}", tag = "resources", params(ListParams),
    responses((status = 200, description = "A page of objects, or of a table", content(
        (List = "application/json"), (String = "text/event-stream")
    )))
)]
async fn list(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind)): Path<(String, String)>,
    Query(asked): Query<ListParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let connection = caller.connection(&api, &cluster)?;
    let found = connection.find(&kind, caller.deadline).await?;
    if sse::wanted(&headers) {
        return watch::open(&api, &caller, &cluster, &found, &asked).await;
    }
    let scope = asked.scope(&caller, &cluster, &found, Verb::List)?;
    let within = (&*cluster, asked.namespace.as_deref());
    caller.note_secret(&api, Verb::List, within, (&resource(&found.resource), None))?;
    let query = asked.query(&found);
    Ok(match asked.form {
        ListForm::Object => {
            let page = listing::objects(&connection, &scope, &query, caller.deadline).await?;
            Json(List::Objects(page.into())).into_response()
        }
        form => {
            let table = listing::table(&connection, &scope, &query, form, caller.deadline).await?;
            Json(List::Table(table.into())).into_response()
        }
    })
}

/// One object of one cluster, of which something may be done.
pub(crate) struct Chosen {
    pub(crate) connection: Connection,
    pub(crate) found: ServedKind,
    pub(crate) target: Target,
}

/// Looks up the kind, then decides.
pub(crate) async fn choose(
    api: &Api,
    caller: &Caller,
    (cluster, kind, name): (&str, &str, &str),
    namespace: Option<&str>,
    verb: Verb,
) -> Result<Chosen, Problem> {
    let connection = caller.connection(api, cluster)?;
    let found = connection.find(kind, caller.deadline).await?;
    let target = Target::new(&found, namespace, name)?;
    let resource = resource(&found.resource);
    permit(caller, cluster, (target.namespace(), &resource, name), verb)?;
    Ok(Chosen { connection, found, target })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Within {
    /// Of objects that live in one.
    pub(crate) namespace: Option<String>,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Reading {
    /// Of objects that live in one.
    namespace: Option<String>,
    /// Shows the values of a Secret, which are masked unless asked for.
    #[serde(default)]
    reveal: bool,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

/// One object
///
/// With `Accept: application/yaml`, as `kubectl get -o yaml` shows it. The values of a Secret are
/// masked unless `reveal` asks for them.
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/{kind}/{name}", tag = "resources", params(Reading),
    responses((status = 200, description = "As it is, without managedFields", content(
        (Object = "application/json"), (String = "application/yaml")
    )))
)]
async fn get(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Reading>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let object = (&*cluster, &*kind, &*name);
    let chosen = choose(&api, &caller, object, asked.namespace.as_deref(), Verb::Get).await?;
    let Chosen { connection, found, target } = &chosen;
    let within = (&*cluster, target.namespace());
    caller.note_secret(&api, Verb::Get, within, (&resource(&found.resource), Some(&name)))?;
    let mut object =
        resources::get(connection, &exact(found), target.namespace(), &name, caller.deadline)
            .await?;
    if asked.reveal {
        object.metadata.managed_fields = None;
    } else {
        tidy(&mut object);
    }
    if wants_yaml(&headers) {
        let yaml = resources::yaml(&object, false)?;
        return Ok(([(header::CONTENT_TYPE, "application/yaml")], yaml).into_response());
    }
    Ok(Json(object).into_response())
}

fn wants_yaml(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("application/yaml"))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Editing {
    /// Of objects that live in one.
    namespace: Option<String>,
    /// Asks the server the same question, and changes nothing.
    #[serde(default)]
    dry_run: bool,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Edited {
    /// `configured` or `unchanged`.
    outcome: &'static str,
    /// Unified, of YAML; empty when nothing changed. Values of Secrets are not in it.
    diff: String,
    /// Of the object as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
    /// Nothing was changed: it would be so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    /// What the API server warned of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Replace an object by an edited copy
///
/// The body is the whole object, YAML or JSON, with the `resourceVersion` that was read: one that has
/// been changed since is refused as a `conflict` that names who changed it. What the copy leaves out is
/// removed, whoever manages it. Masked values of a Secret stay what they are.
#[utoipa::path(
    put, path = "/clusters/{cluster}/resources/{kind}/{name}", tag = "resources", params(Editing),
    request_body(content = String, content_type = "application/yaml"),
    responses((status = 200, description = "What came of it", body = Edited))
)]
async fn edit(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Editing>,
    request: Request,
) -> Result<Json<Edited>, Problem> {
    let (object, namespace) = ((&*cluster, &*kind, &*name), asked.namespace.as_deref());
    let Chosen { connection, target, .. } =
        choose(&api, &caller, object, namespace, Verb::Update).await?;
    // The difference shows what is there.
    let resource = resource(target.resource());
    permit(&caller, &cluster, (target.namespace(), &resource, &name), Verb::Get)?;
    let body = whole(request, &()).await?;
    let input = std::str::from_utf8(&body)
        .map_err(|_| Problem::invalid("the body is neither YAML nor JSON: it is not UTF-8"))?;
    let editing =
        resources::edit::edit(&connection, &target, input, asked.dry_run, caller.deadline);
    let (edited, warnings) = listen(editing).await;
    let resources::edit::Edited { object, diff, changed } = edited?;
    if let Some(before) = changed.before.filter(|_| !diff.is_empty()) {
        caller.trail.before(&before);
        caller.trail.after(&changed.after);
    }
    Ok(Json(Edited {
        outcome: if diff.is_empty() { "unchanged" } else { "configured" },
        diff,
        resource_version: object.metadata.resource_version,
        dry_run: asked.dry_run,
        warnings,
    }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Deleting {
    /// Of objects that live in one.
    namespace: Option<String>,
    /// Asks the server whether it would, and changes nothing.
    #[serde(default)]
    dry_run: bool,
    /// Seconds; zero kills at once.
    grace_period: Option<u32>,
    /// What becomes of what it owns; what the kind prefers unless said.
    propagation: Option<Propagation>,
    /// This very object, not a later one of the same name.
    uid: Option<String>,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Propagation {
    /// Deleted afterwards.
    #[serde(alias = "Background")]
    Background,
    /// Deleted first.
    #[serde(alias = "Foreground")]
    Foreground,
    /// Left alone.
    #[serde(alias = "Orphan")]
    Orphan,
}

impl From<Propagation> for resources::delete::Propagation {
    fn from(propagation: Propagation) -> Self {
        match propagation {
            Propagation::Background => Self::Background,
            Propagation::Foreground => Self::Foreground,
            Propagation::Orphan => Self::Orphan,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Deleted {
    /// `gone`, or `waiting`: marked, and there until its finalizers and its containers let go.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<String>,
    /// What a pod has to stop in.
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period: Option<i64>,
    /// Nothing was changed: it would be so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    /// What the API server warned of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl From<resources::delete::Deleted> for Deleted {
    fn from(deleted: resources::delete::Deleted) -> Self {
        use resources::delete::Deleted as Was;
        let gone = Self {
            outcome: "gone",
            finalizers: Vec::new(),
            grace_period: None,
            dry_run: false,
            warnings: Vec::new(),
        };
        match deleted {
            Was::Gone => gone,
            Was::WouldDelete => Self { dry_run: true, ..gone },
            Was::Waiting { finalizers, grace_seconds } => {
                Self { outcome: "waiting", finalizers, grace_period: grace_seconds, ..gone }
            }
        }
    }
}

/// Delete an object
#[utoipa::path(
    delete, path = "/clusters/{cluster}/resources/{kind}/{name}", tag = "resources",
    params(Deleting),
    responses((status = 200, description = "What became of it", body = Deleted))
)]
async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Deleting>,
) -> Result<Json<Deleted>, Problem> {
    let (object, namespace) = ((&*cluster, &*kind, &*name), asked.namespace.as_deref());
    let Chosen { connection, target, .. } =
        choose(&api, &caller, object, namespace, Verb::Delete).await?;
    let how = resources::delete::How {
        propagation: asked.propagation.map(Into::into),
        grace_seconds: asked.grace_period,
        dry_run: asked.dry_run,
        uid: asked.uid,
    };
    let deleting = resources::delete::delete(&connection, &target, &how, caller.deadline);
    let (deleted, warnings) = listen(deleting).await;
    Ok(Json(Deleted { warnings, ..deleted?.into() }))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Scaling {
    replicas: u32,
}

#[derive(Debug, Serialize, ToSchema)]
struct Scaled {
    replicas: i32,
    was: i32,
    /// What the API server warned of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Set how many replicas there should be
#[utoipa::path(
    post, path = "/clusters/{cluster}/resources/{kind}/{name}/scale", tag = "resources",
    params(Within), request_body = Scaling,
    responses((status = 200, description = "What is asked for now, and was before", body = Scaled))
)]
async fn scale(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Within>,
    Body(Scaling { replicas }): Body<Scaling>,
) -> Result<Json<Scaled>, Problem> {
    let (object, namespace) = ((&*cluster, &*kind, &*name), asked.namespace.as_deref());
    let Chosen { connection, target, .. } =
        choose(&api, &caller, object, namespace, Verb::Scale).await?;
    let scaling = resources::scale::scale(&connection, &target, replicas, caller.deadline);
    let (scaled, warnings) = listen(scaling).await;
    let scaled = scaled?;
    caller.trail.before(&serde_json::json!({ "replicas": scaled.before }));
    caller.trail.after(&serde_json::json!({ "replicas": scaled.after }));
    Ok(Json(Scaled { replicas: scaled.after, was: scaled.before, warnings }))
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Restarted {
    /// RFC 3339, as it stands in the pod template's annotation.
    restarted_at: String,
    /// What the API server warned of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Restart a workload: new pods, one after the other, by its own strategy
#[utoipa::path(
    post, path = "/clusters/{cluster}/resources/{kind}/{name}/restart", tag = "resources",
    params(Within),
    responses((status = 200, description = "It is being restarted", body = Restarted))
)]
async fn restart(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Within>,
) -> Result<Json<Restarted>, Problem> {
    let (object, namespace) = ((&*cluster, &*kind, &*name), asked.namespace.as_deref());
    let Chosen { connection, target, .. } =
        choose(&api, &caller, object, namespace, Verb::Restart).await?;
    let restarting = resources::restart::restart(&connection, &target, caller.deadline);
    let (restarted, warnings) = listen(restarting).await;
    Ok(Json(Restarted { restarted_at: restarted?.restarted_at.to_string(), warnings }))
}

#[cfg(test)]
mod tests;
