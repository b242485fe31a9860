//! What this process does at the moment: operations in flight, locks, stalls.

use std::collections::BTreeMap;

use access::Verb;
use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stallproof::ledger::{Filter, OpId, OpView};
use stallproof::tracked_mutex::{LockView, locks};
use stallproof::watchdog::{Severity, Stall};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{Api, Caller, Problem, Query, Route, Routes};

/// The resource in the cluster `-`.
pub(crate) const INFLIGHT: &str = "inflight.fairlead.dev";

/// Operations in one document: more than a page shows.
const SHOWN: usize = 500;

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::read(), routes!(inflight)).with(Route::read(), routes!(now))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct InflightParams {
    /// Such as `rest`.
    kind: Option<String>,
    /// A cluster, mostly.
    tenant: Option<String>,
    /// The most to show, oldest first; 1000 unless said.
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
struct Inflight {
    /// Kind, key, tenant, age, step, what it waits on; oldest first.
    #[schema(value_type = Vec<Object>)]
    operations: Vec<OpView>,
}

/// What is in flight, oldest first
#[utoipa::path(
    get, path = "/inflight", tag = "about", params(InflightParams),
    responses((status = 200, description = "Oldest first", body = Inflight))
)]
async fn inflight(
    State(api): State<Api>,
    caller: Caller,
    Query(InflightParams { kind, tenant, limit }): Query<InflightParams>,
) -> Result<Json<Inflight>, Problem> {
    caller.may_in_fleet(INFLIGHT, Verb::List)?;
    let limit = limit.unwrap_or_else(|| Filter::default().limit);
    Ok(Json(Inflight { operations: api.ledger.in_flight(&Filter { kind, tenant, limit }) }))
}

/// What this process does at one moment.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Now {
    /// RFC 3339: the moment.
    #[schema(value_type = String)]
    at: Timestamp,
    /// How many are in flight, shown or not.
    in_flight: usize,
    /// How many there are of each kind.
    by_kind: Vec<KindInFlight>,
    /// Oldest first, 500 at most.
    #[schema(value_type = Vec<Object>)]
    operations: Vec<OpView>,
    /// Every class of locks: how often it was waited for, and who holds and who waits now.
    #[schema(value_type = Vec<Object>)]
    locks: Vec<LockView>,
    /// Parts of the process that make no progress.
    stalls: Vec<StallView>,
    /// Who waits for whom, from the one who waits to the last holder.
    holders: Vec<HolderChain>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct KindInFlight {
    kind: &'static str,
    in_flight: usize,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StallView {
    name: String,
    critical: bool,
    stalled_ms: u64,
    /// It alone is reason enough to fail the liveness check.
    fails_liveness: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HolderChain {
    /// The operation that waits.
    #[schema(value_type = u64)]
    waiter: OpId,
    /// What it waits for.
    what: String,
    /// Who holds it, who holds what that one waits for, and so on.
    #[schema(value_type = Vec<u64>)]
    chain: Vec<OpId>,
    /// The chain comes back to itself: nobody in it will move.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cycle: bool,
}

/// What is going on
///
/// Operations in flight, locks with who holds and who waits, stalls, and chains of waiters. The topic
/// `inflight` of the socket tells the same once a second.
#[utoipa::path(
    get, path = "/now", tag = "about",
    responses((status = 200, description = "At this moment", body = Now))
)]
async fn now(State(api): State<Api>, caller: Caller) -> Result<Json<Now>, Problem> {
    caller.may_in_fleet(INFLIGHT, Verb::List)?;
    Ok(Json(Now::of(&api)))
}

impl Now {
    pub(crate) fn of(api: &Api) -> Self {
        let by_kind = api.ledger.count().into_iter();
        let by_kind: Vec<_> =
            by_kind.map(|(kind, in_flight)| KindInFlight { kind, in_flight }).collect();
        let operations = api.ledger.in_flight(&Filter { limit: SHOWN, ..Filter::default() });
        let stalls = api.watchdog.as_ref().map(|watchdog| watchdog.stalls()).unwrap_or_default();
        Self {
            at: Timestamp::now(),
            in_flight: by_kind.iter().map(|kind| kind.in_flight).sum(),
            by_kind,
            holders: chains(&operations),
            operations,
            locks: locks(),
            stalls: stalls.into_iter().map(StallView::from).collect(),
        }
    }
}

impl From<Stall> for StallView {
    fn from(stall: Stall) -> Self {
        Self {
            critical: stall.severity == Severity::Critical,
            stalled_ms: u64::try_from(stall.stalled_for.as_millis()).unwrap_or(u64::MAX),
            fails_liveness: stall.failing,
            name: stall.name.into_owned(),
        }
    }
}

/// Follows each waiter to the last holder.
fn chains(operations: &[OpView]) -> Vec<HolderChain> {
    let waits = |op: &OpView| Some((op.id, op.waits_on.as_ref()?.holder?));
    let waits: BTreeMap<_, _> = operations.iter().filter_map(waits).collect();
    let chain = |op: &OpView| {
        let wait = op.waits_on.as_ref()?;
        let (mut chain, mut cycle) = (Vec::new(), false);
        let mut next = wait.holder;
        while let Some(holder) = next {
            cycle = holder == op.id || chain.contains(&holder);
            if cycle {
                break;
            }
            chain.push(holder);
            next = waits.get(&holder).copied();
        }
        Some(HolderChain { waiter: op.id, what: wait.what.clone(), chain, cycle })
    };
    operations.iter().filter_map(chain).collect()
}

#[cfg(test)]
mod tests {
    use stallproof::ledger::WaitView;

    use super::*;

    fn op(id: u64, holder: Option<u64>) -> OpView {
        let waits_on = holder.map(|holder| WaitView {
            what: "lane".to_owned(),
            holder: Some(OpId(holder)),
            holder_doing: None,
        });
        OpView {
            id: OpId(id),
            kind: "rest",
            key: String::new(),
            tenant: String::new(),
            age_ms: 0,
            step: "begin",
            step_age_ms: 0,
            steps: Vec::new(),
            waits_on,
            late: false,
        }
    }

    #[test]
    fn a_chain_leads_to_the_last_holder_and_a_ring_is_called_one() {
        let told = chains(&[op(1, Some(2)), op(2, Some(3)), op(3, None)]);
        let chain = |chain: &HolderChain| chain.chain.iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!((told.len(), chain(&told[0]), chain(&told[1])), (2, vec![2, 3], vec![3]));
        assert!(!told[0].cycle);
        let ring = chains(&[op(1, Some(2)), op(2, Some(1))]);
        assert!(ring[0].cycle && ring[1].cycle);
        assert_eq!(chain(&ring[0]), [2]);
    }
}
