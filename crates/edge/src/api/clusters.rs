//! The clusters of the fleet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use access::{CLUSTERS, Identity, Permissions, Verb};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use fleet::{ClusterView, FleetView, SourceKind, State as ClusterState, TestReport};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use objects::kinds::Impersonation;
use serde::{Deserialize, Serialize};
use stallproof::Deadline;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::pipeline::AuditDetails;
use super::{Api, Body, Caller, ErrorCode, Problem, Rights, Route, Routes, sse};

/// How long an answer waits for the view to show a change.
const SEEN: Duration = Duration::from_secs(1);
/// Kubeconfigs with embedded certificates of many contexts.
const KUBECONFIG: usize = 1 << 20;

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::read(), routes!(clusters))
        .with(
            Route::write(Verb::Create, CLUSTERS)
                .body(KUBECONFIG)
                .named_by("name")
                .recording(&["context"]),
            routes!(import),
        )
        .with(Route::read().local(), routes!(cluster))
        .with(Route::write(Verb::Delete, CLUSTERS).local(), routes!(remove))
        .with(Route::write(Verb::Update, CLUSTERS).local().recording(&["enabled"]), routes!(change))
        .with(Route::write(Verb::Update, CLUSTERS), routes!(test))
}

/// A cluster and how it stands with it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Cluster {
    name: String,
    /// connecting, ready, degraded, unreachable, unauthorised, misconfigured, disabled.
    state: &'static str,
    /// RFC 3339: since when it is so.
    #[schema(value_type = String)]
    since: Timestamp,
    /// The sentence a person needs; none while all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<f64>,
    /// Where it comes from, in a few words.
    source: String,
    /// The address of its API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// RFC 3339: when it is tried again, while it is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    next_try: Option<Timestamp>,
    /// RFC 3339: when it last answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    last_seen: Option<Timestamp>,
    /// Users act on it under their own names.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    impersonating: bool,
    /// The source that has this name instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadowed_by: Option<String>,
}

impl From<&ClusterView> for Cluster {
    fn from(view: &ClusterView) -> Self {
        Self {
            name: view.name.to_string(),
            state: view.state.name(),
            since: view.since,
            why: view.why.clone(),
            version: view.version.clone(),
            nodes: view.nodes,
            latency_ms: view.heartbeat.latency().map(millis),
            source: view.source.to_string(),
            server: view.server.clone(),
            labels: view.labels.clone(),
            next_try: view.next_try,
            last_seen: view.heartbeat.last_seen(),
            impersonating: view.impersonating,
            shadowed_by: view.shadowed_by.as_ref().map(ToString::to_string),
        }
    }
}

/// The clusters that one may see, at one moment.
#[derive(Serialize, ToSchema)]
struct Clusters {
    /// Grows with every change.
    generation: u64,
    /// Whether every source has told what it has.
    synced: bool,
    clusters: Vec<Cluster>,
    /// Clusters whose name another source has taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shadowed: Vec<Cluster>,
    /// What to do when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Clusters {
    fn visible(api: &Api, generation: u64, view: &FleetView, permissions: &Permissions) -> Self {
        let seen = |view: &&Arc<ClusterView>| permissions.may_see_cluster(&view.name);
        let shown = |view: &Arc<ClusterView>| Cluster::from(&**view);
        let mut clusters: Vec<_> = view.clusters.values().filter(seen).map(shown).collect();
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            generation,
            synced: view.synced,
            // The same words whether there is none or one may see none.
            hint: (clusters.is_empty() && view.synced).then(|| api.no_clusters.to_string()),
            clusters,
            shadowed: view.shadowed.iter().filter(seen).map(shown).collect(),
        }
    }
}

/// The document of the clusters that `who` may see now.
pub(crate) fn document(api: &Api, who: &Identity) -> impl Serialize + use<> {
    let (view, permissions) = (api.fleet.view(), api.access.permissions(who));
    Clusters::visible(api, view.generation(), &view, &permissions)
}

/// The clusters that one may see
///
/// With `Accept: text/event-stream`: an event `clusters` with the same document now, and at each
/// change; `end` (`reason`) when one may no longer.
#[utoipa::path(
    get, path = "/clusters", tag = "clusters",
    responses((status = 200, description = "By name", content(
        (Clusters = "application/json"), (String = "text/event-stream")
    )))
)]
async fn clusters(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if !sse::wanted(&headers) {
        let view = api.fleet.view();
        let document = Clusters::visible(&api, view.generation(), &view, &caller.permissions);
        return Ok(Json(document).into_response());
    }
    let place = sse::open(&api, &caller, "clusters", "all", access::FLEET)?;
    // What they may see may change; whether they may look at all is who they are.
    let rights = Rights::new(&api, &caller, |_| true);
    let (told, who) = (api.clone(), caller.who);
    let events = sse::follow(api.fleet.changes(), move || {
        Some(sse::event("clusters", &document(&told, &who)))
    });
    Ok(sse::respond(&api, place, rights.guard_events(events)))
}

/// One cluster
#[utoipa::path(
    get, path = "/clusters/{cluster}", tag = "clusters",
    responses((status = 200, description = "How it stands with it", body = Cluster))
)]
async fn cluster(
    State(api): State<Api>,
    _caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Cluster>, Problem> {
    Ok(Json(shown(&api, &name)?))
}

fn shown(api: &Api, name: &str) -> Result<Cluster, Problem> {
    shown_now(api, name).ok_or_else(|| Problem::no_such_cluster(name))
}

fn shown_now(api: &Api, name: &str) -> Option<Cluster> {
    api.fleet.view().clusters.get(name).map(|view| Cluster::from(&**view))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Import {
    /// The cluster's name in this fleet.
    name: String,
    /// The kubeconfig, as YAML.
    kubeconfig: String,
    /// Which of its contexts; its current one unless said.
    context: Option<String>,
    /// Users act on it under their own names.
    impersonation: Option<ImportImpersonation>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ImportImpersonation {
    /// What stands before every name; `fairlead:` unless said.
    prefix: Option<String>,
}

/// Add a cluster by its kubeconfig
#[utoipa::path(
    post, path = "/clusters", tag = "clusters", request_body = Import,
    responses((status = 201, description = "Kept; it is being connected to", body = Imported))
)]
async fn import(
    State(api): State<Api>,
    caller: Caller,
    Body(Import { name, kubeconfig, context, impersonation }): Body<Import>,
) -> Result<Response, Problem> {
    caller.may_in_fleet(CLUSTERS, Verb::Create)?;
    // Others, whose roles speak of that name, would be led to whatever is imported by it.
    if !caller.permissions.may_see_cluster(&name) {
        let user = &caller.who.user;
        let detail = format!(
            "{user} may not import {name}: no role of yours speaks of a cluster of that name; choose \
             another, or ask an administrator"
        );
        return Err(Problem::new(ErrorCode::Forbidden, detail));
    }
    let impersonation = impersonation.map(|ImportImpersonation { prefix }| {
        prefix.map_or_else(Impersonation::default, |prefix| Impersonation { prefix })
    });
    let context = context.as_deref();
    let (fleet, deadline) = (&api.fleet, caller.deadline);
    fleet.import_impersonating(&name, &kubeconfig, context, impersonation, deadline).await?;
    seen(&api, |view| view.clusters.contains_key(name.as_str())).await;
    caller.trail.after(&for_audit(&api, &name));
    let cluster = shown_now(&api, &name);
    let mut response =
        (StatusCode::CREATED, Json(Imported { name: name.clone(), cluster })).into_response();
    response.extensions_mut().insert(AuditDetails(name));
    Ok(response)
}

/// The cluster as it is now, for the audit: credentials are not in it.
fn for_audit(api: &Api, name: &str) -> Option<serde_json::Value> {
    let found = api.fleet.view().clusters.get(name).map(Arc::clone)?;
    let ClusterView { source, server, state, .. } = &*found;
    let enabled = *state != ClusterState::Disabled;
    let source = source.to_string();
    Some(serde_json::json!({ "source": source, "server": server, "enabled": enabled }))
}

#[derive(Serialize, ToSchema)]
struct Imported {
    name: String,
    /// How it stands with it, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<Cluster>,
}

/// Waits until the view shows what the store has: who then lists finds it. Another source may have
/// the name, or another change may overtake ours; then the second runs out, and all is as well.
async fn seen(api: &Api, told: impl Fn(&FleetView) -> bool) {
    let mut changes = api.fleet.changes();
    let wait = async {
        while !told(&api.fleet.view()) {
            changes.changed().await;
        }
    };
    let _ = Deadline::after(SEEN).bound(wait).await;
}

/// Remove an imported cluster, in whatever state it is
#[utoipa::path(
    delete, path = "/clusters/{cluster}", tag = "clusters",
    responses((status = 204, description = "Gone"))
)]
async fn remove(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(CLUSTERS, Verb::Delete)?;
    caller.trail.before(&for_audit(&api, &name));
    api.fleet.remove(&name, caller.deadline).await?;
    let imported = |view: &ClusterView| view.source.kind == SourceKind::Imported;
    seen(&api, |view| !view.clusters.get(name.as_str()).is_some_and(|found| imported(found))).await;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Change {
    /// Whether it is to be connected to.
    enabled: bool,
}

/// Enable or disable a cluster, from whatever source it is
#[utoipa::path(
    patch, path = "/clusters/{cluster}", tag = "clusters", request_body = Change,
    responses((status = 200, description = "How it stands with it", body = Cluster))
)]
async fn change(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    Body(Change { enabled }): Body<Change>,
) -> Result<Json<Cluster>, Problem> {
    caller.may_in_fleet(CLUSTERS, Verb::Update)?;
    caller.trail.before(&for_audit(&api, &name));
    if enabled {
        api.fleet.enable(&name, caller.deadline).await?;
    } else {
        api.fleet.disable(&name, caller.deadline).await?;
    }
    let disabled = |view: &ClusterView| view.state == ClusterState::Disabled;
    seen(&api, |view| {
        view.clusters.get(name.as_str()).is_none_or(|found| disabled(found) != enabled)
    })
    .await;
    caller.trail.after(&for_audit(&api, &name));
    Ok(Json(shown(&api, &name)?))
}

/// The result of a test.
#[derive(Serialize, ToSchema)]
struct Tested {
    ok: bool,
    /// In order, up to the one that failed.
    steps: Vec<TestedStep>,
    /// A sentence.
    verdict: String,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TestedStep {
    step: &'static str,
    ok: bool,
    took_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl From<TestReport> for Tested {
    fn from(report: TestReport) -> Self {
        let TestReport { cluster, steps, verdict, why, version } = report;
        let ok = matches!(verdict, ClusterState::Ready | ClusterState::Degraded);
        let sentence = match (&why, version) {
            (Some(why), _) => format!("{cluster} is {verdict}: {why}"),
            (None, Some(version)) => format!("{cluster} is {verdict}, version {version}"),
            (None, None) => format!("{cluster} is {verdict}"),
        };
        let steps = steps.into_iter().map(|step| TestedStep {
            step: step.name,
            ok: step.ok,
            took_ms: millis(step.took),
            why: why.clone().filter(|_| !step.ok),
        });
        Self { ok, steps: steps.collect(), verdict: sentence }
    }
}

/// Try a cluster now, step by step, on a connection of its own
#[utoipa::path(
    post, path = "/clusters/{cluster}/test", tag = "clusters",
    responses((status = 200, description = "How each step went", body = Tested))
)]
async fn test(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Tested>, Problem> {
    caller.may_in_fleet(CLUSTERS, Verb::Update)?;
    caller.trail.detail("change", "none: it was tried");
    Ok(Json(api.fleet.test(&name, &caller.actor(&api), caller.deadline).await?.into()))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
