use axum::body::Body;
use flow::Readiness;
use flow::ledger::LedgerConfig;
use guard::admission::Settings;
use http::Method;
use http_body_util::BodyExt;
use objects::Objects;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;

struct Stand {
    webhook: Webhook,
    tasks: Tasks,
    _data: tempfile::TempDir,
}

impl Stand {
    async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("stand");
        let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
        let settings = Settings::new(true);
        let admission = Admission::start(&objects, settings, vec![], &Readiness::default(), &tasks);
        let ledger = Ledger::new(LedgerConfig { late_after: Duration::from_secs(10) });
        let stand = Self { webhook: Webhook::new(admission, ledger), tasks, _data: data };
        while !stand.webhook.admission.rules().is_told() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stand
    }

    async fn send(&self, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
        let request = Request::builder().method(Method::POST).uri(path).body(body.into()).unwrap();
        self.ask(request).await
    }

    async fn ask(&self, request: Request) -> (StatusCode, String) {
        let answer = router(self.webhook.clone()).oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.tasks.stop("the test is over");
    }
}

fn review() -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "operation": "CREATE", "kind": {"group": "", "kind": "Pod"},
        "object": {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})
    .to_string()
}

#[tokio::test]
async fn a_review_is_answered_and_leaves_nothing_behind() {
    let stand = Stand::new().await;
    let (status, body) = stand.send("/admit?timeout=10s", review()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answer["response"]["uid"]), (StatusCode::OK, &json!("u-1")));
    assert_eq!(stand.webhook.gate.status().in_flight, 0);
    assert_eq!(stand.webhook.room.available_permits(), ALL / UNIT);
    assert!(stand.webhook.ledger.in_flight(&flow::ledger::Filter::default()).is_empty());
}

#[tokio::test]
async fn what_is_no_review_of_a_cluster_known_here_is_refused() {
    let stand = Stand::new().await;
    let status = async |path: &str, body: &str| stand.send(path, body.to_owned()).await.0;
    assert_eq!(status("/admit/nowhere", &review()).await, StatusCode::NOT_FOUND);
    assert_eq!(status("/admit", "no json").await, StatusCode::BAD_REQUEST);
    assert_eq!(status("/admit?timeout=soon", &review()).await, StatusCode::BAD_REQUEST);
    assert_eq!(status("/other", "").await, StatusCode::NOT_FOUND);
    let get = Request::get("/admit").body(Body::empty()).unwrap();
    assert_eq!(stand.ask(get).await.0, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let stand = Stand::new().await;
    let announced = Request::post("/admit")
        .header(header::CONTENT_LENGTH, LARGEST + 1)
        .body(Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>()))
        .unwrap();
    assert_eq!(stand.ask(announced).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    // One that does not say so is cut off.
    let chunks = (0..8).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1 << 20]));
    let (status, _) = stand.send("/admit", Body::from_stream(futures::stream::iter(chunks))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(stand.webhook.room.available_permits(), ALL / UNIT);
}

#[tokio::test]
async fn more_bytes_than_there_is_room_for_are_refused_with_a_time_to_come_back() {
    let stand = Stand::new().await;
    let held = stand.webhook.room.clone().acquire_many_owned((ALL / UNIT) as u32).await.unwrap();
    tokio::time::pause();
    let request = Request::post("/admit?timeout=10s").body(Body::from(review())).unwrap();
    let answer = router(stand.webhook.clone()).oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
    drop(held);
    assert_eq!(stand.send("/admit", review()).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_does_not_come_costs_its_own_place_and_not_for_long() {
    let stand = Stand::new().await;
    tokio::time::pause();
    let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let (status, why) = stand.send("/admit?timeout=30s", never).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT, "{why}");
    assert_eq!(stand.webhook.gate.status().in_flight, 0);
}

#[tokio::test]
async fn under_memory_pressure_reviews_are_refused_last() {
    let stand = Stand::new().await;
    let shed = |shedding| stand.webhook.gate.shed(shedding);
    shed(Shedding::None);
    assert_eq!(stand.send("/admit", review()).await.0, StatusCode::OK);
    shed(Shedding::High);
    assert_eq!(stand.send("/admit", review()).await.0, StatusCode::SERVICE_UNAVAILABLE);
}
