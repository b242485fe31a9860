//! The fleet as its users meet it: real API servers, a real process, the real command line.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod running;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use running::{PATIENCE, Up};
use serde_json::{Value, json};
use testkit::{Fault, KubeServer, Proxy, requires};

/// The kubeconfig of a test, written anew as a person would.
struct Contexts {
    path: PathBuf,
    config: Value,
}

impl Contexts {
    fn new(dir: &Path) -> Self {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []
        });
        Self { path: dir.join("kubeconfig"), config }
    }

    /// `access` is a kubeconfig; its context `user` becomes the context `name`.
    fn put(&mut self, name: &str, access: &str, user: &str, edit: impl FnOnce(&mut Value)) {
        let access: Value = serde_json::from_str(access).unwrap();
        let users = access["users"].as_array().unwrap();
        let user = users.iter().find(|found| found["name"] == user).unwrap()["user"].clone();
        let mut cluster = access["clusters"][0]["cluster"].clone();
        edit(&mut cluster);
        for (list, key, value) in [
            ("clusters", "cluster", cluster),
            ("users", "user", user),
            ("contexts", "context", json!({"cluster": name, "user": name})),
        ] {
            let list = self.config[list].as_array_mut().unwrap();
            list.retain(|entry| entry["name"] != name);
            list.push(json!({"name": name, key: value}));
        }
    }

    fn write(&self) {
        let new = self.path.with_extension("new");
        std::fs::write(&new, self.config.to_string()).unwrap();
        std::fs::rename(new, &self.path).unwrap();
    }
}

fn state(up: &Up, cluster: &str) -> String {
    let list = up.fairlead(&["clusters", "list", "-o", "json"]);
    assert_eq!(list.code, 0, "{list:?}");
    assert!(list.took < Duration::from_secs(5), "the list waits for nobody: {list:?}");
    let list = list.json();
    let found = list["clusters"].as_array().unwrap().iter().find(|view| view["name"] == cluster);
    found.map_or_else(String::new, |view| view["state"].as_str().unwrap().to_owned())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_three_clusters_of_which_one_goes_dark_and_one_has_a_bad_certificate() {
    requires!(kube);
    let (well, dark, odd) =
        tokio::join!(KubeServer::start(), KubeServer::start(), KubeServer::start());
    let proxy = Proxy::start(dark.address());
    let dir = tempfile::tempdir().unwrap();
    let mut contexts = Contexts::new(dir.path());
    contexts.put("well", well.access().kubeconfig(), "certificate", |_| {});
    contexts.put("dark", dark.through(&proxy).kubeconfig(), "certificate", |_| {});
    let stranger: Value = serde_json::from_str(well.access().kubeconfig()).unwrap();
    contexts.put("odd", odd.access().kubeconfig(), "certificate", |cluster| {
        let authority = "certificate-authority-data";
        cluster[authority] = stranger["clusters"][0]["cluster"][authority].clone();
    });
    contexts.write();
    let token = well.access().kubeconfig().to_owned();
    let steps = move || {
        let up = Up::start(&dir.path().join("data"), contexts.path.to_str().unwrap());
        everybody_is_told_of(&up);
        one_goes_dark(&up, &proxy);
        a_kind_comes_late(&up);
        credentials_rotate_under_load(&up, &mut contexts, &token);
        drop(dir);
    };
    tokio::task::spawn_blocking(steps).await.unwrap();
    drop((well, dark, odd));
}

fn everybody_is_told_of(up: &Up) {
    until("all three are judged", || {
        ["well", "dark", "odd"].map(|name| state(up, name)) == ["ready", "ready", "misconfigured"]
    });
    let list = up.fairlead(&["clusters", "list"]);
    assert!(list.out.contains("certificate"), "why: {}", list.out);
    let made = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}).to_string();
    let applied = up.fairlead_with(&["apply", "-f", "-", "--cluster", "well,dark"], &made);
    assert_eq!(applied.code, 0, "{applied:?}");
}

fn one_goes_dark(up: &Up, proxy: &Proxy) {
    proxy.inject(Fault::BlackHole);
    // Before anybody knows: the living answer, the dark one is waited for until the deadline.
    let get = up.fairlead(&["get", "nodes", "--all-clusters", "--timeout", "4s"]);
    assert_eq!(get.code, 1, "some did not answer: {get:?}");
    assert!(get.out.contains("well") && get.out.contains("n1"), "{get:?}");
    assert!(!get.out.contains("dark"), "{get:?}");
    assert!(get.err.contains("dark") && get.err.contains("odd"), "each is named: {get:?}");
    until("it is not called ready", || state(up, "dark") != "ready");
    until("it is called unreachable", || state(up, "dark") == "unreachable");
    // Now nobody waits for it.
    let get = up.fairlead(&["get", "nodes", "--all-clusters", "-o", "json"]);
    let get = get.json();
    let row = get["clusters"].as_array().unwrap().iter().find(|row| row["name"] == "dark");
    assert_eq!(row.unwrap()["problem"]["code"], "not-ready", "{get}");
    assert_eq!(get["items"].as_array().unwrap().len(), 1, "{get}");
    proxy.heal();
    until("it is back by itself", || state(up, "dark") == "ready");
}

fn a_kind_comes_late(up: &Up) {
    let get = ["get", "widgets", "--cluster", "well"];
    let absent = up.fairlead(&get);
    assert_eq!(absent.code, 1, "{absent:?}");
    assert!(absent.err.contains("widgets"), "{absent:?}");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
            }}],
        },
    });
    let apply = ["apply", "-f", "-", "--cluster", "well"];
    let applied = up.fairlead_with(&apply, &definition.to_string());
    assert_eq!(applied.code, 0, "{applied:?}");
    until("it is found without a restart", || up.fairlead(&get).code == 0);
}

/// Requests go on while the user of a context changes from a certificate to a token.
fn credentials_rotate_under_load(up: &Up, contexts: &mut Contexts, access: &str) {
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let before = connects(up);
    std::thread::scope(|scope| {
        let load = || {
            while !stop.load(Ordering::Relaxed) {
                let answer = up.get("/clusters/well/resources/namespaces");
                assert_eq!(answer.status, 200, "{}", answer.text);
                served.fetch_add(1, Ordering::Relaxed);
            }
        };
        let threads = [scope.spawn(load), scope.spawn(load), scope.spawn(load)];
        let some = || served.load(Ordering::Relaxed);
        until("requests are served", || some() > 20);
        contexts.put("well", access, "token", |_| {});
        contexts.write();
        until("the new client is in use", || connects(up) > before);
        let then = some();
        until("requests are served after it", || some() > then + 20);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(state(up, "well"), "ready");
}

fn connects(up: &Up) -> u64 {
    let metrics = up.send("GET", &format!("{}/metrics", up.admin), &[], &Value::Null).text;
    let line = metrics.lines().find(|line| line.starts_with("fairlead_fleet_connects_total"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}
