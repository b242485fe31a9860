//! Many clusters, two of them real, one of these dead.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use testkit::{Fault, KubeServer, Proxy, requires};

use super::super::scope::tests::{NAMESPACES_THERE, any_permissions, found};
use super::search::may_find;
use crate::api::tests::test_api::TestApi;

const NOTHING: Value = Value::Null;

proptest::proptest! {
    #[test]
    fn nothing_is_found_in_a_namespace_that_may_not_be_seen(permissions in any_permissions()) {
        for namespace in NAMESPACES_THERE {
            let found = may_find(&permissions, "c", Some(namespace), &found("pods", true).resource);
            proptest::prop_assert!(!found || permissions.may_see_namespace("c", namespace));
        }
    }
}

#[tokio::test]
async fn a_dead_kube_server_costs_its_own_row() {
    requires!(kube);
    let (world, server) = tokio::join!(async { TestApi::new().ready().await }, KubeServer::start());
    let proxy = Proxy::start(server.address());
    world.import("well", server.access().kubeconfig()).await;
    world.import("dead", server.through(&proxy).kubeconfig()).await;
    // What it knows of kinds it keeps: the list itself is what hangs.
    let both = world.ask(Method::GET, "/resources/namespaces", NOTHING).await.json();
    assert_eq!(
        (&both["clusters"][0]["ok"], &both["clusters"][1]["ok"]),
        (&true.into(), &true.into())
    );
    let once = both["items"].as_array().unwrap().len();
    assert_eq!(both["items"][0]["cluster"], "dead");
    proxy.inject(Fault::BlackHole);

    let began = Instant::now();
    let path = "/resources/namespaces?as=table&timeout=3s";
    let mut heard = world.hear(&world.local, Method::GET, path, NOTHING).await;
    assert_eq!(
        heard.next().await.unwrap(),
        ("asked".into(), json!({"clusters": ["dead", "well"]}))
    );
    let (event, first) = heard.next().await.unwrap();
    assert_eq!((&*event, &first["name"], &first["ok"]), ("cluster", &json!("well"), &json!(true)));
    let (event, second) = heard.next().await.unwrap();
    assert_eq!(
        (&*event, &second["name"], &second["ok"]),
        ("cluster", &json!("dead"), &json!(false))
    );
    assert_eq!(second["problem"]["cluster"], "dead");
    let (event, whole) = heard.next().await.unwrap();
    assert_eq!(event, "done");
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(whole["clusters"], json!([second, first]));
    assert_eq!(whole["rows"].as_array().unwrap().len() * 2, once);
    assert_eq!(whole["rows"][0]["cluster"], "well");
    assert!(heard.next().await.is_none());

    // What one found is told before the other is given up.
    let path = "/search?q=default&timeout=3s&kinds=namespaces";
    let mut heard = world.hear(&world.local, Method::GET, path, NOTHING).await;
    assert_eq!(heard.next().await.unwrap().0, "asked");
    let (event, found) = heard.next().await.unwrap();
    assert_eq!((&*event, &found["cluster"]), ("hits", &json!("well")));
    assert_eq!(found["hits"][0]["name"], "default");
    for expected in ["cluster", "cluster", "done"] {
        assert_eq!(heard.next().await.unwrap().0, expected);
    }

    for path in [
        "/search?q=default&timeout=2s&kinds=namespaces",
        "/events?timeout=2s",
        "/resources/ns?limit=1&timeout=2s",
    ] {
        let answer = world.ask(Method::GET, path, NOTHING).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let rows = answer.json()["clusters"].clone();
        assert_eq!(
            (&rows[0]["ok"], &rows[1]["ok"]),
            (&json!(false), &json!(true)),
            "{path}: {rows}"
        );
        if path.contains("limit") {
            assert_eq!(rows[1]["truncated"], true);
        }
        if path.contains("search") {
            assert_eq!(answer.json()["hits"][0]["name"], "default");
        }
    }

    // Who may not see it does not learn that it is there.
    let ann = world.somebody("ann", &[["well", "*", "*", "*"]]).await;
    let ask = async |path: &str| world.ask_as(&ann, Method::GET, path, NOTHING).await.json();
    let all = ask("/resources/namespaces").await;
    assert_eq!(all["clusters"].as_array().unwrap().len(), 1);
    let named = ask("/resources/namespaces?clusters=dead,absent,well").await;
    let row = |name: &str| {
        let rows = named["clusters"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == *name).unwrap();
        row.to_string().replace(name, "NAME")
    };
    assert_eq!(row("dead"), row("absent"));
    assert!(row("dead").contains("no-such-cluster"));
    // Who is deleted hears no more, although the dead one is still being waited for.
    let mut heard =
        world.hear(&ann, Method::GET, "/resources/namespaces?timeout=50s", NOTHING).await;
    assert_eq!(heard.next().await.unwrap().0, "asked");
    assert_eq!(heard.next().await.unwrap().0, "cluster");
    assert_eq!(heard.next().await.unwrap().0, "done");
    let eve = world.somebody("eve", &[["*", "*", "*", "*"]]).await;
    let mut heard =
        world.hear(&eve, Method::GET, "/resources/namespaces?timeout=50s", NOTHING).await;
    assert_eq!(heard.next().await.unwrap().0, "asked");
    let (_, row) = heard.next().await.unwrap();
    assert_eq!(row["name"], "well");
    let began = Instant::now();
    assert_eq!(world.ask(Method::DELETE, "/users/eve", NOTHING).await.status, 204);
    assert_eq!(heard.next().await.unwrap().0, "end");
    assert!(heard.next().await.is_none());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let odd = world.ask(Method::GET, "/search?q=%20", NOTHING).await;
    assert_eq!((odd.status, &*odd.code()), (400, "invalid"));
}
