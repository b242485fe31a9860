//! The binary as its users run it: starting, being refused, being killed, being asked to leave.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

fn fairlead() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
    // The machine's own settings play no part.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
        command.env_remove(name);
    }
    command.env("FAIRLEAD_CONFIG", "/dev/null");
    command
}

fn run(args: &[&str]) -> Output {
    fairlead().args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Every port is the system's choice, and no kubeconfig of the machine's is read.
const ALONE: [&str; 11] = [
    "up",
    "--admin-listen",
    "127.0.0.1:0",
    "--api-listen",
    "127.0.0.1:0",
    "--agents-listen",
    "127.0.0.1:0",
    "--fleet-kubeconfig",
    "none",
    "--guard-observe",
    "off",
];

/// A running `fairlead up`, killed when dropped.
struct Up {
    child: Child,
    /// Of the admin endpoints.
    address: String,
}

impl Up {
    fn start(data: &Path) -> Self {
        Self::start_with(data, Stdio::null())
    }

    fn start_with(data: &Path, stderr: Stdio) -> Self {
        let mut child = fairlead()
            .args(ALONE)
            .arg("--data")
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(|line| line.unwrap().trim().to_owned());
        let line = lines.find(|line| line.starts_with("admin")).expect("it says where it listens");
        let address = line.rsplit("http://").next().unwrap().trim_end_matches('/').to_owned();
        Self { child, address }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = &self.address;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Asks until it answers as `wanted`: what is begun at the start comes by itself.
    fn wait_for(&self, path: &str, wanted: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path);
            if answer.contains(wanted) {
                return;
            }
            assert!(Instant::now() < until, "{path}: {answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "it does not leave");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_serves_survives_kill_9_and_leaves_when_asked() {
    let data = tempfile::tempdir().unwrap();
    let mut first = Up::start(data.path());
    assert!(first.get("/livez").contains("200 OK"));
    assert!(first.get("/debug/inflight").contains("401"), "nobody without the token");
    assert!(first.get("/metrics").contains("200 OK"));
    first.signal("-KILL");
    assert_eq!(first.exit_code(), None, "killed by a signal");

    let mut second = Up::start(data.path());
    second.wait_for("/readyz", "200 OK");
    second.signal("-TERM");
    assert_eq!(second.exit_code(), Some(0));
}

#[test]
fn a_port_already_taken_is_a_sentence_and_exit_2() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let flags = ["--admin-listen", "--api-listen", "--agents-listen"];
    for flag in flags {
        let at = |one: &str| if one == flag { address.clone() } else { "127.0.0.1:0".to_owned() };
        let listen = flags.map(|one| format!("{one}={}", at(one)));
        let [admin, api, agents] = listen.each_ref().map(String::as_str);
        let output = run(&["up", admin, api, agents, "--data", data]);
        assert_eq!(output.status.code(), Some(2));
        let said = said(&output);
        assert!(said.contains(&address) && said.contains(flag), "{said}");
    }
}

#[test]
fn a_data_directory_in_use_names_its_holder() {
    let data = tempfile::tempdir().unwrap();
    let up = Up::start(data.path());
    let path = data.path().to_str().unwrap();
    let output = fairlead().args(ALONE).args(["--data", path]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    assert!(said.contains(&format!("pid {}", up.child.id())), "{said}");
}

#[test]
fn a_data_directory_that_cannot_be_made_says_what_to_do() {
    let output = fairlead().args(ALONE).args(["--data", "/proc/nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    assert!(said.contains("/proc/nowhere") && said.contains("--data"), "{said}");
}

#[test]
fn a_reader_of_its_log_that_stops_reading_holds_up_nothing() {
    let data = tempfile::tempdir().unwrap();
    // A pipe that nobody reads: full after 64 KiB.
    let (_reader, writer) = std::io::pipe().unwrap();
    let mut up = Up::start_with(data.path(), writer.into());
    let mut stream = TcpStream::connect(&up.address).unwrap();
    let body = "trace";
    let address = &up.address;
    let token = std::fs::read_to_string(data.path().join("token")).unwrap();
    let token = token.trim();
    write!(stream, "PUT /debug/log HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("200 OK"), "{answer}");
    // At this level each request logs several lines: far more than the pipe takes.
    for _ in 0..400 {
        assert!(up.get("/livez").contains("200 OK"));
    }
    up.signal("-TERM");
    assert_eq!(up.exit_code(), Some(0));
}

#[test]
fn every_problem_of_a_configuration_is_told_at_once() {
    let output = fairlead()
        .args(["config", "check", "-o", "json", "--workers", "none", "--grace", "5"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["valid"], false);
    let keys: Vec<_> =
        answer["problems"].as_array().unwrap().iter().map(|p| p["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["workers", "grace"]);
    assert_eq!(run(&["config", "check"]).status.code(), Some(0));
    assert_eq!(run(&["up", "--workers", "none"]).status.code(), Some(2));
}

#[test]
fn what_scripts_read_is_json() {
    let version: serde_json::Value =
        serde_json::from_slice(&run(&["version", "-o", "json"]).stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let rows: serde_json::Value =
        serde_json::from_slice(&run(&["config", "show", "--slow", "3s", "-o", "json"]).stdout)
            .unwrap();
    let slow = rows.as_array().unwrap().iter().find(|row| row["key"] == "slow").unwrap();
    assert_eq!((slow["value"].as_str(), slow["from"].as_str()), (Some("3s"), Some("--slow")));
    let script = run(&["completions", "bash"]).stdout;
    assert!(String::from_utf8_lossy(&script).contains("_fairlead()"));

    let data = tempfile::tempdir().unwrap();
    let up = Up::start(data.path());
    let path = data.path().to_str().unwrap();
    let output = run(&["inflight", "--admin-listen", &up.address, "--data", path, "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let operations = answer["operations"].as_array().unwrap();
    assert!(operations.iter().any(|operation| operation["key"] == "/debug/inflight"));
    let address = up.address.clone();
    drop(up);
    let output = run(&["inflight", "--admin-listen", &address]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("is `fairlead up` running"), "{}", said(&output));
}
