use access::{AuthMethod, Identity};
use http::Method;
use objects::Leadership;
use serde_json::{Value, json};
use stallproof::Snapshot;

use super::*;
use crate::api::LeaderRoute;
use crate::api::tests::test_api::TestApi;
use crate::api::trail::Trail;

fn pod(name: &str, phase: &str, addresses: &[&str]) -> Pod {
    let all: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "status": {"phase": phase, "podIP": addresses.first(), "podIPs": all},
    }))
    .unwrap()
}

/// Of an API server that nobody answers for.
fn replicas(here: &str) -> Replicas {
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    Replicas { client, namespace: "fairlead".to_owned(), here: here.parse().unwrap() }
}

#[tokio::test]
async fn the_others_are_the_pods_that_run_elsewhere() {
    let other = |here: &str, pod| replicas(here).other(&pod).map(|it| it.address.to_string());
    let two = || pod("a", "Running", &["10.0.0.1", "fd00::1"]);
    assert_eq!(other("10.0.0.2", two()).as_deref(), Some("10.0.0.1"));
    assert_eq!(other("10.0.0.1", two()), None);
    // The address that it was told may be the second of its own.
    assert_eq!(other("fd00::1", two()), None);
    for phase in ["Succeeded", "Failed"] {
        assert_eq!(other("10.0.0.2", pod("a", phase, &["10.0.0.1"])), None, "{phase}");
    }
    assert_eq!(other("10.0.0.2", pod("a", "Pending", &[])), None);
    assert_eq!(other("10.0.0.2", Pod::default()), None);
}

#[tokio::test]
async fn others_that_are_not_known_cost_their_part_and_are_told() {
    let mut world = TestApi::new().ready().await;
    world.api.replicas = Some(replicas("10.0.0.1"));
    world.router = crate::api::router(&world.api, true);
    for (path, list) in [("/audit", "entries"), ("/admission/audit", "lines")] {
        let answer = world.ask(Method::GET, path, Value::Null).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let answer = answer.json();
        assert_eq!(answer[list], json!([]), "{answer}");
        assert_eq!(answer["missing"][0]["replica"], "-", "{answer}");
        let why = answer["missing"][0]["why"].as_str().unwrap();
        assert!(why.starts_with("the other replicas are not known: "), "{why}");
    }
    let mut heard = world.hear(&world.local, Method::GET, "/admission/audit", Value::Null).await;
    let (_, first) = heard.next().await.unwrap();
    assert_eq!(first["missing"][0]["replica"], "-", "{first}");
}

#[tokio::test]
async fn a_replica_without_certificates_of_our_own_says_why_it_asks_nobody() {
    let mut world = TestApi::new().ready().await;
    let leadership = Snapshot::new(Leadership::Unknown);
    world.api.leader = Some(LeaderRoute { leadership, reach: None });
    let who = Identity { user: access::LOCAL.into(), via: AuthMethod::Local };
    let permissions = world.api.access.permissions(&who);
    let deadline = Deadline::after(Duration::from_secs(30));
    let caller = Caller { who, permissions, deadline, trail: Trail::default() };
    let other = Replica { name: "b".to_owned(), address: IpAddr::from([10, 0, 0, 2]) };
    let question = ReplicaQuery { path: "/audit", query: vec![("limit", "1".to_owned())] };
    let asked = other.ask::<Value>(&world.api, &caller, &question, deadline).await;
    assert!(asked.unwrap_err().contains("`api.tls: auto`"));
}

#[test]
fn a_question_is_written_as_a_query() {
    let query =
        vec![("user", "ann & bob".to_owned()), ("since", "2026-01-01T00:00:00Z".to_owned())];
    let question = ReplicaQuery { path: "/audit", query };
    let written = question.uri().unwrap().to_string();
    assert_eq!(written, "/audit?user=ann+%26+bob&since=2026-01-01T00%3A00%3A00Z");
}
