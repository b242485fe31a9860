//! The API as programs and browsers meet it: a real process, a real store on disk, a real API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod running;

use std::path::Path;

use running::{Answer, PATIENCE, Up};
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

const PASSWORD: &str = "a few words will do";

fn done(answer: &Answer) {
    assert!(answer.status < 300, "{}: {}", answer.status, answer.text);
}

#[test]
fn without_a_kubeconfig_it_says_so() {
    let data = tempfile::tempdir().unwrap();
    let absent = data.path().join("no-such-kubeconfig");
    let up = Up::start(&data.path().join("data"), absent.to_str().unwrap());
    let clusters = up.wait_for("/clusters", |answer| answer["synced"] == true);
    assert_eq!(clusters["clusters"], json!([]));
    let hint = clusters["hint"].as_str().unwrap();
    assert!(hint.contains("no-such-kubeconfig") && hint.contains("clusters add"), "{hint}");
    // Whoever observes no cluster has no policies, and says so at once instead of looking for a leader.
    let status = up.fairlead(&["policy", "status"]);
    assert_ne!(status.code, 0);
    assert!(status.err.contains("guard.cluster"), "{}", status.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_the_api_from_login_to_kill_9() {
    requires!(kube);
    let server = KubeServer::start().await;
    let data = tempfile::tempdir().unwrap();
    let kubeconfig = server.kubeconfig_path();
    let kubeconfig = kubeconfig.to_str().unwrap().to_owned();
    let text = server.access().kubeconfig().to_owned();
    let dir = data.path().to_owned();
    // The steps block; the server needs no runtime of ours.
    tokio::task::spawn_blocking(move || steps(&dir, &kubeconfig, &text)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_a_store_without_our_kinds_says_what_to_run_and_then_serves() {
    requires!(kube);
    let server = KubeServer::start().await;
    let data = tempfile::tempdir().unwrap();
    let path = server.kubeconfig_path();
    let start = move || {
        let up = Up::start_with(data.path(), "none", |command| {
            command.args(["--store", "kubernetes"]).env("KUBECONFIG", path)
        });
        (up, data)
    };
    let (up, data) = tokio::task::spawn_blocking(start).await.unwrap();
    let up = tokio::task::spawn_blocking(move || {
        up.wait_until_ready_says("fairlead crds | kubectl apply -f -");
        // Whoever has the machine's token is known whatever the store says.
        assert_eq!(up.get("/me").json()["user"], "local");
        assert_eq!(up.ask("POST", "/users", &json!({"name": "ann"})).status, 503);
        up
    });
    let up = up.await.unwrap();
    let soon = stallproof::Deadline::after(PATIENCE);
    objects::install(server.client().await, soon).await.unwrap();
    let after = move || {
        up.wait_until_ready_says("\nready");
        done(&up.ask("POST", "/users", &json!({"name": "ann"})));
        up.kill();
        drop(data);
    };
    tokio::task::spawn_blocking(after).await.unwrap();
    let users = kube::Api::<objects::kinds::User>::all(server.client().await);
    users.get("ann").await.unwrap();
}

fn steps(data: &Path, kubeconfig: &str, text: &str) {
    let up = Up::start(data, kubeconfig);
    log_in_by_link(&up);
    clusters_come_and_go(&up, text);
    people_come_and_go(&up);
    let revoked = up.get("/audit?limit=1000").json();
    let entries = revoked["entries"].as_array().unwrap();
    assert!(
        entries.iter().any(|entry| entry["verb"] == "create" && entry["outcome"] == "ok: copy")
    );
    assert!(!revoked.to_string().contains(PASSWORD));

    up.kill();
    let up = Up::start(data, kubeconfig);
    up.wait_for("/users", |answer| answer.to_string().contains("\"bob\""));
    let body = json!({"user": "bob", "password": PASSWORD});
    done(&up.send("POST", &format!("{}/api/v1/login", up.api), &[], &body));
    up.wait_for("/clusters", |answer| {
        answer["clusters"].as_array().unwrap().iter().all(|cluster| cluster["state"] == "ready")
    });
}

fn log_in_by_link(up: &Up) {
    let link = up.login_link();
    let answer = up.send("GET", &link, &[], &Value::Null);
    assert_eq!(answer.status, 303, "{}", answer.text);
    let cookie = answer.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    let me = format!("{}/api/v1/me", up.api);
    let me = up.send("GET", &me, &[("cookie", cookie)], &Value::Null).json();
    assert_eq!(me["user"], "local");
    assert_eq!(up.send("GET", &link, &[], &Value::Null).status, 401, "once");
    assert!(up.send("GET", &format!("{}/", up.api), &[], &Value::Null).text.contains("Fairlead"));
}

fn clusters_come_and_go(up: &Up, kubeconfig: &str) {
    let ready = |answer: &Value| {
        let clusters = answer["clusters"].as_array().unwrap();
        !clusters.is_empty() && clusters.iter().all(|cluster| cluster["state"] == "ready")
    };
    let clusters = up.wait_for("/clusters", ready);
    let name = clusters["clusters"][0]["name"].as_str().unwrap().to_owned();
    assert!(clusters["clusters"][0]["version"].as_str().unwrap().starts_with("v1."));

    let import = json!({"name": "copy", "kubeconfig": kubeconfig});
    done(&up.ask("POST", "/clusters", &import));
    up.wait_for("/clusters/copy", |cluster| cluster["state"] == "ready");
    let again = up.ask("POST", "/clusters", &import);
    assert_eq!(again.status, 409, "{}", again.text);
    let tested = up.ask("POST", "/clusters/copy/test", &Value::Null).json();
    assert_eq!(tested["ok"], true, "{tested}");
    let kinds = up.get("/clusters/copy/kinds").json();
    let pods = |kind: &Value| kind["name"] == "pods" && kind["shortNames"] == json!(["po"]);
    assert!(kinds["kinds"].as_array().unwrap().iter().any(pods));
    done(&up.ask("POST", "/clusters/copy/kinds/reset", &Value::Null));

    let off = up.ask("PATCH", "/clusters/copy", &json!({"enabled": false})).json();
    assert_eq!(off["state"], "disabled", "{off}");
    done(&up.ask("PATCH", "/clusters/copy", &json!({"enabled": true})));
    done(&up.ask("DELETE", "/clusters/copy", &Value::Null));
    assert_eq!(up.get("/clusters/copy").status, 404);
    // What a file brings is removed in the file.
    let kept = up.ask("DELETE", &format!("/clusters/{name}"), &Value::Null);
    assert_eq!(kept.status, 400, "{}", kept.text);
}

fn people_come_and_go(up: &Up) {
    let role = json!({"allow": [{
        "clusters": ["*"], "namespaces": ["*"], "resources": ["*"], "verbs": ["get", "list"]
    }]});
    done(&up.ask("PUT", "/roles/looker", &role));
    done(&up.ask("PUT", "/roles/looker", &role));
    let bob = json!({"name": "bob", "password": PASSWORD, "roles": ["looker"]});
    done(&up.ask("POST", "/users", &bob));
    assert_eq!(up.ask("POST", "/users", &bob).status, 409);
    done(&up.ask("POST", "/users", &json!({"name": "ann", "roles": ["viewer"]})));
    let made = up.ask("POST", "/tokens", &json!({"user": "ann", "description": "ci"}));
    assert_eq!(made.status, 201, "{}", made.text);
    let (name, token) = (made.json()["name"].clone(), made.json()["token"].clone());
    let (name, token) = (name.as_str().unwrap(), token.as_str().unwrap());

    assert_eq!(up.ask_as(token, "GET", "/clusters", &Value::Null).status, 200);
    let import = json!({"name": "x", "kubeconfig": "{}"});
    let refused = up.ask_as(token, "POST", "/clusters", &import);
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")));
    assert_eq!(up.ask_as(token, "GET", "/users", &Value::Null).status, 403);

    done(&up.ask("DELETE", &format!("/tokens/{name}"), &Value::Null));
    assert_eq!(up.ask_as(token, "GET", "/clusters", &Value::Null).status, 401, "at once");
    assert_eq!(up.ask("DELETE", "/roles/looker", &Value::Null).status, 403, "bob has it");
    done(&up.ask("PATCH", "/users/ann", &json!({"disabled": true})));
    done(&up.ask("DELETE", "/users/ann", &Value::Null));
    assert_eq!(up.get("/users/ann").status, 404);
}
