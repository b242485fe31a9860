//! Applying what a file holds.

use std::collections::BTreeMap;
use std::sync::Mutex;

use access::Verb;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use fleet::resources::Target;
use fleet::resources::apply::{self, Applied, ApplyOutcome, How};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::extract::whole;
use super::pipeline::AuditDetails;
use super::problem::ProblemBody;
use super::scope::{absent, permit, resource};
use super::{Api, Caller, ErrorCode, Problem, Query, Route, Routes};

/// A whole application, with room to spare.
const LARGEST: usize = 4 << 20;
/// The most objects that the audit names: a line of it is read by people.
const NAMED: usize = 50;
/// The most bytes of one object in the audit, and of all together: a line of it has some 16 KiB, of which
/// names take a part.
const RECORDED_EACH: usize = 4 << 10;
const RECORDED: usize = 10 << 10;

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::write(Verb::Update, "*").body(LARGEST), routes!(apply))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ApplyParams {
    /// Of objects that live in one and name none; `default` unless said.
    namespace: Option<String>,
    /// Asks the server the same questions, and changes nothing.
    #[serde(default)]
    dry_run: bool,
    /// Takes fields from whoever manages them.
    #[serde(default)]
    force: bool,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Answer)]
struct ApplyResults {
    /// In the order of the input.
    results: Vec<ApplyResult>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = One)]
struct ApplyResult {
    cluster: String,
    api_version: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// `created`, `configured`, `unchanged` or `failed`.
    outcome: &'static str,
    /// Unified, of YAML; empty when nothing changed. Values of Secrets are not in it.
    diff: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<ProblemBody>,
    /// Fields that others manage; `force` takes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conflicts: Vec<Conflict>,
    /// What the API server warned of, such as a deprecated version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Conflict {
    field: String,
    manager: String,
}

/// Apply YAML or JSON documents
///
/// Each object has its outcome; one that fails stops no other. Whoever applies must be allowed to
/// `get`, `create` and `update` each of them: the difference shows what is there.
#[utoipa::path(
    post, path = "/clusters/{cluster}/apply", tag = "resources", params(ApplyParams),
    request_body(content = String, content_type = "application/yaml"),
    responses((status = 200, description = "What came of each object", body = ApplyResults))
)]
async fn apply(
    State(api): State<Api>,
    caller: Caller,
    Path(cluster): Path<String>,
    Query(asked): Query<ApplyParams>,
    request: Request,
) -> Result<Response, Problem> {
    let connection = caller.connection(&api, &cluster)?;
    let body = whole(request, &()).await?;
    let input = std::str::from_utf8(&body)
        .map_err(|_| Problem::invalid("the body is neither YAML nor JSON: it is not UTF-8"))?;
    let how = How { namespace: asked.namespace, force: asked.force, dry_run: asked.dry_run };
    // The room passes the sentence on; what a program is to make of it, we keep.
    let refusals = Mutex::new(BTreeMap::new());
    let permitted = |target: &Target| {
        may_apply(&caller, &cluster, target).map_err(|problem| {
            let why = problem.detail().to_owned();
            refusals.lock().expect("nothing panics under it").insert(why.clone(), problem.code);
            why
        })
    };
    let applied = apply::apply(&connection, input, &how, permitted, caller.deadline).await?;
    let refusals = refusals.into_inner().expect("nothing panics under it");
    let details = details(&applied);
    record(&caller, &applied);
    let results =
        applied.into_iter().map(|one| ApplyResult::new(&cluster, one, &refusals)).collect();
    let mut response = Json(ApplyResults { results }).into_response();
    response.extensions_mut().insert(AuditDetails(details));
    Ok(response)
}

/// An object for a namespace that may not be seen is answered as one for a namespace that is not there.
fn may_apply(caller: &Caller, cluster: &str, target: &Target) -> Result<(), Problem> {
    if let Some(namespace) = target.namespace()
        && !caller.permissions.may_see_namespace(cluster, namespace)
    {
        return Err(absent(cluster, "namespaces", namespace));
    }
    let resource = resource(target.resource());
    let object = (target.namespace(), &*resource, target.name());
    for verb in [Verb::Get, Verb::Create, Verb::Update] {
        permit(caller, cluster, object, verb)?;
    }
    Ok(())
}

impl ApplyResult {
    fn new(cluster: &str, applied: Applied, refusals: &BTreeMap<String, ErrorCode>) -> Self {
        let (outcome, problem, conflicts) = match applied.outcome {
            ApplyOutcome::Created => ("created", None, Vec::new()),
            ApplyOutcome::Configured => ("configured", None, Vec::new()),
            ApplyOutcome::Unchanged => ("unchanged", None, Vec::new()),
            ApplyOutcome::Failed { why, conflicts } => {
                let code = match refusals.get(&why) {
                    Some(code) => *code,
                    None if !conflicts.is_empty() => ErrorCode::Conflict,
                    None if why.ends_with("not found") => ErrorCode::NotFound,
                    None => ErrorCode::Refused,
                };
                let problem = Problem::new(code, why).of_cluster(cluster).body();
                let of = |conflict: apply::Conflict| Conflict {
                    field: conflict.field,
                    manager: conflict.manager,
                };
                ("failed", Some(problem), conflicts.into_iter().map(of).collect())
            }
        };
        Self {
            cluster: cluster.to_owned(),
            api_version: applied.api_version,
            kind: applied.kind,
            namespace: applied.namespace,
            name: applied.name,
            outcome,
            diff: applied.diff,
            problem,
            conflicts,
            warnings: applied.warnings,
        }
    }
}

/// Tells the audit what objects were before and are after, by their names. Values of Secrets are not in it.
fn record(caller: &Caller, applied: &[Applied]) {
    let (mut before, mut after) = (Recorded::default(), Recorded::default());
    let changed = applied.iter().filter_map(|one| Some((one, one.changed.as_ref()?)));
    for (one, changed) in changed.take(NAMED) {
        if let Some(was) = &changed.before {
            before.add(named(one), was);
        }
        after.add(named(one), &changed.after);
    }
    if !after.values.is_empty() {
        caller.trail.before(&before.values);
        caller.trail.after(&after.values);
    }
}

/// One side of what was applied, for one line of the audit.
#[derive(Default)]
struct Recorded {
    values: Map<String, Value>,
    bytes: usize,
}

impl Recorded {
    /// Adds an object; of one that is too long, and of those that come when the line is full, how long
    /// they are.
    fn add(&mut self, name: String, value: &Value) {
        let length = value.to_string().len();
        let fits = length <= RECORDED_EACH && self.bytes + length <= RECORDED;
        self.bytes += if fits { length } else { 0 };
        let value = if fits { value.clone() } else { json!({ "bytes": length }) };
        self.values.insert(name, value);
    }
}

fn named(applied: &Applied) -> String {
    let Applied { kind, namespace, name, .. } = applied;
    let within = namespace.as_ref().map(|it| format!(" in {it}")).unwrap_or_default();
    format!("{}/{name}{within}", kind.to_lowercase())
}

/// The text for the audit: which objects were applied, and the outcome of each.
fn details(applied: &[Applied]) -> String {
    let one = |applied: &Applied| {
        let outcome = match &applied.outcome {
            ApplyOutcome::Created => "created",
            ApplyOutcome::Configured => "configured",
            ApplyOutcome::Unchanged => "unchanged",
            ApplyOutcome::Failed { .. } => "failed",
        };
        format!("{} {outcome}", named(applied))
    };
    let mut text = applied.iter().take(NAMED).map(one).collect::<Vec<_>>().join(", ");
    if let Some(more) = applied.len().checked_sub(NAMED).filter(|more| *more > 0) {
        text += &format!(", and {more} more");
    }
    text
}

#[cfg(test)]
mod tests;
