use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use testkit::{Fault, KubeServer, Proxy, requires};
use tokio::time::{Instant, timeout};

use super::*;
use crate::tests::scripted::{self, Response};

const QUICK: WatchTiming = WatchTiming {
    first: Duration::from_secs(2),
    session: Duration::from_secs(4),
    quiet: Duration::from_secs(3),
    grace: Duration::from_secs(2),
    open: Duration::from_secs(5),
    page: Duration::from_secs(30),
    look: Duration::from_secs(60),
    retry: RETRY,
};

type Rows = Change<Table, Row>;

async fn next<T>(changes: &mut (impl Stream<Item = T> + Unpin)) -> T {
    let next = timeout(Duration::from_secs(60), changes.next()).await;
    next.expect("a watch never hangs silently").expect("a watch never ends")
}

/// What it says, in a word and a name.
async fn told(changes: &mut Pin<Box<impl Stream<Item = Rows>>>) -> String {
    match next(changes).await {
        Change::Listed(table) => {
            let names: Vec<_> = table.rows.iter().map(|row| row.name.as_str()).collect();
            format!("listed {}", names.join(" "))
        }
        Change::Applied(row) => format!("applied {}", row.name),
        Change::Deleted(row) => format!("deleted {}", row.name),
        Change::Interrupted { why } => {
            println!("interrupted: {why}");
            "interrupted".to_owned()
        }
        Change::Resumed => "resumed".to_owned(),
    }
}

#[tokio::test]
async fn kube_a_watch_goes_on_whatever_happens_and_says_what_did() {
    requires!(kube);
    let server = KubeServer::start().await;
    let namespace = server.namespace().await;
    let objects = Api::<ConfigMap>::namespaced(server.client().await, &namespace);
    let make = async |name: &str| {
        let object = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        objects.create(&PostParams::default(), &object).await.unwrap();
    };
    make("a").await;

    let proxy = Proxy::start(server.address());
    let connection = Connection::new("test", server.through(&proxy).client().await);
    let query = ListQuery::of("cm").within(Some(&namespace));
    let again = connection.clone();
    let deadline = Deadline::after(Duration::from_secs(30));
    let changes =
        open::<super::Rows, Table>(move || Ok(again.clone()), query.clone(), deadline, QUICK);
    let mut changes = Box::pin(changes.await.unwrap());

    assert_eq!(told(&mut changes).await, "listed a");
    make("b").await;
    assert_eq!(told(&mut changes).await, "applied b");
    objects.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(told(&mut changes).await, "deleted a");

    // The ends of turns are nobody's business.
    let quiet = timeout(QUICK.first * 3, changes.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");

    proxy.inject(Fault::Refuse);
    proxy.cut();
    make("c").await;
    assert_eq!(told(&mut changes).await, "interrupted");
    proxy.heal();
    assert_eq!(told(&mut changes).await, "resumed");
    assert_eq!(told(&mut changes).await, "applied c");

    proxy.inject(Fault::BlackHole);
    let began = Instant::now();
    make("d").await;
    assert_eq!(told(&mut changes).await, "interrupted");
    println!("a black hole is noticed after {:?}", began.elapsed());
    proxy.heal();
    assert_eq!(told(&mut changes).await, "resumed");
    assert_eq!(told(&mut changes).await, "applied d");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_expired_begins_anew_and_is_no_interruption() {
    let lists = Arc::new(AtomicUsize::new(0));
    let client = scripted::client(move |asked| match asked {
        "/api/v1" => Response::Json(json!({ "groupVersion": "v1", "resources": [{
            "name": "configmaps", "singularName": "", "kind": "ConfigMap",
            "namespaced": true, "verbs": ["list", "watch"] }] })),
        // The first time the server says so in the watch, the second time instead of it.
        watch if watch.contains("watch=true") => match lists.load(Relaxed) {
            1 => Response::Lines(vec![json!({ "type": "ERROR",
                "object": { "kind": "Status", "code": 410, "reason": "Expired" } })]),
            2 => Response::Text(410, "gone"),
            _ => Response::Lines(vec![json!({ "type": "MODIFIED",
                "object": { "metadata": { "name": "last", "resourceVersion": "9" } } })]),
        },
        _ => {
            let version = lists.fetch_add(1, Relaxed) + 1;
            Response::Json(json!({ "metadata": { "resourceVersion": version.to_string() },
                "items": [{ "metadata": { "name": format!("of-{version}") } }] }))
        }
    });
    let connection = Connection::new("test", client);
    let deadline = Deadline::after(Duration::from_secs(5));
    let changes = watch(move || Ok(connection.clone()), ListQuery::of("configmaps"), deadline);
    let mut changes = Box::pin(changes.await.unwrap());
    for version in 1..=3 {
        let Change::Listed(page) = next(&mut changes).await else { panic!("listed anew") };
        assert_eq!(page.items[0].metadata.name, Some(format!("of-{version}")));
    }
    let Change::Applied(object) = next(&mut changes).await else { panic!("then applied") };
    assert_eq!(object.metadata.name.as_deref(), Some("last"));
}

#[tokio::test(start_paused = true)]
async fn a_typed_watch_leaves_out_what_is_not_of_its_type_and_goes_on() {
    let config = |name: &str, value: serde_json::Value| json!({ "metadata": { "name": name, "resourceVersion": "2" }, "data": { "key": value } });
    let client = scripted::client(move |asked| match asked {
        "/api/v1" => Response::Json(json!({ "groupVersion": "v1", "resources": [{
            "name": "configmaps", "singularName": "", "kind": "ConfigMap",
            "namespaced": true, "verbs": ["list", "watch"] }] })),
        watch if watch.contains("watch=true") => Response::Lines(vec![
            json!({ "type": "ADDED", "object": config("bad", json!([1])) }),
            json!({ "type": "BOOKMARK", "object": { "metadata": { "resourceVersion": "3" } } }),
            json!({ "type": "MODIFIED", "object": config("good", json!("text")) }),
            json!({ "type": "DELETED", "object": config("good", json!("text")) }),
        ]),
        _ => Response::Json(json!({ "metadata": { "resourceVersion": "1" },
            "items": [config("a", json!("text")), config("b", json!(7)), config("c", json!("text"))] })),
    });
    let connection = Connection::new("test", client);
    let deadline = Deadline::after(Duration::from_secs(5));
    let connect = move || Ok(connection.clone());
    let changes = watch_as::<ConfigMap>(connect, ListQuery::of("configmaps"), deadline);
    let mut changes = Box::pin(changes.await.unwrap());
    let Change::Listed(all) = next(&mut changes).await else { panic!("listed first") };
    assert_eq!(all.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a", "c"]);
    let Change::Applied(object) = next(&mut changes).await else { panic!("then applied") };
    assert_eq!(object.name_any(), "good");
    let Change::Deleted(object) = next(&mut changes).await else { panic!("then deleted") };
    assert_eq!(object.name_any(), "good");
}

#[tokio::test]
async fn kube_a_watch_that_cannot_begin_says_why() {
    requires!(kube);
    let server = KubeServer::shared().await;
    let connection = Connection::new("test", server.client().await);
    let deadline = Deadline::after(Duration::from_secs(30));
    let refused = watch(move || Ok(connection.clone()), ListQuery::of("knots"), deadline).await;
    assert!(matches!(refused.err(), Some(Error::NoSuchKind { .. })));
    let gone = || Err(Error::NoSuchCluster { cluster: "gone".to_owned() });
    let refused = watch(gone, ListQuery::of("pods"), deadline).await;
    assert!(matches!(refused.err(), Some(Error::NoSuchCluster { .. })));
}
