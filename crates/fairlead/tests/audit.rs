//! The audit of a real `fairlead up`: what the command line shows and exports, what outlives a kill, and that
//! nobody gets at this machine by importing a cluster.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod running;

use running::Up;
use serde_json::{Value, json};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn it_says_who_became_admin_also_after_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let up = Up::start(data.path(), "none");
    up.wait_until_ready_says("access ready");
    let add =
        up.fairlead_with(&["users", "add", "ann", "--role", "viewer"], "a few words will do\n");
    assert_eq!(add.code, 0, "{}", add.err);
    assert_eq!(up.fairlead(&["users", "roles", "ann", "admin"]).code, 0);
    let url = format!("{}/api/v1/login", up.api);
    let wrong = json!({"user": "ann", "password": "not hers at all"});
    assert_eq!(up.send("POST", &url, &[], &wrong).status, 401);
    let right = json!({"user": "ann", "password": "a few words will do"});
    assert_eq!(up.send("POST", &url, &[], &right).status, 200);
    // What is begun after them is on disk after them.
    assert_eq!(up.fairlead(&["tokens", "create", "--user", "ann"]).code, 0);
    up.kill();

    let up = Up::start(data.path(), "none");
    let shown = up.fairlead(&["audit", "--resource", "users.fairlead.dev"]);
    assert!(shown.out.contains("roles viewer -> admin"), "{}", shown.out);
    let became = up.fairlead(&["audit", "--verb", "update", "--name", "ann", "-o", "json"]).json();
    let entry = &became["entries"][0];
    assert_eq!(
        (&entry["before"]["roles"], &entry["after"]["roles"]),
        (&json!(["viewer"]), &json!(["admin"]))
    );
    assert_eq!(entry["user"], "local");
    let logins = up.fairlead(&["audit", "--verb", "login", "-o", "json"]).json();
    let mut outcomes: Vec<_> = logins["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["outcome"].as_str().unwrap())
        .collect();
    // One is noted and the other folded, so that either may be the first on disk.
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["ok", "wrong"]);

    let export = up.fairlead(&["audit", "export", "--since", "1h"]);
    assert_eq!(export.code, 0, "{}", export.err);
    let all = lines(&export.out);
    let phases: Vec<_> = all.iter().map(|line| line["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["begun", "ended", "begun", "ended", "noted", "noted", "begun", "ended"]);
    assert!(!export.out.contains("a few words"));
    let none = up.fairlead(&["audit", "export", "--until", "1h"]);
    assert_eq!((none.code, &*none.out), (0, ""));
    let recordings = up.fairlead(&["audit", "recordings", "-o", "json"]);
    assert_eq!(recordings.json()["recordings"], json!([]));
    assert!(recordings.err.contains("audit.record-shells"));
    // The files say it to nobody else.
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(data.path().join(path)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("audit"), mode("audit/audit.jsonl")), (0o700, 0o600));
}

#[test]
fn a_link_that_logs_in_is_printed_on_request_and_not_into_a_log() {
    // `Up::start` asserts that nothing but the name of this command is printed where stdout is a pipe.
    let data = tempfile::tempdir().unwrap();
    let up = Up::start(data.path(), "none");
    up.wait_until_ready_says("access ready");
    let made = up.fairlead(&["login-link"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let link = made.out.trim();
    assert!(link.starts_with(&format!("{}/login?code=", up.api)), "{link}");
    assert_eq!(up.send("GET", link, &[], &Value::Null).status, 303);
    assert_eq!(up.send("GET", link, &[], &Value::Null).status, 401);
}

fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- {{name: c, cluster: {{server: '{server}'}}}}\n\
         users:\n- {{name: u, user: {{token: t}}}}\ncontexts:\n- {{name: c, context: {{cluster: c, user: u}}}}\n"
    )
}

#[test]
fn an_import_does_not_lead_to_this_machine_where_that_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let own = data.path().join("kubeconfig");
    std::fs::write(&own, kubeconfig("https://127.0.0.1:1")).unwrap();
    let up = Up::start_with(&data.path().join("data"), own.to_str().unwrap(), |command| {
        command.args(["--fleet-local-imports", "refuse"])
    });
    up.wait_until_ready_says("fleet ready");
    let import = |name: &str, server: &str| {
        let body = json!({"name": name, "kubeconfig": kubeconfig(server)});
        up.ask("POST", "/clusters", &body)
    };
    for server in [
        "https://127.0.0.1:6443",
        "https://localhost:6443",
        "http://169.254.169.254",
        "https://[::1]:6443",
        "https://[::ffff:169.254.169.254]",
    ] {
        let answer = import("inside", server);
        assert_eq!(answer.status, 400, "{server}: {}", answer.text);
        assert!(answer.text.contains("fleet.local-imports"), "{}", answer.text);
    }
    let answer = import("outside", "https://192.0.2.1:6443");
    assert_eq!(answer.status, 201, "{}", answer.text);
    // The owner's own kubeconfig may: nothing listens there, and that is what is said.
    let clusters =
        up.wait_for("/clusters", |answer| answer.to_string().contains("refuses connections"));
    assert!(clusters.to_string().contains("outside"));
}
