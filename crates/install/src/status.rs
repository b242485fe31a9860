//! The status of an installation: one line for every component on every node.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::{Cluster, Error, Reference};
use crate::ready::{readiness, trouble};
use crate::record::{Record, RecordError};

/// The label selector of the controllers' pods.
pub(crate) const CONTROLLER: &str = "app.kubernetes.io/name=fairlead-controller";
const AGENT: &str = "app.kubernetes.io/name=fairlead-agent";
/// The lease of the leading controller, and the age at which nobody leads any more.
const LEASE: &str = "fairlead-controller";
const WEBHOOK: &str = "fairlead-admission";
const OURS: &str = "fairlead.dev/v1alpha1";

/// One line. The JSON is a contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub component: &'static str,
    /// The node, for a component that runs on nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub ok: bool,
    /// A sentence about its state.
    pub state: String,
}

/// The output of `fairlead status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The installed version; `None` if `fairlead install` has installed nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub ok: bool,
    pub lines: Vec<Line>,
}

/// The objects of a cluster that [`assess`] needs.
#[derive(Clone, Debug, Default)]
pub struct ObservedInstallation {
    pub record: Option<Record>,
    pub definitions: Vec<Value>,
    pub nodes: Vec<Value>,
    pub controllers: Vec<Value>,
    pub agents: Vec<Value>,
    /// The Deployment or StatefulSet of controllers.
    pub controller: Option<Value>,
    pub daemon_set: Option<Value>,
    pub lease: Option<Value>,
    pub webhook: Option<Value>,
    pub pools: Vec<Value>,
}

impl ObservedInstallation {
    pub async fn of(cluster: &Cluster, namespace: &str) -> Result<Self, RecordError> {
        let inside = Some(namespace);
        let one = |api: &str, kind: &str, space: Option<&str>, name: &str| {
            Reference::new(api, kind, space, name)
        };
        let definitions = cluster
            .list("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, "")
            .await?
            .into_iter()
            .filter(|definition| definition["spec"]["group"] == "fairlead.dev")
            .collect();
        Ok(Self {
            record: Record::read(cluster, namespace).await?,
            definitions,
            nodes: cluster.list("v1", "Node", None, "").await?,
            controllers: cluster.list("v1", "Pod", inside, CONTROLLER).await?,
            agents: cluster.list("v1", "Pod", inside, AGENT).await?,
            controller: controller(cluster, namespace).await?,
            daemon_set: cluster.get(&one("apps/v1", "DaemonSet", inside, "fairlead-agent")).await?,
            lease: cluster.get(&one("coordination.k8s.io/v1", "Lease", inside, LEASE)).await?,
            webhook: cluster
                .get(&one(
                    "admissionregistration.k8s.io/v1",
                    "ValidatingWebhookConfiguration",
                    None,
                    WEBHOOK,
                ))
                .await?,
            pools: cluster.list(OURS, "AddressPool", None, "").await?,
        })
    }

    fn wants(&self, component: &str) -> bool {
        let on = |record: &Record| record.values["components"][component] == true;
        self.record.as_ref().is_some_and(on)
    }
}

/// What runs the controllers: with volumes a StatefulSet, without them a Deployment.
pub(crate) fn controllers(namespace: &str) -> [Reference; 2] {
    let one = |kind| Reference::new("apps/v1", kind, Some(namespace), "fairlead-controller");
    ["Deployment", "StatefulSet"].map(one)
}

/// The one that is there.
pub(crate) async fn controller(cluster: &Cluster, namespace: &str) -> Result<Option<Value>, Error> {
    let [deployment, stateful_set] = controllers(namespace);
    match cluster.get(&deployment).await? {
        Some(found) => Ok(Some(found)),
        None => cluster.get(&stateful_set).await,
    }
}

/// Derives the status from the objects.
pub fn assess(seen: &ObservedInstallation, now: Timestamp) -> Status {
    let mut lines = Vec::new();
    let mut line = |component, node: Option<&str>, ok, state: String| {
        lines.push(Line { component, node: node.map(str::to_owned), ok, state });
    };
    if seen.definitions.is_empty() && seen.controller.is_none() && seen.daemon_set.is_none() {
        line("install", None, false, "nothing is installed: run `fairlead install`".to_owned());
        return Status { version: None, ok: false, lines };
    }
    let unserved: Vec<_> = seen
        .definitions
        .iter()
        .filter_map(|definition| {
            let why = readiness(definition).why?;
            Some(format!("{}: {why}", definition["metadata"]["name"].as_str()?))
        })
        .collect();
    let served = format!("{} served", seen.definitions.len());
    let all = unserved.is_empty() && !seen.definitions.is_empty();
    line("definitions", None, all, if all { served } else { unserved.join("; ") });

    match &seen.controller {
        None => {
            line("controller", None, false, "there is no fairlead-controller".into());
        }
        Some(controller) if seen.controllers.is_empty() => {
            let why = readiness(controller).why.unwrap_or_else(|| "no replica is wanted".into());
            line("controller", None, false, why);
        }
        Some(_) => {
            for pod in &seen.controllers {
                let (ok, state) = of_pod(pod);
                line("controller", pod["spec"]["nodeName"].as_str(), ok, state);
            }
            let (ok, state) = leader(seen.lease.as_ref(), now);
            line("leader", None, ok, state);
        }
    }

    if seen.daemon_set.is_some() {
        for node in &seen.nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let here: Vec<_> =
                seen.agents.iter().filter(|pod| pod["spec"]["nodeName"] == name).collect();
            // While a pod is being replaced there are two: the better one counts.
            let best = here.iter().map(|pod| of_pod(pod)).max_by_key(|(ok, _)| *ok);
            let (ok, state) = best.unwrap_or_else(|| {
                (false, "no agent: look at the node's taints and architecture".to_owned())
            });
            line("agent", Some(name), ok, state);
            if let Some(why) = not_ready(node) {
                line("node", Some(name), false, why);
            }
        }
    }

    if seen.wants("admission") {
        let registered = seen.webhook.is_some();
        let state = if registered {
            "registered"
        } else {
            "not registered: the leader does that once the certificates are made; its log says what it waits for"
        };
        line("webhook", None, registered, state.to_owned());
    }
    for pool in &seen.pools {
        let (ok, state) = of_pool(pool);
        let name = pool["metadata"]["name"].as_str().unwrap_or_default();
        line("pool", None, ok, format!("{name}: {state}"));
    }
    let ok = lines.iter().all(|line| line.ok);
    Status { version: seen.record.as_ref().map(|record| record.version.clone()), ok, lines }
}

/// Returns the tag or the digest of an image.
fn version(pod: &Value) -> &str {
    let image = pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once([':', '@']).map_or(name, |(_, version)| version)
}

fn of_pod(pod: &Value) -> (bool, String) {
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return (false, "it is ending".to_owned());
    }
    match trouble(pod) {
        Some(why) => (false, why),
        None => {
            let containers = pod["status"]["containerStatuses"].as_array();
            let restarts = containers
                .into_iter()
                .flatten()
                .map(|status| status["restartCount"].as_u64().unwrap_or_default())
                .sum::<u64>();
            let version = version(pod);
            let restarted = match restarts {
                0 => String::new(),
                1 => ", restarted once".to_owned(),
                n => format!(", restarted {n} times"),
            };
            (true, format!("ready, {version}{restarted}"))
        }
    }
}

fn leader(lease: Option<&Value>, now: Timestamp) -> (bool, String) {
    let spec = lease.map(|lease| &lease["spec"]);
    let holder = spec.and_then(|spec| spec["holderIdentity"].as_str()).unwrap_or_default();
    if holder.is_empty() {
        return (false, "nobody leads: controllers stand for it once they reach the store".into());
    }
    let renewed: Option<Timestamp> =
        spec.and_then(|spec| spec["renewTime"].as_str()).and_then(|time| time.parse().ok());
    let length = spec.and_then(|spec| spec["leaseDurationSeconds"].as_i64()).unwrap_or(15);
    // Clocks may differ by a few seconds.
    let late = |renewed: Timestamp| now.duration_since(renewed).as_secs() > length + 30;
    if renewed.is_none_or(late) {
        return (false, format!("{holder} held it last, and has not renewed it"));
    }
    (true, holder.to_owned())
}

fn not_ready(node: &Value) -> Option<String> {
    let conditions = node["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
    let said = ready["message"].as_str().unwrap_or("its kubelet is silent");
    (ready["status"] != "True").then(|| format!("not ready: {said}"))
}

fn of_pool(pool: &Value) -> (bool, String) {
    let status = &pool["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    match ready {
        Some(condition) if condition["status"] != "True" => {
            (false, condition["message"].as_str().unwrap_or("not ready").to_owned())
        }
        Some(_) => {
            let number = |field: &str| status[field].as_u64().unwrap_or_default();
            (true, format!("{} addresses used, {} free", number("used"), number("free")))
        }
        None => (true, "no controller has looked at it yet".to_owned()),
    }
}

#[cfg(test)]
mod tests;
