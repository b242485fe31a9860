//! Uninstalls Fairlead without leaving anything behind: its objects, its definitions, its namespace, and
//! the files and interfaces of agents on nodes.
//!
//! ```text
//! meshes (controllers still remove peers) ─► controllers ─► webhook ─► agents ─► nodes ─► our objects
//! ─► definitions ─► the rest of the record ─► namespace
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use stallproof::Deadline;

use crate::chart::PART_OF;
use crate::cluster::{Cluster, Error, Reference};
use crate::on_nodes::{Task, linux_nodes};
use crate::record::{Record, RecordError};
use crate::rollout::Progress;
use crate::status::{CONTROLLER, controller, controllers};

const OURS: &str = "fairlead.dev/v1alpha1";
const LOOK: Duration = Duration::from_millis(300);
/// The least time for one step.
const LEAST: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error(transparent)]
    Cluster(#[from] Error),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{0} is still there after {1} s: look at its finalizers (`kubectl get … -o yaml`)")]
    Stays(String, u64),
}

/// Pods that have their network from Fairlead, by namespace.
pub type PodsByNamespace = BTreeMap<String, Vec<String>>;

/// Lists the pods that would lose their network.
pub async fn pods_on_our_network(
    cluster: &Cluster,
    namespace: &str,
) -> Result<PodsByNamespace, Error> {
    let blocks = cluster.list(OURS, "AddressBlock", None, "").await?;
    let pods = cluster.list("v1", "Pod", None, "").await?;
    Ok(on_our_network(&blocks, &pods, namespace))
}

fn on_our_network(blocks: &[Value], pods: &[Value], namespace: &str) -> PodsByNamespace {
    let networks: Vec<ipnet::IpNet> = blocks
        .iter()
        .flat_map(|block| [&block["spec"]["ipv4"], &block["spec"]["ipv6"]])
        .filter_map(|network| network.as_str()?.parse().ok())
        .collect();
    let ours = |pod: &Value| {
        let address: Option<IpAddr> =
            pod["status"]["podIP"].as_str().and_then(|address| address.parse().ok());
        address.is_some_and(|address| networks.iter().any(|network| network.contains(&address)))
    };
    let mut users = PodsByNamespace::new();
    for pod in pods {
        let metadata = &pod["metadata"];
        let (Some(space), Some(name)) = (metadata["namespace"].as_str(), metadata["name"].as_str())
        else {
            continue;
        };
        let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if space != namespace && !over && pod["spec"]["hostNetwork"] != true && ours(pod) {
            users.entry(space.to_owned()).or_default().push(name.to_owned());
        }
    }
    users
}

/// Whether a change of values would remove the pod network.
pub fn takes_network(before: &Value, after: &Value) -> bool {
    let net = |values: &Value| values["components"]["net"] == true;
    net(before) && !net(after)
}

/// Counts the objects of our kinds that users wrote and would lose, by kind.
pub async fn written(cluster: &Cluster) -> Result<BTreeMap<String, usize>, Error> {
    let mut found = BTreeMap::new();
    for (api_version, kind) in kinds(cluster).await? {
        let count = cluster.list(&api_version, &kind, None, "").await?.len();
        if count > 0 && kind != "AddressBlock" {
            found.insert(kind, count);
        }
    }
    Ok(found)
}

/// Returns our kinds that the server serves, with their version.
async fn kinds(cluster: &Cluster) -> Result<Vec<(String, String)>, Error> {
    let definitions =
        cluster.list("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, "").await?;
    let ours =
        definitions.iter().filter(|definition| definition["spec"]["group"] == "fairlead.dev");
    let kind = |definition: &Value| {
        let kind = definition["spec"]["names"]["kind"].as_str()?;
        let version = definition["spec"]["versions"][0]["name"].as_str()?;
        Some((format!("fairlead.dev/{version}"), kind.to_owned()))
    };
    Ok(ours.filter_map(kind).collect())
}

/// The result of an uninstall.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Removed {
    /// Nodes that could not be cleaned, and why.
    pub nodes: BTreeMap<String, String>,
}

/// One run of `uninstall`.
pub struct Removal<'a> {
    pub cluster: &'a Cluster,
    pub namespace: &'a str,
    pub record: &'a Record,
    /// Whether interfaces of running pods are removed as well.
    pub force: bool,
    /// Whether definitions and the objects of our kinds stay.
    pub keep_definitions: bool,
    pub deadline: Deadline,
    pub tell: &'a mut dyn FnMut(Progress),
}

impl std::fmt::Debug for Removal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Removal").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Removal<'_> {
    pub async fn run(&mut self) -> Result<Removed, RemovalError> {
        let inside = Some(self.namespace);
        if !self.keep_definitions {
            self.step("meshes", Self::remove_meshes).await?;
        }
        self.remove_controllers().await?;
        let agents = Reference::new("apps/v1", "DaemonSet", inside, "fairlead-agent");
        let had_agents = self.cluster.get(&agents).await?.is_some();
        self.gone("agents", &[agents]).await?;
        let removed = if had_agents { self.clean_nodes().await? } else { Removed::default() };
        if !self.keep_definitions {
            self.step("objects", Self::remove_objects).await?;
        }
        self.remove_rest().await?;
        Ok(removed)
    }

    async fn step(
        &mut self,
        step: &'static str,
        work: impl AsyncFnOnce(&mut Self) -> Result<usize, RemovalError>,
    ) -> Result<(), RemovalError> {
        let began = Instant::now();
        let count = work(self).await?;
        if count > 0 {
            let detail = format!("{count} removed");
            (self.tell)(Progress::Done { step, detail, took: began.elapsed() });
        }
        Ok(())
    }

    /// Removes controllers and the registration of their webhook. A registration with `fail` that nobody
    /// serves would keep the cluster from removing the controllers' own objects, and a leader that still
    /// runs restores it: so it is deleted again and again until the last controller is gone.
    async fn remove_controllers(&mut self) -> Result<(), RemovalError> {
        let began = Instant::now();
        let controllers = controllers(self.namespace);
        let webhook = Reference::new(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            None,
            "fairlead-admission",
        );
        for of in &controllers {
            self.cluster.delete(of).await?;
        }
        loop {
            self.cluster.delete(&webhook).await?;
            let pods = self.cluster.list("v1", "Pod", Some(self.namespace), CONTROLLER).await?;
            if pods.is_empty() && controller(self.cluster, self.namespace).await?.is_none() {
                break;
            }
            if self.deadline.has_passed() {
                let what = "fairlead-controller".to_owned();
                return Err(RemovalError::Stays(what, began.elapsed().as_secs()));
            }
            (self.tell)(Progress::Waiting(format!("controllers: {} are ending", pods.len())));
            tokio::time::sleep(LOOK).await;
        }
        self.delete_all(&[webhook]).await?;
        let detail = "removed, and the webhook's registration".to_owned();
        (self.tell)(Progress::Done { step: "controllers", detail, took: began.elapsed() });
        Ok(())
    }

    /// Removes meshes while controllers still run, which remove the peers of the joined clusters.
    async fn remove_meshes(&mut self) -> Result<usize, RemovalError> {
        let meshes = self.cluster.list(OURS, "ClusterMesh", None, "").await?;
        let meshes: Vec<_> = meshes.iter().filter_map(Reference::of).collect();
        self.delete_all(&meshes).await?;
        Ok(meshes.len())
    }

    async fn remove_objects(&mut self) -> Result<usize, RemovalError> {
        let mut count = 0;
        for (api_version, kind) in kinds(self.cluster).await? {
            let objects = self.cluster.list(&api_version, &kind, None, "").await?;
            let objects: Vec<_> = objects.iter().filter_map(Reference::of).collect();
            self.delete_all(&objects).await?;
            count += objects.len();
        }
        let definitions = self
            .cluster
            .list("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, "")
            .await?;
        let ours: Vec<_> = definitions
            .iter()
            .filter(|definition| definition["spec"]["group"] == "fairlead.dev")
            .filter_map(Reference::of)
            .collect();
        self.delete_all(&ours).await?;
        Ok(count + ours.len())
    }

    /// Removes the other objects of the record, the last first, and the namespace if it is ours.
    async fn remove_rest(&mut self) -> Result<(), RemovalError> {
        let began = Instant::now();
        let mut rest = self.record.references();
        // Objects of our own kinds are gone by now, or stay with their definitions.
        rest.retain(|of| {
            let ours = of.api_version.starts_with("fairlead.dev/");
            !ours && of.kind != "CustomResourceDefinition" && of.kind != "Namespace"
        });
        rest.reverse();
        self.delete_all(&rest).await?;
        Record::remove(self.cluster, self.namespace).await?;
        let space = Reference::new("v1", "Namespace", None, self.namespace);
        let found = self.cluster.get(&space).await?.unwrap_or_default();
        if found["metadata"]["labels"][PART_OF.0] == PART_OF.1 {
            self.delete_all(&[space]).await?;
        } else {
            let note = format!("the namespace {} was there before, and stays", self.namespace);
            (self.tell)(Progress::Note(note));
            let inside = Some(self.namespace);
            let claims =
                self.cluster.list("v1", "PersistentVolumeClaim", inside, CONTROLLER).await?;
            if !claims.is_empty() {
                let note = format!(
                    "{} volumes with audits and histories stay: `kubectl -n {} delete pvc -l {CONTROLLER}` removes them",
                    claims.len(),
                    self.namespace
                );
                (self.tell)(Progress::Note(note));
            }
        }
        let detail = "permissions, services and the namespace removed".to_owned();
        (self.tell)(Progress::Done { step: "the rest", detail, took: began.elapsed() });
        Ok(())
    }

    /// Removes the files and interfaces of the agent on each node.
    async fn clean_nodes(&mut self) -> Result<Removed, RemovalError> {
        let began = Instant::now();
        let Some(agent) = self.record.objects.iter().find(|object| object["kind"] == "DaemonSet")
        else {
            return Ok(Removed::default());
        };
        let host = |mount: &str, otherwise: &str| {
            let volumes =
                agent["spec"]["template"]["spec"]["volumes"].as_array().into_iter().flatten();
            let found = volumes.into_iter().find(|volume| volume["name"] == mount);
            found
                .and_then(|volume| volume["hostPath"]["path"].as_str())
                .unwrap_or(otherwise)
                .to_owned()
        };
        let (bin, conf) = (host("cni-bin", "/opt/cni/bin"), host("cni-conf", "/etc/cni/net.d"));
        let mut args =
            ["net", "uninstall", "--purge", "--data=/var/lib/fairlead"].map(str::to_owned).to_vec();
        args.push(format!("--bin-dir={bin}"));
        args.push(format!("--conf-dir={conf}"));
        if self.force {
            args.push("--force".to_owned());
        }
        // The parent directories are mounted, because a mount point cannot be removed.
        let directories = [bin, conf, "/var/lib".to_owned(), "/run".to_owned()];
        let names = linux_nodes(self.cluster).await?;
        (self.tell)(Progress::Waiting(format!("nodes: {} are being cleaned", names.len())));
        let task = Task {
            args: &args,
            directories: &directories,
            ..Task::like_agents(agent, "cleanup", self.namespace)
        };
        let ended = task.run(self.cluster, &names, self.deadline).await?;
        let failed: BTreeMap<_, _> =
            ended.into_iter().filter_map(|(node, how)| Some((node, how.err()?))).collect();
        let detail = format!("{} of {} cleaned", names.len() - failed.len(), names.len());
        (self.tell)(Progress::Done { step: "nodes", detail, took: began.elapsed() });
        Ok(Removed { nodes: failed })
    }

    async fn gone(&mut self, step: &'static str, what: &[Reference]) -> Result<(), RemovalError> {
        let began = Instant::now();
        let mut there = false;
        for of in what {
            there |= self.cluster.get(of).await?.is_some();
        }
        self.delete_all(what).await?;
        if there {
            let detail = "removed".to_owned();
            (self.tell)(Progress::Done { step, detail, took: began.elapsed() });
        }
        Ok(())
    }

    /// Deletes objects and waits until each is gone with all that it owns.
    async fn delete_all(&mut self, what: &[Reference]) -> Result<(), RemovalError> {
        let began = Instant::now();
        // Earlier steps may have used up the time.
        let deadline = Deadline::at(self.deadline.instant().max(Deadline::after(LEAST).instant()));
        for of in what {
            self.cluster.delete(of).await?;
        }
        for of in what {
            (self.tell)(Progress::Waiting(format!("{of} is being removed")));
            if !self.cluster.is_gone(of, deadline).await? {
                return Err(RemovalError::Stays(of.to_string(), began.elapsed().as_secs()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leaving_out_the_pod_network_takes_it_away() {
        let with = json!({"components": {"net": true}});
        let without = json!({"components": {"net": false}});
        assert!(takes_network(&with, &without));
        assert!(!takes_network(&without, &with) && !takes_network(&with, &with));
    }

    #[test]
    fn only_running_pods_with_our_addresses_would_lose_their_network() {
        let blocks = [json!({"spec": {"ipv4": "10.64.0.0/27", "ipv6": "fd64::/123"}})];
        let pod = |space: &str, name: &str, address: &str| {
            json!({
                "metadata": {"namespace": space, "name": name},
                "spec": {}, "status": {"phase": "Running", "podIP": address},
            })
        };
        let mut host = pod("shop", "host", "10.64.0.9");
        host["spec"]["hostNetwork"] = json!(true);
        let mut over = pod("shop", "over", "10.64.0.10");
        over["status"]["phase"] = json!("Succeeded");
        let mut failed = pod("shop", "failed", "10.64.0.11");
        failed["status"]["phase"] = json!("Failed");
        let pods = [
            pod("shop", "web", "10.64.0.7"),
            pod("shop", "six", "fd64::7"),
            pod("shop", "other", "10.244.0.7"),
            pod("fairlead", "controller", "10.64.0.8"),
            host,
            over,
            failed,
            json!({"metadata": {"namespace": "shop", "name": "pending"}, "status": {}}),
        ];
        let users = on_our_network(&blocks, &pods, "fairlead");
        assert_eq!(
            users,
            PodsByNamespace::from([("shop".into(), vec!["web".into(), "six".into()])])
        );
        assert!(on_our_network(&[], &pods, "fairlead").is_empty());
    }
}
