//! Taking a node out of service, and putting it back.

use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use fleet::resources;
use fleet::resources::nodes::{self, Allow, Progress, Reason, Skip};
use futures::{StreamExt, stream};
use http::HeaderMap;
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::listing::exact;
use super::resources::{Chosen, choose};
use super::{Api, Body, Caller, ErrorCode, Problem, Rights, Route, Routes, sse};

const NODES: &str = "nodes";

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::write(Verb::Cordon, NODES), routes!(cordon))
        .with(Route::write(Verb::Cordon, NODES), routes!(uncordon))
        .with(Route::write(Verb::Drain, NODES), routes!(drain))
        .with(Route::write(Verb::Update, NODES), routes!(set_taints))
}

#[derive(Debug, Serialize, ToSchema)]
struct Node {
    name: String,
    unschedulable: bool,
}

/// Keep new pods off a node
#[utoipa::path(
    post, path = "/clusters/{cluster}/resources/nodes/{name}/cordon", tag = "nodes",
    responses((status = 200, description = "No pod is sent there any more", body = Node))
)]
async fn cordon(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, name)): Path<(String, String)>,
) -> Result<Json<Node>, Problem> {
    let chosen = choose(&api, &caller, (&cluster, NODES, &name), None, Verb::Cordon).await?;
    nodes::cordon(&chosen.connection, &name, caller.deadline).await?;
    Ok(Json(Node { name, unschedulable: true }))
}

/// Let pods come to a node again
#[utoipa::path(
    post, path = "/clusters/{cluster}/resources/nodes/{name}/uncordon", tag = "nodes",
    responses((status = 200, description = "Pods may come again", body = Node))
)]
async fn uncordon(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, name)): Path<(String, String)>,
) -> Result<Json<Node>, Problem> {
    let chosen = choose(&api, &caller, (&cluster, NODES, &name), None, Verb::Cordon).await?;
    nodes::uncordon(&chosen.connection, &name, caller.deadline).await?;
    Ok(Json(Node { name, unschedulable: false }))
}

/// Keeps pods away that do not tolerate it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NodeTaint {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    effect: String,
}

#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NodeTaints {
    /// All of them: those that are not here are taken away.
    taints: Vec<NodeTaint>,
}

/// Set the taints of a node
#[utoipa::path(
    put, path = "/clusters/{cluster}/resources/nodes/{name}/taints", tag = "nodes",
    request_body = NodeTaints,
    responses((status = 200, description = "As they are now", body = NodeTaints))
)]
async fn set_taints(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, name)): Path<(String, String)>,
    Body(NodeTaints { taints }): Body<NodeTaints>,
) -> Result<Json<NodeTaints>, Problem> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if let Some(wrong) = taints.iter().find(|taint| !EFFECTS.contains(&taint.effect.as_str())) {
        let detail = format!("{:?} is no effect; use one of {}", wrong.effect, EFFECTS.join(", "));
        return Err(Problem::invalid(detail));
    }
    let chosen = choose(&api, &caller, (&cluster, NODES, &name), None, Verb::Update).await?;
    let sent: Vec<_> = taints.iter().cloned().map(Taint::from).collect();
    nodes::set_taints(&chosen.connection, &name, &sent, caller.deadline).await?;
    caller.trail.after(&sent);
    Ok(Json(NodeTaints { taints }))
}

impl From<NodeTaint> for Taint {
    fn from(NodeTaint { key, value, effect }: NodeTaint) -> Self {
        Self { key, value, effect, time_added: None }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Draining {
    /// Seconds, instead of each pod's own.
    grace_period: Option<u32>,
    /// Leave pods of DaemonSets where they are: they would be made anew at once. Without it, a node
    /// that has some is not drained.
    ignore_daemon_sets: bool,
    /// Evict pods whose `emptyDir` is lost with them.
    delete_empty_dir_data: bool,
    /// Evict pods that nobody will make anew.
    force: bool,
}

/// What happened to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
struct Pod {
    namespace: String,
    name: String,
    /// `evicting`, `gone`, `blocked`, `skipped` or `failed`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
struct Drained {
    /// Whether nothing is left that should have gone.
    drained: bool,
    /// Whether new pods are kept off the node now. A drain that is refused changes nothing.
    cordoned: bool,
    gone: usize,
    skipped: usize,
    left: Vec<Left>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
struct Left {
    namespace: String,
    name: String,
    why: String,
    /// Why it may not be evicted, where that is what is in the way: `daemonSet`
    /// (`ignoreDaemonSets` leaves it), `emptyDir` (`deleteEmptyDirData`), `unmanaged` (`force`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    reasons: Vec<Reason>,
}

/// Empty a node
///
/// Within the deadline; what is left by then is told, and the node stays cordoned. Where pods may not
/// be evicted nothing is done: they are in `left`, each with its `reasons`, and `cordoned` says
/// whether the node is. With `Accept: text/event-stream`: an event `pod` for whatever happens to
/// each, then `done` with what is answered otherwise.
#[utoipa::path(
    post, path = "/clusters/{cluster}/resources/nodes/{name}/drain", tag = "nodes",
    request_body = Draining,
    responses((status = 200, description = "How it went", content(
        (Drained = "application/json"), (String = "text/event-stream")
    )))
)]
async fn drain(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, name)): Path<(String, String)>,
    headers: HeaderMap,
    Body(asked): Body<Draining>,
) -> Result<Response, Problem> {
    let Chosen { connection, found, .. } =
        choose(&api, &caller, (&cluster, NODES, &name), None, Verb::Drain).await?;
    // One that is not there is answered as such, not as a drain that failed.
    resources::get(&connection, &exact(&found), None, &name, caller.deadline).await?;
    let allow = Allow {
        daemon_sets: asked.ignore_daemon_sets,
        unmanaged: asked.force,
        empty_dir: asked.delete_empty_dir_data,
        grace_seconds: asked.grace_period,
    };
    // Time to tell the end before the pipeline calls it late.
    let deadline =
        stallproof::Deadline::at(caller.deadline.instant() - caller.deadline.remaining() / 20);
    let progress = nodes::drain(&connection, &name, allow, deadline).boxed();
    let permissions = caller.permissions.clone();
    let seen = {
        let cluster = cluster.clone();
        move |namespace: &str| permissions.may_see_namespace(&cluster, namespace)
    };
    if !sse::wanted(&headers) {
        let mut progress = progress;
        let mut tally = Tally::new(seen);
        while let Some(step) = progress.next().await {
            tally.take(step);
        }
        return Ok(Json(tally.end()?).into_response());
    }
    let place = sse::open(&api, &caller, "drain", name, cluster.clone())?;
    let rights = Rights::to(&api, &caller, (&cluster, None), NODES, Verb::Drain);
    let state = Some((progress, Tally::new(seen)));
    let events = stream::unfold(state, |state| async move {
        let (mut progress, mut tally) = state?;
        loop {
            match progress.next().await {
                Some(step) => {
                    if let Some(pod) = tally.take(step) {
                        return Some((sse::event("pod", &pod), Some((progress, tally))));
                    }
                }
                None => return Some((done(tally.end()), None)),
            }
        }
    });
    Ok(sse::respond(&api, place, rights.guard_events(events)))
}

fn done(end: Result<Drained, Problem>) -> Event {
    match end {
        Ok(drained) => sse::event("done", &drained),
        Err(problem) => sse::problem(&problem),
    }
}

/// The result of a drain. A pod in a namespace that the caller may not see has no name here.
struct Tally<S> {
    seen: S,
    drained: Drained,
    hidden: usize,
    ended: Option<Result<(), String>>,
}

impl<S: Fn(&str) -> bool> Tally<S> {
    fn new(seen: S) -> Self {
        Self { seen, drained: Drained::default(), hidden: 0, ended: None }
    }

    fn take(&mut self, progress: Progress) -> Option<Pod> {
        let mut against = Vec::new();
        let (namespace, name, outcome, why) = match progress {
            Progress::Cordoned => {
                self.drained.cordoned = true;
                return None;
            }
            Progress::Finished { cordoned, .. } => {
                self.drained.cordoned = cordoned;
                self.ended = Some(Ok(()));
                return None;
            }
            Progress::Stopped { why } => {
                self.ended = Some(Err(why));
                return None;
            }
            Progress::Skipped { namespace, pod, why } => {
                let why = match why {
                    Skip::DaemonSet => "it is a DaemonSet's",
                    Skip::Mirror => "it comes from a file on the node",
                };
                (namespace, pod, "skipped", Some(why.to_owned()))
            }
            Progress::Evicted { namespace, pod } => (namespace, pod, "evicting", None),
            Progress::Gone { namespace, pod } => (namespace, pod, "gone", None),
            Progress::Blocked { namespace, pod, why } => (namespace, pod, "blocked", Some(why)),
            Progress::Failed { namespace, pod, why } => (namespace, pod, "failed", Some(why)),
            Progress::Refused { namespace, pod, reasons } => {
                let why = reasons.iter().map(|reason| reason.why()).collect::<Vec<_>>().join("; ");
                against = reasons;
                (namespace, pod, "failed", Some(why))
            }
        };
        let seen = (self.seen)(&namespace);
        match outcome {
            "gone" if seen => self.drained.gone += 1,
            "skipped" if seen => self.drained.skipped += 1,
            "failed" if seen => self.drained.left.push(Left {
                namespace: namespace.clone(),
                name: name.clone(),
                why: why.clone().unwrap_or_default(),
                reasons: against,
            }),
            "failed" => self.hidden += 1,
            _ => {}
        }
        seen.then_some(Pod { namespace, name, outcome, why })
    }

    fn end(mut self) -> Result<Drained, Problem> {
        match self.ended {
            Some(Ok(())) => {}
            Some(Err(why)) => {
                let cordoned = if self.drained.cordoned { "; the node is cordoned" } else { "" };
                return Err(Problem::new(ErrorCode::Refused, format!("{why}{cordoned}")));
            }
            None => return Err(Problem::new(ErrorCode::Internal, "the drain broke off")),
        }
        self.drained.drained = self.drained.left.is_empty() && self.hidden == 0;
        if self.hidden > 0 {
            self.drained.left.push(Left {
                namespace: access::NO_NAMESPACE.to_owned(),
                name: "-".to_owned(),
                why: "pods that you may not see are still there".to_owned(),
                reasons: Vec::new(),
            });
        }
        Ok(self.drained)
    }
}

#[cfg(test)]
mod tests;
