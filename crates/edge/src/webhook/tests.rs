use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use admission::Settings;
use axum::body::Body;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use objects::kinds::AdmissionRule;
use objects::{Expected, Objects};
use serde_json::{Value, json};
use stallproof::Readiness;
use stallproof::ledger::LedgerConfig;
use stallproof::memory_guard::Usage;
use tower::ServiceExt;

use super::*;

struct Stand {
    webhook: Webhook,
    tasks: Tasks,
    _data: tempfile::TempDir,
}

impl Stand {
    async fn new() -> Self {
        Self::with(true, None).await
    }

    /// In this global mode, with a rule of this mode.
    async fn with(protect: bool, rule: Option<&str>) -> Self {
        let data = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("stand");
        let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
        let settings = Settings::new(protect);
        let admission = Admission::start(&objects, settings, vec![], &Readiness::default(), &tasks);
        let ledger = Ledger::new(LedgerConfig { late_after: Duration::from_secs(10) });
        let stand = Self { webhook: Webhook::new(admission, ledger), tasks, _data: data };
        if let Some(mode) = rule {
            let rule: AdmissionRule = serde_json::from_value(json!({
                "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
                "metadata": {"name": "no-miners"}, "spec": {"action": "deny", "mode": mode,
                    "criteria": [{"name": "image", "op": "containsAny", "value": "evil/*"}]},
            }))
            .unwrap();
            let soon = Deadline::after(Duration::from_secs(30));
            objects.apply(&rule, Expected::Any, soon).await.unwrap();
        }
        let rules = || stand.webhook.admission.rules();
        while !rules().is_told() || rules().list().len() < usize::from(rule.is_some()) {
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
    assert_eq!(stand.webhook.room.available_permits(), ROOM / UNIT);
    assert!(stand.webhook.ledger.in_flight(&stallproof::ledger::Filter::default()).is_empty());
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

/// A review of a pod with this image, whose one variable is written so long in JSON; in the order in
/// which an API server writes it.
fn review_of(image: &str, escaped: usize) -> String {
    // As Go writes `<`: six for one.
    let value = "\\u003c".repeat(escaped / 6);
    let kind = r#""kind":{"group":"","version":"v1","kind":"Pod"}"#;
    let container =
        format!(r#"{{"name":"c","image":"{image}","env":[{{"name":"A","value":"{value}"}}]}}"#);
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"u-1",{kind},"operation":"CREATE","object":{{"metadata":{{"name":"p"}},"spec":{{"containers":[{container}]}}}},"oldObject":null}}}}"#
    )
}

fn chunked(text: &str) -> Body {
    let chunks: Vec<_> = text
        .as_bytes()
        .chunks(1 << 16)
        .map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec()))
        .collect();
    Body::from_stream(futures::stream::iter(chunks))
}

fn response(body: &str) -> Value {
    serde_json::from_str::<Value>(body).unwrap_or_else(|_| panic!("{body}"))["response"].clone()
}

/// The attack: an object that an API server takes and that grows sixfold on its way here.
#[tokio::test]
async fn a_review_is_read_however_large_an_api_server_can_make_it() {
    let stand = Stand::with(true, Some("protect")).await;
    for (image, allowed) in [("evil/miner", false), ("web/cart", true)] {
        for body in [Body::from(review_of(image, 7 << 20)), chunked(&review_of(image, 36 << 20))] {
            let (status, body) = stand.send("/admit?timeout=10s", body).await;
            let answer = response(&body);
            assert_eq!((status, &answer["allowed"]), (StatusCode::OK, &json!(allowed)), "{answer}");
        }
    }
    assert_eq!(stand.webhook.room.available_permits(), ROOM / UNIT);
    assert_eq!(stand.webhook.large.available_permits(), 1);
}

/// The attack: a review that nobody reads is one that no rule denies, and `ignore` admits a failed call.
#[tokio::test]
async fn what_is_too_large_is_refused_by_name_where_rules_refuse() {
    for (protect, rule, refused) in [
        (true, None, true),
        (false, Some("protect"), true),
        (false, Some("monitor"), false),
        (false, None, false),
    ] {
        let stand = Stand::with(protect, rule).await;
        let text = review_of("web/cart", LARGEST + (1 << 20));
        let announced = Request::post("/admit?timeout=10s")
            .header(header::CONTENT_LENGTH, text.len())
            .body(chunked(&text))
            .unwrap();
        let silent = Request::post("/admit?timeout=10s").body(chunked(&text)).unwrap();
        for request in [announced, silent] {
            let (status, body) = stand.ask(request).await;
            if refused {
                let answer = response(&body);
                assert_eq!((status, &answer["uid"]), (StatusCode::OK, &json!("u-1")));
                assert_eq!(answer["allowed"], false);
                let why = answer["status"]["message"].as_str().unwrap();
                assert!(why.contains("more than") && why.contains("not read"), "{why}");
            } else {
                assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{body}");
            }
        }
        assert_eq!(stand.webhook.room.available_permits(), ROOM / UNIT);
    }
}

/// The attack: so many large reviews at once that some find no room and fail.
#[tokio::test]
async fn large_reviews_take_turns_and_one_that_gets_none_is_refused() {
    let stand = Stand::with(true, Some("protect")).await;
    let all = (0..6)
        .map(|_| stand.send("/admit?timeout=30s", chunked(&review_of("evil/miner", 6 << 20))));
    for (status, body) in futures::future::join_all(all).await {
        assert_eq!((status, &response(&body)["allowed"]), (StatusCode::OK, &json!(false)));
        assert!(body.contains("no-miners"), "it was read: {body}");
    }
    let held = stand.webhook.large.clone().acquire_owned().await.unwrap();
    let large = stand.send("/admit?timeout=1s", chunked(&review_of("web/cart", 2 << 20))).await;
    let answer = response(&large.1);
    assert_eq!((large.0, &answer["allowed"]), (StatusCode::OK, &json!(false)), "{answer}");
    assert!(answer["status"]["message"].as_str().unwrap().contains("try again"), "{answer}");
    // It is in nobody's way.
    assert_eq!(stand.send("/admit", review()).await.0, StatusCode::OK);
    drop(held);
    let again = stand.send("/admit", chunked(&review_of("web/cart", 2 << 20))).await;
    assert_eq!(response(&again.1)["allowed"], true);
}

/// Who announces much and sends little holds little.
#[tokio::test]
async fn bytes_are_charged_as_they_arrive() {
    let stand = Stand::new().await;
    let begun = futures::stream::iter([Ok::<_, std::io::Error>(vec![b' '; 4096])]);
    let never = Body::from_stream(begun.chain(futures::stream::pending()));
    let slow = Request::post("/admit?timeout=30s").header(header::CONTENT_LENGTH, 1 << 20);
    let slow = stand.ask(slow.body(never).unwrap());
    let look = async {
        while stand.webhook.room.available_permits() == ROOM / UNIT {
            tokio::task::yield_now().await;
        }
        assert_eq!(stand.webhook.room.available_permits(), ROOM / UNIT - 4);
    };
    tokio::select! {
        (status, why) = slow => panic!("it does not wait: {status} {why}"),
        () = look => {}
    }
}

#[tokio::test]
async fn more_bytes_than_there_is_room_for_are_refused_with_a_time_to_come_back() {
    let stand = Stand::new().await;
    let held = stand.webhook.room.clone().acquire_many_owned((ROOM / UNIT) as u32).await.unwrap();
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
async fn senders_of_slow_bodies_are_in_no_review_s_way_and_are_cut_off() {
    let stand = Stand::new().await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let mut slow = tokio::task::JoinSet::new();
    for _ in 0..2 * CONNECTIONS {
        let part = futures::stream::iter([Ok::<_, std::io::Error>(vec![b' '; 1024])]);
        let body = Body::from_stream(part.chain(futures::stream::pending()));
        let asked = Request::post("/admit?timeout=30s").body(body).unwrap();
        let router = router(stand.webhook.clone());
        slow.spawn(async move { router.oneshot(asked).await.unwrap().status() });
    }
    while stand.webhook.room.available_permits() > ROOM / UNIT - 2 * CONNECTIONS {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        assert_eq!(stand.send("/admit?timeout=1s", review()).await.0, StatusCode::OK);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO, "a review waited for those who send slowly");
    let answers = slow.join_all().await;
    assert!(begun.elapsed() <= PART + Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(answers.iter().all(|status| *status == StatusCode::REQUEST_TIMEOUT));
    assert_eq!(stand.webhook.room.available_permits(), ROOM / UNIT);
}

/// Pressure of a memory guard whose usage the test decides, and an API server that asks meanwhile.
#[tokio::test]
async fn under_memory_pressure_reviews_are_refused_last() {
    let stand = Stand::new().await;
    let used = Arc::new(AtomicU64::new(0));
    let reading = Arc::clone(&used);
    let usage = move || Some(Usage { used: reading.load(Relaxed), limit: 1000 });
    let memory = MemoryGuard::of(usage, None);
    stand.webhook.heed(&memory);
    let status = async || stand.send("/admit", review()).await.0;
    for (bytes, pressure, answer) in [
        (0, Pressure::Normal, StatusCode::OK),
        // What can wait is refused elsewhere by now; a review is not.
        (860, Pressure::Shedding, StatusCode::OK),
        (960, Pressure::Critical, StatusCode::SERVICE_UNAVAILABLE),
        (0, Pressure::Normal, StatusCode::OK),
    ] {
        used.store(bytes, Relaxed);
        memory.check();
        assert_eq!((memory.level(), status().await), (pressure, answer), "{bytes} used");
    }
}
