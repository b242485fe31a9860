use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::api::tests::test_api::TestApi;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn an_export_has_two_lines_of_each_write_the_oldest_first_within_its_time() {
    let world = TestApi::new().ready().await;
    for name in ["ann", "bob"] {
        let user = json!({ "name": name, "roles": ["viewer"], "password": "a few words will do" });
        assert_eq!(world.ask(Method::POST, "/users", user).await.status, 201);
    }
    // Nobody waits for the outcome of a write to be recorded.
    let all = loop {
        let all = world.ask(Method::GET, "/audit/export", Value::Null).await;
        assert_eq!(all.headers["content-type"], "application/x-ndjson");
        let all = lines(&all.text);
        if all.len() >= 4 {
            break all;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let shown: Vec<_> = all.iter().map(|line| (&line["name"], &line["phase"])).collect();
    let expected = ["ann", "ann", "bob", "bob"].map(Value::from);
    let phases = ["begun", "ended", "begun", "ended"].map(Value::from);
    assert_eq!(shown, expected.iter().zip(&phases).collect::<Vec<_>>());
    assert_eq!(all[0]["details"]["roles"], json!(["viewer"]));
    assert!(!serde_json::to_string(&all).unwrap().contains("a few words"));

    let since = all[2]["at"].as_str().unwrap();
    let path = format!("/audit/export?since={since}");
    assert_eq!(lines(&world.ask(Method::GET, &path, Value::Null).await.text).len(), 2);
    let path = format!("/audit/export?until={since}&verb=create");
    assert_eq!(lines(&world.ask(Method::GET, &path, Value::Null).await.text).len(), 2);
    let none = world.ask(Method::GET, "/audit/export?user=nobody", Value::Null).await;
    assert_eq!((none.status, &*none.text), (200, ""));
}

#[tokio::test]
async fn who_may_not_read_the_audit_exports_nothing() {
    let world = TestApi::new().ready().await;
    let token = world.somebody("ann", &[["*", "*", "*", "*"]]).await;
    for path in ["/audit/export", "/audit/recordings", "/audit/recordings/a1"] {
        let answer = world.ask_as(&token, Method::GET, path, Value::Null).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text);
    }
}
