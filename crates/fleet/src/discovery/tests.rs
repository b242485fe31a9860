use super::*;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use testkit::{KubeServer, requires};
use tokio::time::{Instant, sleep, timeout};

use crate::resources::{ListQuery, list};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn definition(plural: &str, kind: &str) -> CustomResourceDefinition {
    let definition = json!({
        "metadata": { "name": format!("{plural}.test.fairlead.dev") },
        "spec": {
            "group": "test.fairlead.dev",
            "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// Installs it and waits until the server serves it; what is looked at is not our discovery.
async fn install(client: &kube::Client, plural: &str, kind: &str) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.create(&PostParams::default(), &definition(plural, kind)).await.unwrap();
    let served = timeout(Duration::from_secs(60), async {
        loop {
            let list = client.list_api_group_resources("test.fairlead.dev/v1").await;
            if list.is_ok_and(|list| list.resources.iter().any(|have| have.name == plural)) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    served.await.unwrap();
}

async fn no_such_kind(connection: &Connection, word: &str) {
    let error = list(connection, &ListQuery::of(word), soon()).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchKind { .. }), "{error}");
}

/// How long it takes until lists of `word` work: the path that every user takes.
async fn until_listed(connection: &Connection, word: &str) -> Duration {
    let began = Instant::now();
    loop {
        match list(connection, &ListQuery::of(word), soon()).await {
            Ok(_) => return began.elapsed(),
            Err(Error::NoSuchKind { .. }) => sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{word} is never found");
    }
}

#[tokio::test]
async fn kube_a_kind_that_is_installed_late_is_found_without_a_restart() {
    requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    let connection = Connection::new("test", client.clone());

    // By hand.
    no_such_kind(&connection, "knots").await;
    install(&client, "knots", "Knot").await;
    connection.discovery().reset_all();
    list(&connection, &ListQuery::of("knots"), soon()).await.unwrap();

    // By its age. The "no" is renewed by asking, and ends all the same.
    no_such_kind(&connection, "bends").await;
    install(&client, "bends", "Bend").await;
    let waited = until_listed(&connection, "bends").await;
    assert!(waited < NO * 3, "{waited:?}");

    // By the watch: sooner than by age, though nobody resets anything.
    let tasks = Tasks::new("test");
    let watched = connection.clone();
    let _watching = watch_definitions(move || Ok(watched.clone()), &tasks);
    // The watch itself begins with a reset; wait until that is over.
    sleep(Duration::from_secs(5)).await;
    no_such_kind(&connection, "hitches").await;
    let before = connection
        .discovery()
        .0
        .words
        .get(&Ask::word("hitches"), soon(), |_| async { panic!("the no is kept") });
    assert!(before.await.unwrap().value.is_none());
    install(&client, "hitches", "Hitch").await;
    let waited = until_listed(&connection, "hitches").await;
    println!("found by the watch after {waited:?}");
    assert!(waited < NO, "{waited:?}");

    // By the answer: the kind has gone and come back in another version's stead.
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    tasks.shutdown(Duration::from_secs(5)).await;
    list(&connection, &ListQuery::of("knots"), soon()).await.unwrap();
    definitions.delete("knots.test.fairlead.dev", &DeleteParams::default()).await.unwrap();
    let gone = timeout(Duration::from_secs(60), async {
        while list(&connection, &ListQuery::of("knots"), soon()).await.is_ok() {
            sleep(Duration::from_millis(50)).await;
        }
    });
    gone.await.unwrap();
    no_such_kind(&connection, "knots").await;
}

#[tokio::test]
async fn kube_a_group_without_a_backend_hides_no_other() {
    requires!(kube);
    let server = KubeServer::shared().await;
    let client = server.client().await;
    let connection = Connection::new("test", client.clone());
    let services = ApiResource {
        group: "apiregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "apiregistration.k8s.io/v1".to_owned(),
        kind: "APIService".to_owned(),
        plural: "apiservices".to_owned(),
    };
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1.nobody.fairlead.dev" },
        "spec": {
            "group": "nobody.fairlead.dev", "version": "v1",
            "groupPriorityMinimum": 20000, "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": { "name": "nobody", "namespace": "default" },
        },
    });
    let service: DynamicObject = serde_json::from_value(service).unwrap();
    let api = Api::<DynamicObject>::all_with(client, &services);
    api.create(&PostParams::default(), &service).await.unwrap();

    let failed = timeout(Duration::from_secs(30), async {
        loop {
            connection.discovery().reset_all();
            let all = connection.kinds(soon()).await.unwrap();
            if !all.failed.is_empty() {
                return all;
            }
            sleep(Duration::from_millis(100)).await;
        }
    });
    let all = failed.await.unwrap();
    println!("{:?}", all.failed);
    assert_eq!(all.failed[0].api_version, "nobody.fairlead.dev/v1");
    assert_eq!(all.failed.len(), 1);
    let served = |plural: &str| all.kinds.iter().any(|found| found.resource.plural == plural);
    assert!(served("pods") && served("deployments") && served("leases"));
    let pods = all.kinds.iter().find(|found| found.resource.plural == "pods").unwrap();
    assert!(pods.can("list") && pods.namespaced && pods.subresources.contains(&"log".to_owned()));

    // Groups behind it, and before it, are found.
    assert_eq!(connection.find("deploy", soon()).await.unwrap().resource.kind, "Deployment");
    assert_eq!(connection.find("Lease", soon()).await.unwrap().resource.plural, "leases");
    let group = connection.find("knots.nobody.fairlead.dev", soon()).await.unwrap_err();
    assert!(matches!(group, Error::Refused { .. }), "{group}");
    let error = connection.find("deploymnets", soon()).await.unwrap_err().to_string();
    assert!(error.contains("did you mean deployments"), "{error}");
    assert!(error.contains("could not ask nobody.fairlead.dev/v1"), "{error}");
}

#[test]
fn a_missing_kind_is_told_from_a_missing_object() {
    let status = |value: serde_json::Value| serde_json::from_value::<Status>(value).unwrap();
    let object = json!({ "code": 404, "reason": "NotFound", "message": "pods \"x\" not found",
        "details": { "name": "x", "kind": "pods" } });
    assert!(!is_no_such_kind(&status(object)));
    let kind = json!({ "code": 404, "reason": "NotFound",
        "message": "the server could not find the requested resource", "details": {} });
    assert!(is_no_such_kind(&status(kind)));
    assert!(is_no_such_kind(&Status::failure("404 page not found", "?").with_code(404)));
    assert!(!is_no_such_kind(&Status::failure("no", "Forbidden").with_code(403)));
}
