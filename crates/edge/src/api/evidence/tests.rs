//! What is known of an object, on a real API server.

use http::Method;
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

use super::*;
use crate::api::tests::test_api::{TestApi, request};
use crate::api::{ObservedCluster, Traffic, router};

const NOTHING: Value = Value::Null;
const PATH: &str = "/clusters/real/resources/configmaps/settings/evidence?namespace=default";

async fn apply(world: &TestApi, value: &str) {
    let object = format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings, namespace: default}}, \
         data: {{key: {value}}}}}"
    );
    let mut asked = request(Method::POST, "/api/v1/clusters/real/apply", NOTHING);
    *asked.body_mut() = axum::body::Body::from(object);
    let bearer = format!("Bearer {}", world.local).parse().unwrap();
    asked.headers_mut().insert("authorization", bearer);
    let applied = world.send(asked).await;
    assert!(applied.status == 200 && !applied.text.contains("failed"), "{}", applied.text);
}

fn left_out(answer: &Value) -> Vec<&str> {
    let parts = answer["leftOut"].as_array().unwrap_or_else(|| panic!("{answer}"));
    parts.iter().map(|part| part["part"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_kube_server_s_object_tells_what_was_done_with_it_and_names_what_it_may_not() {
    requires!(kube);
    let (mut world, server) =
        tokio::join!(async { TestApi::new().ready().await }, KubeServer::start());
    world.import("real", server.access().kubeconfig()).await;
    apply(&world, "one").await;
    apply(&world, "two").await;
    let delete = "/clusters/real/resources/cm/settings?namespace=default&dryRun=true";
    assert_eq!(world.ask(Method::DELETE, delete, NOTHING).await.status, 200);
    // Of the same name, and another thing: a Service, and a ConfigMap of another namespace.
    let other = "/clusters/real/resources/services/settings?namespace=default";
    assert_eq!(world.ask(Method::DELETE, other, NOTHING).await.status, 404);
    let other = "/clusters/real/resources/cm/settings?namespace=kube-system";
    assert_eq!(world.ask(Method::DELETE, other, NOTHING).await.status, 404);

    // The agents' cluster is not known: conversations of a pod with this name may be another's.
    let evidence = world.ask(Method::GET, PATH, NOTHING).await;
    assert_eq!(evidence.status, 200, "{}", evidence.text);
    let evidence = evidence.json();
    assert_eq!(left_out(&evidence), ["conversations", "violations"], "{evidence}");
    let audit = evidence["audit"].as_array().unwrap();
    let verbs: Vec<_> = audit.iter().map(|entry| entry["verb"].as_str().unwrap()).collect();
    assert_eq!(verbs, ["delete", "update", "update"], "{evidence}");
    // What was applied has what was before and is after.
    let changed = &audit[1];
    let key = "configmap/settings in default";
    assert_eq!(changed["before"][key], json!({ "data": { "key": "one" } }), "{changed}");
    assert_eq!(changed["after"][key], json!({ "data": { "key": "two" } }), "{changed}");
    assert_eq!((&evidence["admission"], &evidence["inFlight"]), (&json!([]), &json!([])));

    // Who may see the object alone sees none of the rest, and is told so.
    let eve = world.somebody("eve", &[["real", "default", "configmaps", "get"]]).await;
    let some = world.ask_as(&eve, Method::GET, PATH, NOTHING).await.json();
    let parts = ["conversations", "violations", "admission", "audit", "inFlight"];
    assert_eq!(left_out(&some), parts, "{some}");
    assert!(some.get("audit").is_none() && some.get("inFlight").is_none(), "{some}");
    let may_not = "eve may not list audit.fairlead.dev";
    assert!(some["leftOut"][3]["why"].as_str().unwrap().contains(may_not), "{some}");

    // Of the cluster that the agents observe they are told.
    let traffic = world.api.traffic.clone().unwrap();
    let observed = ObservedCluster::Named("real".to_owned());
    world.api.traffic = Some(Traffic { observed, ..traffic });
    world.router = router(&world.api, true);
    let evidence = world.ask(Method::GET, PATH, NOTHING).await.json();
    assert_eq!(left_out(&evidence), [""; 0], "{evidence}");
    assert_eq!(evidence["conversations"], json!([]));
}

#[tokio::test]
async fn an_end_is_the_object_only_if_namespace_and_name_are_its_own() {
    let (world, kind) = (TestApi::with(&["eu", "us"], |_| {}), |kind: &str| ServedKind {
        resource: kube::core::ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: String::new(),
        },
        singular: String::new(),
        namespaced: true,
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    });
    let mut api = world.api.clone();
    let traffic = api.traffic.clone().unwrap();
    let observed = ObservedCluster::Named("eu".to_owned());
    api.traffic = Some(Traffic { observed, ..traffic });
    let workload = |namespace: &str, name: &str| Endpoint::Workload {
        namespace: namespace.into(),
        name: name.into(),
        owner: "Deployment/web".into(),
        node: "node".into(),
    };
    let (pod, deployment) = (kind("Pod"), kind("Deployment"));
    let subject =
        |cluster, found, name| Subject::of(cluster, Some("shop"), name, found, &Tree::default());
    let web_0 = subject("eu", &pod, "web-0").endpoint(&api).unwrap();
    assert!(web_0(&workload("shop", "web-0")));
    assert!(!web_0(&workload("shop", "web-1")) && !web_0(&workload("bank", "web-0")));
    let web = subject("eu", &deployment, "web").endpoint(&api).unwrap();
    assert!(web(&workload("shop", "web-0")) && !web(&workload("bank", "web-0")));
    assert!(!web(&Endpoint::Unmanaged) && !web(&Endpoint::External { name: None }));
    // The same names in another cluster are others.
    assert!(subject("us", &pod, "web-0").endpoint(&api).is_err());
}
