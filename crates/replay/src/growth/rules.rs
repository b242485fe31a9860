//! Rules: one admission rule changes, one review is decided; one NetworkPolicy of many changes.

use std::path::Path;
use std::time::Duration;

use admission::{Admission, LOCAL_CLUSTER, Settings};
use objects::kinds::AdmissionRule;
use objects::{Expected, Objects};
use policy::Change;
use policy::cluster::Key;
use serde_json::{Value, json};
use stallproof::{Deadline, Readiness, Tasks};
use tokio::runtime::Runtime;

use super::meter::{Grows, Meter};
use super::nodes;
use crate::incident::Cannot;

pub(super) fn measure(rules: usize, dir: &Path, meter: &mut Meter) -> Result<(), Cannot> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = Tasks::new("growth");
    admission(rules, dir, &runtime, &tasks, meter)?;
    let _ = runtime.block_on(tasks.shutdown(Duration::from_secs(5)));
    policies(rules, meter);
    Ok(())
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

/// None of them matches the review, so that all are looked at.
fn rule(number: usize, turn: usize) -> Result<AdmissionRule, Cannot> {
    let criteria = match number % 4 {
        0 => {
            json!([{"name": "image", "op": "containsAny", "value": format!("bad{number}/*, evil{turn}/*:v?")}])
        }
        1 => {
            json!([{"name": "user", "op": "regex", "value": format!("^system:bot-[0-9]+-{number}$")}])
        }
        2 => {
            json!([{"name": "labels", "op": "containsAny", "value": format!("owner=team-{number}*")}])
        }
        _ => {
            json!([{"name": "namespace", "op": "containsAny", "value": format!("prod-{number}-*")},
                    {"name": "runAsPrivileged", "op": "=", "value": "true"}])
        }
    };
    Ok(serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
        "metadata": {"name": format!("rule-{number:05}")},
        "spec": {"action": "deny", "mode": "protect", "criteria": criteria},
    }))?)
}

fn review() -> Vec<u8> {
    let container = json!({"name": "cart", "image": "harbor.acme.io/web/cart:v2.14.1"});
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "cart", "namespace": "shop", "labels": {"app": "cart", "tier": "web"}},
        "spec": {"containers": [container]},
    });
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "cart", "namespace": "shop", "operation": "CREATE",
            "userInfo": {"username": "kim", "groups": ["system:authenticated"]},
            "object": object,
        },
    })
    .to_string()
    .into_bytes()
}

fn admission(
    rules: usize,
    dir: &Path,
    runtime: &Runtime,
    tasks: &Tasks,
    meter: &mut Meter,
) -> Result<(), Cannot> {
    let _entered = runtime.enter();
    let objects = Objects::embedded(&dir.join("objects"), tasks)?;
    let settings = Settings::new(true);
    let admission = Admission::start(&objects, settings, vec![], &Readiness::default(), tasks);
    let change = |number: usize, turn: usize| -> Result<(), Cannot> {
        let rule = rule(number, turn)?;
        runtime.block_on(async {
            let mut changes = admission.rule_changes();
            objects.apply(&rule, Expected::Any, soon()).await?;
            changes.changed().await;
            Ok(())
        })
    };
    // The store tells first what it has, which is nothing.
    let mut told = admission.rule_changes();
    runtime.block_on(async {
        while !admission.rules().is_told() {
            told.changed().await;
        }
    });
    for number in 0..rules {
        change(number, 0)?;
    }
    if admission.rules().list().len() != rules {
        return Err("not all rules are there".into());
    }
    let mut failed = None;
    meter.change(
        "admission: a rule changes, from the store to its program",
        Grows::Linearly,
        |i| {
            failed = failed.take().or(change(0, i + 1).err());
        },
    );
    failed.map_or(Ok(()), Err)?;
    let review = review();
    let answer: Value = match admission.review(LOCAL_CLUSTER, &review) {
        Ok(answer) => serde_json::from_slice(&answer)?,
        Err(undecided) => return Err(format!("the review is not decided: {undecided:?}").into()),
    };
    if answer["response"]["allowed"] != true {
        return Err(format!("the review is refused: {answer}").into());
    }
    // It looks at every rule.
    meter.change("admission: a review that no rule refuses", Grows::Linearly, |_| {
        let _ = std::hint::black_box(admission.review(LOCAL_CLUSTER, &review));
    });
    Ok(())
}

fn policies(policies: usize, meter: &mut Meter) {
    let mut publisher = nodes::publisher(policies);
    for namespace in 0..policies {
        publisher.apply(nodes::pod(namespace, namespace, 0, false));
        publisher.follow(&format!("n{namespace}"));
    }
    publisher.publish();
    // Two policies, so that the namespace always has one: it is always isolated.
    let key = Key::new("ns-0", "second");
    let second = match nodes::network_policy(0) {
        Change::NetworkPolicy(_, policy) => policy,
        _ => None,
    };
    meter.change("policy: a NetworkPolicy comes or goes in one namespace", Grows::Linearly, |i| {
        let policy = second.clone().filter(|_| i % 2 == 0);
        publisher.apply(Change::NetworkPolicy(key.clone(), policy));
        publisher.publish();
    });
}
