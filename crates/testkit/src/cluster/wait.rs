//! Waiting with a deadline; who waits in vain gets to see the cluster.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Cluster, node_name};

/// Often enough for a test, and seldom enough for an API server on two busy cores.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Cluster {
    /// Looks until there is an answer. After `within` it panics with what was said last, and with
    /// [`Self::evidence`].
    #[track_caller]
    pub fn wait_for<T>(
        &self,
        what: &str,
        within: Duration,
        mut look: impl FnMut() -> Result<T, String>,
    ) -> T {
        let deadline = Instant::now() + within;
        loop {
            match look() {
                Ok(seen) => return seen,
                Err(why) if Instant::now() > deadline => {
                    let seconds = within.as_secs();
                    panic!("waited {seconds} s for {what}: {why}\n{}", self.evidence());
                }
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Waits until the node is Ready in this boot, and pods may be put there.
    #[track_caller]
    pub fn wait_node_ready(&self, node: u32, within: Duration) {
        let name = node_name(node);
        self.wait_for(&format!("{name} to be Ready"), within, || {
            let boot = self.node(node).boot_id();
            let object = self.get(&format!("/api/v1/nodes/{name}"))?;
            if object["status"]["nodeInfo"]["bootID"].as_str() != boot.as_deref() {
                return Err("it has not reported this boot".to_owned());
            }
            let conditions = object["status"]["conditions"].as_array();
            let ready = conditions.into_iter().flatten().find(|one| one["type"] == "Ready");
            match ready {
                Some(ready) if ready["status"] != "True" => Err(ready["message"].to_string()),
                None => Err("no condition".to_owned()),
                Some(_) if !object["spec"]["taints"].is_null() => {
                    Err(format!("tainted: {}", object["spec"]["taints"]))
                }
                Some(_) => Ok(()),
            }
        });
    }

    /// Waits until every node is Ready.
    #[track_caller]
    pub fn wait_nodes_ready(&self, within: Duration) {
        let deadline = Instant::now() + within;
        for node in self.nodes() {
            self.wait_node_ready(node, deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Waits for a rollout, such as `deployment/web`: every replica of this generation is Ready.
    #[track_caller]
    pub fn wait_rollout(&self, namespace: &str, workload: &str, within: Duration) {
        let timeout = format!("--timeout={}s", within.as_secs());
        let waited =
            self.try_kubectl(&["--namespace", namespace, "rollout", "status", workload, &timeout]);
        if let Err(why) = waited {
            panic!("{workload} in {namespace} is not rolled out: {why}\n{}", self.evidence());
        }
    }

    /// Waits until exactly `count` pods that match are there, all Ready and none on its way out; returns
    /// them.
    #[track_caller]
    pub fn wait_pods(
        &self,
        namespace: &str,
        labels: &str,
        count: usize,
        within: Duration,
    ) -> Vec<Value> {
        let what = format!("{count} Ready pods with {labels} in {namespace}");
        self.wait_for(&what, within, || {
            let pods = self.pods(namespace, labels)?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            if pods.len() == count && ready == count {
                return Ok(pods);
            }
            Err(format!("{} pods, of which {ready} are Ready", pods.len()))
        })
    }

    /// The pods of a namespace that match a label selector; all of them if that is empty.
    pub fn pods(&self, namespace: &str, labels: &str) -> Result<Vec<Value>, String> {
        let escaped: String = labels.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let list =
            self.get(&format!("/api/v1/namespaces/{namespace}/pods?labelSelector={escaped}"))?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Nodes, pods, the latest events, and the last lines of every daemon's log.
    pub fn evidence(&self) -> String {
        let mut text = String::new();
        for args in [
            &["get", "nodes", "--output=wide"][..],
            &["get", "pods", "--all-namespaces", "--output=wide"],
            &["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"],
        ] {
            let said = self.try_kubectl(&[&["--request-timeout=5s"], args].concat());
            let said = said.unwrap_or_else(|why| why);
            let lines: Vec<_> = said.lines().collect();
            let last = lines[lines.len().saturating_sub(60)..].join("\n");
            let _ = writeln!(text, "--- kubectl {}\n{last}", args.join(" "));
        }
        for node in self.nodes() {
            let node = self.node(node);
            for daemon in node.daemons() {
                let _ =
                    writeln!(text, "--- {}, {daemon}\n{}", node.name, node.last_words(&daemon, 12));
            }
        }
        text
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True");
    ready && pod["metadata"]["deletionTimestamp"].is_null()
}
