//! The command line against a stand-in for the edge: what is asked, what is printed, how it exits.

#![allow(clippy::unwrap_used, reason = "tests")]

mod stand_in;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::{Value, json};
use stand_in::{Reply, Request, StandIn, Stream, ok, problem, said};
use tungstenite::{Message, WebSocket};

const PATIENCE: Duration = Duration::from_secs(30);

fn clusters() -> Value {
    json!({"generation": 7, "clusters": [
        {"name": "dev", "state": "ready", "since": "2026-01-01T00:00:00Z", "version": "v1.30.1",
         "nodes": 3, "latencyMs": 12, "source": "~/.kube/config"},
        {"name": "prod", "state": "unreachable", "since": "2026-01-01T00:00:00Z",
         "why": "10.0.0.1:6443 does not answer", "source": "imported"},
    ]})
}

fn pods(names: &[&str]) -> Value {
    let row = |name: &&str| json!({"name": name, "namespace": "default", "cells": [name, "1/1"]});
    json!({"columns": [{"name": "Name"}, {"name": "Ready"}],
           "rows": names.iter().map(row).collect::<Vec<_>>()})
}

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
fn one_cluster_is_listed_page_by_page() {
    let server = StandIn::start(|request| match request.path.as_str() {
        "/api/v1/clusters" => ok(clusters()),
        path if path.contains("continue=two") => ok(pods(&["c"])),
        path if path.starts_with("/api/v1/clusters/dev/resources/pods?") => {
            let mut page = pods(&["a", "b"]);
            page["continue"] = "two".into();
            page["remaining"] = 1.into();
            ok(page)
        }
        _ => problem(404, "not-found", "no such route"),
    });
    let (code, out, err) = server.run("get pods");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(out, "NAME   READY\na      1/1\nb      1/1\nc      1/1\n");
    assert_eq!(
        server.paths()[1],
        "GET /api/v1/clusters/dev/resources/pods?namespace=default&as=table&limit=500"
    );
    assert!(server.requests()[1].headers["request-timeout"].ends_with("ms"));
    let (code, out, err) = server.run("get pods --limit 2 -A");
    assert_eq!((code, out.lines().count()), (0, 3));
    assert!(out.starts_with("NAMESPACE   NAME"), "{out}");
    assert_eq!(err, "there are 1 more; raise --limit to see them\n");
}

#[test]
fn a_name_that_is_not_there_is_no() {
    let server = StandIn::start(|request| match request.path.as_str() {
        path if path.contains("fields=metadata.name%3Dnone") => ok(pods(&[])),
        path if path.contains("/pod/none") => problem(404, "not-found", "pods none is not there"),
        path if path.contains("/pod/web") => {
            ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}))
        }
        _ => ok(pods(&[])),
    });
    let (code, out, err) = server.run("get pod none --cluster dev");
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(err, "error: pod \"none\" is not there, in namespace default\n");
    assert_eq!(server.run("get pod none --cluster dev -o yaml").0, 1);
    assert_eq!(server.run("get pod/web --cluster dev -o name").1, "pod/web\n");
    assert!(server.run("get pod/web --cluster dev -o yaml").1.starts_with("apiVersion: v1\n"));
    let (code, out, err) = server.run("get pods --cluster dev -n shop");
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", "no pods found in namespace shop\n"));
    assert_eq!(server.run("get pod web -A").0, 2);
}

fn across(prod_answers: bool) -> impl Fn(&Request) -> Reply {
    move |request| {
        let late = json!({"name": "prod", "ok": false, "tookMs": 5000, "problem":
            {"code": "unreachable", "status": 502, "detail": "10.0.0.1:6443 does not answer"}});
        let fine = json!({"name": "dev", "ok": prod_answers || !request.path.contains("dead"), "tookMs": 4});
        let prod =
            if prod_answers { json!({"name": "prod", "ok": true, "tookMs": 9}) } else { late };
        let mut whole = if request.path.contains("as=object") {
            json!({"items": [{"cluster": "dev", "object": {"kind": "Pod", "metadata": {"name": "web"}}}]})
        } else {
            pods(&["web"])
        };
        if whole["rows"].is_array() {
            whole["rows"][0]["cluster"] = "dev".into();
        }
        if request.path.contains("dead") {
            whole = json!({});
        }
        whole["clusters"] = json!([fine, prod]);
        Reply::Events(vec![
            ("asked", json!({"clusters": ["dev", "prod"]})),
            ("cluster", json!({"name": "dev", "ok": true, "tookMs": 4})),
            ("something-new", json!({})),
            ("done", whole),
        ])
    }
}

#[test]
fn a_cluster_that_does_not_answer_costs_its_own_line() {
    let server = StandIn::start(across(false));
    let (code, out, err) = server.run("get pods --all-clusters");
    assert_eq!(out, "CLUSTER   NAME   READY\ndev       web    1/1\n");
    assert_eq!(err, "prod: 10.0.0.1:6443 does not answer\n");
    assert_eq!(code, 1);
    assert_eq!(server.paths(), ["GET /api/v1/resources/pods?namespace=default&as=table"]);

    let (code, out, _) = server.run("get pods --cluster dev,prod -o json");
    let list: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 1);
    assert_eq!(
        (list["kind"].as_str(), list["items"][0]["cluster"].as_str()),
        (Some("List"), Some("dev"))
    );
    assert_eq!(list["clusters"][1]["problem"]["code"], "unreachable");
    assert!(server.paths()[1].ends_with("&as=object&clusters=dev%2Cprod"));

    // None answered: nothing was found out.
    assert_eq!(server.run("get dead --all-clusters").0, 2);
    let whole = StandIn::start(across(true));
    assert_eq!(whole.run("get pods --all-clusters").0, 0);
}

#[test]
fn the_environment_names_a_cluster_and_flags_win() {
    let server = StandIn::start(|_| ok(pods(&["a"])));
    let run = |line: &[&str]| server.command(line).env("FAIRLEAD_CLUSTER", "env").output().unwrap();
    run(&["get", "pods"]);
    run(&["get", "pods", "--cluster", "flag"]);
    let paths = server.paths();
    assert!(paths[0].starts_with("GET /api/v1/clusters/env/"), "{paths:?}");
    assert!(paths[1].starts_with("GET /api/v1/clusters/flag/"), "{paths:?}");
}

#[test]
fn a_change_asks_which_cluster_and_a_read_does_not() {
    let server = StandIn::start(|request| match request.path.as_str() {
        "/api/v1/clusters" => ok(clusters()),
        _ => ok(json!({"outcome": "waiting", "finalizers": ["a.io/x"]})),
    });
    let (code, _, err) = server.run("delete pod web");
    assert_eq!(code, 2);
    assert!(err.contains("which cluster?") && err.contains("prod (unreachable)"), "{err}");
    let (code, out, _) =
        server.run("delete pod web --cluster dev --cascade orphan --grace-period 0");
    assert_eq!((code, out.as_str()), (0, "pod/web is being deleted; it waits for a.io/x\n"));
    assert_eq!(
        server.paths().last().unwrap(),
        "DELETE /api/v1/clusters/dev/resources/pod/web?namespace=default&gracePeriod=0&propagation=Orphan"
    );
    // With several, each is told.
    let (code, out, _) = server.run("delete pod/web --all-clusters --dry-run");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(code, 0);
    assert!(lines[0].starts_with("dev: pod/web") && lines[1].starts_with("prod: "), "{out}");
}

#[test]
fn a_watch_goes_on_and_tells_what_interrupts_it() {
    let server = StandIn::start(|_| {
        Reply::Events(vec![
            ("restarted", pods(&["web"])),
            ("interrupted", json!({"why": "the API server restarts"})),
            ("restarted", pods(&["web", "db"])),
            (
                "applied",
                json!({"rows": [{"name": "web", "namespace": "default", "cells": ["web", "0/1"]}]}),
            ),
        ])
    });
    let (code, out, err) = server.run("get pods -w --cluster dev");
    assert_eq!(out, "NAME   READY\nweb    1/1\ndb     1/1\nweb    0/1\n");
    assert_eq!(
        err,
        "interrupted: dev: the API server restarts\ndev: the server has ended the watch\n"
    );
    assert_eq!(code, 2);
    let (_, out, _) = server.run("get pods -w --cluster a,b");
    assert!(out.starts_with("CLUSTER   NAME"), "{out}");
    assert_eq!(out.lines().count(), 7, "{out}");
}

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

#[test]
fn faults_are_sentences_with_a_way_out() {
    let refusing = |reply: fn() -> Reply| StandIn::start(move |_| reply());
    let (code, _, err) =
        refusing(|| problem(401, "unauthenticated", "no such token")).run("users list");
    assert_eq!(code, 2);
    assert!(err.contains("--token-file") && !err.contains(stand_in::TOKEN), "{err}");
    let (code, _, err) = refusing(|| {
        Reply::Json(
            429,
            json!({"code": "slow-down", "status": 429, "detail": "busy", "retryAfterMs": 2500}),
        )
    })
    .run("audit");
    assert_eq!((code, err.as_str()), (2, "error: busy\n  try again in 3 s\n"));
    let (code, _, err) =
        refusing(|| problem(403, "forbidden", "you may not list users")).run("users list");
    assert_eq!((code, err.as_str()), (1, "error: you may not list users\n"));
    let (code, _, err) = refusing(|| Reply::Text(200, "hello".to_owned())).run("clusters list");
    assert_eq!(code, 2);
    assert!(err.contains("same version"), "{err}");
    let (code, _, err) = refusing(|| Reply::Text(200, "hello".to_owned())).run("search x");
    assert_eq!(code, 2);
    assert!(err.contains("does not stream"), "{err}");
    let (code, _, err) = refusing(|| Reply::Silence).run("clusters list --timeout 100ms");
    assert_eq!(code, 2);
    assert!(err.contains("did not answer within"), "{err}");
    let away = StandIn::start(|_| ok(json!({})));
    let mut command = away.command(&["clusters", "list", "--server", "http://127.0.0.1:1"]);
    let (code, _, err) = said(&command.output().unwrap());
    assert_eq!(code, 2);
    assert!(err.contains("is `fairlead up` running"), "{err}");
    let mut command = away.command(&["clusters", "list", "--token-file", "/nowhere/token"]);
    let (code, _, err) = said(&command.output().unwrap());
    assert_eq!(code, 2);
    assert!(err.contains("there is no token at /nowhere/token"), "{err}");
}

#[test]
fn access_is_managed() {
    let server = StandIn::start(|request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/api/v1/users") => {
            ok(json!({"users": [{"name": "ann", "roles": ["viewer", "shop"], "disabled": false}]}))
        }
        ("GET", "/api/v1/roles") => {
            ok(json!({"roles": [{"name": "viewer", "allow": [{"clusters": ["*"]}], "deny": []}]}))
        }
        ("GET", "/api/v1/tokens") => ok(json!({"tokens": [{"name": "ci", "user": "ann"}]})),
        ("POST", "/api/v1/tokens") => {
            Reply::Json(201, json!({"name": "ci", "user": "ann", "token": "fl_new"}))
        }
        ("GET", _) => {
            ok(json!({"entries": [{"at": "2026-01-01T00:00:00Z", "user": "ann", "verb": "delete",
            "cluster": "prod", "namespace": "shop", "resource": "pods", "name": "web", "outcome": "ok"}]}))
        }
        _ => ok(json!({})),
    });
    assert_eq!(
        server.run("users list").1,
        "NAME   ROLES         DISABLED   PROBLEMS\nann    viewer,shop   false\n"
    );
    let mut add = server.command(&["users", "add", "bob", "--role", "viewer,shop"]);
    let mut add = add.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    add.stdin.take().unwrap().write_all(b"correct horse\n").unwrap();
    assert_eq!(add.wait().unwrap().code(), Some(0));
    let sent: Value = serde_json::from_str(&server.requests().pop().unwrap().body).unwrap();
    assert_eq!(
        sent,
        json!({"name": "bob", "roles": ["viewer", "shop"], "password": "correct horse"})
    );
    assert_eq!(server.run("users roles bob").1, "user bob has no roles\n");
    assert_eq!(
        server.run("roles list").1,
        "NAME     ALLOWS   DENIES   PROBLEMS\nviewer   1        0\n"
    );
    assert!(server.run("roles show viewer").1.starts_with("allow:"));
    assert_eq!(server.run("roles show none").0, 1);
    let (code, out, err) = server.run("tokens create --expires never");
    assert_eq!((code, out.as_str()), (0, "fl_new\n"), "stdout has the token alone");
    assert!(err.contains("token ci is shown this once"));
    assert_eq!(server.requests().pop().unwrap().body, "{}");
    assert!(server.run("tokens list").1.contains("ci     ann    -"));
    let (_, out, _) = server.run("audit --since 1h --user ann");
    assert!(out.contains("ann    delete   prod      shop        pods       web    ok"), "{out}");
    assert!(
        server.paths().pop().unwrap().starts_with("GET /api/v1/audit?limit=100&user=ann&since=20")
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

/// Answers what stdin says, in capitals, then ends with 7.
fn shout(mut socket: WebSocket<Box<dyn Stream>>) {
    let mut heard = Vec::new();
    loop {
        let Message::Binary(frame) = socket.read().unwrap() else { continue };
        match (frame[0], frame.len()) {
            (0, 1) => break,
            (0, _) => heard.extend_from_slice(&frame[1..]),
            _ => {}
        }
    }
    let send = |socket: &mut WebSocket<Box<dyn Stream>>, channel: u8, bytes: &[u8]| {
        let mut frame = vec![channel];
        frame.extend_from_slice(bytes);
        socket.send(Message::Binary(frame.into())).unwrap();
    };
    for chunk in heard.to_ascii_uppercase().chunks(1000) {
        send(&mut socket, 1, chunk);
    }
    send(&mut socket, 2, b"bye\n");
    send(&mut socket, 3, br#"{"exitCode":7}"#);
    let _ = socket.close(None);
    while socket.read().is_ok() {}
}

fn exec_piped(server: &StandIn) {
    // More than any buffer on the way takes at once.
    let input = "abc\n".repeat(500_000);
    let mut exec =
        server.command(&["exec", "-i", "web", "--cluster", "dev", "--", "tr", "a-z", "A-Z"]);
    let mut exec =
        exec.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = exec.stdin.take().unwrap();
    let text = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).unwrap());
    let (code, out, err) = said(&exec.wait_with_output().unwrap());
    writer.join().unwrap();
    assert_eq!((code, err.as_str()), (7, "bye\n"));
    assert!(out == input.to_uppercase(), "{} of {} bytes", out.len(), input.len());
    assert_eq!(
        server.paths()[0],
        "GET /api/v1/clusters/dev/resources/pods/web/exec?namespace=default&tty=false&stdin=true&command=tr&command=a-z&command=A-Z"
    );
}

#[test]
fn exec_passes_stdin_on_and_exits_as_the_command_did() {
    exec_piped(&StandIn::start(|_| Reply::Socket(shout)));
}

#[test]
fn exec_and_lists_work_over_tls_and_only_with_its_authority() {
    let server = StandIn::start_tls(|request| match request.path.as_str() {
        "/api/v1/clusters" => ok(clusters()),
        _ => Reply::Socket(shout),
    });
    exec_piped(&server);
    assert_eq!(server.run("clusters list").0, 0);
    for line in [&["clusters", "list"][..], &["exec", "web", "--cluster", "dev", "--", "true"]] {
        let (code, _, err) =
            said(&server.command(line).env_remove("FAIRLEAD_CA_FILE").output().unwrap());
        assert_eq!(code, 2);
        assert!(err.contains("--ca-file"), "{err}");
    }
}

#[test]
fn exec_that_cannot_begin_says_why() {
    let server = StandIn::start(|_| problem(404, "not-found", "pods web is not there"));
    let (code, _, err) = server.run("exec web --cluster dev -- true");
    assert_eq!((code, err.as_str()), (1, "error: pods web is not there\n"));
    let broken = StandIn::start(|_| Reply::Socket(drop));
    let (code, _, err) = broken.run("exec web --cluster dev -- true");
    assert_eq!(code, 2);
    assert!(err.contains("ended before the command did"), "{err}");
}

/// Tells the size of the window, then echoes until told to end.
fn terminal(mut socket: WebSocket<Box<dyn Stream>>) {
    while let Ok(message) = socket.read() {
        let Message::Binary(frame) = message else { continue };
        let mut answer = vec![1];
        match frame[0] {
            4 => {
                let size: Value = serde_json::from_slice(&frame[1..]).unwrap();
                answer.extend_from_slice(
                    format!("[{}x{}]", size["width"], size["height"]).as_bytes(),
                );
            }
            _ if frame[1..].contains(&b'q') => answer = br#"3{"exitCode":3}"#.to_vec(),
            _ => answer.extend_from_slice(&frame[1..]),
        }
        if answer[0] == b'3' {
            answer[0] = 3;
        }
        socket.send(Message::Binary(answer.into())).unwrap();
    }
}

fn resize(terminal: &OwnedFd, width: u16, height: u16) {
    let size =
        rustix::termios::Winsize { ws_col: width, ws_row: height, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal, size).unwrap();
}

/// A terminal of our own, and the binary on it.
struct OnTerminal {
    ours: std::fs::File,
    theirs: OwnedFd,
    child: Child,
    seen: String,
}

impl OnTerminal {
    fn start(server: &StandIn, line: &[&str]) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let open = || std::fs::File::options().read(true).write(true).open(&name).unwrap();
        let theirs: OwnedFd = open().into();
        resize(&theirs, 80, 24);
        let mut command = server.command(line);
        let child = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        Self { ours: ours.into(), theirs, child, seen: String::new() }
    }

    /// Until it has told the size of its window, what is typed is echoed by the kernel.
    fn begun(&mut self) {
        self.wait_for("[80x24]");
    }

    fn resize(&self, width: u16, height: u16) {
        resize(&self.theirs, width, height);
        // Not its controlling terminal, so that the kernel does not tell it.
        self.signal("-WINCH");
    }

    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            let mut fds = [PollFd::new(&self.ours, PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
            assert!(Instant::now() < until, "{text:?} does not come: {:?}", self.seen);
            if fds[0].revents().is_empty() {
                continue;
            }
            let mut bytes = [0; 256];
            let count = self.ours.read(&mut bytes).unwrap();
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    fn is_cooked(&self) -> bool {
        tcgetattr(&self.theirs).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
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

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SHELL: [&str; 7] = ["exec", "-it", "web", "--cluster", "dev", "--", "sh"];

#[test]
fn a_terminal_is_raw_resized_and_given_back() {
    let server = StandIn::start(|_| Reply::Socket(terminal));
    let mut shell = OnTerminal::start(&server, &SHELL);
    shell.begun();
    shell.ours.write_all(b"hello\x03").unwrap();
    shell.wait_for("hello\x03");
    assert!(!shell.is_cooked(), "what is typed goes through as it is, Ctrl-C too");
    shell.resize(123, 45);
    shell.wait_for("[123x45]");
    shell.ours.write_all(b"q").unwrap();
    assert_eq!(shell.exit_code(), Some(3));
    assert!(shell.is_cooked());
}

#[test]
fn a_signal_or_a_lost_server_gives_the_terminal_back() {
    let server = StandIn::start(|_| Reply::Socket(terminal));
    let mut shell = OnTerminal::start(&server, &SHELL);
    shell.begun();
    assert!(!shell.is_cooked());
    shell.signal("-TERM");
    assert_eq!(shell.exit_code(), Some(128 + 15));
    assert!(shell.is_cooked());

    let server = StandIn::start(|_| {
        Reply::Socket(|mut socket| {
            // The size of the window; then it is gone.
            let _ = socket.read();
        })
    });
    let mut shell = OnTerminal::start(&server, &SHELL);
    shell.wait_for("ended before the command did");
    assert_eq!(shell.exit_code(), Some(2));
    assert!(shell.is_cooked());
}

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
    let began = Instant::now();
    for _ in 0..200 {
        drop(forward.talk());
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(9), "no wait is in it: {took:?}");
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
