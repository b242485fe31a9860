//! The suite against a real API server. Owner references are not in it: an API server leaves them to
//! its garbage collector, which this one has not.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use objects::kinds::{self, Cluster, Group, NetworkRule};
use objects::{Objects, Version, Within};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stallproof::Deadline;
use testkit::KubeServer;

use crate::load::Load;
use crate::{Fixture, cluster, next, short, soon};

async fn store(server: &KubeServer) -> Objects {
    objects::install(server.client().await, soon()).await.unwrap();
    Objects::kubernetes(server.client().await, "fairlead")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite() {
    testkit::requires!(kube);
    let server = KubeServer::shared().await;
    let objects = store(server).await;
    // Once more changes nothing and waits for nobody.
    objects::install(server.client().await, soon()).await.unwrap();
    crate::checks::all(&Fixture {
        objects,
        namespace: server.namespace().await,
        other_namespace: server.namespace().await,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_server_is_restarted_under_load() {
    testkit::requires!(kube);
    let mut server = KubeServer::start().await;
    let objects = store(&server).await;
    objects.create(&cluster("before", "1"), soon()).await.unwrap();
    let load = Load::start(objects.clone());
    load.goes_on(100).await;
    server.restart().await;
    load.goes_on(100).await;
    load.finish().await;

    // It knows nothing of what was before its start.
    let mut watch = objects.watch_after::<Cluster>(Within::default(), Version("1".to_owned()));
    assert!(short(&next(&mut watch).await).starts_with("restarted before=1 load-"));
}

/// Our schemas are as strict as our checks: what gets past us does not get past the server.
#[tokio::test(flavor = "multi_thread")]
async fn the_schemas_refuse_what_the_checks_refuse() {
    testkit::requires!(kube);
    let server = KubeServer::shared().await;
    let client = server.client().await;
    let past = Deadline::after(Duration::ZERO);
    let refused = objects::install(client.clone(), past).await;
    assert!(matches!(refused, Err(objects::Error::TooLate { .. })), "{refused:?}");

    // What a server of this age does with CEL rules is why `install` leaves them out for it.
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let with_cel =
        kinds::definitions().into_iter().find(|it| it.spec.names.kind == "User").unwrap();
    let params = PatchParams::apply("test").force();
    let refused = definitions.patch("users.fairlead.dev", &params, &Patch::Apply(&with_cel)).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("field not declared in schema"), "{refused}");

    store(server).await;
    let clusters = Api::<Cluster>::all(client);
    let params = PostParams::default();
    for (field, spoil) in [
        (
            "namespace",
            (|it| it.spec.kubeconfig_secret.namespace = "A.b".to_owned()) as fn(&mut Cluster),
        ),
        ("name", |it| it.spec.kubeconfig_secret.name = String::new()),
        ("key", |it| it.spec.kubeconfig_secret.key = "a/b".to_owned()),
        ("context", |it| it.spec.context = Some("c".repeat(1025))),
    ] {
        let mut wrong = cluster("wrong", "a");
        spoil(&mut wrong);
        let refused = clusters.create(&params, &wrong).await.unwrap_err().to_string();
        assert!(refused.contains("Invalid") || refused.contains(field), "{field}: {refused}");
    }
    clusters.create(&params, &cluster("right", "a")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_network_rules_are_kept_as_they_are_and_wrong_ones_refused() {
    testkit::requires!(kube);
    let server = KubeServer::shared().await;
    let objects = store(server).await;
    let group = Group::new(
        "front",
        from_value(json!({"mode": "protect", "criteria": [
            {"key": "label", "label": "app", "op": "=", "value": "web"},
            {"key": "name", "op": "!prefix", "value": "test-"}]})),
    );
    let rule = NetworkRule::new(
        "front-db",
        from_value(json!({"from": "front", "to": "shop/Deployment/db", "action": "allow",
                          "ports": ["tcp/5432"]})),
    );
    assert_eq!(objects.create(&group, soon()).await.unwrap().spec, group.spec);
    assert_eq!(objects.create(&rule, soon()).await.unwrap().spec, rule.spec);

    let client = server.client().await;
    let wrong = [
        ("Group", json!({"criteria": []})),
        ("Group", json!({"criteria": [{"key": "name", "op": "~", "value": "a"}]})),
        ("Group", json!({"mode": "stop", "criteria": [{"key": "name", "op": "=", "value": "a"}]})),
        ("NetworkRule", json!({"from": "a", "action": "allow"})),
        ("NetworkRule", json!({"from": "a", "to": "b", "action": "refuse"})),
        ("NetworkRule", json!({"from": "a", "to": "b", "action": "deny", "priority": -1})),
    ];
    for (kind, spec) in wrong {
        let gvk = GroupVersionKind::gvk("fairlead.dev", "v1alpha1", kind);
        let resource = ApiResource::from_gvk(&gvk);
        let mut object = DynamicObject::new("wrong", &resource);
        object.data = json!({"spec": spec});
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let refused = api.create(&PostParams::default(), &object).await;
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 422), "{spec}");
    }
}

fn from_value<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
