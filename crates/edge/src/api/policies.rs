//! Network policies in force: what there is, where it is enforced, why a connection passes or does not.
//!
//! The replica that leads compiles them; the others ask it.

use std::sync::Arc;
use std::time::Duration;

use access::Verb;
use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use policy::program::{Direction, Source};
use policy::spec::{ActionRule, Peer};
use policy::{Inputs, Probe, ProbePort};
use programs::status::{self, NodeState, NodeStatus};
use programs::{ActivePrograms, Facts, NotAnswered, Programs, RuleCounts};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use traffic::names::Names;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::leader::not_here;
use super::{Api, Caller, ErrorCode, Problem, Query, Route, Routes};

/// The resource in the cluster `-`: whoever may list it sees every pod's name, labels and addresses, and all
/// policies, of the cluster that is guarded.
pub(super) const POLICIES: &str = "policies.fairlead.dev";
/// When to ask again for what is not read yet.
const SOON: Duration = Duration::from_secs(1);

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list().at_leader(), routes!(listed))
        .with(Route::list().at_leader(), routes!(enforced))
        .with(Route::list().at_leader(), routes!(counted))
        .with(Route::list().at_leader(), routes!(explained))
        .with(Route::list().at_leader(), routes!(objects))
}

/// What a process says that compiles nothing.
const NO_CLUSTER: &str = "no policies are in force: this process observes no cluster. Set guard.cluster to one \
                          of the fleet, or run `fairlead install` in one; `fairlead policy test` judges files";

fn programs_of(api: &Api) -> Result<Programs, Problem> {
    let none = || Problem::new(ErrorCode::NotFound, NO_CLUSTER);
    let active: &ActivePrograms = api.programs.as_ref().ok_or_else(none)?;
    active.programs().ok_or_else(|| not_here(api, "policies"))
}

async fn facts(api: &Api, caller: &Caller) -> Result<(Programs, Arc<Facts>), Problem> {
    caller.may_in_fleet(POLICIES, Verb::List)?;
    let programs = programs_of(api)?;
    let facts = programs.facts(caller.deadline).await.map_err(|error| {
        let code = match error {
            NotAnswered::Busy => ErrorCode::Overloaded,
            NotAnswered::TooLate => ErrorCode::TooLate,
            NotAnswered::Ended | NotAnswered::NotRead(_) => ErrorCode::NotReady,
        };
        Problem::new(code, error.to_string()).come_back(SOON)
    })?;
    Ok((programs, facts))
}

/// Ten thousand pods by a thousand policies are some hundred milliseconds of work.
async fn off_the_workers<T: Send + 'static>(
    api: &Api,
    caller: &Caller,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let late = |_| Problem::new(ErrorCode::Overloaded, "no thread was free for it in time");
    let begun = api.tasks.spawn_blocking("policies", caller.deadline, work).await;
    let done = begun.map_err(late)?.await;
    done.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))
}

/// A policy that is in force.
#[derive(Serialize, ToSchema)]
struct PolicyLine {
    /// Quarantine, Admin, NetworkPolicy, Guard or Baseline.
    tier: String,
    priority: Option<i32>,
    kind: String,
    /// With its namespace if it has one.
    policy: String,
    /// How many pods it selects.
    pods: usize,
    /// What it says about ingress, in words.
    ingress: String,
    egress: String,
}

#[derive(Serialize, ToSchema)]
struct PolicyList {
    /// In the order in which they decide.
    policies: Vec<PolicyLine>,
}

/// Network policies in the order in which they decide
#[utoipa::path(
    get, path = "/policies", tag = "policies",
    responses((status = 200, description = "With how many pods each selects", body = PolicyList))
)]
async fn listed(State(api): State<Api>, caller: Caller) -> Result<Json<PolicyList>, Problem> {
    let (_, facts) = facts(&api, &caller).await?;
    let rows = off_the_workers(&api, &caller, move || {
        policy::list::rows(&facts.inputs.cluster, &facts.inputs.policies)
    });
    let policies = rows.await?.into_iter().map(|row| {
        let policy::list::Row { tier, priority, kind, policy, pods, ingress, egress } = row;
        PolicyLine { tier, priority, kind, policy, pods, ingress, egress }
    });
    Ok(Json(PolicyList { policies: policies.collect() }))
}

/// What is enforced, and where.
#[derive(Serialize, ToSchema)]
struct PolicyStatusReport {
    /// The generation that was published last.
    generation: u64,
    /// By name.
    nodes: Vec<NodeEnforcement>,
    /// By kind and name.
    policies: Vec<PolicyEnforcement>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NodeEnforcement {
    node: String,
    /// applied, underWay, failing, bypassed, away, notCompiled or noAgent.
    state: &'static str,
    /// The generation that it enforces, as far as is known; 0 without one.
    generation: u64,
    /// The generation that it should enforce.
    newest: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    acknowledged: Option<Timestamp>,
    /// What is waited for, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PolicyEnforcement {
    kind: String,
    /// With its namespace if it has one.
    policy: String,
    /// The generation in which it was published as it is now.
    generation: u64,
    /// How many pods it selects; none for a rule of guard, which may decide about any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<usize>,
    /// On how many nodes it decides, and on how many of those it is in force.
    nodes: usize,
    applied: usize,
    /// The other nodes.
    waiting: Vec<PolicyWaiting>,
    /// What of it cannot be followed as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PolicyWaiting {
    node: String,
    /// What is waited for, in words.
    waiting_for: String,
}

fn state_word(state: &NodeState) -> &'static str {
    match state {
        NodeState::Applied => "applied",
        NodeState::UnderWay(_) => "underWay",
        NodeState::Failing(_) => "failing",
        NodeState::Bypassed(_) => "bypassed",
        NodeState::Away => "away",
        NodeState::NotCompiled => "notCompiled",
        NodeState::NoAgent => "noAgent",
    }
}

impl From<&NodeStatus> for NodeEnforcement {
    fn from(node: &NodeStatus) -> Self {
        Self {
            node: node.node.to_string(),
            state: state_word(&node.state),
            generation: node.generation,
            newest: node.newest,
            acknowledged: node.acknowledged,
            waiting_for: node.state.waits_for(),
        }
    }
}

/// Where network policies are in force, and what is waited for elsewhere
#[utoipa::path(
    get, path = "/policies/status", tag = "policies",
    responses((status = 200, description = "By node and by policy", body = PolicyStatusReport))
)]
async fn enforced(
    State(api): State<Api>,
    caller: Caller,
) -> Result<Json<PolicyStatusReport>, Problem> {
    let (programs, facts) = facts(&api, &caller).await?;
    let report = off_the_workers(&api, &caller, move || {
        let nodes = status::nodes(&facts, programs.nodes());
        let policies = status::policies(&facts, &nodes).into_iter().map(|it| PolicyEnforcement {
            kind: it.policy.kind.to_string(),
            policy: it.policy.name.to_string(),
            generation: it.generation,
            pods: it.pods,
            nodes: it.nodes,
            applied: it.applied,
            waiting: it
                .waiting
                .into_iter()
                .map(|(node, state)| PolicyWaiting {
                    node: node.to_string(),
                    waiting_for: state.waits_for().unwrap_or_default(),
                })
                .collect(),
            problem: it.problem,
        });
        let policies = policies.collect();
        let nodes = nodes.values().map(NodeEnforcement::from).collect();
        PolicyStatusReport { generation: facts.generation, nodes, policies }
    });
    report.await.map(Json)
}

/// What a rule has counted on all nodes.
#[derive(Serialize, ToSchema)]
struct RuleCountLine {
    /// Quarantine, Admin, NetworkPolicy, Guard or Baseline.
    tier: String,
    /// ingress or egress.
    direction: &'static str,
    /// accept, drop, reject, pass or report.
    verdict: String,
    /// The rules of policies that it stands for. Those whose order does not matter are merged by ports into
    /// one: what it counted is that of all of them together.
    rules: Vec<PolicyRuleName>,
    /// Packets in the direction of a connection's first one: each is judged. Replies are not counted.
    packets: u64,
    bytes: u64,
    /// On how many nodes the rule is.
    nodes: usize,
}

/// A rule of a policy.
#[derive(Serialize, ToSchema)]
struct PolicyRuleName {
    kind: String,
    /// With its namespace if it has one.
    policy: String,
    /// As `ingress[0]`; `isolation` is what no rule accepts.
    rule: String,
}

#[derive(Serialize, ToSchema)]
struct RuleCountList {
    /// By tier and policy.
    rules: Vec<RuleCountLine>,
}

fn direction_word(direction: Direction) -> &'static str {
    match direction {
        Direction::Egress => "egress",
        Direction::Ingress => "ingress",
    }
}

/// What each rule of the policies in force has counted, as far as agents have told
#[utoipa::path(
    get, path = "/policies/rules", tag = "policies",
    responses((status = 200, description = "Packets and bytes, of all nodes", body = RuleCountList))
)]
async fn counted(State(api): State<Api>, caller: Caller) -> Result<Json<RuleCountList>, Problem> {
    let (programs, _) = facts(&api, &caller).await?;
    let rules = off_the_workers(&api, &caller, move || {
        let rules = programs.rule_counts().into_iter().map(|it| RuleCountLine {
            tier: it.tier.to_string(),
            direction: direction_word(it.direction),
            verdict: it.verdict.to_string(),
            rules: it
                .sources
                .iter()
                .map(|source| PolicyRuleName {
                    kind: source.kind.to_string(),
                    policy: source.policy.to_string(),
                    rule: source.rule.to_string(),
                })
                .collect(),
            packets: it.packets,
            bytes: it.bytes,
            nodes: it.nodes,
        });
        rules.collect()
    });
    Ok(Json(RuleCountList { rules: rules.await? }))
}

/// Adds to an explanation what the rule that decided has counted, in each direction.
fn add_counts(answer: &mut Value, counts: &[RuleCounts]) {
    for direction in [Direction::Egress, Direction::Ingress] {
        let side = &mut answer[direction_word(direction)];
        let text = |field: &str| side[field].as_str().unwrap_or_default().to_owned();
        let (kind, policy, rule) = (text("kind"), text("policy"), text("rule"));
        let rule = if rule.is_empty() { "isolation" } else { &rule };
        let is_it = |source: &Source| {
            source.kind.to_string() == kind && *source.policy == *policy && *source.rule == *rule
        };
        let of_it = |it: &&RuleCounts| it.direction == direction && it.sources.iter().any(is_it);
        let found: Vec<_> = counts.iter().filter(of_it).collect();
        if found.is_empty() {
            continue;
        }
        // One rule is in several where it is merged with others on some nodes and not on all.
        side["counted"] = json!({
            "packets": found.iter().map(|it| it.packets).sum::<u64>(),
            "bytes": found.iter().map(|it| it.bytes).sum::<u64>(),
            "nodes": found.iter().map(|it| it.nodes).max(),
            "rules": found.iter().map(|it| it.sources.len()).max(),
        });
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Explain {
    /// NAMESPACE/POD or an address.
    from: String,
    /// NAMESPACE/POD or an address.
    to: String,
    /// A number, or the name of a container port of the destination.
    port: Option<String>,
    /// TCP unless said; UDP, SCTP, ICMP, ICMPv6 or as ip-47.
    protocol: Option<String>,
    /// The domain name under which the source knows the destination.
    to_name: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct Explained {
    /// As `fairlead policy explain -o json` prints it. Where a rule decided, `counted` says what it counted
    /// on all nodes: `packets`, `bytes`, on how many `nodes`, and how many `rules` of policies that is of.
    /// `toName` is the domain name under which the source's node knows the destination; `dependsOn` says that it
    /// depends on names that this node has not told.
    #[schema(value_type = Object)]
    #[serde(flatten)]
    answer: Value,
}

/// What each tier says of one connection, and which rule decides
#[utoipa::path(
    get, path = "/policies/explain", tag = "policies", params(Explain),
    responses((status = 200, description = "Both directions", body = Explained))
)]
async fn explained(
    State(api): State<Api>,
    caller: Caller,
    Query(asked): Query<Explain>,
) -> Result<Json<Explained>, Problem> {
    let (programs, facts) = facts(&api, &caller).await?;
    let number = |text: String| text.parse().map_or(ProbePort::Name(text), ProbePort::Number);
    let probe = Probe {
        from: asked.from,
        to: asked.to,
        protocol: asked.protocol.unwrap_or_else(|| "TCP".to_owned()),
        port: asked.port.map(number),
        to_name: asked.to_name,
    };
    let names = api.traffic.as_ref().and_then(|it| it.active.ingest());
    let names = names.map(|ingest| ingest.names().clone()).unwrap_or_default();
    let answer = off_the_workers(&api, &caller, move || {
        let mut answer = named(&probe, &facts.inputs, &names)?;
        add_counts(&mut answer, &programs.rule_counts());
        Ok(answer)
    });
    let answer = answer.await?.map_err(|why: String| Problem::invalid(why))?;
    Ok(Json(Explained { answer }))
}

/// The explanation, with the names that the source's node resolved to the destination: `toName` is the one that
/// has it allowed, else the latest. `dependsOn` says that it would need a name that no agent told.
fn named(probe: &Probe, inputs: &Inputs, names: &Names) -> Result<Value, String> {
    let (cluster, policies) = (&inputs.cluster, &inputs.policies);
    let plain = policy::words::explain(probe, cluster, policies)?;
    let connection = probe.connection(cluster)?;
    let of_rule = |rule: &ActionRule| rule.peers.iter().any(|it| matches!(it, Peer::Domains(_)));
    let by_name = policies.groups.values().any(|group| !group.domains.is_empty())
        || policies.cluster.values().any(|policy| policy.egress.iter().any(of_rule));
    if probe.to_name.is_some() || !by_name {
        return Ok(plain);
    }
    let (Some(pod), Some(to)) = (&connection.from.pod, connection.to.address) else {
        return Ok(plain);
    };
    let Some(known) = names.of(&pod.node, to) else {
        let mut plain = plain;
        plain["dependsOn"] = format!(
            "rules by domain name, and {}, where the source runs, has not told what names resolve to; say the \
             name with toName",
            pod.node
        )
        .into();
        return Ok(plain);
    };
    let mut latest = None;
    for name in known {
        let probe = Probe { to_name: Some(name.to_string()), ..probe.clone() };
        let mut answer = policy::words::explain(&probe, cluster, policies)?;
        answer["toName"] = json!(*name);
        if answer["verdict"] == "allow" {
            return Ok(answer);
        }
        latest.get_or_insert(answer);
    }
    Ok(latest.unwrap_or(plain))
}

/// What policies are decided from.
#[derive(Serialize, ToSchema)]
struct PolicyObjects {
    /// Namespaces, Nodes, Services, AddressPools and Pods as manifests, with what policies look at.
    #[schema(value_type = Vec<Object>)]
    cluster: Vec<Value>,
    /// The policies in force, as they are written.
    #[schema(value_type = Vec<Object>)]
    policies: Vec<Value>,
    /// The mode of workloads in no group that has one.
    mode: String,
}

/// The objects and policies that decisions are made from, as manifests: for trying policies out
#[utoipa::path(
    get, path = "/policies/objects", tag = "policies",
    responses((status = 200, description = "As `fairlead policy test` reads them", body = PolicyObjects))
)]
async fn objects(State(api): State<Api>, caller: Caller) -> Result<Json<PolicyObjects>, Problem> {
    let (programs, facts) = facts(&api, &caller).await?;
    let mode = programs.settings().mode.to_string();
    let objects = off_the_workers(&api, &caller, move || PolicyObjects {
        cluster: policy::manifest::documents(&facts.inputs.cluster),
        policies: facts.documents.values().map(|it| (**it).clone()).collect(),
        mode,
    });
    objects.await.map(Json)
}
