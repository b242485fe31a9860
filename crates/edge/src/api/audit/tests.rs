use http::{HeaderValue, Method};
use serde_json::json;

use super::*;
use crate::api::tests::test_api::TestApi;

/// An entry of the replica `of`, written at this second.
fn entry(of: &str, second: i64) -> AuditEntry {
    serde_json::from_value(json!({
        "id": format!("{of}-{second}"), "at": Timestamp::from_second(second).unwrap(),
        "user": "ann", "via": "local", "verb": "create", "cluster": "-", "resource": "users",
        "dryRun": false, "outcome": "ok",
    }))
    .unwrap()
}

fn page(of: &str, seconds: &[i64], complete: bool) -> AuditPage {
    let entries = seconds.iter().map(|second| entry(of, *second)).collect();
    AuditPage { entries, complete, missing: Vec::new() }
}

fn told(pages: Vec<(&str, AuditPage)>) -> ReplicaParts<AuditPage> {
    let told = pages.into_iter().map(|(name, page)| (name.to_owned(), page)).collect();
    ReplicaParts { told, missing: Vec::new() }
}

fn ids(page: &AuditPage) -> Vec<&str> {
    page.entries.iter().map(|entry| entry.id.as_str()).collect()
}

#[test]
fn pages_of_all_replicas_are_one_by_time_and_bounded() {
    let others = || told(vec![("b", page("b", &[8, 5], true)), ("c", page("c", &[], true))]);
    let whole = AuditPage::merged(page("a", &[9, 5, 2], true), others(), 10);
    // Two of the same time stand in the order of their ids, whoever puts them together.
    assert_eq!(ids(&whole), ["a-9", "b-8", "b-5", "a-5", "a-2"]);
    assert!(whole.complete && whole.missing.is_empty());
    let newest = AuditPage::merged(page("a", &[9, 5, 2], true), others(), 2);
    assert_eq!((ids(&newest), newest.complete), (vec!["a-9", "b-8"], false));
    let exactly = AuditPage::merged(page("a", &[9, 5, 2], true), others(), 5);
    assert!(exactly.complete);
    let twice =
        AuditPage::merged(page("a", &[9], true), told(vec![("b", page("a", &[9], true))]), 5);
    assert_eq!(ids(&twice), ["a-9"]);
}

#[test]
fn a_replica_that_has_not_read_all_in_time_is_named() {
    let others = told(vec![("b", page("b", &[8], false)), ("c", page("c", &[7, 6], false))]);
    let whole = AuditPage::merged(page("a", &[9], true), others, 2);
    assert!(!whole.complete);
    let missing: Vec<_> = whole.missing.iter().map(|it| it.replica.as_str()).collect();
    // The other has as many as were asked for.
    assert_eq!(missing, ["b"]);
}

#[test]
fn an_operation_is_placed_by_when_it_ended() {
    let mut long = entry("a", 1);
    long.took_ms = Some(9_500);
    let own = AuditPage { entries: vec![long], complete: true, missing: Vec::new() };
    let whole = AuditPage::merged(own, told(vec![("b", page("b", &[11, 10], true))]), 5);
    assert_eq!(ids(&whole), ["b-11", "a-1", "b-10"]);
}

#[tokio::test]
async fn one_entry_and_what_is_older_than_it_are_found() {
    let world = TestApi::new().ready().await;
    for name in ["ann", "bob", "eve"] {
        let user = json!({"name": name, "password": "a few words will do"});
        assert_eq!(world.ask(Method::POST, "/users", user).await.status, 201);
    }
    let all = world.ask(Method::GET, "/audit", Value::Null).await.json();
    let names = |page: &Value| -> Vec<String> {
        let entries: Vec<AuditEntry> = serde_json::from_value(page["entries"].clone()).unwrap();
        entries.into_iter().map(|entry| entry.id).collect()
    };
    let all = names(&all);
    assert_eq!(all.len(), 3);
    let ask = async |query: String| {
        names(&world.ask(Method::GET, &format!("/audit?{query}"), Value::Null).await.json())
    };
    assert_eq!(ask(format!("id={}", all[1])).await, all[1..2]);
    assert_eq!(ask(format!("olderThan={}", all[0])).await, all[1..]);
    assert_eq!(ask("olderThan=none@2000-01-01T00:00:00Z".to_owned()).await, all[3..]);
    assert_eq!(ask("olderThan=none@2100-01-01T00:00:00Z".to_owned()).await, all[..]);
    let odd = world.ask(Method::GET, "/audit?olderThan=none@noon", Value::Null).await;
    assert_eq!((odd.status, odd.code().as_str()), (400, "invalid"));
}

#[tokio::test]
async fn a_pass_that_no_replica_made_counts_for_nothing() {
    let world = TestApi::new().ready().await;
    let mut request =
        crate::api::tests::test_api::request(Method::GET, "/api/v1/audit?limit=1", Value::Null);
    request.headers_mut().insert("fairlead-pass", HeaderValue::from_static("1.seal.local"));
    assert_eq!(world.send(request).await.status, 401);
}
