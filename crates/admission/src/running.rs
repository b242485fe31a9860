//! What runs already, judged by the rules of now.
//!
//! ```text
//! rules or facts change ──► pods, page by page ──► decide ──► RunningAudit (Snapshot) ──► API, CLI
//!                                                        └──► Report (openreports.io), where it is served
//! ```
//!
//! Contract:
//! - The leader does it, a task for each cluster, when rules or what is known of images change, and now and
//!   then for pods that came meanwhile. A page of pods is judged at a time, and nothing of them is kept but
//!   what a rule found.
//! - Nothing is refused or stopped. Who asked for a pod is not known any more, so that no criterion on users
//!   or groups is met.
//! - A report is written when what it says has changed, and at no other time.

mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use objects::{Attempt, Error, Leader, Next, Objects, Pace, Reconciler, Reconcilers, UntypedKind};
use serde::Serialize;
use serde_json::Value;
use stallproof::snapshot::Changes;
use stallproof::{Map, Snapshot};

use super::audit::Outcome;
use super::compile::Settings;
use super::decide::{Hit, decide};
use super::facts::Facts;
use super::images::Images;
use super::request::Request;
use super::rules::Rules;
use super::service::Admission;

const POD: UntypedKind =
    UntypedKind { group: "", version: "v1", kind: "Pod", plural: "pods", namespaced: true };
/// Pods of a page: some megabytes, judged within milliseconds, so that reviews do not wait for it.
const PAGE: u32 = 100;
/// For each page.
const PAGE_TIME: Duration = Duration::from_secs(15);
/// The most findings that are kept of a cluster.
const MOST: usize = 20_000;
/// Clusters that are looked through at the same time.
const AT_ONCE: usize = 4;

/// A rule that something that runs is against.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningKey {
    pub namespace: String,
    /// Kind and name of what controls the pods, or of the pod.
    pub owner: String,
    pub rule: String,
    pub container: String,
    pub image: String,
    /// `denied` if the rule would refuse it now, `monitored` if it would record it.
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningFinding {
    /// How many pods.
    pub pods: usize,
    /// The criteria that were met.
    pub why: String,
    /// Since when it is known.
    pub since: Timestamp,
}

/// What runs in a cluster against its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningAudit {
    /// When the cluster was last looked through.
    pub judged: Option<Timestamp>,
    /// Pods that were judged.
    pub pods: usize,
    pub findings: BTreeMap<RunningKey, RunningFinding>,
    /// Findings that there was no room for.
    pub left_out: usize,
    /// Whether the cluster has reports of `openreports.io`, which say the same.
    pub reported: bool,
}

/// Judges what runs in each cluster until the term ends. Returns at once.
pub fn lead_running(
    leader: &Leader,
    admission: &Admission,
    clusters: &Snapshot<Map<String, Objects>>,
) {
    let following = follow(leader.clone(), admission.clone(), clusters.clone());
    leader.tasks.spawn("admission-running", following);
}

async fn follow(leader: Leader, admission: Admission, clusters: Snapshot<Map<String, Objects>>) {
    let stop = leader.tasks.stopping();
    let mut changes = clusters.subscribe();
    let pace = Pace {
        attempt: Duration::from_secs(180),
        resync: Duration::from_secs(600),
        settle: Duration::from_secs(1),
        ..Pace::default()
    };
    let mut auditors =
        Reconcilers::new("audit-running", pace, AT_ONCE, &leader.ledger, &leader.tasks);
    let mut begun: BTreeMap<String, Objects> = BTreeMap::new();
    loop {
        let now = clusters.load();
        begun.retain(|name, objects| {
            let stays = now.get(name).is_some_and(|now| now.is(objects));
            if !stays {
                auditors.remove(name);
                admission.running().update(|all| all.remove(name).is_some());
            }
            stays
        });
        for (name, objects) in &*now {
            begun.entry(name.clone()).or_insert_with(|| objects.clone());
            auditors.begin(name, || Auditor {
                cluster: name.clone(),
                objects: objects.guarded(&leader.fence),
                admission: admission.clone(),
                rules: admission.rule_changes(),
                images: admission.image_changes(name),
            });
        }
        if stop.bound(changes.changed()).await.is_none() {
            return;
        }
    }
}

struct Auditor {
    cluster: String,
    objects: Objects,
    admission: Admission,
    rules: Changes<Rules>,
    images: Option<Changes<Images>>,
}

impl Reconciler for Auditor {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        let Some(judge) = self.admission.judge(&self.cluster) else {
            return Ok(Next::Within(Duration::from_secs(1)));
        };
        attempt.step("judging pods");
        let mut judged = Judged::default();
        let page = || attempt.deadline.within(PAGE_TIME);
        self.objects.visit(&POD, PAGE, page, |pod| judged.take(&judge, pod)).await?;
        let now = Timestamp::now();
        let before = self.admission.running().read(|all| all.get(&self.cluster).cloned());
        let mut audit = judged.audit(now, before.as_ref());
        attempt.step("writing reports");
        audit.reported = reports::write(&self.objects, &audit, attempt.deadline).await?;
        self.admission.running().update(|all| {
            all.insert(self.cluster.clone(), audit);
            true
        });
        Ok(Next::OnChange)
    }

    async fn changed(&mut self) {
        match &mut self.images {
            Some(images) => {
                tokio::select! {
                    _ = self.rules.changed() => {}
                    _ = images.changed() => {}
                }
            }
            None => drop(self.rules.changed().await),
        }
    }
}

/// What pods are judged by: one moment of the rules and of what is known.
pub(super) struct Judge<F> {
    pub(super) rules: stallproof::snapshot::View<Rules>,
    pub(super) settings: Settings,
    pub(super) exempt: Vec<String>,
    pub(super) facts: F,
}

/// What was found so far.
#[derive(Default)]
struct Judged {
    pods: usize,
    left_out: usize,
    findings: BTreeMap<RunningKey, (usize, String)>,
}

impl Judged {
    fn take(&mut self, judge: &Judge<impl Facts>, pod: kube::core::DynamicObject) {
        let kube::core::DynamicObject { metadata, mut data, .. } = pod;
        let ended = data.pointer("/status/phase").and_then(Value::as_str);
        let ended = matches!(ended, Some("Succeeded" | "Failed"));
        if ended || metadata.deletion_timestamp.is_some() {
            return;
        }
        let Some(fields) = data.as_object_mut() else { return };
        fields.remove("status");
        fields.insert("apiVersion".to_owned(), "v1".into());
        fields.insert("kind".to_owned(), "Pod".into());
        fields.insert("metadata".to_owned(), serde_json::to_value(metadata).unwrap_or_default());
        let Ok(request) = Request::running(&data, &judge.settings) else { return };
        if judge.exempt.contains(&request.namespace) {
            return;
        }
        self.pods += 1;
        let decision = decide(&judge.rules.program, &request, &judge.facts);
        let owner = match (request.root(&judge.facts), &request.controller) {
            (Some(root), _) => format!("{}/{}", root.kind, root.name),
            (None, Some((kind, name))) => format!("{kind}/{name}"),
            (None, None) => format!("Pod/{}", request.name),
        };
        let denied = decision.decided.as_ref().filter(|_| !decision.allowed);
        let denied = denied.map(|hit| (hit, Outcome::Denied));
        let monitored = decision.monitored.iter().map(|hit| (hit, Outcome::Monitored));
        for (hit, outcome) in denied.into_iter().chain(monitored) {
            self.add(&request.namespace, &owner, hit, outcome);
        }
    }

    fn add(&mut self, namespace: &str, owner: &str, hit: &Hit<'_>, outcome: Outcome) {
        let key = RunningKey {
            namespace: namespace.to_owned(),
            owner: owner.to_owned(),
            rule: hit.rule.to_owned(),
            container: hit.container.clone().unwrap_or_default(),
            image: hit.image.clone().unwrap_or_default(),
            outcome,
        };
        if self.findings.len() >= MOST && !self.findings.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let found = self.findings.entry(key).or_insert_with(|| (0, hit.criteria.join("; ")));
        found.0 += 1;
    }

    fn audit(self, now: Timestamp, before: Option<&RunningAudit>) -> RunningAudit {
        let findings = self.findings.into_iter().map(|(key, (pods, why))| {
            let known = before.and_then(|before| before.findings.get(&key));
            let since = known.map_or(now, |known| known.since);
            (key, RunningFinding { pods, why, since })
        });
        RunningAudit {
            judged: Some(now),
            pods: self.pods,
            findings: findings.collect(),
            left_out: self.left_out,
            reported: false,
        }
    }
}

/// The namespaces in which something was found.
fn namespaces(audit: &RunningAudit) -> BTreeSet<&str> {
    audit.findings.keys().map(|key| key.namespace.as_str()).collect()
}

#[cfg(test)]
mod tests;
