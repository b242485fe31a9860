use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::api::tests::test_api::TestApi;

fn review(owner: &str, image: &str) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "u", "operation": "CREATE", "kind": {"group": "", "kind": "Pod"},
        "namespace": "shop", "userInfo": {"username": "alice"},
        "object": {"metadata": {"name": owner},
                   "spec": {"containers": [{"name": "c", "image": image}]}},
    }})
    .to_string()
}

async fn rule(world: &TestApi, name: &str, spec: Value) {
    let rule: objects::kinds::AdmissionRule = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
        "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap();
    let soon = stallproof::Deadline::after(Duration::from_secs(30));
    world.objects.create(&rule, soon).await.unwrap();
}

/// Asks until the answer is as it should be.
async fn until(world: &TestApi, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let patience = stallproof::Deadline::after(Duration::from_secs(30));
    loop {
        let answer = world.ask(Method::GET, path, Value::Null).await;
        if answer.status == 200 && wanted(&answer.json()) {
            return answer.json();
        }
        assert!(!patience.has_passed(), "{path}: {}", answer.text);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn rules_and_decisions_are_shown_to_who_may_see_them() {
    let world = TestApi::new().ready().await;
    let criteria = json!([{"name": "image", "op": "containsAny", "value": "evil/*"}]);
    rule(&world, "no-miners", json!({"action": "deny", "mode": "protect", "criteria": criteria}))
        .await;
    let rules = until(&world, "/admission/rules", |answer| {
        answer["rules"].as_array().is_some_and(|rules| rules.len() == 1)
    })
    .await;
    let shown = &rules["rules"][0];
    assert_eq!(
        (&shown["action"], &shown["mode"], &shown["state"]),
        (&json!("deny"), &json!("protect"), &json!("active"))
    );
    assert_eq!(shown["criteria"], json!(["image containsAny evil/*"]));

    let admission = world.api.admission.clone().unwrap();
    for image in ["evil/miner", "evil/miner", "web/cart"] {
        let body = review("p", image);
        admission.review(admission::LOCAL_CLUSTER, body.as_bytes()).unwrap();
    }
    let audit =
        until(&world, "/admission/audit?outcome=denied", |answer| answer["lines"][0]["count"] == 2)
            .await;
    let line = &audit["lines"][0];
    assert_eq!((&line["owner"], &line["rule"]), (&json!("Pod/p"), &json!("no-miners")));
    assert_eq!((&audit["dropped"], &audit["forgotten"]), (&json!(0), &json!(0)));
    let none = world.ask(Method::GET, "/admission/audit?rule=other", Value::Null).await.json();
    assert_eq!(none["lines"], json!([]));
    let odd = world.ask(Method::GET, "/admission/audit?outcome=odd", Value::Null).await;
    assert_eq!(odd.status, 400, "{}", odd.text);

    let token = world.somebody("bob", &[["prod", "*", "*", "*"]]).await;
    for path in ["/admission/rules", "/admission/audit"] {
        let answer = world.ask_as(&token, Method::GET, path, Value::Null).await;
        assert_eq!(answer.code(), "forbidden", "{path}");
    }
}

#[tokio::test]
async fn a_stream_tells_what_there_is_and_then_what_changes() {
    let world = TestApi::new().ready().await;
    let admission = world.api.admission.clone().unwrap();
    let decide = |owner: &str| {
        let body = review(owner, "web/cart");
        admission.review(admission::LOCAL_CLUSTER, body.as_bytes()).unwrap();
    };
    let path = "/admission/audit";
    let mut stream = world.hear(&world.local, Method::GET, path, Value::Null).await;
    let first = stream.next().await.unwrap();
    assert_eq!((&*first.0, &first.1["lines"]), ("audit", &json!([])), "at once, also of nothing");
    for owner in ["a", "b"] {
        decide(owner);
        let (_, told) = stream.next().await.unwrap();
        let [line] = told["lines"].as_array().unwrap().as_slice() else {
            panic!("new only: {told}")
        };
        assert_eq!(line["owner"], format!("Pod/{owner}"));
    }
}

fn line(owner: &str, count: u64, first: i64, last: i64) -> super::AdmissionLine {
    let time = |second| jiff::Timestamp::from_second(second).unwrap();
    serde_json::from_value(json!({
        "id": 1, "outcome": "denied", "cluster": "local", "namespace": "shop", "owner": owner,
        "image": "i", "rule": "r", "dryRun": false, "count": count, "first": time(first),
        "last": time(last), "object": format!("Pod/{owner}-{last}"), "user": "ann", "why": "so",
    }))
    .unwrap()
}

fn audit(lines: Vec<super::AdmissionLine>) -> super::AdmissionAudit {
    super::AdmissionAudit { lines, forgotten: 1, dropped: 2, not_kept: 3, missing: Vec::new() }
}

#[test]
fn lines_of_several_replicas_count_together() {
    let asked = |limit, since: Option<i64>| super::AuditParams {
        limit,
        outcome: None,
        cluster: None,
        namespace: None,
        rule: None,
        since: since.map(|second| jiff::Timestamp::from_second(second).unwrap()),
    };
    let one = || audit(vec![line("web", 2, 10, 50), line("db", 1, 20, 20)]);
    let two = || audit(vec![line("web", 3, 5, 60), line("cart", 1, 55, 55)]);
    let put = |own: super::AdmissionAudit, other, asked: &super::AuditParams| {
        let told = vec![("other".to_owned(), other)];
        own.together(super::replicas::ReplicaParts { told, missing: Vec::new() }, asked)
    };
    let whole = put(one(), two(), &asked(None, None));
    let shown: Vec<_> = whole.lines.iter().map(|it| (it.owner.as_str(), it.count)).collect();
    assert_eq!(shown, [("web", 5), ("cart", 1), ("db", 1)]);
    assert_eq!((whole.forgotten, whole.dropped), (2, 4));
    let web = &whole.lines[0];
    assert_eq!((web.first.as_second(), web.last.as_second()), (5, 60));
    assert_eq!(web.object, "Pod/web-60");
    // Whichever replica is asked.
    assert_eq!(put(two(), one(), &asked(None, None)).lines, whole.lines);
    let ids: std::collections::HashSet<_> = whole.lines.iter().map(|line| line.id).collect();
    assert_eq!(ids.len(), 3, "each is told apart by its number");
    let more = put(audit(vec![line("web", 4, 10, 60)]), two(), &asked(None, None));
    assert_ne!(more.lines[0].id, web.id, "it changes with every decision");
    let bounded = put(one(), two(), &asked(Some(1), None));
    assert_eq!((bounded.lines.len(), bounded.lines[0].count), (1, 5));
    // What one has decided long ago still counts.
    let recent = put(one(), two(), &asked(None, Some(56)));
    assert_eq!((recent.lines.len(), recent.lines[0].count), (1, 5));
}
