//! A cluster at a glance: nodes, pods by phase, requests and limits, workloads that are not as they
//! should be.
//!
//! Lists are folded page by page: of thirty thousand pods, five hundred are in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::DynamicObject;
use serde::Serialize;
use serde_json::Value;
use stallproof::Deadline;

use super::list::{ListQuery, every_page};
use super::list_format::Objects;
use super::usage::amount;
use crate::{Connection, Error};

/// CPU and memory of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    pub cpu_millis: u64,
    pub memory_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesOverview {
    pub total: usize,
    pub ready: usize,
    pub cordoned: usize,
    pub allocatable: Amounts,
    /// Pods that all nodes together may run.
    pub pods: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodsOverview {
    pub total: usize,
    /// Such as `Running`.
    pub by_phase: BTreeMap<String, usize>,
    /// Running, and not ready.
    pub not_ready: usize,
    /// Restarts of all containers together.
    pub restarts: u64,
    /// Of pods that are not over.
    pub requests: Amounts,
    pub limits: Amounts,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadsOverview {
    pub kind: &'static str,
    pub total: usize,
    /// With as many ready replicas as they want.
    pub ready: usize,
}

impl NodesOverview {
    /// Adds another cluster's.
    pub fn add(&mut self, other: &Self) {
        self.total += other.total;
        self.ready += other.ready;
        self.cordoned += other.cordoned;
        self.allocatable.sum(other.allocatable);
        self.pods += other.pods;
    }
}

impl PodsOverview {
    /// Adds another cluster's.
    pub fn add(&mut self, other: &Self) {
        self.total += other.total;
        for (phase, count) in &other.by_phase {
            *self.by_phase.entry(phase.clone()).or_default() += count;
        }
        self.not_ready += other.not_ready;
        self.restarts += other.restarts;
        self.requests.sum(other.requests);
        self.limits.sum(other.limits);
    }
}

impl Amounts {
    fn sum(&mut self, other: Self) {
        self.cpu_millis += other.cpu_millis;
        self.memory_bytes += other.memory_bytes;
    }
}

/// Sums up the nodes.
pub async fn nodes(connection: &Connection, deadline: Deadline) -> Result<NodesOverview, Error> {
    let mut nodes = NodesOverview::default();
    fold(connection, "nodes.v1.", deadline, |node| {
        nodes.total += 1;
        nodes.ready += usize::from(has_condition(&node, "Ready"));
        let cordoned = node.data.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
        nodes.cordoned += usize::from(cordoned);
        let has = |name: &str| amount(node.data.pointer(&format!("/status/allocatable/{name}")));
        nodes.allocatable.add(has("cpu"), has("memory"));
        nodes.pods += has("pods") as u64;
    })
    .await?;
    Ok(nodes)
}

/// Sums up the pods that `shown` admits.
pub async fn pods(
    connection: &Connection,
    shown: impl Fn(&DynamicObject) -> bool,
    deadline: Deadline,
) -> Result<PodsOverview, Error> {
    let mut pods = PodsOverview::default();
    fold(connection, "pods.v1.", deadline, |pod| {
        if shown(&pod) {
            pods.take(&pod);
        }
    })
    .await?;
    Ok(pods)
}

/// Sums up the workloads of one kind that `shown` admits.
pub async fn workloads(
    connection: &Connection,
    kind: &'static str,
    shown: impl Fn(&DynamicObject) -> bool,
    deadline: Deadline,
) -> Result<WorkloadsOverview, Error> {
    let mut sum = WorkloadsOverview { kind, ..WorkloadsOverview::default() };
    fold(connection, &format!("{kind}.v1.apps"), deadline, |object| {
        if !shown(&object) {
            return;
        }
        let number = |path: &str| object.data.pointer(path).and_then(Value::as_u64);
        let wanted = number("/spec/replicas")
            .or_else(|| number("/status/desiredNumberScheduled"))
            .unwrap_or_default();
        let ready = number("/status/readyReplicas")
            .or_else(|| number("/status/numberReady"))
            .unwrap_or_default();
        sum.total += 1;
        sum.ready += usize::from(ready >= wanted);
    })
    .await?;
    Ok(sum)
}

async fn fold(
    connection: &Connection,
    kind: &str,
    deadline: Deadline,
    mut take: impl FnMut(DynamicObject),
) -> Result<(), Error> {
    /// For one page.
    const PATIENCE: Duration = Duration::from_secs(30);
    let query = ListQuery::of(kind);
    let all = every_page::<Objects>(connection, &query, PATIENCE, |page| {
        page.items.into_iter().for_each(&mut take);
        true
    });
    let late = |_| Error::TooLate {
        cluster: connection.cluster().to_owned(),
        doing: "summing up".to_owned(),
    };
    deadline.bound(all).await.map_err(late)?
}

fn has_condition(object: &DynamicObject, name: &str) -> bool {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|one| one["type"] == name && one["status"] == "True")
}

impl Amounts {
    fn add(&mut self, cpu: f64, memory: f64) {
        self.cpu_millis += (cpu * 1000.0).round() as u64;
        self.memory_bytes += memory.round() as u64;
    }
}

impl PodsOverview {
    fn take(&mut self, pod: &DynamicObject) {
        self.total += 1;
        let phase = pod.data.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Unknown");
        *self.by_phase.entry(phase.to_owned()).or_default() += 1;
        self.not_ready += usize::from(phase == "Running" && !has_condition(pod, "Ready"));
        let statuses = pod.data.pointer("/status/containerStatuses").and_then(Value::as_array);
        let restarts =
            statuses.into_iter().flatten().filter_map(|one| one["restartCount"].as_u64());
        self.restarts += restarts.sum::<u64>();
        if matches!(phase, "Succeeded" | "Failed") {
            return;
        }
        let containers = pod.data.pointer("/spec/containers").and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            let of = |path: &str| amount(container.pointer(path));
            self.requests.add(of("/resources/requests/cpu"), of("/resources/requests/memory"));
            self.limits.add(of("/resources/limits/cpu"), of("/resources/limits/memory"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_are_summed_up_and_those_that_are_over_take_nothing() {
        let pod = |phase: &str, ready: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "metadata": { "name": "p" },
                "spec": { "containers": [
                    { "resources": { "requests": { "cpu": "100m", "memory": "64Mi" },
                                     "limits": { "memory": "128Mi" } } },
                    { "resources": { "requests": { "cpu": 1 } } } ] },
                "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }],
                    "containerStatuses": [{ "restartCount": 3 }] },
            }))
            .unwrap()
        };
        let mut sum = PodsOverview::default();
        for (phase, ready) in [("Running", "True"), ("Running", "False"), ("Succeeded", "False")] {
            sum.take(&pod(phase, ready));
        }
        assert_eq!((sum.total, sum.not_ready, sum.restarts, sum.by_phase["Running"]), (3, 1, 9, 2));
        assert_eq!(sum.requests, Amounts { cpu_millis: 2200, memory_bytes: 128 << 20 });
        assert_eq!(sum.limits, Amounts { cpu_millis: 0, memory_bytes: 256 << 20 });
    }
}
