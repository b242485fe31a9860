use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use stallproof::Deadline;
use testkit::{Fault, KubeServer, Proxy, requires};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::list::every_row;
use super::*;
use crate::connection::Connection;
use crate::fan::{ClusterTarget, Reply, fan};
use crate::merge::Merged;
use crate::tests::scripted::{self, Response};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

/// Makes an object, with the status it is given; answers its uid.
async fn make(client: &kube::Client, namespace: &str, object: Value) -> String {
    let text = |path| object.pointer(path).and_then(Value::as_str).unwrap();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let wanted: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let mut made = api.create(&PostParams::default(), &wanted).await.unwrap();
    if object.get("status").is_some() {
        made.data["status"] = object["status"].clone();
        made = api
            .replace_status(text("/metadata/name"), &PostParams::default(), &made)
            .await
            .unwrap();
    }
    made.metadata.uid.unwrap()
}

fn owned(by: &str, api_version: &str, kind: &str, name: &str) -> Value {
    json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": by, "controller": true }])
}

/// A deployment with its replica set and its pod, and two events of the pod.
async fn workload(client: &kube::Client, namespace: &str) {
    let labels = json!({ "app": "web" });
    let template = json!({ "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "web", "image": "registry.test/nginx:1.27" }] } });
    let spec =
        json!({ "replicas": 1, "selector": { "matchLabels": labels }, "template": template });
    let deployment = make(
        client,
        namespace,
        json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "labels": labels }, "spec": spec }),
    );
    let owner = owned(&deployment.await, "apps/v1", "Deployment", "web");
    let set = make(
        client,
        namespace,
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": { "name": "web-1", "labels": labels, "ownerReferences": owner }, "spec": spec }),
    );
    let owner = owned(&set.await, "apps/v1", "ReplicaSet", "web-1");
    let pod = make(
        client,
        namespace,
        json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web-1-x", "labels": labels, "ownerReferences": owner },
        "spec": template["spec"], "status": { "phase": "Running" } }),
    );
    let pod = pod.await;
    for (reason, at) in [("Pulled", "2026-01-01T00:00:01Z"), ("Started", "2026-01-01T00:00:09Z")] {
        make(
            client,
            namespace,
            json!({ "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": reason.to_lowercase() }, "reason": reason, "type": "Normal",
            "message": "so it was", "lastTimestamp": at, "involvedObject": { "apiVersion": "v1",
            "kind": "Pod", "name": "web-1-x", "namespace": namespace, "uid": pod } }),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_objects_are_read_in_every_way() {
    requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    let namespace = server.namespace().await;
    let connection = Connection::new("test", client.clone());
    let here = Some(namespace.as_str());
    workload(&client, &namespace).await;
    for number in 0..7 {
        let name = format!("map-{number}");
        make(
            &client,
            &namespace,
            json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "labels": { "odd": (number % 2 == 1).to_string() } },
            "data": { "text": "two\nlines\n", "yes": "no", "number": "1.0" } }),
        )
        .await;
    }

    pages(&connection, here).await;
    tables(&connection, here).await;
    one_object(&connection, &namespace).await;
    relations(&connection, here).await;
    across_clusters(&server, &namespace).await;
    a_long_table(&connection, &server, here).await;
}

/// A list that is asked for at once after its first page: what was deleted in between is not in it.
async fn a_long_table(connection: &Connection, server: &KubeServer, here: Option<&str>) {
    let (client, namespace) = (server.client().await, here.unwrap());
    let secret = |number: u32| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("s-{number:04}") } });
    let made = (0..700).map(|number| make(&client, namespace, secret(number)));
    futures::stream::iter(made).buffer_unordered(20).collect::<Vec<_>>().await;

    let query = ListQuery::of("secrets").within(here);
    let (begun, told) = (Cell::new(0), RefCell::new(BTreeSet::new()));
    let begin = || {
        begun.set(begun.get() + 1);
        told.borrow_mut().clear();
    };
    let take = |_, rows: Vec<Row>| {
        if begun.get() == 1 {
            assert_eq!(rows.len(), 100);
            tokio::task::block_in_place(|| {
                let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
                let now = DeleteParams::default();
                let deleted = secrets.delete("s-0000", &now);
                Handle::current().block_on(deleted).unwrap();
            });
        }
        told.borrow_mut().extend(rows.into_iter().map(|row| row.name));
        true
    };
    let version =
        every_row(connection, &query, Duration::from_secs(30), begin, take).await.unwrap();
    let told = told.into_inner();
    let secrets = told.iter().filter(|name| name.starts_with("s-")).count();
    // What the API server has in memory may not know of it yet; then it is told by the watch.
    let knows = !told.contains("s-0000");
    assert_eq!(secrets, if knows { 699 } else { 700 });
    assert!(begun.get() == 2 || !knows, "{}", begun.get());
    if !knows {
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        let mut changes = secrets.watch(&WatchParams::default(), &version).await.unwrap().boxed();
        let gone = async {
            while let Some(change) = changes.next().await {
                if matches!(change, Ok(WatchEvent::Deleted(secret)) if secret.name_any() == "s-0000")
                {
                    return;
                }
            }
            panic!("the watch has ended");
        };
        soon().bound(gone).await.expect("the deletion is told");
    }
}

/// An aggregated API server of before tables: whatever is asked for, whole objects are answered, page by page,
/// each of a later version. No server that is built today answers so, so that this one is scripted.
fn without_tables(objects: usize) -> (Connection, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let client = scripted::client(move |path| {
        if path == "/apis/old.example.com/v1" {
            return Response::Json(json!({ "groupVersion": "old.example.com/v1", "resources": [{
                "name": "knots", "singularName": "knot", "kind": "Knot",
                "namespaced": true, "verbs": ["list", "watch"] }] }));
        }
        if path == "/api/v1" {
            return Response::Json(json!({ "groupVersion": "v1", "resources": [] }));
        }
        if !path.contains("/knots") {
            return Response::Json(json!({ "kind": "APIGroupList", "groups": [{
                "name": "old.example.com",
                "versions": [{ "groupVersion": "old.example.com/v1", "version": "v1" }],
                "preferredVersion": { "groupVersion": "old.example.com/v1", "version": "v1" } }] }));
        }
        heard.lock().push(path.to_owned());
        let (_, query) = path.split_once('?').unwrap_or_default();
        let of = |name: &str| {
            let pairs = form_urlencoded::parse(query.as_bytes());
            pairs.filter(|(key, _)| key == name).find_map(|(_, value)| value.parse::<usize>().ok())
        };
        let (from, limit) = (of("continue").unwrap_or(0), of("limit").unwrap_or(objects));
        let until = objects.min(from + limit);
        let knot = |number: usize| {
            json!({ "metadata": { "name": format!("knot-{number:04}"),
            "uid": format!("uid-{number}"), "creationTimestamp": "2026-01-02T03:04:05Z" } })
        };
        let mut metadata = json!({ "resourceVersion": (100 + from).to_string() });
        if until < objects {
            metadata["continue"] = until.to_string().into();
            metadata["remainingItemCount"] = (objects - until).into();
        }
        let items: Vec<_> = (from..until).map(knot).collect();
        Response::Json(json!({ "kind": "KnotList", "apiVersion": "old.example.com/v1",
            "metadata": metadata, "items": items }))
    });
    (Connection::new("old", client), asked)
}

#[tokio::test(start_paused = true)]
async fn a_long_list_of_a_server_that_prints_no_tables_is_told_once_page_by_page() {
    let (connection, asked) = without_tables(1234);
    let (begun, told) = (Cell::new(0), RefCell::new(Vec::new()));
    let columns = RefCell::new(BTreeSet::new());
    let begin = || {
        begun.set(begun.get() + 1);
        told.borrow_mut().clear();
    };
    let take = |of_page: Vec<Column>, rows: Vec<Row>| {
        columns.borrow_mut().extend(of_page.into_iter().map(|column| column.name));
        told.borrow_mut().extend(rows.into_iter().map(|row| row.name));
        true
    };
    let query = ListQuery::of("knots.v1.old.example.com");
    let version =
        every_row(&connection, &query, Duration::from_secs(30), begin, take).await.unwrap();
    let all: Vec<_> = (0..1234).map(|number| format!("knot-{number:04}")).collect();
    assert_eq!(*told.borrow(), all);
    // The list is told anew after the table that was none; a watch goes on from its first page.
    assert_eq!((begun.get(), &*version), (2, "100"));
    assert_eq!(columns.into_inner().into_iter().collect::<Vec<_>>(), ["Created At", "Name"]);
    let asked = asked.lock();
    let at_once = asked.iter().filter(|path| path.contains("resourceVersion=0")).count();
    assert_eq!((asked.len(), at_once), (6, 1), "{asked:#?}");
}

async fn pages(connection: &Connection, here: Option<&str>) {
    let mut query = ListQuery::of("configmaps").within(here);
    assert_eq!(list(connection, &query, soon()).await.unwrap().items.len(), 7);
    query.labels = Some("odd=true".to_owned());
    assert_eq!(list(connection, &query, soon()).await.unwrap().items.len(), 3);
    query.labels = None;
    query.fields = Some("metadata.name=map-3".to_owned());
    assert_eq!(list(connection, &query, soon()).await.unwrap().items.len(), 1);
    query.fields = None;

    query.limit = Some(5);
    let first = list(connection, &query, soon()).await.unwrap();
    assert_eq!((first.items.len(), first.remaining), (5, Some(2)));
    query.continue_token = first.continue_token;
    let rest = list(connection, &query, soon()).await.unwrap();
    let names: Vec<_> = rest.items.iter().filter_map(|map| map.metadata.name.as_deref()).collect();
    assert_eq!((names.as_slice(), rest.continue_token), (["map-5", "map-6"].as_slice(), None));

    query.namespace = Some("../../secrets".to_owned());
    let refused = list(connection, &query, soon()).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
}

async fn tables(connection: &Connection, here: Option<&str>) {
    let pods = table(connection, &ListQuery::of("po").within(here), soon()).await.unwrap();
    let columns: Vec<_> = pods.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(columns[..3], ["Name", "Ready", "Status"]);
    assert!(pods.columns.iter().any(|column| column.priority > 0));
    assert_eq!(pods.columns[0].format, "name");
    assert_eq!((pods.rows[0].name.as_str(), pods.rows[0].namespace.as_deref()), ("web-1-x", here));
    assert_eq!(pods.rows[0].cells[2], "Running");
    assert_eq!(pods.rows[0].labels["app"], "web");

    let mut maps = ListQuery::of("cm").within(here);
    maps.limit = Some(3);
    let maps = table(connection, &maps, soon()).await.unwrap();
    assert_eq!((maps.rows.len(), maps.remaining), (3, Some(4)));
    assert!(maps.continue_token.is_some());
}

async fn one_object(connection: &Connection, namespace: &str) {
    let map = get(connection, "ConfigMap", Some(namespace), "map-1", soon()).await.unwrap();
    let shown = yaml(&map, false).unwrap();
    println!("{shown}");
    assert!(shown.starts_with("apiVersion: v1\ndata:\n"), "{shown}");
    assert!(!shown.contains("managedFields"));
    assert!(yaml(&map, true).unwrap().contains("managedFields"));
    let read: Value = serde_saphyr::from_str(&shown).unwrap();
    assert_eq!(read["data"], json!({ "text": "two\nlines\n", "yes": "no", "number": "1.0" }));

    let missing = get(connection, "cm", Some(namespace), "absent", soon()).await.unwrap_err();
    assert!(matches!(&missing, Error::Refused { status, .. } if status.code == 404), "{missing}");
    let nowhere = get(connection, "cm", None, "map-1", soon()).await.unwrap_err();
    assert_eq!(nowhere.to_string(), "configmaps are in namespaces: say in which");
    get(connection, "ns", Some("any"), namespace, soon()).await.unwrap();
    let refused = get(connection, "cm", Some(namespace), "a/../b", soon()).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
}

async fn relations(connection: &Connection, here: Option<&str>) {
    let pod = describe(connection, "pod", here, "web-1-x", soon()).await.unwrap();
    let reasons: Vec<_> = pod.events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["Started", "Pulled"]);
    let owners: Vec<_> = pod.tree.owners.iter().map(|owner| owner.name.as_str()).collect();
    assert_eq!(owners, ["web-1", "web"]);
    assert_eq!((pod.state.as_str(), pod.incomplete.len()), ("Running", 0));
    assert_eq!(events(connection, About::All, soon()).await.unwrap().items.len(), 2);

    let deployment = describe(connection, "deploy", here, "web", soon()).await.unwrap();
    let set = &deployment.tree.owned[0];
    assert_eq!(
        (set.node.kind.as_str(), set.owned[0].node.state.as_str()),
        ("ReplicaSet", "Running")
    );
    assert!(deployment.events.is_empty() && deployment.incomplete.is_empty());
}

fn tables_of_all(
    chosen: Vec<ClusterTarget>,
    query: &ListQuery,
    deadline: Deadline,
) -> impl Stream<Item = Reply<Table>> {
    fan(chosen, deadline, move |connection, deadline| async move {
        table(&connection, query, deadline).await
    })
}

fn lists_of_all(
    chosen: Vec<ClusterTarget>,
    query: &ListQuery,
    deadline: Deadline,
) -> impl Stream<Item = Reply<Page<DynamicObject>>> {
    fan(chosen, deadline, move |connection, deadline| async move {
        list(&connection, query, deadline).await
    })
}

async fn across_clusters(server: &KubeServer, namespace: &str) {
    let (alive, dead) = (Proxy::start(server.address()), Proxy::start(server.address()));
    let connect = async |name: &str, proxy: &Proxy| -> ClusterTarget {
        let client = server.through(proxy).client().await;
        (name.to_owned(), Ok(Connection::new(name, client)))
    };
    let refused = Error::NoSuchCluster { cluster: "gone".to_owned() };
    let chosen = vec![
        connect("alive", &alive).await,
        connect("dead", &dead).await,
        ("straight".to_owned(), Ok(Connection::new("straight", server.client().await))),
        ("gone".to_owned(), Err(refused)),
    ];
    dead.inject(Fault::BlackHole);

    let began = Instant::now();
    let deadline = Deadline::after(Duration::from_secs(10));
    let query = ListQuery::of("configmaps").within(Some(namespace));
    let (mut merged, mut arrived) = (Merged::default(), Vec::new());
    let mut replies = std::pin::pin!(tables_of_all(chosen.clone(), &query, deadline));
    while let Some(reply) = replies.next().await {
        arrived.push((reply.cluster.clone(), began.elapsed()));
        merged.add(reply);
    }
    merged.sort();
    println!("{arrived:?}");
    assert_eq!(merged.rows.len(), 14);
    assert_eq!(
        (merged.rows[0].cluster.as_str(), merged.rows[13].cluster.as_str()),
        ("alive", "straight")
    );
    let missing: Vec<_> = merged.missing.iter().map(|missing| missing.cluster.as_str()).collect();
    assert_eq!(missing, ["dead", "gone"]);
    assert!(matches!(*merged.missing[0].error, Error::TooLate { .. }));
    assert_eq!(arrived.last().unwrap().0, "dead");

    let deadline = Deadline::after(Duration::from_secs(5));
    let lists: Vec<_> = lists_of_all(chosen.clone(), &query, deadline).collect().await;
    let (listed, missing): (Vec<_>, Vec<_>) =
        lists.into_iter().map(Reply::into_result).partition(Result::is_ok);
    let items: usize = listed.into_iter().flatten().map(|(_, page)| page.items.len()).sum();
    assert_eq!((items, missing.len()), (14, 2));

    // Nothing of the secret kind, and in one cluster nothing at all of this namespace.
    let allowed = |cluster: &str, namespace_of: Option<&str>, resource: &ApiResource| {
        resource.kind != "ConfigMap" && (cluster != "straight" || namespace_of != Some(namespace))
    };
    let deadline = Deadline::after(Duration::from_secs(10));
    let query = SearchQuery { text: "WEB".to_owned(), ..SearchQuery::default() };
    let found = search(chosen.clone(), &query, allowed, deadline).await.unwrap();
    let hits: Vec<_> = found
        .hits
        .iter()
        .map(|hit| format!("{}/{}/{}", hit.cluster, hit.resource, hit.name))
        .collect();
    assert_eq!(hits, ["alive/deployments/web", "alive/pods/web-1-x"]);
    assert_eq!(found.missing.len(), 2);
    assert!(found.incomplete.is_empty(), "{:?}", found.incomplete);

    // What one may not see takes no room: seven maps match, none may be seen, one pod remains.
    let query =
        SearchQuery { text: "a".to_owned(), limit: 1, kinds: vec!["cm".to_owned()], ..query };
    let found =
        search(chosen, &query, allowed, Deadline::after(Duration::from_secs(5))).await.unwrap();
    assert!(found.hits.is_empty() && found.truncated.is_empty());

    // Every cluster has one Service from the beginning, with an address of its own.
    let services = Api::<Service>::namespaced(server.client().await, "default");
    let address = services.get("kubernetes").await.unwrap().spec.unwrap().cluster_ip.unwrap();
    let query = SearchQuery { text: address.clone(), ..SearchQuery::default() };
    let straight = Connection::new("straight", server.client().await);
    let chosen = [("straight".to_owned(), Ok(straight))];
    let found = search(chosen, &query, |_, _, _| true, soon()).await.unwrap();
    let [hit] = &found.hits[..] else { panic!("{found:?}") };
    assert_eq!((hit.kind.as_str(), hit.name.as_str()), ("Service", "kubernetes"));
    assert_eq!(hit.matched.value, address);
    assert!(found.incomplete.is_empty(), "{:?}", found.incomplete);
}

/// Compiles only if what an edge awaits may move between threads.
#[tokio::test]
async fn everything_may_be_awaited_on_any_thread() {
    fn may_move<T: Send>(_: &T) {}
    let connection = Connection::new("nobody", scripted::client(|_| Response::Hang));
    let (query, deadline) = (ListQuery::of("pods"), soon());
    let chosen: Vec<ClusterTarget> = Vec::new();
    let object = DynamicObject { types: None, metadata: Default::default(), data: Value::Null };
    let again = connection.clone();
    may_move(&list(&connection, &query, deadline));
    may_move(&table(&connection, &query, deadline));
    may_move(&get(&connection, "pods", None, "x", deadline));
    may_move(&describe(&connection, "pods", None, "x", deadline));
    may_move(&events(&connection, About::Object(&object), deadline));
    may_move(&tree(&connection, &object, deadline));
    may_move(&connection.kinds(deadline));
    may_move(&watch(move || Ok(again.clone()), query.clone(), deadline));
    may_move(&tables_of_all(chosen.clone(), &query, deadline));
    may_move(&lists_of_all(chosen.clone(), &query, deadline));
    may_move(&search(chosen, &SearchQuery::default(), |_, _, _| true, deadline));
}

#[test]
fn a_name_is_one_segment_of_a_path() {
    for name in ["web-0", "system:node:a.b", "a_b~c", "v1.apps", "x=y,z"] {
        assert!(check_segment("pod", name).is_ok(), "{name}");
    }
    for name in
        ["", ".", "..", "a/b", "../secrets", "a%2fb", "a?b", "a#b", "a b", "ü", "a\\b", "\n"]
    {
        assert!(matches!(check_segment("pod", name), Err(Error::Invalid(_))), "{name:?}");
    }
}
