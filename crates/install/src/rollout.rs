//! Installs and upgrades: applies objects in the right order and waits until they are ready.
//!
//! ```text
//! install   record ─► namespace ─► definitions (served) ─► permissions, services, pools ─► agents and
//!           controllers ─► ready ─► obsolete objects are removed ─► record
//! upgrade   the same, but controllers are ready before agents are replaced; if either is not ready in
//!           time, the objects of the version before are applied again
//! ```
//!
//! Contract:
//! - The record is written first and has every object that may be there, so that an installation that was
//!   interrupted can be removed or continued.
//! - Every step can be repeated: applying is idempotent.
//! - A rollback keeps the newer definitions: older controllers read objects of newer definitions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use stallproof::Deadline;

use crate::chart::{self, PART_OF, POD_SECURITY_LABEL, Release};
use crate::cluster::{Cluster, Error, Reference, Version};
use crate::ready::{Readiness, is_ready, readiness, trouble};
use crate::record::{Record, RecordError};

/// The interval of checks.
const LOOK: Duration = Duration::from_millis(500);
/// The limit for definitions to be served. A server takes a second or two.
const SERVED: Duration = Duration::from_secs(60);
/// The limit for nodes to be Ready. A kubelet checks its network every few seconds.
const NODES_READY: Duration = Duration::from_secs(30);
/// The most pods that an error names.
const NAMED: usize = 5;
/// The first version that knows validation rules in definitions.
const KNOWS_RULES: u32 = 25;
/// The annotation of objects that stay when the others are removed.
const KEEP: &str = "helm.sh/resource-policy";
/// The annotation of objects that the first installation creates and users change from then on: pools.
const ONCE: &str = "helm.sh/hook";

/// A report of progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A step is done.
    Done { step: &'static str, detail: String, took: Duration },
    /// The objects that are being waited for.
    Waiting(String),
    /// A note for the user.
    Note(String),
}

/// An object that was applied and is not ready in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotReady {
    pub object: String,
    #[serde(flatten)]
    pub readiness: Readiness,
    /// Its pods that are not ready, each with the reason.
    pub pods: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    #[error(transparent)]
    Cluster(#[from] Error),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("not everything is ready after {} s: {}", .after.as_secs(), told(.what))]
    NotReady { after: Duration, what: Vec<NotReady> },
    #[error("{}", went_back(.why, .back))]
    WentBack { why: String, back: Result<(), String> },
}

fn told(what: &[NotReady]) -> String {
    let one = |not: &NotReady| {
        let Readiness { done, wanted, why, .. } = &not.readiness;
        let why = why.as_deref().unwrap_or("not ready");
        let pods = not.pods.iter().map(|pod| format!("\n    {pod}")).collect::<String>();
        format!("\n  {}: {done} of {wanted}, {why}{pods}", not.object)
    };
    what.iter().map(one).collect()
}

fn went_back(why: &str, back: &Result<(), String>) -> String {
    match back {
        Ok(()) => format!("the upgrade was taken back, and what was there before runs: {why}"),
        Err(worse) => format!(
            "the upgrade failed ({why}) and could not be taken back ({worse}): run `fairlead status`, and `fairlead upgrade` again when what it names is mended"
        ),
    }
}

/// The objects of a chart by the phase in which they are applied.
#[derive(Debug, Default)]
struct Phases<'a> {
    definitions: Vec<&'a Value>,
    /// Everything that workloads need; namespaces first, our own kinds last.
    foundations: Vec<&'a Value>,
    agents: Vec<&'a Value>,
    controllers: Vec<&'a Value>,
}

impl<'a> Phases<'a> {
    fn of(objects: &'a [Value]) -> Self {
        let mut phases = Self::default();
        let mut ours = Vec::new();
        for object in objects {
            match object["kind"].as_str() {
                Some("CustomResourceDefinition") => phases.definitions.push(object),
                Some("DaemonSet") => phases.agents.push(object),
                Some("Deployment" | "StatefulSet") => phases.controllers.push(object),
                Some("Namespace") => phases.foundations.insert(0, object),
                _ if is_ours(object) => ours.push(object),
                _ => phases.foundations.push(object),
            }
        }
        phases.foundations.extend(ours);
        phases
    }
}

fn is_ours(object: &Value) -> bool {
    object["apiVersion"].as_str().is_some_and(|version| version.starts_with("fairlead.dev/"))
}

/// Whether an object stays when the installation is removed.
fn is_kept(object: &Value) -> bool {
    object["metadata"]["annotations"][KEEP] == "keep"
}

/// Fits the objects to a server of this version: a server that does not know validation rules in
/// definitions refuses a definition that has some.
pub fn fitted(mut objects: Vec<Value>, version: &Version) -> Vec<Value> {
    if version.minor < KNOWS_RULES {
        objects.iter_mut().filter(|o| o["kind"] == "CustomResourceDefinition").for_each(drop_rules);
    }
    objects
}

fn drop_rules(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("x-kubernetes-validations");
            map.values_mut().for_each(drop_rules);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_rules),
        _ => {}
    }
}

/// One run of `install` or `upgrade`.
pub struct Rollout<'a> {
    pub cluster: &'a Cluster,
    pub namespace: &'a str,
    pub deadline: Deadline,
    pub tell: &'a mut dyn FnMut(Progress),
}

impl std::fmt::Debug for Rollout<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rollout").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Rollout<'_> {
    /// Installs, or changes an installation to what is wanted. Without `wait` it waits for definitions
    /// alone.
    pub async fn install(&mut self, wanted: &Record, wait: bool) -> Result<(), RolloutError> {
        let before = Record::read(self.cluster, self.namespace).await?;
        self.begin(wanted, before.as_ref()).await?;
        let phases = Phases::of(&wanted.objects);
        self.apply("agents", &phases.agents).await?;
        if wait {
            self.wait_for("agents", &phases.agents).await?;
            self.wait_for_nodes().await?;
        }
        self.apply("controllers", &phases.controllers).await?;
        if wait {
            self.wait_for("controllers", &phases.controllers).await?;
        }
        self.finish(wanted, before.as_ref()).await
    }

    /// Replaces controllers, then agents. If they are not ready in time, it rolls back.
    pub async fn upgrade(&mut self, before: &Record, wanted: &Record) -> Result<(), RolloutError> {
        match self.replace(before, wanted).await {
            Ok(()) => Ok(()),
            Err(error @ RolloutError::WentBack { .. }) => Err(error),
            Err(error) => {
                let why = stallproof::sentence(&error);
                (self.tell)(Progress::Note(format!("{why}; going back to {}", before.version)));
                let back = self.go_back(before, wanted).await;
                let back = back.map_err(|error| stallproof::sentence(&error));
                Err(RolloutError::WentBack { why, back })
            }
        }
    }

    async fn replace(&mut self, before: &Record, wanted: &Record) -> Result<(), RolloutError> {
        self.begin(wanted, Some(before)).await?;
        let phases = Phases::of(&wanted.objects);
        self.apply("controllers", &phases.controllers).await?;
        self.wait_for("controllers", &phases.controllers).await?;
        self.apply("agents", &phases.agents).await?;
        self.wait_for("agents", &phases.agents).await?;
        self.finish(wanted, Some(before)).await
    }

    async fn go_back(&mut self, before: &Record, wanted: &Record) -> Result<(), RolloutError> {
        // A rollback has as long as a successful upgrade takes.
        self.deadline = Deadline::after(Duration::from_secs(300));
        let phases = Phases::of(&before.objects);
        self.apply("permissions and services", &phases.foundations).await?;
        self.apply("agents", &phases.agents).await?;
        self.apply("controllers", &phases.controllers).await?;
        self.wait_for("agents", &phases.agents).await?;
        self.wait_for("controllers", &phases.controllers).await?;
        self.finish(before, Some(wanted)).await
    }

    /// Writes the record, and applies the definitions and everything that workloads need.
    async fn begin(
        &mut self,
        wanted: &Record,
        before: Option<&Record>,
    ) -> Result<(), RolloutError> {
        self.make_namespace().await?;
        let mut all = wanted.clone();
        all.objects.extend(no_longer_wanted(before, wanted));
        all.write(self.cluster, self.namespace).await?;
        let phases = Phases::of(&wanted.objects);
        self.apply("definitions", &phases.definitions).await?;
        let until = self.deadline;
        self.deadline = until.within(SERVED);
        let served = self.wait_for("definitions", &phases.definitions).await;
        self.deadline = until;
        served?;
        self.apply("permissions and services", &phases.foundations).await
    }

    /// Creates the namespace. One that existed before is its owner's: an uninstall does not remove it.
    async fn make_namespace(&mut self) -> Result<(), RolloutError> {
        let namespace = self.namespace.to_owned();
        let space = chart::namespace(&Release { namespace, ..Release::default() });
        let of = Reference::new("v1", "Namespace", None, self.namespace);
        let mut found = self.cluster.get(&of).await?;
        let leaving = |space: &Value| space["metadata"]["deletionTimestamp"].is_string();
        if found.as_ref().is_some_and(leaving) {
            (self.tell)(Progress::Waiting(format!("{of} of an earlier installation is leaving")));
            self.cluster.is_gone(&of, self.deadline).await?;
            found = None;
        }
        let Some(found) = found else { return self.apply("namespace", &[&space]).await };
        let labels = &found["metadata"]["labels"];
        if labels[PART_OF.0] == PART_OF.1 {
            return Ok(());
        }
        if labels[POD_SECURITY_LABEL.0].as_str().is_some_and(|level| level != POD_SECURITY_LABEL.1)
        {
            let (label, level) = POD_SECURITY_LABEL;
            let note = format!(
                "the namespace {} does not admit pods in the node's network, which agents are: label it {label}={level}",
                self.namespace
            );
            (self.tell)(Progress::Note(note));
        }
        Ok(())
    }

    /// Removes objects that the earlier version had and this one has not.
    async fn finish(
        &mut self,
        wanted: &Record,
        before: Option<&Record>,
    ) -> Result<(), RolloutError> {
        for object in no_longer_wanted(before, wanted) {
            if let Some(of) = Reference::of(&object).filter(|_| !is_kept(&object)) {
                self.cluster.delete(&of).await?;
                (self.tell)(Progress::Note(format!("{of} is no longer part of it: removed")));
            }
        }
        wanted.write(self.cluster, self.namespace).await?;
        Ok(())
    }

    async fn apply(&mut self, step: &'static str, objects: &[&Value]) -> Result<(), RolloutError> {
        if objects.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        for object in objects {
            let once = object["metadata"]["annotations"][ONCE].is_string();
            let of = Reference::of(object).filter(|_| once);
            if let Some(of) = of
                && let Some(found) = self.cluster.get(&of).await?
            {
                if found["spec"]["subnets"] != object["spec"]["subnets"] {
                    let note = format!("{of} is there with other subnets, and stays as it is");
                    (self.tell)(Progress::Note(note));
                }
                continue;
            }
            self.cluster.apply(object).await?;
        }
        let detail = match objects {
            [one] => format!(
                "{} applied",
                Reference::of(one).map_or_else(String::new, |of| of.to_string())
            ),
            many => format!("{} applied", many.len()),
        };
        (self.tell)(Progress::Done { step, detail, took: began.elapsed() });
        Ok(())
    }

    async fn wait_for(
        &mut self,
        step: &'static str,
        objects: &[&Value],
    ) -> Result<(), RolloutError> {
        let began = Instant::now();
        let references: Vec<_> =
            objects.iter().filter_map(|object| Reference::of(object)).collect();
        loop {
            let mut waiting = Vec::new();
            let (mut done, mut wanted) = (0, 0);
            for of in &references {
                let object = self.cluster.get(of).await?.unwrap_or_default();
                let readiness = readiness(&object);
                done += readiness.done;
                wanted += readiness.wanted;
                if !readiness.ready {
                    waiting.push((of, object, readiness));
                }
            }
            if waiting.is_empty() {
                if !references.is_empty() {
                    let detail = format!("{done} ready");
                    (self.tell)(Progress::Done { step, detail, took: began.elapsed() });
                }
                return Ok(());
            }
            if self.deadline.has_passed() {
                let mut what = Vec::new();
                for (of, object, readiness) in waiting {
                    let pods = self.troubles(&object).await.unwrap_or_default();
                    what.push(NotReady { object: of.to_string(), readiness, pods });
                }
                return Err(RolloutError::NotReady { after: began.elapsed(), what });
            }
            (self.tell)(Progress::Waiting(format!("{step}: {done} of {wanted} ready")));
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until nodes are Ready, which they are soon after agents provide the pod network: controllers
    /// that are scheduled earlier would all be on the first node. A broken node delays this no longer than
    /// its limit.
    async fn wait_for_nodes(&mut self) -> Result<(), RolloutError> {
        let patience = self.deadline.within(NODES_READY);
        loop {
            let nodes = self.cluster.list("v1", "Node", None, "").await?;
            let ready = nodes.iter().filter(|node| is_ready(node)).count();
            if ready == nodes.len() || patience.has_passed() {
                return Ok(());
            }
            (self.tell)(Progress::Waiting(format!("nodes: {ready} of {} ready", nodes.len())));
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns why pods of a workload are not ready.
    async fn troubles(&self, workload: &Value) -> Result<Vec<String>, Error> {
        let labels = workload["spec"]["selector"]["matchLabels"].as_object();
        let Some(labels) = labels else { return Ok(Vec::new()) };
        let pair = |(key, value): (&String, &Value)| Some(format!("{key}={}", value.as_str()?));
        let selector: Vec<_> = labels.iter().filter_map(pair).collect();
        let pods =
            self.cluster.list("v1", "Pod", Some(self.namespace), &selector.join(",")).await?;
        let told = pods.iter().filter_map(|pod| {
            let name = pod["metadata"]["name"].as_str()?;
            let node = pod["spec"]["nodeName"].as_str().unwrap_or("no node yet");
            Some(format!("{name} on {node}: {}", trouble(pod)?))
        });
        Ok(told.take(NAMED).collect())
    }
}

fn no_longer_wanted(before: Option<&Record>, wanted: &Record) -> Vec<Value> {
    let kept: BTreeSet<_> = wanted.references().into_iter().collect();
    let objects = before.map(|record| record.objects.as_slice()).unwrap_or_default();
    let gone =
        objects.iter().filter(|object| Reference::of(object).is_some_and(|of| !kept.contains(&of)));
    // Never a definition, because all of its objects would be deleted with it.
    gone.filter(|object| object["kind"] != "CustomResourceDefinition").cloned().collect()
}

#[cfg(test)]
mod tests;
