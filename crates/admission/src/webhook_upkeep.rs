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
use objects::{
    Attempt, Error, Expected, Id, Leader, Next, Objects, Pace, Reconciler, Reconcilers, Selector,
    Version,
};
use pki::{CertificateChanges, Certificates, Lifetimes};
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Map, Snapshot, Tasks};
use tracing::info;

use super::registration::{CONFIGURATION, LABEL, Registration};
use super::rules::{Listed, Rules};
use super::service::Admission;

/// The least time between two repairs of one configuration: who edits it in a loop is no flood.
const REPAIR: Duration = Duration::from_millis(500);
/// Clusters that are registered at the same time.
const AT_ONCE: usize = 16;

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
    let admission = upkeep.admission.clone();
    let changes = admission.rule_changes();
    let statuses = Statuses { objects: leader.objects.clone(), admission, changes };
    leader.reconcile("admission-statuses", "", Pace::default(), statuses);
    keep_authority(leader, upkeep, &trusting);
    if let Some(registration) = upkeep.registration.clone() {
        let keeping = keep_registered(leader.clone(), upkeep.clone(), registration, trusting);
        leader.tasks.spawn("admission-registrations", keeping);
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

/// Registers at each cluster, for as long as it is one.
async fn keep_registered(
    leader: Leader,
    upkeep: WebhookUpkeep,
    registration: Registration,
    trusting: Trusting,
) {
    let stop = leader.tasks.stopping();
    let mut changes = upkeep.clusters.subscribe();
    let pace = Pace { settle: REPAIR, ..Pace::default() };
    let mut registrars =
        Reconcilers::new("register-webhook", pace, AT_ONCE, &leader.ledger, &leader.tasks);
    let mut begun: BTreeMap<String, (Objects, Tasks)> = BTreeMap::new();
    loop {
        let clusters = upkeep.clusters.load();
        begun.retain(|name, (objects, tasks)| {
            let stays = clusters.get(name).is_some_and(|now| now.is(objects));
            if !stays {
                tasks.stop("the cluster is gone, or another");
                registrars.remove(name);
                trusting.update(|given| given.remove(name).is_some());
            }
            stays
        });
        for (name, objects) in &*clusters {
            let (_, tasks) = begun
                .entry(name.clone())
                .or_insert_with(|| (objects.clone(), leader.tasks.child(name.clone())));
            registrars.begin(name, || {
                let objects = objects.guarded(&leader.fence);
                Registrar::new(name, objects, &registration, &upkeep.certificates, &trusting, tasks)
            });
        }
        if stop.bound(changes.changed()).await.is_none() {
            return;
        }
    }
}

/// Keeps one cluster's configuration.
struct Registrar {
    cluster: String,
    objects: Objects,
    registration: Registration,
    certificates: Certificates,
    renewed: CertificateChanges,
    trusting: Trusting,
    /// The version of the configuration that the cluster has; none where there is none.
    found: Snapshot<Option<Option<String>>>,
    edits: Changes<Option<Option<String>>>,
    /// The version that we made.
    ours: Option<String>,
}

impl Registrar {
    fn new(
        cluster: &str,
        objects: Objects,
        registration: &Registration,
        certificates: &Certificates,
        trusting: &Trusting,
        tasks: &Tasks,
    ) -> Self {
        let labels = Selector::label(LABEL.0, LABEL.1).expect("a constant");
        let version = |found: Option<ValidatingWebhookConfiguration>| {
            Some(found.and_then(|found| found.resource_version()))
        };
        let found = objects.watched_one(&Id::cluster(CONFIGURATION), Some(labels), tasks, version);
        Self {
            cluster: cluster.to_owned(),
            objects,
            registration: registration.clone(),
            certificates: certificates.clone(),
            renewed: certificates.changes(),
            trusting: trusting.clone(),
            edits: found.subscribe(),
            found,
            ours: None,
        }
    }
}

impl Reconciler for Registrar {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        let Some(bundle) = self.certificates.bundle() else { return Ok(Next::OnChange) };
        let wanted = self.registration.configuration(&self.cluster, &bundle);
        let made = self.objects.apply(&wanted, Expected::Any, attempt.deadline).await?;
        let made = made.resource_version();
        match &self.ours {
            None => info!(cluster = self.cluster, "the admission webhook is registered"),
            ours if *ours != made => {
                info!(cluster = self.cluster, "the webhook's registration was put right");
            }
            _ => {}
        }
        self.ours = made;
        self.trusting.update(|given| {
            given.insert(self.cluster.clone(), bundle.clone()).as_ref() != Some(&bundle)
        });
        Ok(Next::OnChange)
    }

    async fn changed(&mut self) {
        let Self { renewed, edits, found, ours, .. } = self;
        let edited = async {
            loop {
                edits.changed().await;
                if found.read(|found| found.as_ref().is_some_and(|found| found != ours)) {
                    return;
                }
            }
        };
        tokio::select! {
            () = renewed.changed() => {}
            () = edited => {}
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
struct Statuses {
    objects: Objects,
    admission: Admission,
    changes: Changes<Rules>,
}

impl Reconciler for Statuses {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        let mut failed = None;
        for wanted in self.admission.rules().list().into_iter().filter_map(|it| status_of(it)) {
            match self.objects.apply_status(&wanted, Expected::Any, attempt.deadline).await {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(Next::OnChange), Err)
    }

    async fn changed(&mut self) {
        self.changes.changed().await;
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
