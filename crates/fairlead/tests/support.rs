//! `fairlead support`: what is in the archive, what never is, and that the doctor reads it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod running;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use running::Up;
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

/// Planted where a secret may be met, each under a name of its own.
const PLANTED: [&str; 5] = [
    "pl4nted-in-the-environment",
    "pl4nted-in-a-setting",
    "pl4nted-in-the-log-as-bearer",
    "pl4nted-in-the-log-as-password",
    "pl4nted-in-the-evidence",
];

fn fairlead(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
        command.env_remove(name);
    }
    command.env("FAIRLEAD_CONFIG", "/dev/null").env("KUBECONFIG", "/dev/null");
    command.args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Unpacks an archive; what is in it, by name.
fn unpacked(archive: &Path) -> PathBuf {
    let into = archive.with_extension("unpacked");
    fs::create_dir(&into).unwrap();
    let tar = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&into).output().unwrap();
    assert!(tar.status.success(), "{}", text(&tar.stderr));
    into.join("fairlead-support")
}

/// All that is written in it, one file after the other.
fn everything(dir: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.push_str(&everything(&path));
        } else {
            all.push_str(&text(&fs::read(path).unwrap()));
        }
    }
    all
}

fn address(url: &str) -> &str {
    url.trim_start_matches("http://")
}

#[test]
fn the_archive_has_what_is_needed_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let log = dir.path().join("fairlead.log");
    // Both append: the process, and what is planted below.
    let stderr = OpenOptions::new().create(true).append(true).open(&log).unwrap();
    let up = Up::start_with(&data, "none", |command| {
        command
            .env("FAIRLEAD_UPSTREAM_TOKEN", PLANTED[0])
            .args(["--fleet-secrets", &format!("token={}", PLANTED[1])])
            .args(["--admin-profiling", "true"])
            .stderr(Stdio::from(stderr))
    });
    let mut lines = OpenOptions::new().append(true).open(&log).unwrap();
    writeln!(
        lines,
        r#"{{"level":"INFO","message":"asked with Authorization: Bearer {}"}}"#,
        PLANTED[2]
    )
    .unwrap();
    writeln!(lines, "password={} and the local token {}", PLANTED[3], up.token).unwrap();
    let event = data.join("evidence/20260102T030405.678Z-named-janitor");
    fs::create_dir_all(&event).unwrap();
    let stalls = json!({"stalls": [{"name": "janitor", "critical": true, "stalled_ms": 31_000, "fails_liveness": true}]});
    fs::write(event.join("stalls.json"), stalls.to_string()).unwrap();
    fs::write(event.join("beacons.txt"), "Critical  janitor  stalled for 31.0 s\n").unwrap();
    let late = json!({"in_flight": 1, "operations": [{
        "id": 1, "kind": "rest", "key": format!("/x?token={}", PLANTED[4]), "tenant": "local", "age_ms": 40_000,
        "step": "answer", "step_age_ms": 40_000, "steps": [], "waits_on": null, "late": true}]});
    fs::write(event.join("inflight.json"), late.to_string()).unwrap();

    let archive = dir.path().join("support.tar.gz");
    let run = fairlead(&[
        "support",
        "--data",
        data.to_str().unwrap(),
        "--admin-listen",
        address(&up.admin),
        "--fleet-secrets",
        &format!("token={}", PLANTED[1]),
        "--file",
        archive.to_str().unwrap(),
    ]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let there = unpacked(&archive);

    for (file, holds) in [
        ("inflight.json", "/debug/inflight"),
        ("stalls.json", "\"stalls\""),
        ("locks.json", "\"locks\""),
        ("stacks.txt", "main-runtime"),
        ("metrics.txt", "# TYPE fairlead_build"),
        ("readyz.txt", "fleet"),
        ("livez.txt", "# fairlead support: /livez"),
        ("log-level.txt", "info"),
        ("version.json", env!("CARGO_PKG_VERSION")),
        ("settings.json", "admin.token-file"),
        ("process.txt", "FAIRLEAD_UPSTREAM_TOKEN=[masked]"),
        ("data.txt", "objects"),
        ("log.txt", "Bearer [masked]"),
        ("missing.txt", "# fairlead support: what could not be had"),
        ("evidence/20260102T030405.678Z-named-janitor/stalls.json", "janitor"),
    ] {
        let content = fs::read(there.join(file)).unwrap_or_else(|e| {
            panic!("{file}: {e}; {}", text(&run.stderr));
        });
        let content = text(&content);
        assert!(content.contains(holds) || file == "stacks.txt", "{file}: {content}");
    }
    for profile in ["cpu.pb.gz", "heap.pb.gz"] {
        let content = fs::read(there.join(profile));
        // Only where jemalloc is the allocator is there a heap profile.
        assert!(
            content.is_ok_and(|c| c.starts_with(b"\x1f\x8b"))
                || text(&run.stderr).contains(profile),
            "{profile}"
        );
    }
    let all = everything(&there);
    for secret in PLANTED.iter().copied().chain([up.token.as_str()]) {
        assert!(!all.contains(secret), "{secret} is in the archive");
    }

    // The doctor knows each file, and finds in the evidence what was stuck.
    let report = fairlead(&["doctor", archive.to_str().unwrap(), "-o", "json"]);
    assert_eq!(report.status.code(), Some(1), "{}", text(&report.stdout));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let unknown: Vec<&Value> = report["inputs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|input| {
            input["refused"].is_array() && !input["name"].as_str().unwrap().ends_with(".pb.gz")
        })
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    let titles: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["title"].as_str().unwrap())
        .collect();
    assert!(titles.iter().any(|t| t.contains("janitor owes progress")), "{titles:?}");
    assert!(titles.iter().any(|t| t.contains("operation is late")), "{titles:?}");

    // It never writes over a file.
    let again =
        fairlead(&["support", "--data", data.to_str().unwrap(), "-f", archive.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("is there already"), "{}", text(&again.stderr));
}

#[test]
fn a_healthy_process_yields_an_archive_without_findings() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let up = Up::start(&data, "none");
    up.wait_until_ready_says("fleet");
    let admin = address(&up.admin);
    let packed = fairlead(&[
        "support",
        "-f",
        "-",
        "--data",
        data.to_str().unwrap(),
        "--admin-listen",
        admin,
    ]);
    assert!(packed.status.success(), "{}", text(&packed.stderr));
    let archive = dir.path().join("support.tar.gz");
    fs::write(&archive, &packed.stdout).unwrap();
    let report = fairlead(&["doctor", archive.to_str().unwrap()]);
    assert_eq!(report.status.code(), Some(0), "{}", text(&report.stdout));
}

#[test]
fn without_a_process_the_archive_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("support.tar.gz");
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let run = fairlead(&[
        "support",
        "--data",
        data.to_str().unwrap(),
        "--admin-listen",
        "127.0.0.1:1",
        "-f",
        archive.to_str().unwrap(),
    ]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let missing = text(&fs::read(unpacked(&archive).join("missing.txt")).unwrap());
    assert!(missing.contains("127.0.0.1:1 does not answer"), "{missing}");
    assert!(missing.contains("no fairlead holds"), "{missing}");
    assert!(missing.contains("name a file with --log"), "{missing}");
}

#[test]
fn a_cluster_that_cannot_be_reached_is_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    });
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let archive = dir.path().join("support.tar.gz");
    let run = fairlead(&[
        "support",
        "--cluster",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "-f",
        archive.to_str().unwrap(),
    ]);
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run.stderr).contains("the cluster cannot be reached"), "{}", text(&run.stderr));
}

/// Through a real API server. No kubelet is behind it, so that logs and what pods tell of themselves are
/// missing, and are said to be.
#[tokio::test]
async fn kube_an_installation_is_collected_without_its_secrets() {
    requires!(kube);
    let server = KubeServer::shared().await;
    let namespace = server.namespace().await;
    let client = server.client().await;
    let post = async |path: &str, object: Value| {
        let request = http::Request::post(path.to_owned())
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        let _: Value = client.request(request).await.unwrap();
    };
    let core = format!("/api/v1/namespaces/{namespace}");
    let pod = |name: &str, of: &str| {
        json!({
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": of}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "fairlead", "image": "fairlead:1",
                "args": ["agent", "--data=/var/lib/fairlead"],
                "env": [{"name": "API_TOKEN", "value": PLANTED[0]}]}]},
        })
    };
    post(&format!("{core}/pods"), pod("fairlead-agent-x", "fairlead-agent")).await;
    post(&format!("{core}/pods"), pod("other", "postgres")).await;
    let secret =
        json!({"metadata": {"name": "fairlead-agents"}, "stringData": {"key": PLANTED[1]}});
    post(&format!("{core}/secrets"), secret).await;
    let config = |name: &str| json!({"metadata": {"name": name}, "data": {"password": PLANTED[2], "x": name}});
    post(&format!("{core}/configmaps"), config("fairlead-ca")).await;
    post(&format!("{core}/configmaps"), config("of-somebody-else")).await;
    let event = json!({
        "metadata": {"name": "e1"}, "type": "Warning", "reason": "BackOff",
        "message": "Back-off restarting failed container", "lastTimestamp": "2026-01-02T03:04:05Z",
        "involvedObject": {"kind": "Pod", "name": "fairlead-agent-x", "namespace": namespace},
    });
    post(&format!("{core}/events"), event).await;

    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("support.tar.gz");
    let kubeconfig = server.kubeconfig_path();
    let (file, namespaced) = (archive.clone(), namespace.clone());
    let run = tokio::task::spawn_blocking(move || {
        fairlead(&[
            "support",
            "--cluster",
            "-n",
            &namespaced,
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "-f",
            file.to_str().unwrap(),
        ])
    });
    let run = run.await.unwrap();
    assert!(run.status.success(), "{}", text(&run.stderr));
    let there = unpacked(&archive);
    let read = |name: &str| text(&fs::read(there.join(name)).unwrap());
    let pods = read("cluster/pods.txt");
    assert!(pods.contains("fairlead-agent-x 0/0 Pending 0") && pods.contains("node-1"), "{pods}");
    assert!(
        read("cluster/events.log").contains("Back-off restarting"),
        "{}",
        read("cluster/events.log")
    );
    let maps = read("cluster/configmaps.json");
    assert!(maps.contains("fairlead-ca") && !maps.contains("of-somebody-else"), "{maps}");
    assert!(read("cluster/version.json").contains("gitVersion"));
    let missing = read("missing.txt");
    assert!(missing.contains("pods/fairlead-agent-x/support.tar.gz"), "{missing}");
    assert!(!missing.contains("pods/other/"), "only pods of ours are entered: {missing}");
    let all = everything(&there);
    for secret in PLANTED {
        assert!(!all.contains(secret), "{secret} is in the archive");
    }
    // The doctor takes all of it, and the event is in its story.
    let report = tokio::task::spawn_blocking(move || {
        fairlead(&["doctor", archive.to_str().unwrap(), "-o", "json"])
    });
    let report: Value = serde_json::from_slice(&report.await.unwrap().stdout).unwrap();
    let inputs = report["inputs"].as_array().unwrap();
    let refused: Vec<_> = inputs.iter().filter(|input| input["refused"].is_array()).collect();
    let empty = |input: &&&Value| input["refused"][0]["why"] != "it is empty";
    assert!(refused.iter().filter(empty).count() == 0, "{refused:#?}");
}
