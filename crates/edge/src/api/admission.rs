//! Admission: the rules and what became of them, and what was decided: each replica keeps what it decided.

mod export;
mod playground;
mod together;

use std::sync::Arc;
use std::time::Duration;

use access::Verb;
use admission::{Admission, Audit, Line, Listed, Outcome};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use jiff::Timestamp;
use objects::kinds::admission_rule::{Action, Mode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::leader::has_pass;
use super::replicas::{self, MissingReplica, ReplicaQuery};
use super::{Api, Caller, ErrorCode, Problem, Query, Rights, Route, Routes, sse};

/// The resources in the cluster `-`.
const RULES: &str = "admissionrules.fairlead.dev";
const AUDIT: &str = "admissionaudit.fairlead.dev";
const AUDIT_PATH: &str = "/admission/audit";
/// The most lines of an answer, unless fewer are asked for.
const LINES: usize = 1000;
/// Why a stream names all other replicas.
const STREAMED: &str = "a stream tells what one replica decides; ask without one for what all have";

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::read(), routes!(rules))
        .with(Route::read().at_leader(), routes!(running))
        .with(Route::read().all_replicas(), routes!(audit))
        .and(playground::routes())
        .and(export::routes())
}

/// A rule and what became of it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AdmissionRule {
    name: String,
    /// allow or deny.
    #[schema(value_type = String)]
    action: Action,
    /// Of a deny rule, what a match does: `protect` refuses, `monitor` records.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    mode: Option<Mode>,
    /// federal, ground or user_created.
    origin: String,
    critical: bool,
    /// As written.
    criteria: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    comment: String,
    /// active, disabled, or invalid: then it decides nothing.
    state: String,
    /// What is wrong with it, or hardly what was meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl From<&Arc<Listed>> for AdmissionRule {
    fn from(listed: &Arc<Listed>) -> Self {
        let spec = &listed.spec;
        let mode = if listed.protect { Mode::Protect } else { Mode::Monitor };
        Self {
            name: listed.name.clone(),
            action: spec.action,
            mode: (spec.action == Action::Deny).then_some(mode),
            origin: spec.origin.to_string(),
            critical: spec.critical,
            criteria: spec.criteria.iter().map(ToString::to_string).collect(),
            comment: spec.comment.clone(),
            state: listed.state.to_string(),
            why: listed.why.clone(),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct AdmissionRules {
    rules: Vec<AdmissionRule>,
}

/// The admission rules, in the order in which they are decided
#[utoipa::path(
    get, path = "/admission/rules", tag = "admission",
    responses((status = 200, description = "In decision order", body = AdmissionRules))
)]
async fn rules(State(api): State<Api>, caller: Caller) -> Result<Json<AdmissionRules>, Problem> {
    caller.may_in_fleet(RULES, Verb::List)?;
    let rules = admission(&api)?.rules();
    if !rules.is_told() {
        let problem = Problem::new(ErrorCode::NotReady, "the rules have not been read yet");
        return Err(problem.come_back(Duration::from_secs(1)));
    }
    Ok(Json(AdmissionRules { rules: rules.list().into_iter().map(AdmissionRule::from).collect() }))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AuditParams {
    /// The most to show; 1000 unless said.
    limit: Option<usize>,
    /// allowed, denied or monitored.
    #[param(value_type = Option<String>)]
    outcome: Option<Outcome>,
    cluster: Option<String>,
    namespace: Option<String>,
    rule: Option<String>,
    /// RFC 3339: not what was last seen before.
    #[param(value_type = Option<String>)]
    since: Option<Timestamp>,
}

impl AuditParams {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(LINES).min(LINES)
    }

    /// As a part of what all replicas have is asked for: with every line that counts on one that is
    /// wanted.
    fn part(&self) -> Self {
        Self { limit: None, since: None, ..self.clone() }
    }

    /// As the other replicas are asked it.
    fn question(&self) -> ReplicaQuery<'static> {
        let query = [
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("outcome", self.outcome.map(|outcome| outcome.name().to_owned())),
            ("cluster", self.cluster.clone()),
            ("namespace", self.namespace.clone()),
            ("rule", self.rule.clone()),
            ("since", self.since.map(|since| since.to_string())),
        ];
        let query = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        ReplicaQuery { path: AUDIT_PATH, query }
    }

    fn wants(&self, line: &Line) -> bool {
        fn is<T: PartialEq>(wanted: Option<&T>, have: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == have)
        }
        let subject = &line.subject;
        is(self.outcome.as_ref(), &subject.outcome)
            && is(self.cluster.as_ref(), &subject.cluster)
            && is(self.namespace.as_ref(), &subject.namespace)
            && self.rule.as_ref().is_none_or(|rule| subject.rule.as_ref() == Some(rule))
            && self.since.is_none_or(|since| line.last >= since)
    }
}

/// What was decided, of one owner, image and rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AdmissionLine {
    /// Changes with every decision that the line counts.
    id: u64,
    /// allowed, denied, or monitored: admitted although a rule matched.
    #[schema(value_type = String)]
    outcome: Outcome,
    cluster: String,
    namespace: String,
    /// Kind and name of the root owner, as far as it is known.
    owner: String,
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    dry_run: bool,
    count: u64,
    /// RFC 3339.
    #[schema(value_type = String)]
    first: Timestamp,
    #[schema(value_type = String)]
    last: Timestamp,
    /// Of the last one: kind and name, container, user, and what was met.
    object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    user: String,
    why: String,
}

impl AdmissionLine {
    fn new(id: u64, line: &Line) -> Self {
        let Line { subject, latest, count, first, last } = line.clone();
        Self {
            id,
            outcome: subject.outcome,
            cluster: subject.cluster,
            namespace: subject.namespace,
            owner: subject.owner,
            image: subject.image,
            rule: subject.rule,
            dry_run: subject.dry_run,
            count,
            first,
            last,
            object: latest.object,
            container: latest.container,
            user: latest.user,
            why: latest.why,
        }
    }
}

#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AdmissionAudit {
    lines: Vec<AdmissionLine>,
    /// Lines that made room for others.
    forgotten: u64,
    /// Decisions that came faster than they were written down.
    dropped: u64,
    /// Lines that made room for others before they were on disk, which was too slow: no export has them.
    #[serde(default)]
    not_kept: u64,
    /// Replicas that were not asked or could not be: what they decided is not in the answer. Of a
    /// stream, in its first event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<MissingReplica>,
}

impl AdmissionAudit {
    /// The lines that changed after `after`, the latest first, `most` at most.
    fn of(
        admission: &Admission,
        audit: &Audit,
        asked: &AuditParams,
        after: u64,
        most: usize,
    ) -> Self {
        let newest = audit.lines.range(after + 1..).rev();
        let wanted = newest.filter(|(_, line)| asked.wants(line)).take(most);
        Self {
            lines: wanted.map(|(id, line)| AdmissionLine::new(*id, line)).collect(),
            forgotten: audit.forgotten,
            dropped: admission.dropped(),
            not_kept: admission.not_kept(),
            missing: Vec::new(),
        }
    }
}

/// What was decided, the latest first
///
/// Of several replicas the one that is asked asks the others as well, and a line counts what all of them
/// decided. With `Accept: text/event-stream`: an event `audit` with the same document now, then with the lines
/// that changed, of this replica alone; `end` (`reason`) when one may no longer.
#[utoipa::path(
    get, path = "/admission/audit", tag = "admission", params(AuditParams),
    responses((status = 200, description = "The latest first", content(
        (AdmissionAudit = "application/json"), (String = "text/event-stream")
    )))
)]
async fn audit(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(asked): Query<AuditParams>,
) -> Result<Response, Problem> {
    caller.may_in_fleet(AUDIT, Verb::List)?;
    let admission = admission(&api)?.clone();
    let replicas = replicas::to_ask(&api, &headers);
    if !sse::wanted(&headers) {
        let own = |asked, most| AdmissionAudit::of(&admission, &admission.audit(), asked, 0, most);
        let document = match replicas {
            // A replica that asks puts together all lines, and bounds them then.
            None if has_pass(&headers) => own(&asked, asked.limit.unwrap_or(usize::MAX)),
            None => own(&asked, asked.limit()),
            Some(replicas) => {
                let part = asked.part();
                let others = replicas::ask(&api, replicas, &caller, &part.question()).await;
                own(&part, usize::MAX).together(others, &asked)
            }
        };
        return Ok(Json(document).into_response());
    }
    let missing = match replicas {
        None => Vec::new(),
        Some(replicas) => replicas::not_asked(replicas, STREAMED, caller.deadline).await,
    };
    let place = sse::open(&api, &caller, "admission-audit", "all", access::FLEET)?;
    let rights = Rights::to(&api, &caller, (access::FLEET, None), AUDIT, Verb::List);
    let (changes, mut told, mut missing) = (admission.audit_changes(), None, missing);
    let events = sse::follow(changes, move || {
        let audit = admission.audit();
        let (first, after) = (told.is_none(), told.unwrap_or_default());
        let mut document = AdmissionAudit::of(&admission, &audit, &asked, after, asked.limit());
        document.missing = std::mem::take(&mut missing);
        told = Some(audit.lines.get_max().map_or(after, |(id, _)| after.max(*id)));
        (first || !document.lines.is_empty()).then(|| sse::event("audit", &document))
    });
    Ok(sse::respond(&api, place, rights.guard_events(events)))
}

/// The latest decisions of this replica about an owner's pods, or about an object: both as `Kind/name`.
pub(crate) fn about(
    api: &Api,
    caller: &Caller,
    clusters: &[&str],
    (namespace, owners): (&str, &[String]),
    limit: usize,
) -> Result<Vec<AdmissionLine>, Problem> {
    caller.may_in_fleet(AUDIT, Verb::List)?;
    let audit = admission(api)?.audit();
    let lines = audit.lines.iter().rev().filter(|(_, line)| {
        let subject = &line.subject;
        let object = [&subject.owner, &line.latest.object];
        clusters.contains(&&*subject.cluster)
            && subject.namespace == namespace
            && object.iter().any(|object| owners.iter().any(|owner| owner == *object))
    });
    Ok(lines.take(limit).map(|(id, line)| AdmissionLine::new(*id, line)).collect())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct RunningParams {
    /// The most to show; 1000 unless said.
    limit: Option<usize>,
    cluster: Option<String>,
    namespace: Option<String>,
    rule: Option<String>,
}

/// Something that runs against a rule.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RunningLine {
    cluster: String,
    namespace: String,
    /// Kind and name of what controls the pods, or of the pod.
    owner: String,
    container: String,
    image: String,
    rule: String,
    /// denied if the rule would refuse it now, monitored if it would record it.
    #[schema(value_type = String)]
    outcome: Outcome,
    /// How many pods.
    pods: usize,
    /// The criteria that were met.
    why: String,
    /// RFC 3339: since when it is known.
    #[schema(value_type = String)]
    since: Timestamp,
}

/// A cluster that was looked through.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RunningCluster {
    cluster: String,
    /// RFC 3339.
    #[schema(value_type = Option<String>)]
    judged: Option<Timestamp>,
    /// Pods that were judged.
    pods: usize,
    findings: usize,
    /// Findings that there was no room for.
    left_out: usize,
    /// Whether the cluster has reports of `openreports.io`, which say the same.
    reported: bool,
}

#[derive(Serialize, ToSchema)]
struct Running {
    lines: Vec<RunningLine>,
    clusters: Vec<RunningCluster>,
}

/// What runs although a rule would refuse or record it now
///
/// Pods are judged again when rules or what is known of images change. A cluster that is not named was not
/// looked through yet.
#[utoipa::path(
    get, path = "/admission/running", tag = "admission", params(RunningParams),
    responses((status = 200, description = "By cluster, namespace and owner", body = Running))
)]
async fn running(
    State(api): State<Api>,
    caller: Caller,
    Query(asked): Query<RunningParams>,
) -> Result<Json<Running>, Problem> {
    caller.may_in_fleet(AUDIT, Verb::List)?;
    let all = admission(&api)?.running().load();
    let mut audits: Vec<_> = all.iter().collect();
    audits.sort_by_key(|(cluster, _)| *cluster);
    audits.retain(|(cluster, _)| asked.cluster.as_ref().is_none_or(|wanted| wanted == *cluster));
    let of_cluster = |(cluster, audit): &(&String, &admission::RunningAudit)| RunningCluster {
        cluster: (*cluster).clone(),
        judged: audit.judged,
        pods: audit.pods,
        findings: audit.findings.len(),
        left_out: audit.left_out,
        reported: audit.reported,
    };
    let clusters = audits.iter().map(of_cluster).collect();
    let found = audits.iter().flat_map(|(cluster, audit)| {
        audit.findings.iter().map(move |(key, finding)| RunningLine {
            cluster: (*cluster).clone(),
            namespace: key.namespace.clone(),
            owner: key.owner.clone(),
            container: key.container.clone(),
            image: key.image.clone(),
            rule: key.rule.clone(),
            outcome: key.outcome,
            pods: finding.pods,
            why: finding.why.clone(),
            since: finding.since,
        })
    });
    let wanted = |line: &RunningLine| {
        asked.namespace.as_ref().is_none_or(|wanted| *wanted == line.namespace)
            && asked.rule.as_ref().is_none_or(|wanted| *wanted == line.rule)
    };
    let most = asked.limit.unwrap_or(LINES).min(LINES);
    Ok(Json(Running { lines: found.filter(wanted).take(most).collect(), clusters }))
}

fn admission(api: &Api) -> Result<&Admission, Problem> {
    let none = || Problem::new(ErrorCode::NotFound, "this process does not decide admissions");
    api.admission.as_ref().ok_or_else(none)
}

#[cfg(test)]
mod tests;
