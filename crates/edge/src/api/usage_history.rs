//! What pods, and a cluster as a whole, used before now.

use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use fleet::resources::usage_history::{self, HistoryOf, HistoryRange, UsageHistory};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::pods::PODS;
use super::scope::permit;
use super::{Api, Caller, ErrorCode, Problem, Query, Route, Routes};

/// What is asked for unless said: the last hour.
const MINUTES: u32 = 60;
/// Thirty days: what a Prometheus keeps, mostly.
const MOST_MINUTES: u32 = 30 * 24 * 60;
/// Points of a chart: more are not seen.
const POINTS: i64 = 180;
/// Prometheus looks at most things this often.
const SHORTEST_STEP: i64 = 15;

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::list(), routes!(history))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HistoryParams {
    /// Of one pod: its namespace.
    namespace: Option<String>,
    /// One pod; all of the cluster together unless said.
    pod: Option<String>,
    /// How far back; 60 unless said, at most 43200.
    minutes: Option<u32>,
}

#[derive(Serialize, ToSchema)]
struct UsageOverTime {
    /// `cpu` in cores and `memory` in bytes, each a list of pairs of a time, in seconds since 1970, and a
    /// value. An empty list is what nobody measured.
    #[schema(value_type = Object)]
    #[serde(flatten)]
    used: UsageHistory,
    /// Who says so: NAMESPACE/SERVICE:PORT.
    from: String,
}

/// What was used
///
/// As the cluster's own Prometheus says (`fleet.prometheus`), asked through its API server. Without that
/// setting it is answered as `not-served`.
#[utoipa::path(
    get, path = "/clusters/{cluster}/usage/history", tag = "resources", params(HistoryParams),
    responses((status = 200, description = "CPU and memory over time", body = UsageOverTime))
)]
async fn history(
    State(api): State<Api>,
    caller: Caller,
    Path(cluster): Path<String>,
    Query(HistoryParams { namespace, pod, minutes }): Query<HistoryParams>,
) -> Result<Json<UsageOverTime>, Problem> {
    let of = match (&namespace, &pod) {
        (Some(namespace), Some(name)) => {
            permit(&caller, &cluster, (Some(namespace), PODS, name), Verb::Get)?;
            HistoryOf::Pod { namespace, name }
        }
        (None, None) => {
            caller.may(&access::AccessRequest {
                cluster: &cluster,
                namespace: None,
                resource: PODS,
                verb: Verb::List,
            })?;
            HistoryOf::Cluster
        }
        _ => return Err(Problem::invalid("name a pod with its namespace, or neither")),
    };
    let connection = caller.connection(&api, &cluster)?;
    let service = api.fleet.prometheus().ok_or_else(|| {
        let detail = "no Prometheus is known; say where clusters have one with fleet.prometheus, as \
                      monitoring/prometheus:9090";
        Problem::new(ErrorCode::NotServed, detail)
    })?;
    let seconds = i64::from(minutes.unwrap_or(MINUTES).clamp(5, MOST_MINUTES)) * 60;
    let end = Timestamp::now().as_second();
    let range =
        HistoryRange { start: end - seconds, end, step: (seconds / POINTS).max(SHORTEST_STEP) };
    let used =
        usage_history::usage_history(&connection, service, of, range, caller.deadline).await?;
    Ok(Json(UsageOverTime { used, from: service.to_string() }))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use crate::api::tests::test_api::TestApi;

    #[tokio::test]
    async fn history_needs_the_right_to_the_pod_and_a_prometheus() {
        let world = TestApi::with(&["eu"], |_| {}).ready().await;
        let ann = world.somebody("ann", &[["eu", "shop", "pods", "*"]]).await;
        let ask = |path: &'static str| world.ask_as(&ann, Method::GET, path, Value::Null);
        let of_other = ask("/clusters/eu/usage/history?namespace=pay&pod=web").await;
        assert_eq!(of_other.status, 404, "{}", of_other.text);
        let of_all = ask("/clusters/eu/usage/history").await;
        assert_eq!(of_all.code(), "forbidden", "{}", of_all.text);
        let half = ask("/clusters/eu/usage/history?pod=web").await;
        assert_eq!(half.code(), "invalid", "{}", half.text);
        // The cluster does not answer, and no Prometheus is known: either is said, at once.
        let own = ask("/clusters/eu/usage/history?namespace=shop&pod=web").await;
        assert!(["not-served", "not-ready", "unreachable"].contains(&&*own.code()), "{}", own.text);
        assert_ne!(own.json()["detail"], json!(""));
    }
}
