//! The fleet: its clusters, their kinds and events, a search.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::clusters;
use crate::stand_in::{Reply, StandIn, ok, problem};

#[test]
fn clusters_are_listed_added_switched_and_removed() {
    let server = StandIn::start(|request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/api/v1/clusters") if request.headers["accept"] == "text/event-stream" => {
            Reply::Events(vec![("clusters", clusters()), ("clusters", clusters())])
        }
        ("GET", "/api/v1/clusters") => ok(clusters()),
        ("POST", "/api/v1/clusters") => Reply::Json(201, json!({"name": "new"})),
        ("POST", "/api/v1/clusters/prod/test") => ok(json!({
            "ok": false, "verdict": "nothing answers at 10.0.0.1:6443",
            "steps": [{"step": "resolve", "ok": true, "tookMs": 1},
                      {"step": "connect", "ok": false, "tookMs": 5000, "why": "no answer"}],
        })),
        ("DELETE", "/api/v1/clusters/gone") => {
            problem(404, "no-such-cluster", "there is no cluster gone")
        }
        ("PATCH" | "DELETE", _) => ok(json!({})),
        _ => problem(404, "not-found", "no such route"),
    });
    let (code, out, err) = server.run("clusters list");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("NAME   STATE         SINCE"), "{out}");
    assert!(out.contains("10.0.0.1:6443 does not answer") && !out.contains('\x1b'), "{out}");

    let (code, out, _) = server.run("clusters list -o json");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, answer["clusters"][1]["state"].as_str()), (0, Some("unreachable")));

    let (code, out, err) = server.run("clusters list -w");
    assert_eq!((code, out.lines().count()), (2, 3), "{out}");
    assert!(err.contains("ended the stream"), "{err}");

    let mut add =
        server.command(&["clusters", "add", "new", "--kubeconfig", "-", "--context", "x"]);
    let mut add = add.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    add.stdin.take().unwrap().write_all(b"apiVersion: v1").unwrap();
    assert_eq!(add.wait().unwrap().code(), Some(0));
    let sent: Value = serde_json::from_str(&server.requests().last().unwrap().body).unwrap();
    assert_eq!(sent, json!({"name": "new", "kubeconfig": "apiVersion: v1", "context": "x"}));

    let (code, out, _) = server.run("clusters test prod");
    assert_eq!(code, 1);
    assert!(out.contains("connect   failed    5000ms   no answer"), "{out}");

    assert_eq!(server.run("clusters disable dev").1, "cluster dev disabled\n");
    assert_eq!(server.requests().last().unwrap().body, r#"{"enabled":false}"#);
    assert_eq!(server.run("clusters remove dev").1, "cluster dev removed\n");
    let (code, _, err) = server.run("clusters remove gone");
    assert_eq!(code, 1);
    assert_eq!(
        err,
        "error: there is no cluster gone\n  `fairlead clusters list` shows the clusters you may see\n"
    );
}

#[test]
fn kinds_events_search_and_descriptions_are_told() {
    let server = StandIn::start(|request| match request.path.as_str() {
        path if path.ends_with("/kinds/reset") => ok(json!({})),
        path if path.ends_with("/kinds") => ok(json!({
            "kinds": [{"name": "deployments", "shortNames": ["deploy"], "group": "apps", "version": "v1",
                       "kind": "Deployment", "namespaced": true, "verbs": ["get"]}],
            "failed": [{"group": "metrics.k8s.io/v1beta1", "why": "503"}],
        })),
        path if path.contains("/describe") => ok(json!({
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}, "events": [],
            "problems": ["what it owns: not allowed"],
        })),
        path if path.contains("/search") => Reply::Events(vec![(
            "done",
            json!({
                "clusters": [{"name": "dev", "ok": true, "tookMs": 1}],
                "hits": [{"cluster": "dev", "kind": "Pod", "namespace": "shop", "name": "web", "why": "its name"}],
                "truncated": true,
            }),
        )]),
        _ => ok(
            json!({"events": [{"namespace": "shop", "lastSeen": "2026-01-01T00:00:00Z", "type": "Normal",
            "reason": "Pulled", "object": {"kind": "Pod", "name": "web"}, "message": "done"}]}),
        ),
    });
    let (code, out, err) = server.run("kinds --cluster dev --reset");
    assert_eq!(code, 1, "a group that does not answer is something found");
    assert!(
        out.contains("deployments   deploy       apps/v1      true         Deployment"),
        "{out}"
    );
    assert_eq!(err, "failed: metrics.k8s.io/v1beta1: 503\n");
    let (code, out, err) = server.run("describe pod/web --cluster dev");
    assert_eq!((code, err.as_str()), (0, "not known: what it owns: not allowed\n"));
    assert!(out.starts_with("Name:         web\n"), "{out}");
    let (code, out, err) = server.run("search web");
    assert_eq!(code, 0);
    assert!(out.contains("dev       Pod    shop        web    its name"), "{out}");
    assert!(err.contains("there is more"), "{err}");
    let (_, out, _) = server.run("events --cluster dev --for pod/web");
    assert!(out.contains("Normal   Pulled   pod/web   done"), "{out}");
    assert!(server.paths().pop().unwrap().contains("/resources/pod/web/events?namespace=default"));
}
