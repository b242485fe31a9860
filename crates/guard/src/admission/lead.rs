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

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use objects::kinds::AdmissionRule;
use objects::kinds::admission_rule::AdmissionRuleStatus;
use objects::{Error, Event, Expected, Id, Leader, Objects, Selector, Version, Watch, Within};
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline, Map, Snapshot, Tasks};
use tracing::{debug, info, warn};

use super::certificates::{Certificates, Kept, Lifetimes, next};
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

/// What the leader is in charge of. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Charge {
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
pub fn lead(leader: &Leader, charge: &Charge) {
    let trusting = Snapshot::new(BTreeMap::new());
    let Leader { tasks, objects, .. } = leader;
    let statuses = keep_statuses(objects.clone(), charge.admission.clone(), tasks.clone());
    tasks.spawn("admission-statuses", statuses);
    keep_authority(leader, charge, &trusting);
    if let Some(registration) = charge.registration.clone() {
        let keeping = keep_registered(leader.clone(), charge.clone(), registration, trusting);
        tasks.spawn("admission-registrations", keeping);
    }
}

/// Keeps the certificates alone, where no webhook is served. Returns at once.
pub fn lead_certificates(leader: &Leader, charge: &Charge) {
    keep_authority(leader, charge, &Snapshot::new(BTreeMap::new()));
}

fn keep_authority(leader: &Leader, charge: &Charge, trusting: &Trusting) {
    let keeping = keep_certificates(leader.clone(), charge.clone(), trusting.clone());
    leader.tasks.spawn("admission-authority", keeping);
    let publishing = charge.certificates.clone().keep_published(leader.clone());
    leader.tasks.spawn("admission-authority-published", publishing);
}

/// The bundle that each cluster has been given.
type Trusting = Snapshot<BTreeMap<String, String>>;

async fn keep_certificates(leader: Leader, charge: Charge, trusting: Trusting) {
    let stop = leader.tasks.stopping();
    let mut backoff = Backoff::new(RETRY);
    // An overlap that is over should be noticed soon after.
    let look = (charge.lifetimes.overlap / 10).clamp(Duration::from_millis(100), LOOK);
    loop {
        let trusted = |bundle: &str| {
            charge.registration.is_none()
                || charge.clusters.load().keys().all(|cluster| {
                    trusting.read(|given| given.get(cluster).is_some_and(|has| has == bundle))
                })
        };
        let wait = match renew(&leader.objects, &charge, trusted).await {
            // There may be more to do.
            Ok(true) => {
                backoff.succeeded();
                Duration::ZERO
            }
            Ok(false) => {
                backoff.succeeded();
                look
            }
            Err(error) => {
                let retry = backoff.failed();
                if retry.attempt == 1 {
                    let error = stallproof::sentence(&*error);
                    warn!(error, "cannot renew the certificates of webhook and API, trying on");
                }
                retry.wait
            }
        };
        if let Some(serving) = charge.certificates.serving() {
            charge.admission.metrics().expires(serving.until);
        }
        if stop.bound(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
    }
}

/// Takes one step, if one is due; says whether it did.
async fn renew(
    objects: &Objects,
    charge: &Charge,
    trusted: impl Fn(&str) -> bool,
) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
    let id = charge.certificates.secret();
    let found = objects.get::<Secret>(id, Deadline::after(REQUEST)).await?;
    let kept = found.as_ref().and_then(Kept::read);
    let trusted = kept.as_ref().is_some_and(|kept| trusted(&kept.bundle()));
    let now = Timestamp::now();
    let Some(next) = next(kept.as_ref(), &charge.names, charge.lifetimes, trusted, now)? else {
        return Ok(false);
    };
    let secret = next.secret(id);
    let deadline = Deadline::after(REQUEST);
    match found {
        None => objects.create(&secret, deadline).await?,
        Some(found) => {
            let version = Version(found.resource_version().unwrap_or_default());
            objects.apply(&secret, Expected::Version(version), deadline).await?
        }
    };
    info!(until = %next.serving.until, "the certificates of webhook and API were renewed");
    Ok(true)
}

/// A task for each cluster, for as long as it is one.
async fn keep_registered(
    leader: Leader,
    charge: Charge,
    registration: Registration,
    trusting: Trusting,
) {
    let stop = leader.tasks.stopping();
    let mut changes = charge.clusters.subscribe();
    let mut kept: BTreeMap<String, (Objects, Tasks)> = BTreeMap::new();
    loop {
        let clusters = charge.clusters.load();
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
                certificates: charge.certificates.clone(),
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
