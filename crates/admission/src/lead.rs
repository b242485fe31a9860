//! What the leader does for admission: certificates made and renewed, the webhook registered and kept
//! so, and each rule told what became of it.
//!
//! ```text
//! Secret ◄── certificates ──► bundle ──► each cluster's ValidatingWebhookConfiguration
//!                  ▲                                │
//!                  └── trusted there already? ◄─────┘
//! ```
//!
//! Each of it is a task of the leader's: it ends with the term, and what it writes is fenced. What
//! fails is said once, and tried again.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::ResourceExt;
use objects::kinds::AdmissionRule;
use objects::kinds::admission_rule::AdmissionRuleStatus;
use objects::{Error, Event, Expected, Id, Leader, Objects, Selector, Version, Watch, Within};
use pki::{Certificates, Lifetimes};
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline, Map, Snapshot, Tasks};
use tracing::{debug, info, warn};

use super::judge::Admission;
use super::registration::{CONFIGURATION, LABEL, Registration};
use super::rules::Listed;

/// For one request to the store or to a cluster.
const REQUEST: Duration = Duration::from_secs(10);
/// How often what should be so is looked at without a word from anybody.
const LOOK: Duration = Duration::from_secs(60);
/// The least time between two repairs of one configuration: who edits it in a loop is no flood.
const REPAIR: Duration = Duration::from_millis(500);
const RETRY: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(30) };

/// What the leader is in upkeep of. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WebhookUpkeep {
    pub admission: Admission,
    pub certificates: Certificates,
    /// The hosts that the certificate is for.
    pub names: Vec<String>,
    pub lifetimes: Lifetimes,
    /// None: registered nowhere.
    pub registration: Option<Registration>,
    /// The clusters to register at, each with its own store.
    pub clusters: Snapshot<Map<String, Objects>>,
}

/// Does all of it until the term ends. Returns at once.
pub fn lead(leader: &Leader, upkeep: &WebhookUpkeep) {
    let trusting = Snapshot::new(BTreeMap::new());
    let Leader { tasks, objects, .. } = leader;
    let statuses = keep_statuses(objects.clone(), upkeep.admission.clone(), tasks.clone());
    tasks.spawn("admission-statuses", statuses);
    keep_authority(leader, upkeep, &trusting);
    if let Some(registration) = upkeep.registration.clone() {
        let keeping = keep_registered(leader.clone(), upkeep.clone(), registration, trusting);
        tasks.spawn("admission-registrations", keeping);
    }
}

/// Keeps the certificates alone, where no webhook is served. Returns at once.
pub fn lead_certificates(leader: &Leader, upkeep: &WebhookUpkeep) {
    keep_authority(leader, upkeep, &Snapshot::new(BTreeMap::new()));
}

/// The bundle that each cluster has been given.
type Trusting = Snapshot<BTreeMap<String, String>>;

fn keep_authority(leader: &Leader, upkeep: &WebhookUpkeep, trusting: &Trusting) {
    let WebhookUpkeep { admission, certificates, names, lifetimes, registration, clusters } =
        upkeep;
    let (trusting, clusters) = (trusting.clone(), clusters.clone());
    let registered = registration.is_some();
    let trusted = move |bundle: &str| {
        !registered
            || clusters.load().keys().all(|cluster| {
                trusting.read(|given| given.get(cluster).is_some_and(|has| has == bundle))
            })
    };
    let admission = admission.clone();
    let renewed = move |until| admission.metrics().expires(until);
    certificates.lead(leader, names.clone(), *lifetimes, trusted, renewed);
}

/// A task for each cluster, for as long as it is one.
async fn keep_registered(
    leader: Leader,
    upkeep: WebhookUpkeep,
    registration: Registration,
    trusting: Trusting,
) {
    let stop = leader.tasks.stopping();
    let mut changes = upkeep.clusters.subscribe();
    let mut kept: BTreeMap<String, (Objects, Tasks)> = BTreeMap::new();
    loop {
        let clusters = upkeep.clusters.load();
        kept.retain(|name, (objects, tasks)| {
            let stays = clusters.get(name).is_some_and(|now| now.is(objects));
            if !stays {
                tasks.stop("the cluster is gone, or another");
                trusting.update(|given| given.remove(name).is_some());
            }
            stays
        });
        for (name, objects) in &*clusters {
            if kept.contains_key(name) {
                continue;
            }
            let tasks = leader.tasks.child(name.clone());
            let keeper = Keeper {
                cluster: name.clone(),
                objects: objects.guarded(&leader.fence),
                registration: registration.clone(),
                certificates: upkeep.certificates.clone(),
                trusting: trusting.clone(),
            };
            tasks.spawn("registration", keeper.keep(tasks.clone()));
            kept.insert(name.clone(), (objects.clone(), tasks));
        }
        if stop.bound(changes.changed()).await.is_none() {
            return;
        }
    }
}

/// Keeps one cluster's configuration.
struct Keeper {
    cluster: String,
    objects: Objects,
    registration: Registration,
    certificates: Certificates,
    trusting: Trusting,
}

impl Keeper {
    async fn keep(self, tasks: Tasks) {
        let stop = tasks.stopping();
        let labels = Selector::label(LABEL.0, LABEL.1).expect("a constant");
        let within = Within { namespace: None, labels: Some(labels) };
        let mut watch = self.objects.watch::<ValidatingWebhookConfiguration>(within);
        let mut certificates = self.certificates.changes();
        let mut backoff = Backoff::new(RETRY);
        let (mut ours, mut edit): (Option<String>, bool) = (None, false);
        loop {
            let Some(bundle) = self.certificates.bundle() else {
                if stop.bound(certificates.changed()).await.is_none() {
                    return;
                }
                continue;
            };
            let wanted = self.registration.configuration(&self.cluster, &bundle);
            let applied = self.objects.apply(&wanted, Expected::Any, Deadline::after(REQUEST));
            let Some(applied) = stop.bound(applied).await else { return };
            match applied {
                Ok(made) => {
                    let made = made.resource_version();
                    if ours.is_none() {
                        info!(cluster = self.cluster, "the admission webhook is registered");
                    } else if edit && made != ours {
                        info!(
                            cluster = self.cluster,
                            "the webhook's registration was edited, and put back"
                        );
                    }
                    (ours, edit) = (made, false);
                    backoff.succeeded();
                    self.trusting.update(|given| {
                        given.insert(self.cluster.clone(), bundle.clone()).as_ref() != Some(&bundle)
                    });
                }
                Err(error) => {
                    let retry = backoff.failed();
                    if retry.attempt == 1 {
                        let error = stallproof::sentence(&error);
                        warn!(
                            cluster = self.cluster,
                            error, "cannot register the admission webhook, trying on"
                        );
                    }
                    if stop.bound(tokio::time::sleep(retry.wait)).await.is_none() {
                        return;
                    }
                    continue;
                }
            }
            let something = async {
                tokio::select! {
                    () = certificates.changed() => {}
                    () = edited(&mut watch, ours.as_deref()) => {
                        edit = true;
                        tokio::time::sleep(REPAIR).await;
                    }
                    () = tokio::time::sleep(LOOK) => {}
                }
            };
            if stop.bound(something).await.is_none() {
                return;
            }
        }
    }
}

/// Returns when the configuration is not in the version that we made.
async fn edited(watch: &mut Watch<ValidatingWebhookConfiguration>, ours: Option<&str>) {
    let is_it = |found: &ValidatingWebhookConfiguration| found.name_any() == CONFIGURATION;
    let same = |found: &ValidatingWebhookConfiguration| found.resource_version().as_deref() == ours;
    loop {
        match watch.next().await {
            Some(Event::Restarted(all)) if all.iter().any(|found| is_it(found) && same(found)) => {}
            Some(Event::Applied(found)) if !is_it(&found) || same(&found) => {}
            Some(Event::Deleted(found)) if !is_it(&found) => {}
            None => std::future::pending().await,
            _ => return,
        }
    }
}

/// Removes the registration: for an installation whose webhook was turned off.
pub async fn unregister(objects: &Objects, deadline: Deadline) -> Result<bool, Error> {
    let id = Id::cluster(CONFIGURATION);
    let found = objects.get::<ValidatingWebhookConfiguration>(&id, deadline).await?;
    let is_ours = |found: &ValidatingWebhookConfiguration| {
        found.labels().get(LABEL.0).is_some_and(|value| value == LABEL.1)
    };
    let Some(found) = found.filter(is_ours) else { return Ok(false) };
    let expected = Expected::Version(Version(found.resource_version().unwrap_or_default()));
    match objects.delete::<ValidatingWebhookConfiguration>(&id, expected, deadline).await {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Tells each rule what became of it.
async fn keep_statuses(objects: Objects, admission: Admission, tasks: Tasks) {
    let stop = tasks.stopping();
    let mut changes = admission.rule_changes();
    loop {
        let rules = admission.rules();
        let mut failed = false;
        for listed in rules.list() {
            let Some(wanted) = status_of(listed) else { continue };
            let written = objects.apply_status(&wanted, Expected::Any, Deadline::after(REQUEST));
            let Some(written) = stop.bound(written).await else { return };
            match written {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => {
                    let error = stallproof::sentence(&error);
                    debug!(rule = listed.name, error, "cannot tell a rule what became of it");
                    failed = true;
                }
            }
        }
        let wait = async {
            if failed {
                tokio::time::sleep(RETRY.most).await;
            } else {
                changes.changed().await;
            }
        };
        if stop.bound(wait).await.is_none() {
            return;
        }
    }
}

/// The rule with the status that it should have; none if it has it.
fn status_of(listed: &Listed) -> Option<AdmissionRule> {
    let status = AdmissionRuleStatus {
        observed_generation: listed.stored.metadata.generation,
        state: listed.state,
        why: listed.why.clone(),
    };
    if listed.stored.status.as_ref() == Some(&status) {
        return None;
    }
    Some(AdmissionRule { status: Some(status), ..AdmissionRule::clone(&listed.stored) })
}

#[cfg(test)]
mod tests;
