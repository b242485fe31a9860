//! What many clusters have together.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use fleet::Connection;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{AskedCluster, Merge, answer, chosen};
use crate::api::sums::Overview;
use crate::api::{Api, Caller, Problem, Query, Route, Routes};

/// Somebody waits for the page; what has not come by then has its row.
const UNASKED: Duration = Duration::from_secs(5);

pub(super) fn routes() -> Routes {
    Routes::default().with(Route::list().fan_out().unasked(UNASKED), routes!(fleet_overview))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct FleetOverviewParams {
    /// `a,b`; all that one may see unless said.
    clusters: Option<String>,
    /// As the header `Request-Timeout`; five seconds unless said.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct FleetOverview {
    clusters: Vec<AskedCluster>,
    /// Of each cluster that answered in time.
    overviews: BTreeMap<String, Overview>,
    /// Of all that answered.
    total: Overview,
}

/// The fleet at a glance
///
/// Sums of what one may see in each cluster, and of all together. A cluster that does not answer in time has
/// its row, with the reason. With `Accept: text/event-stream`: `asked` with the clusters' names, `cluster`
/// with each row as it comes in, `done` with the whole.
#[utoipa::path(
    get, path = "/overview", tag = "across", params(FleetOverviewParams),
    responses((status = 200, description = "What came in time", content(
        (FleetOverview = "application/json"), (String = "text/event-stream")
    )))
)]
async fn fleet_overview(
    State(api): State<Api>,
    caller: Caller,
    Query(asked): Query<FleetOverviewParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let chosen = chosen(&api, &caller, asked.clusters.as_deref());
    let asking = caller.clone();
    let whole = Sums::default();
    answer(&api, &caller, &headers, chosen, whole, move |connection: Connection, deadline| {
        let caller = asking.clone();
        async move { Ok(Ok(Overview::of(&connection, &caller, deadline).await?)) }
    })
    .await
}

#[derive(Default)]
struct Sums {
    overviews: BTreeMap<String, Overview>,
    total: Overview,
}

impl Merge for Sums {
    type Part = Overview;
    type Merged = FleetOverview;

    fn add(&mut self, cluster: &str, part: Overview) -> bool {
        self.total.add(&part);
        self.overviews.insert(cluster.to_owned(), part);
        false
    }

    fn end(self, clusters: Vec<AskedCluster>) -> FleetOverview {
        FleetOverview { clusters, overviews: self.overviews, total: self.total }
    }
}
