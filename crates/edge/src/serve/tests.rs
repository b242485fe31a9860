use axum::body::Body;
use axum::routing::get;
use tokio::sync::mpsc;
use tower::ServiceExt;

use super::*;

/// Serves bodies without an end; says when the sending of one ends.
async fn endless(taken_within: Duration, tasks: &Tasks) -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ended, ends) = mpsc::channel(8);
    let answer = move || {
        let ended = ended.clone();
        async move {
            let chunk = bytes::Bytes::from(vec![b'x'; 16 << 10]);
            let chunks = futures::stream::unfold(SaysWhenDropped(ended), move |ended| {
                let chunk = chunk.clone();
                async move { Some((Ok::<_, Infallible>(chunk), ended)) }
            });
            Body::from_stream(chunks)
        }
    };
    let router = Router::new().route("/", get(answer));
    let limits = HttpLimits { taken_within, ..HttpLimits::of(8) };
    tasks.spawn("serve", serve(listener, ListenerTls::Plain, router, limits, tasks.clone()));
    (address, ends)
}

struct SaysWhenDropped(mpsc::Sender<()>);

impl Drop for SaysWhenDropped {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

async fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    stream
}

#[tokio::test]
async fn a_peer_that_takes_nothing_is_cut_off_and_a_slow_one_is_not() {
    const TAKEN_WITHIN: Duration = Duration::from_secs(3);
    let tasks = Tasks::new("test");
    let (address, mut ends) = endless(TAKEN_WITHIN, &tasks).await;
    let (never, mut slow) = (ask(address).await, ask(address).await);
    // It takes so little that its buffers are full all the time.
    let reading = tokio::spawn(async move {
        let mut some = vec![0; 16 << 10];
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < 3 * TAKEN_WITHIN {
            slow.read_exact(&mut some).await.expect("whoever takes something is not cut off");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        slow
    });
    let cut = Deadline::after(Duration::from_secs(60)).bound(ends.recv()).await;
    assert_eq!(cut, Ok(Some(())), "whoever takes nothing should be cut off");
    drop(reading.await.unwrap());
    drop(never);
    tasks.shutdown(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn headers_take_little_memory_however_many_come() {
    let tasks = Tasks::new("test");
    let (address, _ends) = endless(TAKEN_WITHIN, &tasks).await;
    for (size, status) in [(24 << 10, "200"), (64 << 10, "431")] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let headers = format!("GET / HTTP/1.1\r\nhost: a\r\nx-a: {}\r\n\r\n", "a".repeat(size));
        // It may be cut off before all was sent.
        let _ = stream.write_all(headers.as_bytes()).await;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer[9..], status.as_bytes(), "{size}");
    }
    tasks.stop("the test is over");
}

#[test]
fn listeners_that_are_full_leave_descriptors_for_the_rest() {
    use DescriptorShare::{Agents, Api, Webhook};
    for limit in [256, 1024, 20_000, 1 << 20] {
        let taken: usize =
            [Api, Agents, Webhook].map(|share| share.fit_to(limit, 1 << 30)).iter().sum();
        assert!(taken <= limit / 4 * 3, "{taken} of {limit}");
    }
    assert_eq!(Api.fit_to(1 << 20, 4096), 4096);
}

async fn connection_of(router: &Router, path: &str) -> Option<String> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = router.clone().oneshot(request).await.unwrap();
    let header = answer.headers().get(header::CONNECTION);
    header.map(|value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn connections_end_with_their_next_answer_once_the_process_leaves() {
    let switch = || async { StatusCode::SWITCHING_PROTOCOLS };
    let router = Router::new().route("/", get(|| async { "answer" })).route("/up", get(switch));
    let all = Tasks::new("all");
    let leading = all.child("leading");
    let kept = ending_connections(router.clone(), None);
    let ending = ending_connections(router, Some(leading.stopping()));
    assert_eq!(connection_of(&ending, "/").await, None);
    leading.stop("the process leaves");
    assert_eq!(connection_of(&ending, "/").await.as_deref(), Some("close"));
    // Whose connection is no longer one of HTTP.
    assert_eq!(connection_of(&ending, "/up").await, None);
    assert_eq!(connection_of(&kept, "/").await, None);
    assert!(!all.stopping().is_stopped());
}
