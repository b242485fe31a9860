//! What was used before now, as the cluster's own Prometheus has it. It is asked through the cluster's API
//! server, by the connection that there is: no other credential, no other way out of this process.

use std::str::FromStr;

use http::Request;
use serde::{Deserialize, Serialize};
use stallproof::Deadline;

use crate::{Connection, Error};

/// Where a cluster's Prometheus is: a Service, the same in every cluster that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusService {
    namespace: String,
    service: String,
    port: String,
}

impl FromStr for PrometheusService {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = |part: &str| {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !part.is_empty() && part.len() <= 63 && part.chars().all(fits)
        };
        let parts = text.split_once('/').and_then(|(namespace, rest)| {
            let (service, port) = rest.split_once(':')?;
            [namespace, service, port].iter().all(|part| name(part)).then_some((
                namespace.to_owned(),
                service.to_owned(),
                port.to_owned(),
            ))
        });
        let (namespace, service, port) = parts.ok_or_else(|| {
            format!("{text:?} is not NAMESPACE/SERVICE:PORT, as monitoring/prometheus:9090 is")
        })?;
        Ok(Self { namespace, service, port })
    }
}

impl std::fmt::Display for PrometheusService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.service, self.port)
    }
}

/// Whose usage is asked for.
#[derive(Clone, Copy, Debug)]
pub enum HistoryOf<'a> {
    /// All pods of the cluster together.
    Cluster,
    Pod {
        namespace: &'a str,
        name: &'a str,
    },
}

/// From when to when, in seconds since 1970, and how far apart.
#[derive(Clone, Copy, Debug)]
pub struct HistoryRange {
    pub start: i64,
    pub end: i64,
    pub step: i64,
}

/// Pairs of a time, in seconds since 1970, and a value. Empty where nothing was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageHistory {
    /// In cores.
    pub cpu: Vec<(f64, f64)>,
    /// In bytes.
    pub memory: Vec<(f64, f64)>,
}

/// Asks Prometheus for what was used.
pub async fn usage_history(
    connection: &Connection,
    service: &PrometheusService,
    of: HistoryOf<'_>,
    range: HistoryRange,
    deadline: Deadline,
) -> Result<UsageHistory, Error> {
    let which = selector(of);
    let cpu = format!("sum(rate(container_cpu_usage_seconds_total{which}[5m]))");
    let memory = format!("sum(container_memory_working_set_bytes{which})");
    let ask = |query: String| series(connection, service, query, range, deadline);
    let (cpu, memory) = futures::future::try_join(ask(cpu), ask(memory)).await?;
    Ok(UsageHistory { cpu, memory })
}

/// The containers that are counted: not the sum that cAdvisor has of each pod, nor the pause container.
fn selector(of: HistoryOf<'_>) -> String {
    let containers = r#"container!="",container!="POD""#;
    match of {
        HistoryOf::Cluster => format!("{{{containers}}}"),
        HistoryOf::Pod { namespace, name } => {
            // PromQL's strings are escaped as JSON's are.
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            format!("{{namespace={},pod={},{containers}}}", quoted(namespace), quoted(name))
        }
    }
}

#[derive(Deserialize)]
struct PrometheusAnswer {
    data: PrometheusData,
}

#[derive(Deserialize)]
struct PrometheusData {
    #[serde(default)]
    result: Vec<PrometheusSeries>,
}

#[derive(Deserialize)]
struct PrometheusSeries {
    #[serde(default)]
    values: Vec<(f64, String)>,
}

async fn series(
    connection: &Connection,
    service: &PrometheusService,
    query: String,
    range: HistoryRange,
    deadline: Deadline,
) -> Result<Vec<(f64, f64)>, Error> {
    let PrometheusService { namespace, service, port } = service;
    let HistoryRange { start, end, step } = range;
    let asked = form_urlencoded::Serializer::new(String::new())
        .append_pair("query", &query)
        .append_pair("start", &start.to_string())
        .append_pair("end", &end.to_string())
        .append_pair("step", &step.to_string())
        .finish();
    let path = format!(
        "/api/v1/namespaces/{namespace}/services/{service}:{port}/proxy/api/v1/query_range?{asked}"
    );
    let text = connection
        .call("reading usage from Prometheus", deadline, |client| async move {
            let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
            client.request_text(request).await
        })
        .await?;
    let answer: PrometheusAnswer = serde_json::from_str(&text).map_err(|_| {
        Error::Invalid(format!(
            "{namespace}/{service}:{port} of {} does not answer as Prometheus does; look at fleet.prometheus",
            connection.cluster()
        ))
    })?;
    let values = answer.data.result.into_iter().next().map(|series| series.values);
    let number = |(at, value): (f64, String)| {
        value.parse().ok().filter(|value: &f64| value.is_finite()).map(|value| (at, value))
    };
    Ok(values.into_iter().flatten().filter_map(number).collect())
}

#[cfg(test)]
mod tests;
