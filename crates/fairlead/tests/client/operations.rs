//! Operating workloads and nodes: apply, scale, restart, cordon, drain, logs.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::stand_in::{Reply, StandIn, ok, said};

#[test]
fn manifests_are_applied_and_each_outcome_told() {
    let server = StandIn::start(|request| {
        let result = |name: &str, outcome: &str| {
            json!({"cluster": "dev", "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop",
                   "name": name, "outcome": outcome, "diff": "-replicas: 1\n+replicas: 2\n"})
        };
        let mut refused = result("db", "failed");
        refused["problem"] =
            json!({"code": "conflict", "status": 409, "detail": "kubectl manages .spec.replicas"});
        let mut results = vec![result("web", "configured")];
        if !request.path.contains("force=true") {
            results.push(refused);
        }
        ok(json!({ "results": results }))
    });
    let mut apply = server.command(&[
        "apply",
        "-f",
        "-",
        "--cluster",
        "dev",
        "-n",
        "shop",
        "--diff",
        "--dry-run",
    ]);
    let mut apply =
        apply.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    apply.stdin.take().unwrap().write_all(b"kind: Deployment\n").unwrap();
    let (code, out, err) = said(&apply.wait_with_output().unwrap());
    assert_eq!(code, 1);
    assert_eq!(out, "deployment.apps/web configured (dry run)\n-replicas: 1\n+replicas: 2\n");
    assert!(err.starts_with("error: deployment.apps/db: kubectl manages .spec.replicas"), "{err}");
    let sent = server.requests().pop().unwrap();
    assert_eq!(sent.path, "/api/v1/clusters/dev/apply?namespace=shop&dryRun=true");
    assert_eq!(
        (sent.body.as_str(), sent.headers["content-type"].as_str()),
        ("kind: Deployment\n", "application/yaml")
    );
    let (code, out, _) = server.run("apply -f /dev/null --cluster dev --force -o json");
    assert_eq!(code, 0);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["results"][0]["outcome"], "configured");
}

#[test]
fn workloads_and_nodes_are_operated() {
    let server = StandIn::start(|request| match request.path.as_str() {
        path if path.contains("/drain") => Reply::Events(vec![
            ("pod", json!({"namespace": "a", "name": "web", "outcome": "evicting"})),
            (
                "pod",
                json!({"namespace": "a", "name": "db", "outcome": "blocked", "why": "its budget"}),
            ),
            (
                "done",
                json!({"drained": false, "cordoned": true, "gone": 1, "skipped": 0,
                "left": [{"namespace": "a", "name": "db", "why": "its budget"}]}),
            ),
        ]),
        path if path.contains("/scale") => ok(json!({"replicas": 5, "was": 2})),
        _ => ok(json!({})),
    });
    assert_eq!(
        server.run("scale deploy/web --replicas 5 --cluster dev").1,
        "deploy/web scaled from 2 to 5\n"
    );
    assert_eq!(server.requests()[0].body, r#"{"replicas":5}"#);
    assert_eq!(server.run("restart deploy web --cluster dev").1, "deploy/web restarted\n");
    assert_eq!(server.run("cordon n1 --cluster dev").1, "node n1 cordoned\n");
    assert_eq!(server.paths()[2], "POST /api/v1/clusters/dev/resources/nodes/n1/cordon");
    let (code, out, err) = server.run("drain n1 --cluster dev --ignore-daemonsets");
    assert_eq!((code, out.as_str()), (1, "pod a/web evicting\npod a/db blocked: its budget\n"));
    assert!(err.contains("left: a/db: its budget"), "{err}");
    assert!(err.contains("it is cordoned"), "{err}");
}

#[test]
fn a_refused_drain_names_each_pod_with_the_flag_for_it() {
    let server = StandIn::start(|_| {
        let left = |name: &str, reasons: &[&str]| json!({"namespace": "a", "name": name, "why": "no", "reasons": reasons});
        let left = [
            left("agent", &["daemonSet"]),
            left("cache", &["emptyDir", "unmanaged"]),
            left("alone", &["unmanaged"]),
        ];
        Reply::Events(vec![(
            "done",
            json!({"drained": false, "cordoned": false, "gone": 0, "skipped": 0, "left": left}),
        )])
    });
    let (code, out, err) = server.run("drain n1 --cluster dev");
    assert_eq!((code, out.as_str()), (1, ""));
    let expected = "\
node n1 is not drained, and nothing was changed (it is not cordoned). In the way:
  pods of DaemonSets (--ignore-daemonsets leaves them where they are): a/agent
  pods with emptyDir volumes (--delete-emptydir-data evicts them; data is lost): a/cache
  pods that nobody makes anew (--force evicts them): a/cache, a/alone
";
    assert_eq!(err, expected);
}

#[test]
fn logs_are_passed_on_byte_for_byte_or_followed_to_their_end() {
    let server = StandIn::start(|request| match request.path.as_str() {
        path if path.contains("follow=true") => Reply::Events(vec![
            ("line", json!({"pod": "web", "container": "app", "line": "one"})),
            ("line", json!({"pod": "web", "container": "app", "line": "two"})),
            ("end", json!({"reason": "the container has ended"})),
        ]),
        _ => Reply::Text(200, "\x1b[31mred\x1b[0m\nno newline".to_owned()),
    });
    assert_eq!(
        server.run("logs pod/web --cluster dev --tail 5 --since 5m").1,
        "\x1b[31mred\x1b[0m\nno newline"
    );
    assert_eq!(
        server.paths()[0],
        "GET /api/v1/clusters/dev/resources/pods/web/log?namespace=default&tail=5&since=5m"
    );
    let (code, out, err) = server.run("logs web --cluster dev -f");
    assert_eq!((code, out.as_str(), err.as_str()), (0, "one\ntwo\n", "the container has ended\n"));
}
