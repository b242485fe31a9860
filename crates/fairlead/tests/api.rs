//! The API as programs and browsers meet it: a real process, a real store on disk, a real API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{KubeServer, requires};
use ureq::http::Request;

const PATIENCE: Duration = Duration::from_secs(60);
const PASSWORD: &str = "a few words will do";

/// A running `fairlead up`, killed when dropped.
struct Up {
    child: Child,
    api: String,
    admin: String,
    login: String,
    token: String,
    http: ureq::Agent,
}

struct Answer {
    status: u16,
    headers: ureq::http::HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }
}

impl Up {
    fn start(data: &Path, kubeconfig: &str) -> Self {
        Self::start_with(data, kubeconfig, |command| command)
    }

    fn start_with(
        data: &Path,
        kubeconfig: &str,
        set: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        command
            .env("FAIRLEAD_CONFIG", "/dev/null")
            .args(["up", "--admin-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0"])
            .args(["--fleet-kubeconfig", kubeconfig, "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = set(&mut command).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let [mut api, mut admin, mut login, mut file] = [const { String::new() }; 4];
        for line in lines.map_while(Result::ok) {
            let Some((name, place)) = line.trim().split_once(' ') else { continue };
            match name {
                "api" => place.trim().trim_end_matches('/').clone_into(&mut api),
                "admin" => place.trim().trim_end_matches('/').clone_into(&mut admin),
                "login" => place.trim().clone_into(&mut login),
                "token" => place.trim().clone_into(&mut file),
                "data" => break,
                _ => {}
            }
        }
        let token = std::fs::read_to_string(file).unwrap().trim().to_owned();
        let http = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            .build();
        Self { child, api, admin, login, token, http: http.into() }
    }

    fn send(&self, method: &str, url: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = request.body(text).unwrap();
        let request = self.http.configure_request(request).allow_non_standard_methods(true).build();
        let mut answer = self.http.run(request).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        Answer { status: answer.status().as_u16(), headers: answer.headers().clone(), text }
    }

    fn ask_as(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let url = format!("{}/api/v1{path}", self.api);
        self.send(method, &url, &[("authorization", &bearer)], body)
    }

    /// As the machine's owner.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.ask_as(&self.token, method, path, body)
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &Value::Null)
    }

    /// Asks until the answer is as `wanted`.
    fn wait_for(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path);
            if answer.status == 200 && wanted(&answer.json()) {
                return answer.json();
            }
            assert!(Instant::now() < until, "{path}: {}", answer.text);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_until_ready_says(&self, wanted: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.send("GET", &format!("{}/readyz", self.admin), &[], &Value::Null);
            if answer.text.contains(wanted) {
                return;
            }
            assert!(Instant::now() < until, "{}", answer.text);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
    let soon = flow::Deadline::after(PATIENCE);
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
    let answer = up.send("GET", &up.login, &[], &Value::Null);
    assert_eq!(answer.status, 303, "{}", answer.text);
    let cookie = answer.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    let me = format!("{}/api/v1/me", up.api);
    let me = up.send("GET", &me, &[("cookie", cookie)], &Value::Null).json();
    assert_eq!(me["user"], "local");
    assert_eq!(up.send("GET", &up.login, &[], &Value::Null).status, 401, "once");
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
    assert_eq!(again.status, 400, "{}", again.text);
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
