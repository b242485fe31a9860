use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::spec::Code;

fn socket() -> (tempfile::TempDir, std::path::PathBuf, UnixListener) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cni.sock");
    let listener = UnixListener::bind(&path).unwrap();
    (dir, path, listener)
}

/// Reads as a daemon does.
fn take(stream: &UnixStream) -> (Request, Option<OwnedFd>) {
    let mut beside = None;
    let mut bytes = Vec::new();
    while bytes.len() < HEADER
        || bytes.len() < HEADER + length(bytes[..HEADER].try_into().unwrap()).unwrap()
    {
        let mut buffer = [0; 7];
        let (read, descriptor) = receive(stream.as_fd(), &mut buffer).unwrap();
        assert_ne!(read, 0);
        beside = descriptor.or(beside);
        bytes.extend(&buffer[..read]);
    }
    (parse(&bytes[HEADER..]).unwrap(), beside)
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[test]
fn a_request_arrives_whole_with_the_descriptor_beside_it() {
    let (_dir, path, listener) = socket();
    let file = tempfile::tempfile().unwrap();
    let inode = file.metadata().unwrap().ino();
    let key = AttachmentKey { container: "c1".repeat(1000), ifname: "eth0".to_owned() };
    let operation = Operation::Del { key, network: "n".to_owned() };
    let sent = Request { wait_ms: 5, operation };
    let expected = sent.clone();
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (request, descriptor) = take(&stream);
        assert_eq!(request, expected);
        let received = File::from(descriptor.unwrap()).metadata().unwrap().ino();
        assert_eq!(received, inode);
        let error = Error::new(Code::TryAgainLater, "busy");
        // In pieces: a reply need not come at once.
        for part in frame(&Reply::Failed(error)).unwrap().chunks(5) {
            stream.write_all(part).unwrap();
        }
    });
    let reply = call(&path, &sent, Some(file.as_fd()), later()).unwrap();
    assert_eq!(reply, Reply::Failed(Error::new(Code::TryAgainLater, "busy")));
    daemon.join().unwrap();
}

#[test]
fn a_refusal_before_the_request_was_read_is_heard() {
    let (_dir, path, listener) = socket();
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&frame(&Reply::Done).unwrap()).unwrap();
    });
    let status = Request { wait_ms: 0, operation: Operation::Status };
    assert_eq!(call(&path, &status, None, later()).unwrap(), Reply::Done);
    daemon.join().unwrap();
}

#[test]
fn a_silent_daemon_is_waited_for_until_the_deadline() {
    let (_dir, path, listener) = socket();
    let status = Request { wait_ms: 0, operation: Operation::Status };
    let soon = || Instant::now() + Duration::from_millis(50);
    let error = call(&path, &status, None, soon()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // Also one that does not even accept: connections fill its backlog, and then wait.
    rustix::net::listen(&listener, 0).unwrap();
    let waiting: Vec<_> = (0..4).map(|_| dial(&path, soon())).collect();
    assert!(waiting.iter().any(|c| c.as_ref().is_err_and(|e| e.kind() == ErrorKind::TimedOut)));
}

#[test]
fn a_daemon_that_is_away_or_breaks_off_is_an_error_at_once() {
    let (dir, path, listener) = socket();
    let status = Request { wait_ms: 0, operation: Operation::Status };
    let missing = call(&dir.path().join("none"), &status, None, later()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
    });
    let broken = call(&path, &status, None, later()).unwrap_err();
    assert_eq!(broken.kind(), ErrorKind::UnexpectedEof);
    daemon.join().unwrap();
    let refused = call(&path, &status, None, later()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn nothing_larger_than_a_frame_is_sent_or_read() {
    let huge = Request {
        wait_ms: 0,
        operation: Operation::Gc { network: "x".repeat(LARGEST), valid: Vec::new() },
    };
    assert_eq!(frame(&huge).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(length(u32::MAX.to_le_bytes()).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(length((LARGEST as u32).to_le_bytes()).unwrap(), LARGEST);
}

/// A node's plugin and agent are replaced one after the other.
#[test]
fn the_names_on_the_wire_are_those_of_every_release() {
    let key = || AttachmentKey { container: "c1".to_owned(), ifname: "eth0".to_owned() };
    let network = || "pods".to_owned();
    let (netns, pod, pool) = ("/run/netns/x".to_owned(), None, None);
    let name = serde_json::json!({ "container": "c1", "ifname": "eth0" });
    let fixed = Fixed::default();
    let add = AddRequest { key: key(), network: network(), netns, pod, pool, fixed };
    let gc = Operation::Gc { network: network(), valid: vec![key()] };
    for (operation, ask) in [
        (
            Operation::Add(add),
            serde_json::json!({ "add": {
                "name": name, "network": "pods", "netns": "/run/netns/x", "pod": null, "pool": null,
            } }),
        ),
        (
            Operation::Del { key: key(), network: network() },
            serde_json::json!({ "delete": { "name": name, "network": "pods" } }),
        ),
        (
            Operation::Check { key: key(), network: network(), addresses: Vec::new() },
            serde_json::json!({ "check": { "name": name, "network": "pods", "addresses": [] } }),
        ),
        (gc, serde_json::json!({ "collect": { "network": "pods", "valid": [name] } })),
        (Operation::Status, serde_json::json!("status")),
        (Operation::Show(Show::Faults), serde_json::json!({ "show": "faults" })),
    ] {
        let sent = serde_json::to_value(Request { wait_ms: 5, operation }).unwrap();
        assert_eq!(sent, serde_json::json!({ "wait_ms": 5, "ask": ask }));
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    let key =
        || (".{0,8}", ".{0,8}").prop_map(|(container, ifname)| AttachmentKey { container, ifname });
    let pod = (".{0,8}", ".{0,8}", prop::option::of(".{0,8}"));
    let pod = pod.prop_map(|(namespace, name, uid)| Pod { namespace, name, uid });
    prop_oneof![
        (key(), ".*", ".*", prop::option::of(pod), prop::option::of(".*")).prop_map(
            |(key, network, netns, pod, pool)| Operation::Add(AddRequest {
                key,
                network,
                netns,
                pod,
                pool,
                fixed: Fixed { addresses: vec![[10, 64, 0, 5].into()], mac: Some([2; 6]) },
            })
        ),
        (key(), ".*").prop_map(|(key, network)| Operation::Del { key, network }),
        (key(), ".*", any::<Vec<IpAddr>>())
            .prop_map(|(key, network, addresses)| Operation::Check { key, network, addresses }),
        (".*", prop::collection::vec(key(), 0..5))
            .prop_map(|(network, valid)| Operation::Gc { network, valid }),
        Just(Operation::Status),
        Just(Operation::Show(Show::Faults)),
    ]
}

proptest! {
    #[test]
    fn requests_survive_the_wire(wait_ms in any::<u64>(), operation in operation()) {
        let request = Request { wait_ms, operation };
        let bytes = frame(&request).unwrap();
        let (header, body) = bytes.split_at(HEADER);
        prop_assert_eq!(length(header.try_into().unwrap()).unwrap(), body.len());
        prop_assert_eq!(parse::<Request>(body).unwrap(), request);
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
        let _ = parse::<Request>(&bytes);
        let _ = parse::<Reply>(&bytes);
        if let Some(header) = bytes.first_chunk() {
            let _ = length(*header);
        }
    }
}
