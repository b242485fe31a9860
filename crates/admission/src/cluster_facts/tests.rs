#![allow(clippy::needless_pass_by_value, reason = "`json!` is written where it is passed")]

use objects::kinds::admission_rule::RiskyTag;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::recent_owners::{OwnerRecorder, ReviewedOwner};
use objects::Event;

use super::*;

fn made<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn meta(namespace: &str, name: &str) -> Value {
    json!({"namespace": namespace, "name": name, "uid": format!("uid-{name}")})
}

fn cluster_role(name: &str, resource: &str) -> ClusterRole {
    made(json!({"metadata": {"name": name},
                "rules": [{"verbs": ["get"], "resources": [resource]}]}))
}

fn binding(namespace: &str, name: &str, role: (&str, &str), subject: Value) -> RoleBinding {
    made(json!({"metadata": meta(namespace, name), "subjects": [subject],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1}}))
}

/// Everything told, with nothing in it.
fn told() -> Bindings {
    let mut bindings = Bindings::default();
    Index::<Role>::reset(&mut bindings, vec![]);
    Index::<ClusterRole>::reset(&mut bindings, vec![]);
    Index::<RoleBinding>::reset(&mut bindings, vec![]);
    assert_eq!(bindings.tags("shop", "default"), None, "not everything is known yet");
    Index::<ClusterRoleBinding>::reset(&mut bindings, vec![]);
    assert_eq!(bindings.tags("shop", "default"), Some(RiskyTags::default()));
    bindings
}

#[test]
fn roles_count_as_they_are_now_whoever_came_first() {
    let mut bindings = told();
    let views = |bindings: &Bindings, namespace, account| {
        bindings.tags(namespace, account).unwrap().contains(RiskyTag::ViewSecret)
    };
    let account = json!({"kind": "ServiceAccount", "name": "web"});
    // The binding before its role; a service account without a namespace is one of the binding's.
    bindings.apply(binding("shop", "b", ("ClusterRole", "look"), account));
    assert!(!views(&bindings, "shop", "web"));
    bindings.apply(cluster_role("look", "secrets"));
    assert!(views(&bindings, "shop", "web"));
    assert!(!views(&bindings, "shop", "other") && !views(&bindings, "other", "web"));
    // Made harmless, it is harmless.
    bindings.apply(cluster_role("look", "pods"));
    assert!(!views(&bindings, "shop", "web"));
    bindings.apply(cluster_role("look", "secrets"));
    // A gap in the watch: what is not told again is gone.
    Index::<RoleBinding>::reset(&mut bindings, vec![]);
    assert!(!views(&bindings, "shop", "web"));
}

#[test]
fn groups_of_service_accounts_count_too() {
    let subjects = [
        (json!({"kind": "Group", "name": "system:serviceaccounts"}), [true, true]),
        (json!({"kind": "Group", "name": "system:serviceaccounts:shop"}), [true, false]),
        (json!({"kind": "Group", "name": "system:authenticated"}), [true, true]),
        (json!({"kind": "Group", "name": "devs"}), [false, false]),
        (json!({"kind": "User", "name": "system:serviceaccount:shop:web"}), [true, false]),
    ];
    for (subject, expected) in subjects {
        let mut bindings = told();
        bindings.apply(cluster_role("look", "secrets"));
        let bound = binding("any", "b", ("ClusterRole", "look"), subject.clone());
        bindings.apply(bound.clone());
        let views =
            |namespace| bindings.tags(namespace, "web").unwrap().contains(RiskyTag::ViewSecret);
        assert_eq!([views("shop"), views("other")], expected, "{subject}");
        bindings.delete(bound);
        assert_eq!(bindings.tags("shop", "web"), Some(RiskyTags::default()));
    }
}

fn workload<T: DeserializeOwned>(name: &str, owner: Option<&str>, label: &str) -> T {
    let owners = owner.map(|owner| {
        json!([{"apiVersion": "v1", "kind": "X", "name": owner,
                                           "controller": true, "uid": format!("uid-{owner}")}])
    });
    let mut metadata = meta("shop", name);
    metadata["ownerReferences"] = owners.unwrap_or(json!([]));
    metadata["labels"] = json!({"app": "object", "tier": "back"});
    let template = json!({"metadata": {"labels": {"app": label}}, "spec": {"containers": []}});
    made(json!({"metadata": metadata, "spec": {"selector": {}, "template": template}}))
}

#[test]
fn the_root_owner_is_found_above_what_it_made() {
    let mut workloads = Workloads::default();
    Index::<Deployment>::apply(&mut workloads, workload("web", None, "template"));
    Index::<ReplicaSet>::apply(&mut workloads, workload("web-1", Some("web"), "x"));
    // Somebody else's kind is above it: nobody knows what that says.
    Index::<ReplicaSet>::apply(&mut workloads, workload("roll-1", Some("rollout"), "x"));
    Index::<ReplicaSet>::apply(&mut workloads, workload("loop", Some("loop"), "x"));
    let mut sightings = OwnerRecorder::default();
    let root = |seen: &RecentOwners, uid: &str| {
        workloads.root(uid, seen).map(|owner| (owner.name.clone(), owner.by.is_some()))
    };
    assert_eq!(root(&sightings.seen(), "uid-web-1"), Some(("web".to_owned(), false)));
    assert_eq!(root(&sightings.seen(), "uid-web"), Some(("web".to_owned(), false)));
    assert_eq!(root(&sightings.seen(), "uid-roll-1"), None);
    assert_eq!(root(&sightings.seen(), "uid-loop"), None, "and it ends");
    let seen = sightings.seen();
    let labels = &workloads.root("uid-web-1", &seen).unwrap().labels;
    assert_eq!((labels["app"].as_str(), labels["tier"].as_str()), ("template", "back"));

    let by = Some(("alice".to_owned(), vec![]));
    let owner = Owner { name: "web".to_owned(), by, ..Owner::default() };
    let sighting = ReviewedOwner { uid: "uid-web".to_owned(), above: None, owner };
    sightings.take(sighting, Instant::now());
    assert_eq!(root(&sightings.seen(), "uid-web-1"), Some(("web".to_owned(), true)));

    // What a template has is nothing that an injector added; of one that is not known, nobody knows.
    let mut set: ReplicaSet = workload("web-1", Some("web"), "x");
    let spec = set.spec.template.as_mut().and_then(|template| template.spec.as_mut()).unwrap();
    spec.containers = made(json!([{"name": "web"}]));
    spec.init_containers = made(json!([{"name": "setup"}]));
    workloads.apply(set);
    assert!(workloads.template_lacks("uid-web-1", "istio-proxy"));
    assert!(!workloads.template_lacks("uid-web-1", "web"));
    assert!(!workloads.template_lacks("uid-web-1", "setup"));
    assert!(!workloads.template_lacks("uid-unknown", "istio-proxy"));

    Index::<ReplicaSet>::reset(&mut workloads, vec![]);
    assert!(workloads.root("uid-web-1", &RecentOwners::default()).is_none());
    assert!(workloads.root("uid-web", &RecentOwners::default()).is_some(), "of another kind");
}

#[test]
fn a_claim_has_the_class_that_it_names() {
    let claim = |class: Value| -> PersistentVolumeClaim {
        made(json!({"metadata": meta("shop", "data"), "spec": {"storageClassName": class}}))
    };
    let known = ClusterFacts::default();
    let class = |known: &ClusterFacts| {
        let now = known.now(&Snapshot::default());
        now.storage_class("shop", "data").map(str::to_owned)
    };
    let tell =
        |event: Event<PersistentVolumeClaim>| known.claims.update(|claims| event.apply_to(claims));
    tell(Event::Restarted(vec![claim(json!("fast"))]));
    assert_eq!(class(&known).as_deref(), Some("fast"));
    tell(Event::Applied(claim(Value::Null)));
    assert_eq!(class(&known), None, "none is passed over");
    tell(Event::Applied(claim(json!(""))));
    assert_eq!(class(&known).as_deref(), Some(""), "an explicit empty one is one");
    tell(Event::Deleted(claim(json!(""))));
    assert_eq!(class(&known), None);
}
