//! Violations of network rules, now and as they come.

use std::time::{Duration, Instant};

use ::traffic::conversations::{End, Endpoint, Moment, Verdict};
use ::traffic::ingest::{Ingest, Query as Questions};
use ::traffic::rules::GroupMatcher;
use ::traffic::violations::{Violation, ViolationsView};
use access::Verb;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};
use http::HeaderMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stallproof::Deadline;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::conversations::ConversationTotals;
use super::{ConversationEnd, NOT_ENFORCED, ingest, timestamp};
use crate::api::leader::LeaderPoll;
use crate::api::{Api, Caller, Problem, Query, Rights, Route, Routes, sse};

/// The resource in the cluster `-`.
pub(crate) const VIOLATIONS: &str = "violations.fairlead.dev";
/// As many as are kept.
const LINES: usize = 8192;
/// The reason that a stream ends with when its leader does.
const MOVED: &str = "another replica leads now; open it again";
/// The header that a browser sends when it opens a stream again.
const LAST_EVENT: &str = "last-event-id";

pub(super) fn routes() -> Routes {
    Routes::default().with(Route::read().at_leader(), routes!(violations))
}

/// Whether it was stopped, where it was to be; monitoring stops nothing.
pub(super) fn enforced(verdict: Verdict) -> Option<bool> {
    match verdict {
        Verdict::Stopped => Some(true),
        Verdict::ViolatesUnenforced => Some(false),
        _ => None,
    }
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ViolationParams {
    /// With an end in this group, in the words of a rule.
    group: Option<String>,
    /// With an end in this namespace.
    namespace: Option<String>,
    /// RFC 3339: not what was last seen before.
    #[param(value_type = Option<String>)]
    since: Option<Timestamp>,
    /// With an end outside of the cluster.
    #[serde(default)]
    external: bool,
    /// The most to show.
    limit: Option<usize>,
    /// Only lines that changed after this one did.
    after: Option<u64>,
}

impl ViolationParams {
    fn questions(&self) -> Result<Questions, Problem> {
        let group =
            self.group.as_deref().map(GroupMatcher::new).transpose().map_err(Problem::invalid)?;
        Ok(Questions {
            group,
            namespace: self.namespace.as_deref().map(Into::into),
            external: self.external,
            since: self.since.map_or(Moment(0), Moment::from),
            limit: self.limit.unwrap_or(LINES).clamp(1, LINES),
            ..Questions::default()
        })
    }
}

/// Something against the rules: one line for the same two ends, service and rule.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ViolationLine {
    /// Of its last change; what changed later has a greater one.
    change: u64,
    client: ConversationEnd,
    server: ConversationEnd,
    protocol: String,
    port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    /// The rule that denies it, with its policy if it is none of guard's; none if no rule allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// Whether a node's policies stopped it, where it was to be: false says that it went through.
    #[serde(skip_serializing_if = "Option::is_none")]
    enforced: Option<bool>,
    #[serde(flatten)]
    totals: ConversationTotals,
    #[schema(value_type = String)]
    first: Timestamp,
    #[schema(value_type = String)]
    last: Timestamp,
}

impl From<&Violation> for ViolationLine {
    fn from(Violation { change, conversation: line }: &Violation) -> Self {
        Self {
            change: *change,
            client: (&line.client).into(),
            server: (&line.server).into(),
            protocol: line.protocol.to_string(),
            port: line.port,
            application: line.application.as_deref().map(Into::into),
            rule: line.rule.as_deref().map(Into::into),
            enforced: enforced(line.verdict),
            totals: line.totals.into(),
            first: timestamp(line.first),
            last: timestamp(line.last),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Violations {
    /// The latest change first.
    violations: Vec<ViolationLine>,
    /// The greatest change there is: `after` it is what is new.
    change: u64,
    /// Lines that made room for others.
    let_go: u64,
    /// What came faster than it was written down.
    missed: u64,
    /// Violations are told of, not stopped.
    enforcement: &'static str,
}

impl Violations {
    fn of(ingest: &Ingest, view: &ViolationsView, asked: &Questions, after: u64) -> Self {
        let inventory = ingest.inventory();
        let either = |line: &Violation, test: &dyn Fn(&End) -> bool| {
            test(&line.conversation.client) || test(&line.conversation.server)
        };
        let wants = |line: &&Violation| {
            line.conversation.last >= asked.since
                && asked
                    .group
                    .as_ref()
                    .is_none_or(|who| either(line, &|end| who.has(&inventory.groups, end)))
                && asked.namespace.as_ref().is_none_or(|wanted| {
                    either(line, &|end| end.endpoint.namespace() == Some(wanted))
                })
                && (!asked.external
                    || either(line, &|end| matches!(*end.endpoint, Endpoint::External { .. })))
        };
        // Another replica's number, from before this one led: here it would hide what is new.
        let after = if after > view.newest() { 0 } else { after };
        let changed = view.changed_since(after);
        let change = changed.last().map_or(after, |line| line.change);
        let lines = changed.into_iter().rev().filter(wants).take(asked.limit);
        Self {
            violations: lines.map(ViolationLine::from).collect(),
            change,
            let_go: view.let_go,
            missed: ingest.violations_missed(),
            enforcement: NOT_ENFORCED,
        }
    }
}

/// The latest violations of which an end is wanted.
pub(crate) fn with_end(
    api: &Api,
    caller: &Caller,
    wanted: impl Fn(&Endpoint) -> bool,
    limit: usize,
) -> Result<Vec<ViolationLine>, Problem> {
    caller.may_in_fleet(VIOLATIONS, Verb::List)?;
    let view = ingest(api)?.violations();
    let lines = view.changed_since(0);
    let ends = |line: &&Violation| {
        wanted(&line.conversation.client.endpoint) || wanted(&line.conversation.server.endpoint)
    };
    Ok(lines.into_iter().rev().filter(ends).take(limit).map(ViolationLine::from).collect())
}

/// What changed after `after`, and the greatest change; none while this replica does not lead.
pub(crate) fn document(
    api: &Api,
    after: u64,
) -> Result<(Ingest, impl Serialize + use<>, u64, bool), Problem> {
    let ingest = ingest(api)?;
    let document = Violations::of(
        &ingest,
        &ingest.violations(),
        &Questions { limit: LINES, ..Questions::default() },
        after,
    );
    let (change, is_new) = (document.change, !document.violations.is_empty());
    Ok((ingest, document, change, is_new))
}

/// What was against the rules, the latest first
///
/// With `Accept: text/event-stream`: an event `violations` with the same document now, then with the
/// lines that changed, each with the greatest change as its id; `after`, or the header
/// `Last-Event-ID`, goes on from there. `end` (`reason`) when one may no longer, or when another
/// replica leads.
#[utoipa::path(
    get, path = "/guard/violations", tag = "guard", params(ViolationParams),
    responses((status = 200, description = "The latest first", content(
        (Violations = "application/json"), (String = "text/event-stream")
    )))
)]
async fn violations(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(asked): Query<ViolationParams>,
) -> Result<Response, Problem> {
    caller.may_in_fleet(VIOLATIONS, Verb::List)?;
    let questions = asked.questions()?;
    let after = asked.after.unwrap_or_default();
    let seen = headers.get(LAST_EVENT).and_then(|id| id.to_str().ok()?.parse().ok());
    let open = || {
        let place = sse::open(&api, &caller, "violations", "all", access::FLEET)?;
        let rights = Rights::to(&api, &caller, (access::FLEET, None), VIOLATIONS, Verb::List);
        Ok::<_, Problem>((place, rights))
    };
    let ingest = match (ingest(&api), LeaderPoll::begin(&api, &caller.who)) {
        (Ok(ingest), _) => ingest,
        (Err(_), Some(leader)) if sse::wanted(&headers) => {
            let (place, rights) = open()?;
            let events = relayed(leader, &asked, seen.unwrap_or(after)).map(|told| match told {
                Ok((document, change)) => {
                    sse::event("violations", &document).id(change.to_string())
                }
                Err(why) => sse::end(&why),
            });
            return Ok(sse::respond(&api, place, rights.guard_events(events)));
        }
        (Err(problem), _) => return Err(problem),
    };
    if !sse::wanted(&headers) {
        let document = Violations::of(&ingest, &ingest.violations(), &questions, after);
        return Ok(Json(document).into_response());
    }
    let (place, rights) = open()?;
    let (active, mine) = (super::traffic_of(&api)?.active.clone(), ingest.clone());
    let over = async move {
        // Looked at after subscribing: the term may have ended before.
        let mut terms = active.changes();
        while active.ingest().is_some_and(|now| now.is(&mine)) {
            terms.changed().await;
        }
    };
    let (mut told, mut first) = (seen.unwrap_or(after), true);
    let events = sse::follow(ingest.violation_changes(), move || {
        let document = Violations::of(&ingest, &ingest.violations(), &questions, told);
        told = document.change;
        let is_new = std::mem::take(&mut first) || !document.violations.is_empty();
        is_new.then(|| sse::event("violations", &document).id(document.change.to_string()))
    });
    let last = async { sse::end(MOVED) };
    let events = events.take_until(over).chain(stream::once(last));
    Ok(sse::respond(&api, place, rights.guard_events(events)))
}

/// How often the leader is asked for what is new, by each stream of a replica that does not lead.
const RELAY_EVERY: Duration = Duration::from_secs(1);
/// How long a leader may not answer before the stream ends.
const RELAY_PATIENCE: Duration = Duration::from_secs(15);

/// What the leader tells, and the greatest change of it: all after `told` at first, then what is new. Its last
/// item is the reason why it ends.
pub(crate) fn relayed(
    leader: LeaderPoll,
    asked: &ViolationParams,
    told: u64,
) -> impl Stream<Item = Result<(Value, u64), String>> + Send + 'static + use<> {
    let ViolationParams { group, namespace, since, external, limit, after: _ } = asked.clone();
    let mut filter = form_urlencoded::Serializer::new(String::new());
    let texts = [
        ("group", group),
        ("namespace", namespace),
        ("since", since.map(|since| since.to_string())),
        ("external", external.then(|| "true".to_owned())),
        ("limit", limit.map(|limit| limit.to_string())),
    ];
    filter.extend_pairs(texts.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let filter = filter.finish();
    let begun = (leader, filter, told, true, Instant::now());
    stream::unfold(Some(begun), |state| async move {
        let (leader, filter, mut told, first, mut answered) = state?;
        let mut wait = !first;
        loop {
            if std::mem::replace(&mut wait, true) {
                tokio::time::sleep(RELAY_EVERY).await;
            }
            if !leader.is_same() {
                return Some((Err(MOVED.to_owned()), None));
            }
            let path = format!("/guard/violations?after={told}&{filter}");
            match leader.ask(&path, Deadline::after(RELAY_PATIENCE)).await {
                Ok(document) => {
                    answered = Instant::now();
                    told = document["change"].as_u64().unwrap_or(told);
                    let is_new = document["violations"].as_array().is_some_and(|it| !it.is_empty());
                    if first || is_new {
                        let next = (leader, filter, told, false, answered);
                        return Some((Ok((document, told)), Some(next)));
                    }
                }
                Err(problem) if answered.elapsed() > RELAY_PATIENCE => {
                    return Some((Err(problem.detail().to_owned()), None));
                }
                Err(_) => {}
            }
        }
    })
}
