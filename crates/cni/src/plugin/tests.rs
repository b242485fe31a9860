use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use serde_json::json;

use super::*;
use crate::spec::{Interface, Ip, Prefix};

/// A daemon that gives one answer to one request, and tells what it was asked.
fn daemon(reply: Reply) -> (tempfile::TempDir, PathBuf, JoinHandle<(Request, bool)>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cni.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 16];
        let (read, descriptor) = wire::receive(stream.as_fd(), &mut buffer).unwrap();
        stream.write_all(&wire::frame(&reply).unwrap()).unwrap();
        (wire::parse(&buffer[wire::HEADER..read]).unwrap(), descriptor.is_some())
    });
    (dir, path, served)
}

fn run_with(command: &str, netns: &str, config: &Value) -> Output {
    let variables = HashMap::from([
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", "no-such-container"),
        ("CNI_NETNS", netns),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop"),
    ]);
    let variable = |name: &str| variables.get(name).map(OsString::from);
    run(variable, config.to_string().as_bytes())
}

fn config(socket: &Path) -> Value {
    json!({"cniVersion": "1.1.0", "name": "n", "socket": socket, "timeout": 20, "pool": "fast",
        "dns": {"domain": "d"}, "prevResult": {"ips": [{"address": "10.0.0.7/32"}]},
        "cni.dev/valid-attachments": [{"containerID": "c", "ifname": "eth0"}]})
}

fn code(answer: &Output) -> u64 {
    assert!(!answer.success);
    answer.stdout.as_ref().unwrap()["code"].as_u64().unwrap()
}

#[test]
fn an_add_sends_its_namespace_and_prints_what_was_made() {
    let made = Success {
        interfaces: vec![Interface {
            name: "eth0".to_owned(),
            mac: "m".to_owned(),
            mtu: 1500,
            sandbox: None,
        }],
        ips: vec![Ip {
            address: Prefix::host("10.0.0.8".parse().unwrap()),
            gateway: None,
            interface: 0,
        }],
        ..Success::default()
    };
    let (_dir, socket, served) = daemon(Reply::Added(made));
    let answer = run_with("ADD", "/proc/self/ns/net", &config(&socket));
    let printed = answer.stdout.unwrap();
    assert!(answer.success, "{printed}");
    assert_eq!(printed["ips"][1], json!({"address": "10.0.0.8/32", "interface": 0}));
    assert_eq!(printed["dns"], json!({"domain": "d"}));
    let (request, with_descriptor) = served.join().unwrap();
    assert!(with_descriptor);
    assert!((10_000..20_000).contains(&request.wait_ms), "the daemon answers before we give up");
    let Operation::Add(add) = request.operation else { panic!("{request:?}") };
    let AddRequest { network, netns, pod, pool, .. } = add;
    assert_eq!((network.as_str(), netns.as_str()), ("n", "/proc/self/ns/net"));
    assert_eq!((pod.unwrap().name.as_str(), pool.as_deref()), ("web", Some("fast")));
}

#[test]
fn each_command_asks_for_what_it_is() {
    for command in ["DEL", "CHECK", "GC", "STATUS"] {
        let (_dir, socket, served) = daemon(Reply::Done);
        let answer = run_with(command, "/proc/self/ns/net", &config(&socket));
        assert_eq!(answer, Output { stdout: None, success: true }, "{command} prints nothing");
        let asked = served.join().unwrap().0.operation;
        let is_asked = match command {
            "DEL" => matches!(asked, Operation::Del { .. }),
            "CHECK" => matches!(&asked, Operation::Check { addresses, .. } if addresses.len() == 1),
            "GC" => matches!(&asked, Operation::Gc { valid, .. } if valid.len() == 1),
            _ => matches!(asked, Operation::Status),
        };
        assert!(is_asked, "{command}: {asked:?}");
    }
}

#[test]
fn a_refusal_of_the_daemon_is_printed_as_it_is() {
    let refusal = Error::new(Code::NoAddress, "none left").details("add a subnet");
    let (_dir, socket, served) = daemon(Reply::Failed(refusal));
    let answer = run_with("ADD", "/proc/self/ns/net", &config(&socket));
    let printed =
        json!({"cniVersion": "1.1.0", "code": 101, "msg": "none left", "details": "add a subnet"});
    assert_eq!(answer.stdout, Some(printed));
    served.join().unwrap();
}

#[test]
fn while_the_daemon_is_away_status_says_so_and_a_del_of_nothing_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir.path().join("cni.sock"));
    assert_eq!(code(&run_with("STATUS", "", &config)), 50);
    for command in ["ADD", "CHECK", "GC"] {
        assert_eq!(code(&run_with(command, "/proc/self/ns/net", &config)), 11, "{command}");
    }
    assert!(run_with("DEL", "", &config).success);
    assert!(run_with("VERSION", "", &config).success);
}

#[test]
fn a_container_that_is_gone_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir.path().join("cni.sock"));
    assert_eq!(code(&run_with("ADD", "/no/such/namespace", &config)), 3);
}

#[test]
fn an_endless_stdin_is_not_read_to_its_end() {
    let variable = |name: &str| (name == "CNI_COMMAND").then(|| OsString::from("STATUS"));
    let answer = run(variable, io::repeat(b' '));
    assert_eq!(code(&answer), 6);
}

const MINUTE: Duration = Duration::from_secs(60);

/// Where an agent was well a moment ago.
fn marked() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cni.sock");
    ready::mark(&socket, MINUTE).unwrap();
    (dir, socket)
}

#[test]
fn while_an_agent_is_replaced_status_succeeds() {
    let (_dir, socket) = marked();
    assert!(run_with("STATUS", "", &config(&socket)).success, "nobody listens");
    ready::unmark(&socket).unwrap();
    assert_eq!(code(&run_with("STATUS", "", &config(&socket))), 50);
    // The next one has begun, and reconciles.
    let busy = Error::new(Code::NotAvailable, "reconciling").details("wait");
    let (_dir, socket, served) = daemon(Reply::Failed(busy.clone()));
    ready::mark(&socket, MINUTE).unwrap();
    assert!(run_with("STATUS", "", &config(&socket)).success);
    served.join().unwrap();
    let (_dir, socket, served) = daemon(Reply::Failed(busy));
    assert_eq!(code(&run_with("STATUS", "", &config(&socket))), 50, "it was never well");
    served.join().unwrap();
}

#[test]
fn an_agent_that_says_it_is_not_well_is_believed_whatever_the_mark_says() {
    let limited = Error::new(Code::LimitedConnectivity, "the kernel does not answer").details("x");
    let (_dir, socket, served) = daemon(Reply::Failed(limited));
    ready::mark(&socket, MINUTE).unwrap();
    assert_eq!(code(&run_with("STATUS", "", &config(&socket))), 51);
    served.join().unwrap();
}

#[test]
fn a_node_that_has_just_booted_is_not_ready_until_its_agent_is() {
    let (_dir, socket) = marked();
    let far = "9".repeat(6);
    fs::write(ready::mark_path(&socket), format!("another-boot {far}\n")).unwrap();
    assert_eq!(code(&run_with("STATUS", "", &config(&socket))), 50);
    assert_eq!(code(&run_with("ADD", "/proc/self/ns/net", &config(&socket))), 11);
}

#[test]
fn a_command_waits_for_the_next_agent_and_asks_it_again() {
    let (_dir, socket) = marked();
    let path = socket.clone();
    let agents = thread::spawn(move || {
        // Long enough for the plugin to find nobody first, which it need not.
        thread::sleep(Duration::from_millis(100));
        let listener = UnixListener::bind(&path).unwrap();
        // One that hears and ends without an answer, and one that answers.
        drop(listener.accept().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 16];
        let (_, descriptor) = wire::receive(stream.as_fd(), &mut buffer).unwrap();
        stream.write_all(&wire::frame(&Reply::Added(Success::default())).unwrap()).unwrap();
        descriptor.is_some()
    });
    let answer = run_with("ADD", "/proc/self/ns/net", &config(&socket));
    assert!(answer.success, "{answer:?}");
    assert!(agents.join().unwrap(), "the namespace comes with the second request as well");
}

#[test]
fn nobody_waits_for_long_nor_where_there_is_nothing_to_do() {
    let (_dir, socket) = marked();
    let mut short = config(&socket);
    short["timeout"] = json!(0.4);
    let began = Instant::now();
    assert_eq!(code(&run_with("ADD", "/proc/self/ns/net", &short)), 11);
    assert!(began.elapsed() >= Duration::from_millis(100), "it waited");
    // A wait would be ten seconds.
    let began = Instant::now();
    assert!(run_with("DEL", "", &config(&socket)).success);
    assert!(began.elapsed() < Duration::from_secs(5));
    ready::unmark(&socket).unwrap();
    assert_eq!(code(&run_with("ADD", "/proc/self/ns/net", &config(&socket))), 11);
    assert!(began.elapsed() < Duration::from_secs(5), "an agent that is gone is not waited for");
}
