use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use objects::kinds::admission_rule::RuleState;
use objects::{Election, Timing};
use serde_json::json;
use stallproof::Readiness;

use super::super::Settings;
use super::*;

struct Hall {
    objects: Objects,
    upkeep: WebhookUpkeep,
    tasks: Tasks,
    _data: tempfile::TempDir,
}

impl Hall {
    /// A store that nobody else can open: its leader leads at once.
    fn new(lifetimes: Lifetimes) -> Self {
        let data = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("hall");
        let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
        let admission =
            Admission::start(&objects, Settings::new(true), vec![], &Readiness::default(), &tasks);
        let certificates = Certificates::follow(&objects, "fairlead", &tasks);
        let names = vec!["localhost".to_owned()];
        let clusters = Snapshot::default();
        let upkeep = WebhookUpkeep {
            admission,
            certificates,
            names,
            lifetimes,
            registration: None,
            clusters,
        };
        let election = Election::new(
            objects.clone(),
            Id::namespaced("fairlead", "lease"),
            "test",
            Timing::default(),
        );
        let (all, led) = (tasks.clone(), upkeep.clone());
        tasks.spawn("election", async move {
            election.run(&all, |leader| lead(&leader, &led)).await;
        });
        Self { objects, upkeep, tasks, _data: data }
    }
}

impl Drop for Hall {
    fn drop(&mut self) {
        self.tasks.stop("the test is over");
    }
}

async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let patience = Deadline::after(Duration::from_secs(30));
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(!patience.has_passed(), "it never comes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_leader_makes_certificates_and_makes_them_again_when_they_are_lost() {
    let hall = Hall::new(Lifetimes { overlap: Duration::ZERO, ..Lifetimes::default() });
    let certificates = &hall.upkeep.certificates;
    let first = until(async || certificates.serving()).await;
    assert!(first.certificate.starts_with("-----BEGIN CERTIFICATE"));
    let id = certificates.secret().clone();
    let soon = Deadline::after(Duration::from_secs(30));
    hall.objects.delete::<Secret>(&id, Expected::Any, soon).await.unwrap();
    let second = until(async || certificates.serving().filter(|now| *now != first)).await;
    assert_ne!(second.key, first.key);
}

#[tokio::test]
async fn each_rule_is_told_what_became_of_it() {
    let hall = Hall::new(Lifetimes::default());
    let rule: AdmissionRule = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule", "metadata": {"name": "r"},
        "spec": {"action": "deny",
                 "criteria": [{"name": "image", "op": "containsAny", "value": "cart"}]},
    }))
    .unwrap();
    let soon = || Deadline::after(Duration::from_secs(30));
    hall.objects.create(&rule, soon()).await.unwrap();
    let id = Id::cluster("r");
    let status = |state| {
        let (objects, id) = (&hall.objects, &id);
        until(async move || {
            let found = objects.get::<AdmissionRule>(id, soon()).await.unwrap().unwrap();
            found.status.filter(|status| status.state == state)
        })
    };
    // A one-segment image does not match the official one: a warning.
    assert!(status(RuleState::Active).await.why.unwrap().contains("spec.criteria[0].value"));
    let mut disabled = rule.clone();
    disabled.spec.disabled = true;
    hall.objects.apply(&disabled, Expected::Any, soon()).await.unwrap();
    status(RuleState::Disabled).await;
}

#[test]
fn a_status_that_is_right_is_not_written_again() {
    let rule: AdmissionRule = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
        "metadata": {"name": "r", "generation": 3},
        "spec": {"action": "deny", "criteria": [{"name": "image", "op": "?", "value": "cart"}]},
    }))
    .unwrap();
    let mut rules = super::super::Rules::default();
    rules.apply(rule, &Settings::new(true));
    let listed: Arc<Listed> = Arc::clone(rules.list()[0]);
    let written = status_of(&listed).unwrap();
    let status = written.status.clone().unwrap();
    assert_eq!((status.state, status.observed_generation), (RuleState::Invalid, Some(3)));
    rules.apply(written, &Settings::new(true));
    assert!(status_of(rules.list()[0]).is_none());
}
