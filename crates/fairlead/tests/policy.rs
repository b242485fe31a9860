//! `fairlead policy` as its users run it: files in, an answer out.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

const CLUSTER: &str = r"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Namespace
  metadata: {name: shop, labels: {team: y}}
- apiVersion: v1
  kind: Pod
  metadata: {namespace: shop, name: web-0, labels: {app: web}}
  spec: {nodeName: n1, containers: [{name: c, image: web}]}
  status: {podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: db-0, labels: {app: db}}
spec: {nodeName: n2, containers: [{name: c, ports: [{name: pg, containerPort: 5432}]}]}
status: {podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: skipped}
";

const POLICIES: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: db}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{namespaceSelector: {matchLabels: {team: y}}, podSelector: {matchLabels: {app: web}}}]
    ports: [{port: pg}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: no-metadata}
spec:
  tier: Admin
  priority: 10
  subject: {namespaces: {}}
  egress:
  - {name: metadata, action: Deny, to: [{networks: [169.254.169.254/32]}]}
";

const PROBES: &str = r#"
{"from": "shop/web-0", "to": "shop/db-0", "protocol": "TCP", "port": "pg"}
{"from": "shop/web-0", "to": "shop/db-0", "protocol": "TCP", "port": 80}

{"from": "shop/web-0", "to": "169.254.169.254", "protocol": "TCP", "port": 80}
"#;

/// Runs `fairlead policy` in a directory with the files; its exit code, answer and complaint.
fn run(probes: &str, policies: &str, args: &[&str]) -> (i32, String, String) {
    let place = TempDir::new().unwrap();
    for (name, text) in [("c.yaml", CLUSTER), ("p.yaml", policies), ("probes", probes)] {
        fs::write(place.path().join(name), text).unwrap();
    }
    let ran = Command::new(env!("CARGO_BIN_EXE_fairlead"))
        .arg("policy")
        .args(args)
        .args(["--cluster", "c.yaml", "--policies", "p.yaml"])
        .current_dir(place.path())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (ran.status.code().unwrap(), text(&ran.stdout), text(&ran.stderr))
}

#[test]
fn probes_are_answered_in_their_order_with_the_rule_that_decided() {
    let args = ["test", "--probes", "probes", "-o", "json"];
    let (code, stdout, stderr) = run(PROBES, POLICIES, &args);
    assert_eq!(code, 1, "{stderr}");
    let answers: Vec<Value> = serde_json::from_str(&stdout).unwrap();
    let verdicts: Vec<_> = answers.iter().map(|it| it["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["allow", "deny", "deny"]);
    let of = |value: &Value| {
        ["verdict", "tier", "policy", "rule"]
            .map(|key| value[key].as_str().unwrap_or("-").to_owned())
    };
    assert_eq!(of(&answers[0]["ingress"]), ["allow", "NetworkPolicy", "shop/db", "ingress[0]"]);
    assert_eq!(of(&answers[1]["ingress"]), ["deny", "NetworkPolicy", "shop/db", "-"]);
    assert_eq!(of(&answers[2]["egress"]), ["deny", "Admin", "no-metadata", "egress[0]"]);
    assert_eq!(of(&answers[2]["ingress"]), ["allow", "-", "-", "-"]);
    assert_eq!(answers[0]["port"], json!("pg"));
    let first = PROBES.lines().nth(1).unwrap();
    assert_eq!(run(first, POLICIES, &args).0, 0);
}

#[test]
fn an_explanation_has_a_line_for_each_tier() {
    let (code, stdout, stderr) =
        run("", POLICIES, &["explain", "shop/web-0", "169.254.169.254", "80"]);
    assert_eq!(code, 1, "{stderr}");
    let denied = "ClusterNetworkPolicy no-metadata, egress[0] metadata, denies it";
    assert!(stdout.contains(denied), "{stdout}");
    let (code, stdout, _) = run("", POLICIES, &["explain", "shop/web-0", "shop/db-0", "pg"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("NetworkPolicy  1 policy: NetworkPolicy shop/db"), "{stdout}");
}

#[test]
fn policies_are_listed_in_the_order_in_which_they_decide() {
    let (code, stdout, _) = run("", POLICIES, &["list", "-o", "json"]);
    assert_eq!(code, 0);
    let rows: Vec<Value> = serde_json::from_str(&stdout).unwrap();
    let names: Vec<_> = rows.iter().map(|row| (&row["policy"], &row["pods"])).collect();
    assert_eq!(names, [(&json!("no-metadata"), &json!(2)), (&json!("shop/db"), &json!(1))]);
}

#[test]
fn what_is_wrong_is_said_with_its_file_document_and_field() {
    let args = ["test", "--probes", "probes"];
    let wrong = POLICIES.replace("port: pg", "port: 99999");
    let (code, _, stderr) = run(PROBES, &wrong, &args);
    let expected =
        "p.yaml, document 1 (NetworkPolicy shop/db): spec.ingress[0].ports[0].port: is 99999";
    assert!(code == 2 && stderr.contains(expected), "{stderr}");
    for (probe, expected) in [
        ("{", "probes, line 1: is no probe"),
        ("\n{\"from\": \"shop/web-0\"}", "probes, line 2: is no probe: missing field `to`"),
        (
            r#"{"from": "shop/x", "to": "shop/db-0", "port": 1}"#,
            "probes, line 1: from: there is no pod shop/x",
        ),
        ("", "probes has no probes"),
    ] {
        let (code, _, stderr) = run(probe, POLICIES, &args);
        assert!(code == 2 && stderr.contains(expected), "{probe}: {stderr}");
    }
    let (code, _, stderr) = run(PROBES, "kind: Secret\napiVersion: v1\n", &args);
    assert!(code == 2 && stderr.contains("kind: Secret is no policy"), "{stderr}");
}

#[test]
fn a_dry_run_lists_the_conversations_that_would_have_been_stopped() {
    let end = |kind: &str, name: &str, address: &str| json!({"kind": kind, "name": name, "address": address});
    let (web, db) =
        (end("workload", "shop/web-0", "10.0.0.1"), end("workload", "shop/db-0", "10.0.0.2"));
    let line = |client: &Value, server: &Value, port: u16| {
        json!({"client": client, "server": server, "protocol": "tcp", "port": port, "sessions": 3,
               "bytes": 1, "packets": 1, "first": "2026-01-01T00:00:00Z", "last": "2026-01-01T00:00:09Z"})
    };
    let gone = end("workload", "shop/gone", "10.0.0.9");
    let outside = end("external", "external", "203.0.113.9");
    let folded = json!({"client": web, "server": db, "folded": true, "sessions": 1, "bytes": 1, "packets": 1,
                        "first": "2026-01-01T00:00:00Z", "last": "2026-01-01T00:00:09Z"});
    let seen = json!({"conversations": [line(&web, &db, 5432), line(&web, &db, 22), line(&gone, &db, 22),
                                        line(&outside, &db, 5432), folded], "matched": 5});
    let args = ["dry-run", "--conversations", "probes", "-o", "json"];
    let (code, stdout, stderr) = run(&seen.to_string(), POLICIES, &args);
    assert_eq!(code, 1, "{stderr}");
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&answer["judged"], &answer["unjudged"]), (&json!(3), &json!(2)));
    let stopped: Vec<_> =
        answer["stopped"].as_array().unwrap().iter().map(|it| &it["from"]).collect();
    assert_eq!(stopped, [&json!("shop/web-0"), &json!("203.0.113.9")]);
    assert_eq!(answer["stopped"][0]["sessions"], json!(3));
    assert!(stderr.contains("2 of 3 conversations would have been stopped"), "{stderr}");
    let (code, _, stderr) = run("[]", POLICIES, &args);
    assert!(code == 2 && stderr.contains("fairlead conversations -o json"), "{stderr}");
}
