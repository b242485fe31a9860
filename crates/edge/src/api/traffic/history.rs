//! Who talked to whom earlier: the history of all replicas, added up or line by line.

use std::collections::HashMap;
use std::sync::Arc;

use ::traffic::conversations::{KnownApplication, Moment};
use ::traffic::groups::Groups;
use ::traffic::history::{Frame, HistoryEnd, HistoryFiles, HistoryLine, HistoryQuery};
use ::traffic::ingest::VerdictFilter;
use ::traffic::rules::GroupMatcher;
use access::Verb;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use futures::FutureExt;
use http::HeaderMap;
use jiff::Timestamp;
use notify::otlp::{self, LogRecord};
use objects::kinds::{EventLevel, GroupMode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stallproof::Deadline;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::conversations::{CONVERSATIONS, ConversationTotals, LINES, MOST, off_the_workers};
use super::{ConversationEnd, not_here, timestamp, traffic_of};
use crate::api::exports::{self, Export, ExportPart};
use crate::api::replicas::{self, MissingReplica, ReplicaParts, ReplicaQuery};
use crate::api::{Api, Caller, ErrorCode, Problem, Query, Route, Routes};

const PATH: &str = "/guard/history";
const EXPORT: &str = "/guard/history/export";
/// Lines of one part of an export, but for what its last frame has.
const PART: usize = 1000;
/// The share of a caller's time in which files are read; the rest is for adding up.
const SHARE: f64 = 0.6;

pub(super) fn routes() -> Routes {
    Routes::default()
        .with(Route::list().all_replicas(), routes!(history))
        .with(Route::list().all_replicas(), routes!(export))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HistoryParams {
    /// RFC 3339: not what ended before.
    #[param(value_type = String)]
    from: Timestamp,
    /// RFC 3339: not what began then or later; now unless said.
    #[param(value_type = Option<String>)]
    until: Option<Timestamp>,
    /// With an end in this group: `namespace/Kind/name`, a Group's name (its members of now), or any, external,
    /// hosts, ingress, services, unmanaged, workloads.
    group: Option<String>,
    /// With this end: an address, a network, `namespace/pod`, `namespace/Kind/name`, `host NAME`.
    end: Option<String>,
    /// With an end in this namespace.
    namespace: Option<String>,
    /// With an end outside of the cluster.
    #[serde(default)]
    external: bool,
    /// Of the server.
    port: Option<u16>,
    /// unjudged, allowed, discovered or violates.
    verdict: Option<String>,
    /// The most to show; 500 unless said, and 10000 at most.
    limit: Option<usize>,
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HistoryExportParams {
    /// RFC 3339: not what ended before; all that is kept unless said.
    #[param(value_type = Option<String>)]
    from: Option<Timestamp>,
    /// RFC 3339: not what began then or later; now unless said.
    #[param(value_type = Option<String>)]
    until: Option<Timestamp>,
    /// jsonl (a conversation a line) or otlp (a line is a request of OpenTelemetry's logs); jsonl unless said.
    #[serde(default)]
    format: ExportFormat,
    /// With an end in this namespace.
    namespace: Option<String>,
    /// Where a part begins; replicas ask each other with it.
    after: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ExportFormat {
    #[default]
    Jsonl,
    Otlp,
}

impl HistoryParams {
    fn query(&self) -> Result<HistoryQuery, Problem> {
        let group = self.group.as_deref().map(GroupMatcher::new).transpose();
        let verdict = self.verdict.as_deref().map(str::parse::<VerdictFilter>).transpose();
        let until = self.until.unwrap_or_else(Timestamp::now);
        if until <= self.from {
            return Err(Problem::invalid("until is not after from"));
        }
        Ok(HistoryQuery {
            from: self.from.into(),
            until: until.into(),
            group: group.map_err(Problem::invalid)?,
            end: self.end.as_deref().map(|end| match end.parse::<HistoryEnd>() {
                Ok(end) => end,
                Err(never) => match never {},
            }),
            namespace: self.namespace.as_deref().map(Into::into),
            external: self.external,
            port: self.port,
            verdict: verdict.map_err(Problem::invalid)?,
        })
    }

    /// As the other replicas are asked it: all that they may tell.
    fn question(&self, until: Moment) -> ReplicaQuery<'static> {
        let query = [
            ("from", Some(self.from.to_string())),
            ("until", Some(timestamp(until).to_string())),
            ("group", self.group.clone()),
            ("end", self.end.clone()),
            ("namespace", self.namespace.clone()),
            ("external", self.external.then(|| "true".to_owned())),
            ("port", self.port.map(|port| port.to_string())),
            ("verdict", self.verdict.clone()),
            ("limit", Some(MOST.to_string())),
        ];
        let query = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        ReplicaQuery { path: PATH, query }
    }
}

/// What one client and one server said to each other about one thing, within the time that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PastConversation {
    client: ConversationEnd,
    server: ConversationEnd,
    /// tcp, udp, icmp, or such as ip-47; none for what was folded of these two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    /// How the application is known: by the first `bytes` of its connections, or by its `port`, which is what such a port is for and no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    application_by: Option<String>,
    /// The verdict of that time: unjudged, allowed, discovered or violates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verdict: Option<String>,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(flatten)]
    totals: ConversationTotals,
    /// Not before this: history is kept by the minute.
    #[schema(value_type = String)]
    first: Timestamp,
    #[schema(value_type = String)]
    last: Timestamp,
}

impl From<&HistoryLine> for PastConversation {
    fn from(line: &HistoryLine) -> Self {
        let application = KnownApplication::of(line.application.as_ref(), line.service);
        Self {
            client: (&line.client).into(),
            server: (&line.server).into(),
            protocol: line.service.map(|(protocol, _)| protocol.to_string()),
            port: line.service.map(|(_, port)| port),
            application: application.map(|it| it.name.to_owned()),
            application_by: application.map(|it| it.known_by().to_owned()),
            verdict: line.verdict.map(|verdict| VerdictFilter::of(verdict).word().to_owned()),
            rule: line.rule.as_deref().map(Into::into),
            totals: line.totals.into(),
            first: timestamp(line.first),
            last: timestamp(line.last),
        }
    }
}

impl PastConversation {
    fn record(&self) -> LogRecord {
        let Self { client, server, protocol, port, verdict, rule, totals, .. } = self;
        let level = match verdict.as_deref() {
            Some("violates") => EventLevel::Warning,
            _ => EventLevel::Info,
        };
        let about = match (protocol, port) {
            (Some(protocol), Some(port)) => format!("{protocol}/{port}"),
            _ => "several ports".to_owned(),
        };
        let texts = [
            ("source.address", Some(&client.address)),
            ("destination.address", Some(&server.address)),
            ("network.transport", protocol.as_ref()),
            ("fairlead.client", Some(&client.name)),
            ("fairlead.server", Some(&server.name)),
            ("fairlead.application", self.application.as_ref()),
            ("fairlead.application_by", self.application_by.as_ref()),
            ("fairlead.verdict", verdict.as_ref()),
            ("fairlead.rule", rule.as_ref()),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text?.clone())));
        let numbers = [
            ("destination.port", port.map(u64::from)),
            ("fairlead.bytes", Some(totals.bytes)),
            ("fairlead.packets", Some(totals.packets)),
            ("fairlead.sessions", Some(totals.sessions)),
        ];
        let numbers = numbers.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?)));
        LogRecord {
            at: self.last,
            level,
            name: "fairlead.conversation".to_owned(),
            body: format!("{} talked to {} ({about})", client.name, server.name),
            attributes: texts.map(|(name, text)| (name.to_owned(), text)).collect(),
            numbers: numbers.collect(),
        }
    }
}

/// Who talked to whom within some time.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ConversationHistory {
    /// The latest first.
    conversations: Vec<PastConversation>,
    /// How many fit, shown or not.
    matched: usize,
    /// What they said together within that time.
    totals: ConversationTotals,
    /// False if more fit than could be added up: ask for less time.
    complete: bool,
    /// Since when history is kept, on the replica that has the oldest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    kept_since: Option<Timestamp>,
    /// What it takes on disk, on all replicas.
    kept_bytes: u64,
    /// Replicas whose part is not in this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<MissingReplica>,
}

impl ConversationHistory {
    /// Adds what the other replicas have: the same conversation is one line.
    fn merge(&mut self, parts: ReplicaParts<Self>) {
        let key = |line: &PastConversation| {
            let PastConversation { client, server, protocol, port, application, .. } = line;
            let ends = (client.clone(), server.clone(), protocol.clone(), *port);
            (ends, application.clone(), line.verdict.clone(), line.rule.clone())
        };
        let mut places: HashMap<_, _> =
            self.conversations.iter().map(key).enumerate().map(|(at, key)| (key, at)).collect();
        self.missing.extend(parts.missing);
        for (_, part) in parts.told {
            self.matched += part.matched.saturating_sub(part.conversations.len());
            self.totals += part.totals;
            self.complete &= part.complete;
            self.kept_bytes += part.kept_bytes;
            self.kept_since = self.kept_since.into_iter().chain(part.kept_since).min();
            for line in part.conversations {
                match places.get(&key(&line)) {
                    Some(at) => {
                        let known = &mut self.conversations[*at];
                        known.totals += line.totals;
                        known.first = known.first.min(line.first);
                        known.last = known.last.max(line.last);
                    }
                    None => {
                        places.insert(key(&line), self.conversations.len());
                        self.conversations.push(line);
                        self.matched += 1;
                    }
                }
            }
        }
        self.conversations.sort_by_key(|line| std::cmp::Reverse(line.last));
    }
}

/// Groups of this moment, for what asks of one that somebody made: only the leader knows who is in it.
fn groups(api: &Api, query: &HistoryQuery) -> Result<Groups, Problem> {
    match (traffic_of(api)?.active.ingest(), &query.group) {
        (Some(ingest), _) => Ok(ingest.inventory().groups.clone()),
        (None, Some(GroupMatcher::Made(_))) => Err(not_here(api, "members of groups")),
        (None, _) => Ok(Groups::new(GroupMode::Discover)),
    }
}

fn unreadable(error: &std::io::Error) -> Problem {
    Problem::new(ErrorCode::Internal, format!("the history on disk cannot be read: {error}"))
}

/// Who talked to whom earlier, the latest first
///
/// Conversations are added up over the time between `from` and `until`, under the names and verdicts that they
/// had then. History is kept by the minute and is bounded by age and by bytes (`keptSince`); of several
/// replicas each has what it recorded while it led, and all are asked.
#[utoipa::path(
    get, path = "/guard/history", tag = "guard", params(HistoryParams),
    responses((status = 200, description = "Added up", body = ConversationHistory))
)]
async fn history(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(asked): Query<HistoryParams>,
) -> Result<Json<ConversationHistory>, Problem> {
    caller.may_in_fleet(CONVERSATIONS, Verb::List)?;
    let query = asked.query()?;
    let limit = asked.limit.unwrap_or(LINES).clamp(1, MOST);
    let question = asked.question(query.until);
    let (files, groups) = (traffic_of(&api)?.history.clone(), groups(&api, &query)?);
    let enough = Deadline::after(caller.deadline.remaining().mul_f64(SHARE));
    let own = off_the_workers(&api, &caller, move || own(&files, &query, &groups, enough));
    let mut answer = match replicas::to_ask(&api, &headers) {
        None => own.await??,
        Some(replicas) => {
            let others = replicas::ask(&api, replicas, &caller, &question);
            let (own, others) = futures::join!(own, others);
            let mut answer = own??;
            answer.merge(others);
            answer
        }
    };
    answer.conversations.truncate(limit);
    Ok(Json(answer))
}

/// What this replica has.
fn own(
    files: &HistoryFiles,
    query: &HistoryQuery,
    groups: &Groups,
    enough: Deadline,
) -> Result<ConversationHistory, Problem> {
    let kept = files.kept().map_err(|error| unreadable(&error))?;
    let found = query.run(files, groups, || enough.has_passed()).map_err(|e| unreadable(&e))?;
    let mut totals = ConversationTotals::default();
    found.lines.iter().for_each(|line| totals += line.totals.into());
    Ok(ConversationHistory {
        conversations: found.lines.iter().take(MOST).map(PastConversation::from).collect(),
        matched: found.lines.len(),
        totals,
        complete: !found.too_many,
        kept_since: kept.from.map(timestamp),
        kept_bytes: kept.bytes,
        missing: Vec::new(),
    })
}

/// The history that is kept, minute by minute, the oldest first
///
/// As JSON lines, each of which is what one conversation said within about a minute; or as requests of
/// OpenTelemetry's logs (`format=otlp`), which a collector's `otlpjsonfile` reads. Of several replicas the
/// lines of each follow each other; if one could not be asked, the last line is `{"missing": […]}`.
#[utoipa::path(
    get, path = "/guard/history/export", tag = "guard", params(HistoryExportParams),
    responses((status = 200, description = "A line for each", content(
        (String = "application/x-ndjson")
    )))
)]
async fn export(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(asked): Query<HistoryExportParams>,
) -> Result<Response, Problem> {
    let HistoryExportParams { from, until, format, namespace, after } = asked;
    let from = from.unwrap_or(Timestamp::UNIX_EPOCH);
    let until = until.unwrap_or_else(Timestamp::now);
    let query = HistoryQuery {
        from: from.into(),
        until: until.into(),
        group: None,
        end: None,
        namespace: namespace.as_deref().map(Into::into),
        external: false,
        port: None,
        verdict: None,
    };
    let (files, asked_of) = (traffic_of(&api)?.history.clone(), (api.clone(), caller.clone()));
    let export = Export {
        resource: CONVERSATIONS,
        path: EXPORT,
        query: vec![
            ("from", Some(from.to_string())),
            ("until", Some(until.to_string())),
            ("format", (format == ExportFormat::Otlp).then(|| "otlp".to_owned())),
            ("namespace", namespace),
        ],
        own: Arc::new(move |after, deadline| {
            let (files, query, (api, mut caller)) =
                (files.clone(), query.clone(), asked_of.clone());
            caller.deadline = deadline;
            async move {
                let after = exports::place(after.as_deref())?;
                let groups = Groups::new(GroupMode::Discover);
                let read = move || {
                    let mut lines: Vec<Value> = Vec::new();
                    let next = files.read((query.from, query.until), after, |frame| {
                        lines.extend(written(&frame, &query, &groups, format));
                        lines.len() < PART && !deadline.has_passed()
                    });
                    next.map(|next| ExportPart::new(lines, next)).map_err(|e| unreadable(&e))
                };
                off_the_workers(&api, &caller, read).await?
            }
            .boxed()
        }),
    };
    exports::answer(&api, &caller, &headers, export, after.as_deref()).await
}

/// The lines of a frame, or the one of all of them.
fn written(
    frame: &Frame,
    query: &HistoryQuery,
    groups: &Groups,
    format: ExportFormat,
) -> Vec<Value> {
    let wanted = frame.lines.iter().filter(|line| query.wants(line, groups));
    let lines = wanted.map(PastConversation::from);
    match format {
        ExportFormat::Jsonl => {
            lines.map(|line| serde_json::to_value(line).unwrap_or_default()).collect()
        }
        ExportFormat::Otlp => {
            let records: Vec<_> = lines.map(|line| line.record()).collect();
            if records.is_empty() { Vec::new() } else { vec![otlp::json(&records)] }
        }
    }
}
