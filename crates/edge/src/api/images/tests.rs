use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::api::tests::test_api::TestApi;

const CART: &str = "harbor.acme.io/web/cart:v2";

fn trivy(at: &str, ids: &[&str]) -> Value {
    let found: Vec<_> = ids
        .iter()
        .map(|id| {
            json!({"VulnerabilityID": id, "PkgName": "openssl", "InstalledVersion": "3.0.1",
                   "FixedVersion": "3.0.2", "Severity": "CRITICAL"})
        })
        .collect();
    json!({"SchemaVersion": 2, "ArtifactName": CART, "CreatedAt": at,
           "Results": [{"Vulnerabilities": found}]})
}

async fn until(world: &TestApi, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let patience = stallproof::Deadline::after(Duration::from_secs(30));
    loop {
        let answer = world.ask(Method::GET, path, Value::Null).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        if wanted(&answer.json()) {
            return answer.json();
        }
        assert!(!patience.has_passed(), "{path}: {}", answer.text);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_report_is_handed_in_listed_shown_and_withdrawn() {
    let world = TestApi::new().ready().await;
    let report = trivy("2026-01-02T00:00:00Z", &["CVE-1", "CVE-2"]);
    let taken = world.ask(Method::POST, "/images/import", report).await;
    assert_eq!(taken.status, 200, "{}", taken.text);
    let taken = taken.json();
    assert_eq!(taken["documents"][0]["images"], json!([CART]), "{taken}");
    let name = taken["documents"][0]["name"].as_str().unwrap().to_owned();

    let listed = until(&world, "/images", |answer| answer["total"] == 1).await;
    assert_eq!((&listed["images"][0]["critical"], &listed["leftOut"]), (&json!(2), &json!(0)));
    let path = format!("/images/show?image={CART}");
    let shown = until(&world, &path, |answer| answer["known"] == true).await;
    let found = &shown["records"][0]["vulnerabilities"][0];
    assert_eq!(
        (&found["id"], &found["package"], &found["installed"], &found["fixed"]),
        (&json!("CVE-1"), &json!("openssl"), &json!("3.0.1"), &json!("3.0.2"))
    );
    let other = world.ask(Method::GET, "/images/show?image=nginx", Value::Null).await.json();
    assert_eq!((&other["known"], &other["records"]), (&json!(false), &json!([])));
    let unknown = world.ask(Method::GET, "/images?cluster=nowhere", Value::Null).await;
    assert_eq!(unknown.code(), "no-such-cluster", "{}", unknown.text);

    // An older report does not take its place.
    let older = trivy("2026-01-01T00:00:00Z", &[]);
    let kept = world.ask(Method::POST, "/images/import", older).await.json();
    assert_eq!(kept["documents"][0]["written"], false, "{kept}");
    let odd = world.ask(Method::POST, "/images/import", json!({"hello": 1})).await;
    assert_eq!(odd.code(), "invalid", "{}", odd.text);
    assert!(odd.text.contains("no report of a form that is known"), "{}", odd.text);

    let path = format!("/images/reports/{name}");
    assert_eq!(world.ask(Method::DELETE, &path, Value::Null).await.status, 204);
    until(&world, "/images", |answer| answer["total"] == 0).await;
}

#[tokio::test]
async fn only_who_may_hands_reports_in() {
    let world = TestApi::new().ready().await;
    let report = trivy("2026-01-01T00:00:00Z", &[]);
    let exception = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "VulnerabilityException",
        "metadata": {"name": "x"}, "spec": {"name": "CVE-1"}});
    let reader = world.somebody("ann", &[["-", "-", "imagereports.fairlead.dev", "list"]]).await;
    let scanner = world.somebody("ci", &[["-", "-", "imagereports.fairlead.dev", "create"]]).await;
    let import = |token: String, body: Value| {
        let world = &world;
        async move { world.ask_as(&token, Method::POST, "/images/import", body).await }
    };
    assert_eq!(import(reader.clone(), report.clone()).await.code(), "forbidden");
    assert_eq!(import(scanner.clone(), report).await.status, 200);
    let exempts = import(scanner.clone(), exception).await;
    assert_eq!(exempts.code(), "forbidden", "{}", exempts.text);
    let reads = |token: String, path: &'static str| {
        let world = &world;
        async move { world.ask_as(&token, Method::GET, path, Value::Null).await }
    };
    assert_eq!(reads(reader, "/images").await.status, 200);
    assert_eq!(reads(scanner.clone(), "/images").await.code(), "forbidden");
    assert_eq!(reads(scanner, "/images/show?image=x").await.code(), "forbidden");
}

#[tokio::test]
async fn an_exception_takes_a_finding_out_is_listed_and_ends() {
    let world = TestApi::new().ready().await;
    let report = trivy("2026-01-02T00:00:00Z", &["CVE-1", "CVE-2"]);
    assert_eq!(world.ask(Method::POST, "/images/import", report).await.status, 200);
    let exception = |name: &str, until: &str| {
        json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "VulnerabilityException",
            "metadata": {"name": name},
            "spec": {"name": "CVE-1", "images": [CART], "reason": "not reached", "until": until}})
    };
    for (name, until) in [("lasting", "2999-01-01T00:00:00Z"), ("over", "2020-01-01T00:00:00Z")] {
        let taken = world.ask(Method::POST, "/images/import", exception(name, until)).await;
        assert_eq!(taken.status, 200, "{}", taken.text);
    }
    let path = format!("/images/show?image={CART}");
    let excepted = |answer: &Value, wanted: bool| {
        let found = &answer["records"][0]["vulnerabilities"];
        found[0]["excepted"] == wanted && found[1]["excepted"] == false
    };
    until(&world, &path, |answer| excepted(answer, true)).await;
    let listed = world.ask(Method::GET, "/images/exceptions", Value::Null).await.json();
    let of = |at: usize| (&listed["exceptions"][at]["name"], &listed["exceptions"][at]["ended"]);
    assert_eq!(
        (of(0), of(1)),
        ((&json!("lasting"), &json!(false)), (&json!("over"), &json!(true)))
    );
    assert_eq!(listed["exceptions"][0]["spec"]["reason"], "not reached");

    let reader = world.somebody("ann", &[["-", "-", "imagereports.fairlead.dev", "*"]]).await;
    let forbidden = world.ask_as(&reader, Method::GET, "/images/exceptions", Value::Null).await;
    assert_eq!(forbidden.code(), "forbidden", "{}", forbidden.text);
    let path_of = "/images/exceptions/lasting";
    let forbidden = world.ask_as(&reader, Method::DELETE, path_of, Value::Null).await;
    assert_eq!(forbidden.code(), "forbidden", "{}", forbidden.text);
    assert_eq!(world.ask(Method::DELETE, path_of, Value::Null).await.status, 204);
    until(&world, &path, |answer| excepted(answer, false)).await;
}
