//! Resources of one cluster and of several: listed, watched, deleted.

use serde_json::{Value, json};

use crate::stand_in::{Reply, Request, StandIn, ok, problem};
use crate::{clusters, pods};

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
