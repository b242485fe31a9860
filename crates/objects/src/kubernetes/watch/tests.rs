//! A server that a test plays, answer by answer, while time is paused.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::kinds::Cluster;
use crate::kubernetes::Kubernetes;
use crate::kubernetes::tests::cluster;
use crate::store::{Objects, Watch, Within};

enum Reply {
    Whole(u16, Value),
    /// These lines, then the end.
    Ends(Vec<Value>),
    /// These lines, then nothing for ever.
    HangsAfter(Vec<Value>),
    /// These lines, each so many seconds after the beginning; then the end at the time that was asked
    /// for, or nothing for ever.
    Lives {
        lines: Vec<(u64, Value)>,
        ends: bool,
    },
    Never,
}

use Reply::{Ends, HangsAfter, Lives, Never, Whole};

#[derive(Clone)]
struct Server {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    /// What was asked, in short, and when.
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
    /// For how many seconds watches were asked.
    lengths: Arc<Mutex<Vec<u64>>>,
    meters: Meters,
}

impl Server {
    fn that_says(replies: impl Into<VecDeque<Reply>>) -> (Self, Objects) {
        let replies = Arc::new(Mutex::new(replies.into()));
        let (asked, lengths) = (Arc::default(), Arc::default());
        let server = Self { replies, asked, lengths, meters: Meters::default() };
        let playing = server.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            playing.asked.lock().push((short(&request), Instant::now()));
            let length = length(&request);
            playing.lengths.lock().extend(length);
            let reply = playing.replies.lock().pop_front().unwrap_or(Never);
            async move {
                let at_once = |lines: Vec<Value>| lines.into_iter().map(|line| (0, line)).collect();
                // When it ends, in seconds, if it does.
                let (code, lines, ends): (u16, Vec<(u64, Value)>, Option<u64>) = match reply {
                    Whole(code, value) => (code, at_once(vec![value]), Some(0)),
                    Ends(lines) => (200, at_once(lines), Some(0)),
                    HangsAfter(lines) => (200, at_once(lines), None),
                    Lives { lines, ends } => (200, lines, length.filter(|_| ends)),
                    Never => std::future::pending().await,
                };
                let began = Instant::now();
                let until =
                    move |seconds| tokio::time::sleep_until(began + Duration::from_secs(seconds));
                let frame =
                    |line| Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{line}\n"))));
                let lines = stream::iter(lines).then(move |(seconds, line)| async move {
                    until(seconds).await;
                    frame(line)
                });
                let rest = match ends {
                    None => stream::pending().boxed(),
                    Some(seconds) => {
                        stream::once(until(seconds)).filter_map(async |()| None).boxed()
                    }
                };
                let body = StreamBody::new(lines.chain(rest));
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let client = kube::Client::new(service, "default");
        let engine = Kubernetes::new(client, "test", WatchTiming::default());
        let server = Self { meters: engine.meters.clone(), ..server };
        (server, Objects::on(engine))
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().iter().map(|(what, _)| what.clone()).collect()
    }
}

/// For how many seconds a watch is asked.
fn length(request: &Request<Body>) -> Option<u64> {
    let query = request.uri().query().unwrap_or_default();
    let length = query.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds="));
    length.map(|seconds| seconds.parse().unwrap())
}

/// `list`, `list from TOKEN`, `watch from VERSION`.
fn short(request: &Request<Body>) -> String {
    let query = request.uri().query().unwrap_or_default();
    let find = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key));
    match (find("watch="), find("continue="), find("resourceVersion="), find("limit=")) {
        (Some(_), _, Some(version), _) => format!("watch from {version}"),
        (_, Some(token), ..) => format!("list from {token}"),
        (.., None) => "list in one piece".to_owned(),
        _ => "list".to_owned(),
    }
}

fn object(name: &str, version: u32) -> Value {
    let mut object = serde_json::to_value(cluster(name)).unwrap();
    object["metadata"]["resourceVersion"] = version.to_string().into();
    object
}

fn list(version: u32, next: &str, names: &[&str]) -> Reply {
    let items: Vec<_> = names.iter().map(|name| object(name, 1)).collect();
    let metadata = json!({ "resourceVersion": version.to_string(), "continue": next });
    let kind = "ClusterList";
    let api_version = "fairlead.dev/v1alpha1";
    Whole(
        200,
        json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items }),
    )
}

fn event(kind: &str, name: &str, version: u32) -> Value {
    json!({ "type": kind, "object": object(name, version) })
}

fn bookmark(version: u32) -> Value {
    let object = json!({
        "kind": "Cluster", "apiVersion": "fairlead.dev/v1alpha1",
        "metadata": { "resourceVersion": version.to_string() },
    });
    json!({ "type": "BOOKMARK", "object": object })
}

fn status(code: u16) -> Value {
    json!({ "kind": "Status", "status": "Failure", "reason": "Expired", "code": code,
        "message": "so it is" })
}

fn error(code: u16) -> Value {
    json!({ "type": "ERROR", "object": status(code) })
}

async fn told(watch: &mut Watch<Cluster>) -> String {
    let event = timeout(Duration::from_secs(600), watch.next()).await.expect("an event").unwrap();
    match event {
        Event::Restarted(all) => {
            let all: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
            format!("restarted {}", all.join(" "))
        }
        Event::Applied(one) => format!("applied {}", one.name_any()),
        Event::Deleted(one) => format!("deleted {}", one.name_any()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_expires_between_pages_begins_again_in_one_piece() {
    let (server, objects) = Server::that_says([
        list(5, "second", &["a", "b"]),
        Whole(410, status(410)),
        list(9, "", &["a", "c"]),
    ]);
    let listing = objects.list::<Cluster>(&Within::default(), super::super::tests::soon()).await;
    let listing = listing.unwrap();
    let names: Vec<_> = listing.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!((names.join(" ").as_str(), listing.version.0.as_str()), ("a c", "9"));
    assert_eq!(server.asked(), ["list", "list from second", "list in one piece"]);
}

#[tokio::test(start_paused = true)]
async fn each_session_goes_on_from_the_last_version_seen() {
    let (server, objects) = Server::that_says([
        list(5, "", &["a"]),
        Ends(vec![event("ADDED", "b", 6)]),
        Ends(vec![event("DELETED", "a", 7), bookmark(20)]),
        HangsAfter(vec![event("MODIFIED", "b", 21)]),
    ]);
    let mut watch = objects.watch(Within::default());
    for expected in ["restarted a", "applied b", "deleted a", "applied b"] {
        assert_eq!(told(&mut watch).await, expected);
    }
    assert_eq!(server.asked(), ["list", "watch from 5", "watch from 6", "watch from 20"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_forgotten_or_an_error_is_a_restart() {
    let (server, objects) = Server::that_says([
        Whole(410, status(410)),
        list(5, "", &["a"]),
        Ends(vec![event("ADDED", "b", 6), error(410)]),
        list(8, "", &["b"]),
        Ends(vec![error(500)]),
        list(9, "", &["c"]),
        HangsAfter(vec![]),
    ]);
    let mut watch = objects.watch_after(Within::default(), Version("3".to_owned()));
    for expected in ["restarted a", "applied b", "restarted b", "restarted c"] {
        assert_eq!(told(&mut watch).await, expected);
    }
    assert_eq!(server.asked()[..2], ["watch from 3", "list"]);
    assert_eq!(server.meters.restarts.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_reports_an_error_every_time_is_not_hammered() {
    let round = |_| [list(5, "", &["a"]), Ends(vec![error(500)])];
    let (server, objects) = Server::that_says((0..1000).flat_map(round).collect::<VecDeque<_>>());
    let mut watch = objects.watch::<Cluster>(Within::default());
    let listen = async {
        loop {
            assert_eq!(told(&mut watch).await, "restarted a");
        }
    };
    assert!(timeout(Duration::from_secs(300), listen).await.is_err());
    let asked = server.asked().len();
    assert!((40..160).contains(&asked), "{asked} requests in five minutes");
}

#[tokio::test(start_paused = true)]
async fn silence_is_noticed_in_less_than_a_minute() {
    // The open session hears nothing more; then neither a list nor a new session is answered.
    let (server, objects) = Server::that_says([
        list(5, "", &["a"]),
        HangsAfter(vec![]),
        Never,
        Never,
        HangsAfter(vec![event("ADDED", "b", 6)]),
    ]);
    let mut watch = objects.watch(Within::default());
    assert_eq!(told(&mut watch).await, "restarted a");
    assert_eq!(told(&mut watch).await, "applied b");
    let asked = server.asked.lock().clone();
    assert!(asked[1..].iter().all(|(what, _)| what == "watch from 5"), "{asked:?}");
    let gap = |n: usize| asked[n + 1].1 - asked[n].1;
    let WatchTiming { first, grace, open, retry, .. } = WatchTiming::default();
    assert!(gap(1) >= first.mul_f64(0.75) && gap(1) <= first.mul_f64(1.25) + grace + retry.first);
    assert!(gap(1) < Duration::from_secs(60));
    for n in [2, 3] {
        assert!(gap(n) >= open && gap(n) <= open + retry.most, "{:?}", gap(n));
    }
    assert_eq!(server.meters.failures.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_bookmarks_is_asked_for_minutes_and_may_not_be_silent() {
    let each_minute = |minutes: u32| (1..=minutes).map(|n| (60 * u64::from(n), bookmark(20 + n)));
    let (server, objects) = Server::that_says([
        list(5, "", &["a"]),
        // None came: the next is as short.
        Lives { lines: vec![], ends: true },
        Lives { lines: vec![(15, bookmark(20))], ends: true },
        Lives { lines: each_minute(3).collect(), ends: false },
        Lives { lines: vec![], ends: true },
        HangsAfter(vec![event("ADDED", "b", 30)]),
    ]);
    let mut watch = objects.watch(Within::default());
    assert_eq!(told(&mut watch).await, "restarted a");
    let event = timeout(Duration::from_secs(1200), watch.next()).await.unwrap().unwrap();
    assert!(matches!(event, Event::Applied(_)));
    let WatchTiming { first, session, quiet, .. } = WatchTiming::default();
    let lengths = server.lengths.lock().clone();
    let about = |length: Duration, seconds: u64| {
        let seconds = Duration::from_secs(seconds);
        seconds + Duration::from_secs(1) >= length.mul_f64(0.75) && seconds <= length.mul_f64(1.25)
    };
    let expected = [first, first, session, first, first];
    assert_eq!(lengths.len(), expected.len());
    for (seconds, expected) in lengths.iter().zip(expected) {
        assert!(about(expected, *seconds), "{seconds} s, not about {expected:?}");
    }
    let asked = server.asked.lock().clone();
    assert_eq!(asked[4].0, "watch from 23", "it goes on from the last bookmark");
    let silent = asked[4].1 - asked[3].1;
    let noticed = silent - Duration::from_secs(180);
    assert!(noticed >= quiet && noticed <= quiet + Duration::from_secs(1), "{noticed:?}");
    assert_eq!(server.meters.failures.get(), 1, "the silence alone is one");
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_comes_late_is_found() {
    let missing = || Whole(404, json!("404 page not found"));
    let (server, objects) =
        Server::that_says([missing(), missing(), missing(), list(5, "", &["a"])]);
    let mut watch = objects.watch(Within::default());
    assert_eq!(told(&mut watch).await, "restarted a");
    assert_eq!(server.asked(), ["list"; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_session_at_once_is_not_hammered() {
    let replies: VecDeque<_> =
        [list(5, "", &["a"])].into_iter().chain((0..1000).map(|_| Ends(vec![]))).collect();
    let (server, objects) = Server::that_says(replies);
    let mut watch = objects.watch::<Cluster>(Within::default());
    assert_eq!(told(&mut watch).await, "restarted a");
    assert!(timeout(Duration::from_secs(300), watch.next()).await.is_err());
    let asked = server.asked().len();
    assert!((20..80).contains(&asked), "{asked} requests in five minutes");
}
