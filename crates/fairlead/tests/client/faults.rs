//! Servers that refuse, are silent or are something else: sentences and exit codes.

use serde_json::json;

use crate::stand_in::{Reply, StandIn, TOKEN, ok, problem, said};

#[test]
fn faults_are_sentences_with_a_way_out() {
    let refusing = |reply: fn() -> Reply| StandIn::start(move |_| reply());
    let (code, _, err) =
        refusing(|| problem(401, "unauthenticated", "no such token")).run("users list");
    assert_eq!(code, 2);
    assert!(err.contains("--token-file") && !err.contains(TOKEN), "{err}");
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
