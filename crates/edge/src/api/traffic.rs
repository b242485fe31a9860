//! Traffic: who talks to whom, groups, network rules, and what was against them.
//!
//! The replica that leads has the conversations; the others ask it. Of the history each replica has what it
//! recorded while it led. What people write is in the store, which every replica has.

mod compare;
pub(crate) mod conversations;
mod groups;
mod history;
mod rules;
pub(crate) mod violations;

use std::borrow::Cow;

use ::traffic::conversations::{End, Endpoint, Moment};
use ::traffic::history::HistoryFiles;
use ::traffic::ingest::{ActiveIngest, Ingest, NOT_ENFORCED, PolicyStore};
use jiff::Timestamp;
use objects::kinds::GroupMode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::leader::not_here;
use super::{Api, ErrorCode, Problem, Routes};

/// The conversations, groups and rules that the handlers answer from.
#[derive(Clone, Debug)]
pub struct Traffic {
    pub active: ActiveIngest,
    pub policy_store: PolicyStore,
    pub observed: ObservedCluster,
    /// What this replica recorded while it led.
    pub history: HistoryFiles,
}

/// The cluster whose pods the agents observe.
#[derive(Clone, Debug, Default)]
pub enum ObservedCluster {
    /// Agents name what they observe themselves, and nobody says of which cluster it is.
    #[default]
    Unknown,
    /// The cluster that this process runs in.
    Own,
    /// A cluster of the fleet.
    Named(String),
}

impl ObservedCluster {
    /// Whether it is this cluster of the fleet.
    pub(crate) fn is(&self, api: &Api, cluster: &str) -> bool {
        match self {
            Self::Unknown => false,
            Self::Own => is_own(api, cluster),
            Self::Named(name) => name == cluster,
        }
    }
}

/// Whether a cluster of the fleet is the one that this process runs in.
pub(crate) fn is_own(api: &Api, cluster: &str) -> bool {
    let view = api.fleet.view();
    let found = view.clusters.get(cluster);
    found.is_some_and(|cluster| cluster.source.kind == fleet::SourceKind::InCluster)
}

pub(crate) fn routes() -> Routes {
    Routes::default()
        .and(compare::routes())
        .and(conversations::routes())
        .and(groups::routes())
        .and(history::routes())
        .and(rules::routes())
        .and(violations::routes())
}

fn traffic_of(api: &Api) -> Result<&Traffic, Problem> {
    let none = || Problem::new(ErrorCode::NotFound, "this process does not look at conversations");
    api.traffic.as_ref().ok_or_else(none)
}

fn ingest(api: &Api) -> Result<Ingest, Problem> {
    traffic_of(api)?.active.ingest().ok_or_else(|| not_here(api, "conversations"))
}

/// One side of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ConversationEnd {
    /// workload, host, service, ingress, external or unmanaged.
    #[schema(value_type = String)]
    kind: Cow<'static, str>,
    /// As a sentence has it: `shop/web-0`, `host node-1`, `external office`.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// Kind and name of a workload's owner: `Deployment/web`.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    address: String,
}

impl From<&End> for ConversationEnd {
    fn from(end: &End) -> Self {
        let endpoint = &*end.endpoint;
        let owner = match endpoint {
            Endpoint::Workload { owner, .. } => Some(owner.to_string()),
            _ => None,
        };
        Self {
            kind: endpoint.kind().into(),
            name: endpoint.to_string(),
            namespace: endpoint.namespace().map(ToString::to_string),
            owner,
            node: endpoint.node().map(ToString::to_string),
            address: end.address.to_string(),
        }
    }
}

/// RFC 3339; the earliest there is for what no calendar has.
fn timestamp(moment: Moment) -> Timestamp {
    let millis = i64::try_from(moment.0).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn enforcement(mode: Option<GroupMode>) -> Option<&'static str> {
    (mode == Some(GroupMode::Protect)).then_some(NOT_ENFORCED)
}

#[cfg(test)]
mod tests;
