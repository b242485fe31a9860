use std::time::Duration;

use ::traffic::conversations::{LocalWorkload, Moment, Protocol, Record, Report, Totals};
use ::traffic::ingest::{Ingest, NOT_ENFORCED, ReportSink};
use http::Method;
use serde_json::{Value, json};
use stallproof::{Deadline, Ledger};

use crate::api::tests::test_api::TestApi;

const PATIENCE: Duration = Duration::from_secs(60);

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

async fn ingest(world: &TestApi) -> Ingest {
    let patience = soon();
    loop {
        if let Some(ingest) = world.api.traffic.as_ref().unwrap().active.ingest() {
            return ingest;
        }
        assert!(!patience.has_passed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn record(client: [u8; 4], server: [u8; 4], port: u16, bytes: u64) -> Record {
    Record {
        client: client.into(),
        server: server.into(),
        port,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes, packets: 1, sessions: 1 },
        first: Moment(1000),
        last: Moment::now(),
    }
}

const WEB: [u8; 4] = [10, 0, 0, 1];
const DB: [u8; 4] = [10, 0, 0, 2];
const OUTSIDE: [u8; 4] = [192, 0, 2, 7];

/// Two workloads of one node.
fn settle(ingest: &Ingest) {
    let workload = |name: &str, address: [u8; 4]| LocalWorkload {
        namespace: "shop".into(),
        name: name.into(),
        addresses: vec![address.into()],
        from: Moment(0),
    };
    ingest.set_workloads("n", &[workload("web", WEB), workload("db", DB)]);
}

/// Reports traffic that grows, until the answer is as it should be.
async fn until(
    world: &TestApi,
    path: &str,
    seen: impl Fn(u64) -> Vec<Record>,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let (ingest, patience) = (ingest(world).await, soon());
    // Later ones of the same test go on.
    let mut sequence = Moment::now().0;
    loop {
        sequence += 1;
        let records = seen(sequence);
        let agent = "n".into();
        let report = Report { agent, incarnation: 1, sequence, records, ..Report::default() };
        let op = Ledger::default().begin("report", "n", "n");
        ingest.offer(&report, |_| true, soon(), &op).await.unwrap();
        let answer = world.ask(Method::GET, path, Value::Null).await;
        if answer.status == 200 && wanted(&answer.json()) {
            return answer.json();
        }
        assert!(!patience.has_passed(), "{path}: {}", answer.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn len(answer: &Value, list: &str) -> usize {
    answer[list].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn conversations_are_listed_filtered_paged_and_drawn() {
    let world = TestApi::new().ready().await;
    settle(&ingest(&world).await);
    let seen = |n: u64| vec![record(WEB, DB, 5432, n), record(OUTSIDE, WEB, 443, 7)];
    let all = until(&world, "/guard/conversations", seen, |it| len(it, "conversations") == 2).await;
    assert_eq!(all["matched"], 2);
    let line = &all["conversations"].as_array().unwrap().iter().find(|it| it["port"] == 443);
    let line = line.unwrap();
    assert_eq!(
        (&line["client"]["kind"], &line["client"]["address"]),
        (&json!("external"), &json!("192.0.2.7"))
    );
    assert_eq!(
        (&line["server"]["name"], &line["server"]["owner"], &line["server"]["node"]),
        (&json!("shop/web"), &json!("Pod/web"), &json!("n"))
    );
    assert_eq!((&line["protocol"], &line["bytes"]), (&json!("tcp"), &json!(7)));

    let ask = |path: &'static str| world.ask(Method::GET, path, Value::Null);
    let count = |answer: &Value| len(answer, "conversations");
    for (query, expected) in [
        ("external=true", 1),
        ("namespace=shop", 2),
        ("namespace=other", 0),
        ("group=shop%2FPod%2Fdb", 1),
        ("group=external", 1),
        ("port=5432", 1),
        ("verdict=violates", 0),
        ("since=2999-01-01T00:00:00Z", 0),
    ] {
        let path = format!("/guard/conversations?{query}");
        let answer = world.ask(Method::GET, &path, Value::Null).await;
        assert_eq!(count(&answer.json()), expected, "{query}: {}", answer.text);
    }
    let page = ask("/guard/conversations?limit=1").await.json();
    assert_eq!((count(&page), &page["matched"]), (1, &json!(2)));
    let encoded: String =
        form_urlencoded::byte_serialize(page["continue"].as_str().unwrap().as_bytes()).collect();
    let path = format!("/guard/conversations?limit=1&continue={encoded}");
    let next = world.ask(Method::GET, &path, Value::Null).await.json();
    assert!(count(&next) == 1 && next["continue"].is_null(), "{next}");
    assert_ne!(next["conversations"][0]["port"], page["conversations"][0]["port"]);
    for wrong in ["group=No+Such", "verdict=fine", "continue=there", "port=http", "odd=1"] {
        let path = format!("/guard/conversations?{wrong}");
        assert_eq!(world.ask(Method::GET, &path, Value::Null).await.code(), "invalid", "{wrong}");
    }

    for (level, nodes) in [("workload", 3), ("group", 3), ("namespace", 2)] {
        let path = format!("/guard/graph?level={level}");
        let graph = world.ask(Method::GET, &path, Value::Null).await.json();
        assert_eq!((len(&graph, "nodes"), len(&graph, "edges")), (nodes, 2), "{graph}");
    }

    let token = world.somebody("bob", &[["prod", "*", "*", "*"]]).await;
    for path in [
        "/guard/conversations",
        "/guard/graph",
        "/guard/groups",
        "/guard/rules",
        "/guard/violations",
    ] {
        let answer = world.ask_as(&token, Method::GET, path, Value::Null).await;
        assert_eq!(answer.code(), "forbidden", "{path}");
    }
}

#[tokio::test]
async fn rules_are_learned_promoted_exported_and_deleted() {
    let world = TestApi::new().ready().await;
    settle(&ingest(&world).await);
    let seen = |n: u64| vec![record(WEB, DB, 5432, n)];
    let rules = until(&world, "/guard/rules", seen, |it| len(it, "rules") == 1).await;
    assert_eq!(rules["enforcement"], NOT_ENFORCED);
    let learned = rules["rules"][0].clone();
    assert_eq!((&learned["origin"], &learned["ports"]), (&json!("learned"), &json!(["tcp/5432"])));
    let name = learned["name"].as_str().unwrap();

    let promote = |body| world.ask(Method::POST, "/guard/rules/promote", body);
    assert_eq!(promote(json!({})).await.code(), "invalid");
    assert_eq!(promote(json!({"names": ["none"]})).await.code(), "not-found");
    let promoted = promote(json!({"names": [name]})).await.json();
    assert_eq!(promoted["promoted"], json!([name]));
    let written = |it: &Value| len(it, "rules") == 1 && it["rules"][0]["origin"] == "written";
    let rules = until(&world, "/guard/rules", |_| Vec::new(), written).await;
    assert_eq!(rules["rules"][0]["name"], name);

    // A pod by itself has no labels to select it by.
    let exported = world.ask(Method::GET, "/guard/rules/export", Value::Null).await.json();
    assert_eq!((len(&exported, "policies"), len(&exported, "notes")), (0, 1), "{exported}");

    let path = format!("/guard/rules/{name}");
    let wrong = json!({"spec": {"from": "Not A Group", "to": "any", "action": "deny"}});
    assert_eq!(world.ask(Method::PUT, &path, wrong).await.code(), "invalid");
    let deny = json!({"spec": {"from": "office", "to": "any", "action": "deny"}});
    assert_eq!(world.ask(Method::PUT, &path, deny).await.status, 204);
    let denies = |it: &Value| it["rules"][0]["action"] == "deny";
    let rules = until(&world, "/guard/rules", |_| Vec::new(), denies).await;
    assert_eq!(rules["rules"][0]["why"], "there is no group \"office\"");
    assert_eq!(world.ask(Method::DELETE, &path, Value::Null).await.status, 204);
    // It is seen still, so it is learned again; and may be let go.
    let learned = |it: &Value| len(it, "rules") == 1 && it["rules"][0]["origin"] == "learned";
    let again = |n: u64| vec![record(WEB, DB, 5433, n)];
    until(&world, "/guard/rules", again, learned).await;
    assert_eq!(world.ask(Method::DELETE, &path, Value::Null).await.status, 204);
    assert_eq!(
        world.ask(Method::DELETE, "/guard/rules/none", Value::Null).await.code(),
        "not-found"
    );
}

#[tokio::test]
async fn groups_show_who_is_in_them_and_that_protect_is_not_enforced() {
    let world = TestApi::new().ready().await;
    settle(&ingest(&world).await);
    let spec = json!({"spec": {"mode": "protect", "comment": "the shop",
        "criteria": [{"key": "namespace", "op": "=", "value": "shop"}]}});
    assert_eq!(world.ask(Method::PUT, "/guard/groups/shop", spec).await.status, 204);
    let bad = json!({"spec": {"criteria": []}});
    assert_eq!(world.ask(Method::PUT, "/guard/groups/bad", bad).await.code(), "invalid");
    let made = |it: &Value| it["groups"][0]["members"] == 2;
    let groups = until(&world, "/guard/groups", |_| Vec::new(), made).await;
    assert_eq!(groups["enforcement"], NOT_ENFORCED);
    let names: Vec<_> =
        groups["groups"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["shop", "shop/Pod/db", "shop/Pod/web"]);
    assert_eq!(groups["groups"][1]["mode"], "protect", "by the group that it is in");

    let shown = world.ask(Method::GET, "/guard/groups/shop", Value::Null).await.json();
    assert_eq!((len(&shown, "workloads"), &shown["criteria"]), (2, &json!(["namespace = shop"])));
    assert_eq!(shown["enforcement"], NOT_ENFORCED);
    let shown = world.ask(Method::GET, "/guard/groups/shop%2FPod%2Fweb", Value::Null).await.json();
    assert_eq!((len(&shown, "workloads"), &shown["origin"]), (1, &json!("learned")));
    let none = world.ask(Method::GET, "/guard/groups/none", Value::Null).await;
    assert_eq!(none.code(), "not-found");
    assert_eq!(world.ask(Method::DELETE, "/guard/groups/shop", Value::Null).await.status, 204);
    until(&world, "/guard/groups", |_| Vec::new(), |it| len(it, "groups") == 2).await;
}

#[tokio::test]
async fn violations_are_told_as_they_come_and_from_where_one_left() {
    let world = TestApi::new().ready().await;
    let counting = ingest(&world).await;
    settle(&counting);
    let spec = json!({"spec": {"mode": "protect",
        "criteria": [{"key": "namespace", "op": "=", "value": "shop"}]}});
    assert_eq!(world.ask(Method::PUT, "/guard/groups/shop", spec).await.status, 204);
    // What comes before the group is known would be learned.
    let patience = soon();
    while !counting.agent_policy().load().groups.contains_key("shop") {
        assert!(!patience.has_passed(), "{:?}", counting.agent_policy());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut heard = world.hear(&world.local, Method::GET, "/guard/violations", Value::Null).await;
    let (name, first) = heard.next().await.unwrap();
    assert_eq!((name.as_str(), len(&first, "violations")), ("violations", 0), "at once");
    let seen = |n: u64| vec![record(OUTSIDE, WEB, 22, n)];
    let all = until(&world, "/guard/violations", seen, |it| len(it, "violations") == 1).await;
    let line = &all["violations"][0];
    assert_eq!((&line["enforced"], &line["port"]), (&json!(false), &json!(22)));
    assert!(line["rule"].is_null() && all["enforcement"] == NOT_ENFORCED);
    let (_, told) = heard.next().await.unwrap();
    assert_eq!(told["violations"][0]["port"], 22);
    let none = world.ask(Method::GET, "/guard/violations?namespace=other", Value::Null).await;
    assert_eq!(len(&none.json(), "violations"), 0);

    // Whoever comes back hears what changed since, and nothing twice.
    let change = world.ask(Method::GET, "/guard/violations", Value::Null).await.json()["change"]
        .as_u64()
        .unwrap();
    let path = format!("/guard/violations?after={change}");
    let mut again = world.hear(&world.local, Method::GET, &path, Value::Null).await;
    let (_, first) = again.next().await.unwrap();
    assert_eq!(len(&first, "violations"), 0);
    let more = |n: u64| vec![record(OUTSIDE, WEB, 23, n)];
    let two = |it: &Value| len(it, "violations") == 2;
    until(&world, "/guard/violations", more, two).await;
    let (_, told) = again.next().await.unwrap();
    let ports: Vec<_> =
        told["violations"].as_array().unwrap().iter().map(|it| it["port"].clone()).collect();
    assert_eq!(ports, [23]);
}

#[tokio::test]
async fn who_does_not_lead_says_so() {
    let mut world = TestApi::new().ready().await;
    let active = ::traffic::ingest::ActiveIngest::default();
    let guard = world.api.traffic.clone().unwrap();
    world.api.traffic = Some(super::Traffic { active, ..guard });
    world.router = crate::api::router(&world.api, true);
    let answer = world.ask(Method::GET, "/guard/conversations", Value::Null).await;
    assert_eq!((answer.code().as_str(), answer.status), ("not-ready", 503));
    assert!(answer.text.contains("conversations are with the replica that leads"));
    // What is written is in the store, wherever one asks.
    let spec = json!({"spec": {"from": "any", "to": "any", "action": "allow"}});
    assert_eq!(world.ask(Method::PUT, "/guard/rules/all", spec).await.status, 204);
}

#[tokio::test]
async fn what_was_said_is_found_again_and_exported() {
    let world = TestApi::new().ready().await;
    settle(&ingest(&world).await);
    let path = "/guard/history?from=2020-01-01T00:00:00Z";
    let seen = |n: u64| vec![record(WEB, DB, 5432, n), record(OUTSIDE, WEB, 443, 70)];
    let found = until(&world, path, seen, |it| it["matched"] == 2).await;
    assert_eq!((&found["complete"], found.get("missing")), (&json!(true), None));
    assert!(found["keptSince"].is_string() && found["keptBytes"].as_u64() > Some(0), "{found}");
    let ask =
        async |more: &str| world.ask(Method::GET, &format!("{path}&{more}"), Value::Null).await;
    let db = ask("end=shop/db").await.json();
    let line = &db["conversations"][0];
    assert_eq!((&line["port"], &line["application"]), (&json!(5432), &json!("postgresql")));
    assert_eq!(
        (&line["applicationBy"], &line["client"]["name"]),
        (&json!("port"), &json!("shop/web"))
    );
    assert_eq!(ask("end=192.0.2.0/24").await.json()["matched"], 1);
    assert_eq!(ask("port=1").await.json()["matched"], 0);
    assert_eq!(ask("until=2020-01-02T00:00:00Z").await.json()["matched"], 0);
    assert_eq!(ask("limit=1").await.json()["conversations"].as_array().unwrap().len(), 1);
    for wrong in ["until=2019-01-01T00:00:00Z", "verdict=maybe", "group=No%20Such", "x=y"] {
        assert_eq!(ask(wrong).await.status, 400, "{wrong}");
    }

    // Line by line, and as a collector reads it.
    let lines = async |format: &str| {
        let path = format!("/guard/history/export?format={format}");
        let answer = world.ask(Method::GET, &path, Value::Null).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        answer.text.lines().map(parse).collect::<Vec<_>>()
    };
    let plain = lines("jsonl").await;
    assert!(
        plain.len() >= 2 && plain.iter().all(|it| it["client"]["kind"].is_string()),
        "{plain:?}"
    );
    let mut records = Vec::new();
    for request in lines("otlp").await {
        let logs = &request["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
        records.extend(logs.as_array().unwrap().clone());
    }
    assert!(records.len() >= plain.len(), "each line is a record");
    let body = |it: &Value| it["body"]["stringValue"].as_str().unwrap_or_default().to_owned();
    assert!(
        records.iter().any(|it| body(it) == "shop/web talked to shop/db (tcp/5432)"),
        "{records:?}"
    );

    // Who may not list conversations hears nothing of the past either.
    let token = world.somebody("ann", &[["-", "*", "agents.fairlead.dev", "list"]]).await;
    let refused = world.ask_as(&token, Method::GET, path, Value::Null).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
}

#[tokio::test]
async fn rules_that_are_not_written_are_compared_with_those_in_force() {
    let world = TestApi::new().ready().await;
    settle(&ingest(&world).await);
    let seen = |n: u64| vec![record(WEB, DB, 5432, n), record(OUTSIDE, WEB, 443, 70)];
    until(&world, "/guard/conversations", seen, |it| it["matched"] == 2).await;
    let denies = json!({"from": "external", "to": "any", "action": "deny"});
    let proposed = json!({"rules": [{"name": "no", "spec": denies}]});
    let answer = world.ask(Method::POST, "/guard/rules/compare", proposed).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = answer.json();
    assert_eq!((&answer["compared"], len(&answer, "differences")), (&json!(2), 1), "{answer}");
    let line = &answer["differences"][0];
    assert_eq!((&line["port"], &line["proposed"]), (&json!(443), &json!("violates")));
    assert_eq!(line["proposedRule"], "no");
    let written = world.ask(Method::GET, "/guard/rules", Value::Null).await.json();
    let names = written["rules"].as_array().unwrap().iter().any(|it| it["name"] == "no");
    assert!(!names, "nothing is written: {written}");
    let wrong = json!({"rules": [{"name": "no", "spec": {"from": "No Such", "to": "any", "action": "deny"}}]});
    assert_eq!(world.ask(Method::POST, "/guard/rules/compare", wrong).await.status, 400);
}
