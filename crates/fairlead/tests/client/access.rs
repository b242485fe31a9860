//! Users, roles, tokens and the audit.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::stand_in::{Reply, StandIn, ok};

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
        ("POST", "/api/v1/tokens") => Reply::Json(
            201,
            json!({"name": "ci", "user": "ann", "token": "fl_new", "expires": "never"}),
        ),
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
    assert!(err.contains("never expires"), "{err}");
    assert_eq!(server.requests().pop().unwrap().body, r#"{"expires":"never"}"#);
    assert!(server.run("tokens list").1.contains("ci     ann    never"));
    let (_, out, _) = server.run("audit --since 1h --user ann");
    assert!(out.contains("ann    delete   prod      shop        pods       web    ok"), "{out}");
    assert!(
        server.paths().pop().unwrap().starts_with("GET /api/v1/audit?limit=100&user=ann&since=20")
    );
}
