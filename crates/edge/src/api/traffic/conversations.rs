//! Conversations: a page of them, and all of them as a graph.

use ::traffic::conversations::{
    ConversationRef, Endpoint, KnownApplication, Level, Moment, Node, Totals, Verdict,
};
use ::traffic::ingest::{Cursor, Query as Questions, VerdictFilter};
use ::traffic::names::Names;
use ::traffic::rules::GroupMatcher;
use access::Verb;
use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{ConversationEnd, ingest, timestamp};
use crate::api::{Api, Caller, ErrorCode, Problem, Query, Route, Routes};

/// The resource in the cluster `-`.
pub(crate) const CONVERSATIONS: &str = "conversations.fairlead.dev";
/// The most lines of an answer, and how many unless said.
pub(super) const MOST: usize = 10_000;
pub(super) const LINES: usize = 500;

pub(super) fn routes() -> Routes {
    Routes::default()
        .with(Route::list().at_leader(), routes!(conversations))
        .with(Route::list().at_leader(), routes!(graph))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ConversationParams {
    /// With an end in this group: a Group's name, `namespace/Kind/name`, or any, external, hosts,
    /// ingress, services, unmanaged, workloads.
    group: Option<String>,
    /// With an end in this namespace.
    namespace: Option<String>,
    /// RFC 3339: not what was last seen before.
    #[param(value_type = Option<String>)]
    since: Option<Timestamp>,
    /// With an end outside of the cluster.
    #[serde(default)]
    external: bool,
    /// Of the server.
    port: Option<u16>,
    /// unjudged, allowed, discovered or violates.
    verdict: Option<String>,
    /// The most to show; 500 unless said, and 10000 at most.
    limit: Option<usize>,
    /// As the page before gave it.
    #[serde(rename = "continue")]
    after: Option<String>,
}

impl ConversationParams {
    fn questions(self) -> Result<Questions, Problem> {
        let group =
            self.group.as_deref().map(GroupMatcher::new).transpose().map_err(Problem::invalid)?;
        let verdict = self.verdict.as_deref().map(str::parse::<VerdictFilter>).transpose();
        let after = self.after.as_deref().map(str::parse::<Cursor>).transpose();
        Ok(Questions {
            group,
            namespace: self.namespace.map(Into::into),
            external: self.external,
            since: self.since.map_or(Moment(0), Moment::from),
            port: self.port,
            verdict: verdict.map_err(Problem::invalid)?,
            after: after.map_err(Problem::invalid)?,
            limit: self.limit.unwrap_or(LINES).clamp(1, MOST),
        })
    }
}

/// What one client and one server said to each other about one thing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConversationLine {
    client: ConversationEnd,
    server: ConversationEnd,
    /// The domain names that the client's node resolved to the server's address, as far as rules have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    server_names: Vec<String>,
    /// What was folded of these two, for want of room or because it is old: it has no port.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    folded: bool,
    /// tcp, udp, icmp, or such as ip-47.
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    /// How the application is known: by the first `bytes` of its connections, or by its `port`, which is what such a port is for and no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    application_by: Option<&'static str>,
    /// unjudged, allowed, discovered or violates.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    /// False where a group is to be protected: stopped on nodes that enforce policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    enforced: Option<bool>,
    /// The rule that decided; of what is unjudged, the rule by domain name on which it depends, and no agent told
    /// what its names resolved to.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(flatten)]
    totals: ConversationTotals,
    #[schema(value_type = String)]
    first: Timestamp,
    #[schema(value_type = String)]
    last: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(super) struct ConversationTotals {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) sessions: u64,
}

impl std::ops::AddAssign for ConversationTotals {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.packets = self.packets.saturating_add(other.packets);
        self.sessions = self.sessions.saturating_add(other.sessions);
    }
}

impl From<Totals> for ConversationTotals {
    fn from(Totals { bytes, packets, sessions }: Totals) -> Self {
        Self { bytes, packets, sessions }
    }
}

impl ConversationLine {
    fn new(line: &ConversationRef<'_>, names: &Names) -> Self {
        let (client, server) = (line.client(), line.server());
        let names = client.endpoint.node().and_then(|node| names.of(node, server.address));
        let service = line.service();
        let application = KnownApplication::of(line.application(), service);
        Self {
            client: client.into(),
            server: server.into(),
            server_names: names.iter().flatten().map(ToString::to_string).collect(),
            folded: service.is_none(),
            protocol: service.map(|(protocol, _)| protocol.to_string()),
            port: service.map(|(_, port)| port),
            application: application.map(|it| it.name.to_owned()),
            application_by: application.map(|it| it.known_by()),
            verdict: line.verdict().map(|verdict| VerdictFilter::of(verdict).word()),
            enforced: line.verdict().and_then(super::violations::enforced),
            rule: line.rule().map(ToString::to_string),
            totals: line.totals().into(),
            first: timestamp(line.first()),
            last: timestamp(line.last()),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Conversations {
    /// The latest first.
    conversations: Vec<ConversationLine>,
    /// For the next page.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How many fit, on whatever page, and what they say together.
    matched: usize,
    totals: ConversationTotals,
    /// What is too old to be kept by itself, by namespace, whatever was asked for.
    rest: Vec<ConversationRest>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ConversationRest {
    /// A namespace, or the kind of what has none.
    client: String,
    server: String,
    /// Of how many clients and servers.
    pairs: u64,
    #[serde(flatten)]
    totals: ConversationTotals,
    #[schema(value_type = String)]
    last: Timestamp,
}

/// Who talks to whom, the latest first
#[utoipa::path(
    get, path = "/guard/conversations", tag = "guard", params(ConversationParams),
    responses((status = 200, description = "A page of them", body = Conversations))
)]
async fn conversations(
    State(api): State<Api>,
    caller: Caller,
    Query(asked): Query<ConversationParams>,
) -> Result<Json<Conversations>, Problem> {
    caller.may_in_fleet(CONVERSATIONS, Verb::List)?;
    let questions = asked.questions()?;
    let ingest = ingest(&api)?;
    let answer = off_the_workers(&api, &caller, move || {
        let (view, inventory) = (ingest.view(), ingest.inventory());
        let page = questions.run(&view, &inventory.groups);
        let rest = view.folded().into_iter().map(|((client, server), folded)| ConversationRest {
            client: client.to_string(),
            server: server.to_string(),
            pairs: folded.pairs,
            totals: folded.totals.into(),
            last: timestamp(Moment::from_seconds(folded.last)),
        });
        let shown = page.lines.iter().map(|line| ConversationLine::new(line, ingest.names()));
        Conversations {
            conversations: shown.collect(),
            next: page.next.map(|next| next.to_string()),
            matched: page.matched,
            totals: page.totals.into(),
            rest: rest.collect(),
        }
    });
    answer.await.map(Json)
}

/// The latest conversations in a namespace, or anywhere, of which an end is wanted.
pub(crate) async fn with_end(
    api: &Api,
    caller: &Caller,
    namespace: Option<&str>,
    wanted: impl Fn(&Endpoint) -> bool + Send + 'static,
    limit: usize,
) -> Result<Vec<ConversationLine>, Problem> {
    caller.may_in_fleet(CONVERSATIONS, Verb::List)?;
    let ingest = ingest(api)?;
    let namespace = namespace.map(Into::into);
    let questions = Questions { namespace, limit: MOST, ..Questions::default() };
    off_the_workers(api, caller, move || {
        let (view, inventory) = (ingest.view(), ingest.inventory());
        let page = questions.run(&view, &inventory.groups);
        let ends = |line: &&ConversationRef<'_>| {
            wanted(&line.client().endpoint) || wanted(&line.server().endpoint)
        };
        let shown = page.lines.iter().filter(ends).take(limit);
        shown.map(|line| ConversationLine::new(line, ingest.names())).collect()
    })
    .await
}

/// A million conversations are some hundred milliseconds of work, which others would wait for.
pub(super) async fn off_the_workers<T: Send + 'static>(
    api: &Api,
    caller: &Caller,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let late = |_| Problem::new(ErrorCode::Overloaded, "no thread was free for it in time");
    let begun = api.tasks.spawn_blocking("conversations", caller.deadline, work).await;
    let done = begun.map_err(late)?.await;
    done.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Drawn {
    /// workload, group or namespace; group unless said.
    #[serde(default)]
    level: DrawnLevel,
    /// RFC 3339: not what was last seen before.
    #[param(value_type = Option<String>)]
    since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum DrawnLevel {
    Workload,
    #[default]
    Group,
    Namespace,
}

/// Who talks to whom, drawn.
#[derive(Serialize, ToSchema)]
struct ConversationGraph {
    nodes: Vec<ConversationNode>,
    edges: Vec<ConversationEdge>,
}

#[derive(Serialize, ToSchema)]
struct ConversationNode {
    /// workload, host, service, ingress, external, unmanaged, group or namespace.
    kind: &'static str,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ConversationEdge {
    /// Places in `nodes`.
    client: u32,
    server: u32,
    conversations: u32,
    #[serde(flatten)]
    totals: ConversationTotals,
    #[schema(value_type = String)]
    last: Timestamp,
    /// The gravest on a conversation of it: allowed, discovered or violates; none if none was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    /// A rule that decided so, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
}

impl From<&Node> for ConversationNode {
    fn from(node: &Node) -> Self {
        let (kind, namespace) = match node {
            Node::Endpoint(endpoint) => (endpoint.kind(), endpoint.namespace()),
            Node::Group { namespace, .. } => ("group", Some(namespace)),
            Node::Realm(_) => ("namespace", None),
        };
        Self { kind, name: node.to_string(), namespace: namespace.map(ToString::to_string) }
    }
}

/// Who talks to whom, as nodes and edges
#[utoipa::path(
    get, path = "/guard/graph", tag = "guard", params(Drawn),
    responses((status = 200, description = "Nodes and edges", body = ConversationGraph))
)]
async fn graph(
    State(api): State<Api>,
    caller: Caller,
    Query(Drawn { level, since }): Query<Drawn>,
) -> Result<Json<ConversationGraph>, Problem> {
    caller.may_in_fleet(CONVERSATIONS, Verb::List)?;
    let ingest = ingest(&api)?;
    let level = match level {
        DrawnLevel::Workload => Level::Workload,
        DrawnLevel::Group => Level::Group,
        DrawnLevel::Namespace => Level::Namespace,
    };
    let since = since.map_or(Moment(0), Moment::from);
    let drawn = off_the_workers(&api, &caller, move || {
        let graph = ingest.view().graph(level, since);
        let edges = graph.edges.iter().map(|edge| ConversationEdge {
            client: edge.client,
            server: edge.server,
            conversations: edge.conversations,
            totals: edge.totals.into(),
            last: timestamp(edge.last),
            verdict: (edge.verdict != Verdict::Unjudged)
                .then(|| VerdictFilter::of(edge.verdict).word()),
            rule: edge.rule.as_deref().map(Into::into),
        });
        let nodes = graph.nodes.iter().map(ConversationNode::from);
        ConversationGraph { nodes: nodes.collect(), edges: edges.collect() }
    });
    drawn.await.map(Json)
}
