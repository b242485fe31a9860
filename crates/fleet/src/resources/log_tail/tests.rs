use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::tests::scripted::{self, Response};

#[test]
fn a_line_is_told_from_its_time() {
    let (at, text) = timed("2026-01-02T03:04:05.678901234Z  hello  world".to_owned());
    assert_eq!(at.unwrap().to_string(), "2026-01-02T03:04:05.678901234Z");
    assert_eq!(text, " hello  world");
    let (at, text) = timed("2026-01-02T03:04:05Z".to_owned());
    assert!(at.is_some() && text.is_empty());
    assert_eq!(timed("no time".to_owned()), (None, "no time".to_owned()));
}

/// A pod whose status never changes, with a log that is answered as `log` says of each request for it.
fn one_pod(log: impl Fn(usize, &str) -> Response + Clone + Send + 'static) -> Connection {
    let asked = Arc::new(AtomicUsize::new(0));
    let client = scripted::client(move |path| match path {
        "/api/v1" => Response::Json(json!({ "groupVersion": "v1", "resources": [{
            "name": "pods", "singularName": "", "kind": "Pod",
            "namespaced": true, "verbs": ["list", "watch"] }] })),
        path if path.contains("/log?") => log(asked.fetch_add(1, Relaxed), path),
        path if path.contains("watch=true") => Response::Hang,
        _ => Response::Json(json!({ "metadata": { "resourceVersion": "1" }, "items": [{
            "metadata": { "name": "web-0", "namespace": "shop" },
            "status": { "containerStatuses": [{ "name": "web", "image": "x", "imageID": "x",
                "ready": true, "restartCount": 0, "containerID": "containerd://1",
                "state": { "running": {} } }] } }] })),
    });
    Connection::new("test", client)
}

async fn followed(connection: Connection) -> impl Stream<Item = TailEvent> {
    let query = TailQuery {
        namespace: "shop".to_owned(),
        pod: Some("web-0".to_owned()),
        follow: true,
        ..TailQuery::default()
    };
    let soon = Deadline::after(Duration::from_secs(5));
    let events = tail(move || Ok(connection.clone()), query, soon).await.unwrap();
    // The watch of the pod that never says anything is told of as interrupted, now and then.
    events.filter(|event| {
        let of_log = match event {
            TailEvent::Line { .. } => true,
            TailEvent::Notice(why) => why.starts_with("web-0/web: "),
        };
        std::future::ready(of_log)
    })
}

fn line(text: &str, second: u8) -> TailEvent {
    TailEvent::Line {
        pod: "web-0".to_owned(),
        container: "web".to_owned(),
        at: Some(format!("2026-01-02T03:04:{second:02}Z").parse().unwrap()),
        text: text.to_owned(),
        cut: false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_refused_is_tried_again_though_its_pod_does_not_change_and_says_why_once() {
    let connection = one_pod(|asked, _| match asked {
        0..3 => Response::Text(500, "the kubelet is away"),
        3 => Response::Text(200, "2026-01-02T03:04:05Z here I am\n"),
        _ => Response::Hang,
    });
    let mut events = pin!(followed(connection).await);
    let began = Instant::now();
    let Some(TailEvent::Notice(why)) = events.next().await else { panic!("it says why") };
    assert!(why.contains("the kubelet is away"), "{why}");
    assert_eq!(events.next().await, Some(line("here I am", 5)));
    // After half to one second, one to two, and two to four.
    let took = began.elapsed();
    assert!((Duration::from_millis(3500)..Duration::from_secs(8)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_ends_while_its_container_runs_goes_on_after_its_last_line() {
    let connection = one_pod(|asked, path| match asked {
        0 => Response::Text(200, "2026-01-02T03:04:05Z one\n2026-01-02T03:04:06Z two\n"),
        1 => {
            assert!(path.contains("sinceTime=2026-01-02T03%3A04%3A06"), "{path}");
            Response::Text(200, "2026-01-02T03:04:06Z two\n2026-01-02T03:04:07Z three\n")
        }
        _ => Response::Hang,
    });
    let mut events = pin!(followed(connection).await);
    for (second, text) in [(5, "one"), (6, "two"), (7, "three")] {
        assert_eq!(events.next().await, Some(line(text, second)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_not_followed_is_read_once() {
    let connection = one_pod(|asked, _| match asked {
        0 => Response::Text(200, "2026-01-02T03:04:05Z all\n"),
        _ => panic!("asked again"),
    });
    let query = TailQuery {
        namespace: "shop".to_owned(),
        selector: Some("app=web".to_owned()),
        ..TailQuery::default()
    };
    let soon = Deadline::after(Duration::from_secs(5));
    let events = tail(move || Ok(connection.clone()), query, soon).await.unwrap();
    assert_eq!(events.collect::<Vec<_>>().await, [line("all", 5)]);
}
