//! `fairlead egress` as the pod of an Egress runs it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kernel::netlink::LinkRef;
use kernel::netns::Namespace;
use net::egress::{DEVICE, READY_PORT};
use testkit::{Sandbox, requires};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn an_egress_pod_says_that_it_is_ready_and_ends_when_no_connection_is_left() {
    requires!(netns, nft);
    let sandbox = Sandbox::new();
    let (pod, node) = (sandbox.host("pod"), sandbox.host("node"));
    sandbox.link((&pod, "10.2.0.1/24"), (&node, "10.2.0.254/24"));
    let route = ["route", "add", "default", "via", "10.2.0.254"];
    assert!(pod.command("ip").args(route).status().unwrap().success());
    let data = tempfile::tempdir().unwrap();
    let mut command = pod.command(env!("CARGO_BIN_EXE_fairlead"));
    command.env("FAIRLEAD_CONFIG", "/dev/null").args(["egress", "--admin-listen", "127.0.0.1:0"]);
    command.arg("--data").arg(data.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut told: Vec<String> = Vec::new();
    let is_there = |told: &[String], what: &str| told.iter().any(|it| it.starts_with(what));
    while !(is_there(&told, "egress") && is_there(&told, "admin")) {
        told.push(
            lines.next().expect("it says what it does and where it listens").trim().to_owned(),
        );
    }
    let admin = told.iter().find_map(|line| line.split_once("http://")).expect("an address").1;
    let admin: SocketAddr = admin.trim_end_matches('/').parse().unwrap();
    let inside = Namespace::open(pod.netns()).unwrap();
    let device = || inside.netlink().unwrap().link(LinkRef::Name(DEVICE)).unwrap();
    assert!(device().is_some());
    let outside = Namespace::open(node.netns()).unwrap();
    let ready = SocketAddr::from(([10, 2, 0, 1], READY_PORT));
    let probe = outside.run_in(|| TcpStream::connect_timeout(&ready, PATIENCE)).unwrap();
    assert!(probe.is_ok(), "{probe:?}");
    drop(probe);
    let mut asked =
        inside.run_in(|| TcpStream::connect_timeout(&admin, PATIENCE)).unwrap().unwrap();
    write!(asked, "GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    asked.read_to_string(&mut metrics).unwrap();
    for metric in ["fairlead_egress_clients 0", "fairlead_egress_connections 0"] {
        assert!(metrics.contains(metric), "{metric}: {metrics}");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => assert!(Instant::now() < until, "it does not end"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
    // What it set up goes on without it.
    assert!(device().is_some());
}
