use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use stallproof::Tasks;

use super::*;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use testkit::{KubeServer, requires};
use tokio::time::{Instant, sleep, timeout};

use crate::resources::{ListQuery, list};
use crate::tests::scripted::{self, Response};

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

/// Waits for the `count`th reset.
async fn until_reset(resets: &mut watch::Receiver<u64>, count: u64) {
    let reset = timeout(Duration::from_secs(60), resets.wait_for(|resets| *resets >= count)).await;
    reset.expect("the watch does not reset what was discovered").unwrap();
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
    println!("found by age after {waited:?}");

    // By the watch, without anybody resetting anything by hand.
    let tasks = Tasks::new("test");
    let watched = connection.clone();
    let mut resets = connection.discovery().resets();
    let before = *resets.borrow_and_update();
    let _watching = watch_definitions(move || Ok(watched.clone()), &tasks);
    // It resets once when it has read the definitions, and once more when they have settled.
    until_reset(&mut resets, before + 2).await;
    let (kept, word) = (&connection.discovery().0.words, KindQuery::word("hitches"));
    let before = loop {
        let before = *resets.borrow_and_update();
        no_such_kind(&connection, "hitches").await;
        let asking = connection.clone();
        let again = move |_| async move { Err(too_late(&asking)) };
        if kept.get(&word, soon(), again).await.is_ok_and(|kept| kept.value.is_none()) {
            break before;
        }
        assert!(resets.has_changed().unwrap(), "the no is not kept");
    };
    install(&client, "hitches", "Hitch").await;
    until_reset(&mut resets, before + 1).await;
    // A "no" from before the server served the kind is forgotten by the next reset, not by its age.
    while let Err(error) = list(&connection, &ListQuery::of("hitches"), soon()).await {
        assert!(matches!(error, Error::NoSuchKind { .. }), "{error}");
        let next = *resets.borrow() + 1;
        until_reset(&mut resets, next).await;
    }

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
    assert!(all.failed.iter().any(|failed| failed.api_version == "nobody.fairlead.dev/v1"));
    let served = |plural: &str| all.kinds.iter().any(|found| found.resource.plural == plural);
    assert!(served("pods") && served("deployments") && served("leases"));
    let pods = all.kinds.iter().find(|found| found.resource.plural == "pods").unwrap();
    assert!(pods.can("list") && pods.namespaced && pods.subresources.contains(&"log".to_owned()));

    // Groups behind it, and before it, are found, and the hung one is not waited for.
    connection.discovery().reset_all();
    let began = Instant::now();
    assert_eq!(connection.find("deploy", soon()).await.unwrap().resource.kind, "Deployment");
    assert_eq!(connection.find("Lease", soon()).await.unwrap().resource.plural, "leases");
    println!("found behind it after {:?}", began.elapsed());
    let group = connection.find("knots.nobody.fairlead.dev", soon()).await.unwrap_err();
    assert!(matches!(group, Error::Refused { .. } | Error::TooLate { .. }), "{group}");
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

/// Core has pods; `hung.dev`, whose server hangs, comes first of the groups; `apps` has deployments.
/// Counts what is asked.
fn a_small_cluster(asked: &Arc<AtomicUsize>) -> Connection {
    let asked = Arc::clone(asked);
    let group = |name: &str| {
        let version = json!({ "groupVersion": format!("{name}/v1"), "version": "v1" });
        json!({ "name": name, "versions": [version], "preferredVersion": version })
    };
    let list = |plural: &str, kind: &str| {
        Response::Json(json!({ "groupVersion": "", "resources": [{ "name": plural, "kind": kind,
            "singularName": "", "namespaced": true, "verbs": ["list"] }] }))
    };
    let client = scripted::client(move |path| {
        asked.fetch_add(1, Relaxed);
        match path {
            "/api/v1" => list("pods", "Pod"),
            "/apis" => Response::Json(json!({ "groups": [group("hung.dev"), group("apps")] })),
            "/apis/apps/v1" => list("deployments", "Deployment"),
            "/apis/hung.dev/v1" => Response::Hang,
            other => panic!("asked for {other}"),
        }
    });
    Connection::new("test", client)
}

#[tokio::test(start_paused = true)]
async fn a_core_kind_costs_one_request_however_many_ask() {
    let asked = Arc::default();
    let connection = a_small_cluster(&asked);
    let finds = (0..100).map(|_| connection.find("pods", soon()));
    let found = futures::future::join_all(finds).await;
    assert!(found.iter().all(|found| found.as_ref().is_ok_and(|found| found.singular == "pod")));
    assert_eq!(asked.load(Relaxed), 1);
    tokio::time::advance(YES / 2).await;
    connection.find("pods", soon()).await.unwrap();
    assert_eq!(asked.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_hangs_holds_up_what_is_behind_it_for_a_moment_and_is_named() {
    let connection = a_small_cluster(&Arc::default());
    let began = Instant::now();
    connection.find("deployments", soon()).await.unwrap();
    assert!(began.elapsed() <= PATIENCE * 2, "{:?}", began.elapsed());

    let unknown = connection.find("knots", soon()).await.unwrap_err();
    let said = "test has no resource \"knots\"; could not ask hung.dev/v1";
    assert_eq!(unknown.to_string(), said);
    let named = connection.find("knots.hung.dev", soon()).await.unwrap_err();
    assert!(matches!(named, Error::TooLate { .. }), "{named}");
    // Whoever has less time than the lookup takes is not told that there is no such kind.
    connection.discovery().reset_all();
    let hasty =
        connection.find("bends", Deadline::after(Duration::from_secs(1))).await.unwrap_err();
    assert!(matches!(hasty, Error::TooLate { .. }), "{hasty}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_there_is_no_such_kind_is_believed_over_what_is_kept() {
    let (version, lists) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(0)));
    let (served, counted) = (Arc::clone(&version), Arc::clone(&lists));
    let client = scripted::client(move |path| {
        let version = format!("v{}", served.load(Relaxed));
        let gv = json!({ "groupVersion": format!("test.dev/{version}"), "version": version });
        if path == "/api/v1" {
            Response::Json(json!({ "groupVersion": "v1", "resources": [] }))
        } else if path == "/apis" {
            Response::Json(json!({ "groups": [{ "name": "test.dev", "versions": [gv] }] }))
        } else if path == format!("/apis/test.dev/{version}") {
            Response::Json(json!({ "groupVersion": "", "resources": [{ "name": "knots",
                "kind": "Knot", "singularName": "knot", "namespaced": false, "verbs": [] }] }))
        } else if path.starts_with(&format!("/apis/test.dev/{version}/knots")) {
            Response::Json(json!({ "metadata": {}, "items": [] }))
        } else {
            counted.fetch_add(1, Relaxed);
            Response::Text(404, "404 page not found")
        }
    });
    let connection = Connection::new("test", client);
    let knots = ListQuery::of("knots");
    list(&connection, &knots, soon()).await.unwrap();
    version.store(2, Relaxed);
    list(&connection, &knots, soon()).await.unwrap();
    assert_eq!(lists.load(Relaxed), 1);
    assert_eq!(connection.find("knots", soon()).await.unwrap().resource.version, "v2");
}
