//! Runs a short task on every node: a pod with our own program and directories of the node, which is
//! removed when it has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use stallproof::Deadline;

use crate::cluster::{Cluster, Error, Reference};
use crate::ready::trouble;

/// The interval of checks.
const LOOK: Duration = Duration::from_millis(500);
const LABEL: &str = "fairlead.dev/node-task";
/// The reasons of a pod whose image cannot be pulled.
const NEVER: [&str; 4] =
    ["ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName"];
/// The most lines that are read of a task's output.
const LINES: i64 = 1000;

/// A task and what its pods need.
#[derive(Clone, Debug)]
pub struct Task<'a> {
    /// Part of the pods' names.
    pub name: &'a str,
    pub namespace: &'a str,
    pub image: &'a str,
    pub pull_policy: &'a str,
    pub pull_secrets: &'a Value,
    pub args: &'a [String],
    /// Directories of the node, mounted at the same paths.
    pub directories: &'a [String],
}

/// Returns the names of the nodes that agents run on.
pub async fn linux_nodes(cluster: &Cluster) -> Result<Vec<String>, Error> {
    let nodes = cluster.list("v1", "Node", None, "").await?;
    let linux = |node: &&Value| {
        node["metadata"]["labels"]["kubernetes.io/os"].as_str().is_none_or(|os| os == "linux")
    };
    let name = |node: &Value| node["metadata"]["name"].as_str().map(str::to_owned);
    Ok(nodes.iter().filter(linux).filter_map(name).collect())
}

/// The result of each node: the output, or why the task failed.
pub type Ended = BTreeMap<String, Result<String, String>>;

impl<'a> Task<'a> {
    /// Makes a task with the image and the pull secrets of the chart's agents.
    pub fn like_agents(agents: &'a Value, name: &'a str, namespace: &'a str) -> Self {
        let pod = &agents["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        Self {
            name,
            namespace,
            image: container["image"].as_str().unwrap_or_default(),
            pull_policy: container["imagePullPolicy"].as_str().unwrap_or("IfNotPresent"),
            pull_secrets: &pod["imagePullSecrets"],
            args: &[],
            directories: &[],
        }
    }

    fn pod(&self, index: usize, node: &str) -> Value {
        let volume = |(i, path): (usize, &String)| json!({"name": format!("d{i}"), "hostPath": {"path": path, "type": "DirectoryOrCreate"}});
        let mount =
            |(i, path): (usize, &String)| json!({"name": format!("d{i}"), "mountPath": path});
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": format!("fairlead-{}-{index}", self.name),
                "namespace": self.namespace,
                "labels": {LABEL: self.name, "app.kubernetes.io/part-of": "fairlead"},
            },
            "spec": {
                "nodeName": node,
                "hostNetwork": true,
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "priorityClassName": "system-node-critical",
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "imagePullSecrets": self.pull_secrets,
                "containers": [{
                    "name": "task",
                    "image": self.image,
                    "imagePullPolicy": self.pull_policy,
                    "args": self.args,
                    // It reads and removes what the privileged agent has created on the node.
                    "securityContext": {"privileged": true, "runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": false},
                    "volumeMounts": self.directories.iter().enumerate().map(mount).collect::<Vec<_>>(),
                }],
                "volumes": self.directories.iter().enumerate().map(volume).collect::<Vec<_>>(),
            },
        })
    }

    fn reference(&self, index: usize) -> Reference {
        let name = format!("fairlead-{}-{index}", self.name);
        Reference::new("v1", "Pod", Some(self.namespace), &name)
    }

    /// Runs it on these nodes at once, until each has ended or the deadline passes.
    pub async fn run(
        &self,
        cluster: &Cluster,
        nodes: &[String],
        deadline: Deadline,
    ) -> Result<Ended, Error> {
        for index in 0..nodes.len() {
            cluster.delete(&self.reference(index)).await?;
        }
        for (index, node) in nodes.iter().enumerate() {
            self.make(cluster, index, node, deadline).await?;
        }
        let ended = self.wait(cluster, nodes, deadline).await;
        for index in 0..nodes.len() {
            cluster.delete(&self.reference(index)).await?;
        }
        ended
    }

    /// Removes a pod of an earlier run first.
    async fn make(
        &self,
        cluster: &Cluster,
        index: usize,
        node: &str,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let pod = self.pod(index, node);
        loop {
            match cluster.create(&pod).await {
                Ok(_) => return Ok(()),
                Err(error) if deadline.has_passed() => return Err(error),
                Err(error) => {
                    if cluster.get(&self.reference(index)).await?.is_none() {
                        return Err(error);
                    }
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    async fn wait(
        &self,
        cluster: &Cluster,
        nodes: &[String],
        deadline: Deadline,
    ) -> Result<Ended, Error> {
        let mut ended = Ended::new();
        loop {
            let selector = format!("{LABEL}={}", self.name);
            let pods = cluster.list("v1", "Pod", Some(self.namespace), &selector).await?;
            let mut waiting = Vec::new();
            for node in
                nodes.iter().filter(|node| !ended.contains_key(*node)).cloned().collect::<Vec<_>>()
            {
                let pod = pods.iter().find(|pod| pod["spec"]["nodeName"] == *node);
                let phase = pod.and_then(|pod| pod["status"]["phase"].as_str()).unwrap_or_default();
                let name = pod.and_then(|pod| pod["metadata"]["name"].as_str()).unwrap_or_default();
                match phase {
                    "Succeeded" => {
                        let said = cluster.logs(self.namespace, name, LINES).await?;
                        ended.insert(node, Ok(said));
                    }
                    "Failed" => {
                        let said = cluster.logs(self.namespace, name, LINES).await;
                        let said = said.unwrap_or_else(|error| stallproof::sentence(&error));
                        ended.insert(node, Err(said.trim().to_owned()));
                    }
                    _ => match pod.and_then(trouble) {
                        // The image will not appear by waiting.
                        Some(why) if NEVER.iter().any(|reason| why.starts_with(reason)) => {
                            ended.insert(node, Err(why));
                        }
                        why => waiting.push((node, why)),
                    },
                }
            }
            if waiting.is_empty() {
                return Ok(ended);
            }
            if deadline.has_passed() {
                for (node, why) in waiting {
                    let why = why.unwrap_or_else(|| "its kubelet did not take the pod".to_owned());
                    ended.insert(node, Err(why));
                }
                return Ok(ended);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
