//! Forwarded ports: pods, Services, connections that end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use crate::PATIENCE;
use crate::stand_in::{Reply, StandIn, Stream, ok, problem};

/// Echoes; an empty frame ends it.
fn echo(mut socket: WebSocket<Box<dyn Stream>>) {
    while let Ok(message) = socket.read() {
        let Message::Binary(frame) = message else { continue };
        if frame.is_empty() {
            break;
        }
        socket.send(Message::Binary(frame)).unwrap();
    }
    let _ = socket.close(None);
    while socket.read().is_ok() {}
}

/// A running `fairlead forward`.
struct Forwarding {
    child: Child,
    /// What it says once it listens.
    line: String,
}

impl Forwarding {
    fn start(server: &StandIn, object: &str, ports: &str) -> Self {
        let mut command = server.command(&["forward", object, ports, "--cluster", "dev"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        Self { child, line }
    }

    /// A connection on which something was said and heard.
    fn talk(&self) -> TcpStream {
        let mut tcp = TcpStream::connect(self.line.split_whitespace().next().unwrap()).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        tcp.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        tcp
    }

    /// Ends it, and answers what it complained of.
    fn complaints(mut self) -> String {
        self.child.kill().unwrap();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connections of the stand-in's pod that nobody has closed.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Echoes, and goes on when the client writes no more: only a client that closes ends it.
fn echo_until_closed(mut socket: WebSocket<Box<dyn Stream>>) {
    OPEN.fetch_add(1, Ordering::SeqCst);
    while let Ok(message) = socket.read() {
        if let Message::Binary(frame) = message
            && !frame.is_empty()
        {
            socket.send(Message::Binary(frame)).unwrap();
        }
    }
    OPEN.fetch_sub(1, Ordering::SeqCst);
}

#[test]
fn a_connection_that_is_closed_gives_its_place_back_at_once() {
    let server = StandIn::start(|request| match request.path.as_str() {
        path if path.contains("/forward?") => Reply::Socket(echo_until_closed),
        _ => ok(json!({"kind": "Pod"})),
    });
    let forward = Forwarding::start(&server, "web", ":80");
    // Some may still be about to end. If each kept its place for a while, nearly all would be open.
    for _ in 0..200 {
        drop(forward.talk());
    }
    let open = OPEN.load(Ordering::SeqCst);
    assert!(open < 50, "{open} are open after two hundred, one after the other");
    // One that only writes no more is not taken for one that has closed.
    let half = forward.talk();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    let others: Vec<_> = (0..64).map(|_| forward.talk()).collect();
    drop(others);
    let until = Instant::now() + PATIENCE;
    while OPEN.load(Ordering::SeqCst) > 1 {
        assert!(Instant::now() < until, "{} are still open", OPEN.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(OPEN.load(Ordering::SeqCst), 1, "it may still be answered");
    drop(half);
    while OPEN.load(Ordering::SeqCst) > 0 {
        assert!(Instant::now() < until, "it is closed now");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(forward.complaints(), "");
}

#[test]
fn a_service_is_forwarded_to_a_pod_behind_it_and_to_another_when_that_is_gone() {
    let asked = std::sync::Arc::new(AtomicUsize::new(0));
    let server = StandIn::start(move |request| {
        let path = request.path.as_str();
        if path.contains("/forward-target?") {
            let pod = if asked.fetch_add(1, Ordering::SeqCst) == 0 { "web-a" } else { "web-b" };
            return ok(json!({"namespace": "default", "pod": pod, "port": 8080, "askedPort": 80}));
        }
        if path.contains("/pods/web-a/forward?") {
            return problem(404, "not-found", "pods web-a is not there");
        }
        assert!(path.contains("/pods/web-b/forward?namespace=default&port=8080"), "{path}");
        Reply::Socket(echo)
    });
    let forward = Forwarding::start(&server, "svc/web", ":http");
    assert!(
        forward.line.contains(" is port http of svc/web (port 8080 of the pod web-a)"),
        "{}",
        forward.line
    );
    drop(forward.talk());
    drop(forward.talk());
    let asked =
        "GET /api/v1/clusters/dev/resources/svc/web/forward-target?namespace=default&port=http";
    assert_eq!(server.paths().iter().filter(|path| *path == asked).count(), 2);
    assert_eq!(forward.complaints(), "the pod web-a is no more; from now on it is web-b\n");
    let nothing = "services/web in shop has no port 81; it has 80 (http)";
    let refusing = StandIn::start(move |_| problem(400, "invalid", nothing));
    let (code, _, err) = refusing.run("forward svc/web 81 --cluster dev");
    assert_eq!((code, err.contains(nothing)), (2, true), "{err}");
}

#[test]
fn a_port_of_a_pod_is_reached_on_loopback() {
    let server = StandIn::start(|request| match request.path.as_str() {
        path if path.contains("/forward?") => Reply::Socket(echo),
        _ => ok(json!({"kind": "Pod"})),
    });
    let forward = Forwarding::start(&server, "web", ":80");
    assert!(forward.line.contains(" is port 80 of web"), "{}", forward.line);
    let talk = || forward.talk();
    // Two at once, and what one has said last still arrives after it has said that it is done.
    let (first, mut second) = (talk(), talk());
    second.write_all(b"last").unwrap();
    second.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = String::new();
    second.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "last");
    drop(first);
    drop(forward);
    assert!(server.paths().iter().any(|path| path.ends_with("/forward?namespace=default&port=80")));
    let away = StandIn::start(|_| problem(404, "not-found", "pods web is not there"));
    assert_eq!(away.run("forward web :80 --cluster dev").0, 1);
}
