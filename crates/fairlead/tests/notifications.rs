//! A real `fairlead up` tells a receiver of what users do, also after `kill -9`; and takes what NeuVector had.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use running::{PATIENCE, Up};
use serde_json::{Value, json};

mod running;

/// A webhook that takes notifications, or refuses them with 503.
#[derive(Clone)]
struct Hook {
    address: SocketAddr,
    refuses: Arc<AtomicBool>,
    taken: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let hook = Self { address, refuses: Arc::default(), taken: Arc::default() };
        let answering = hook.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(stream);
                let (mut line, mut length) = (String::new(), 0);
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                if reader.read_exact(&mut body).is_err() {
                    continue;
                }
                let status = if answering.refuses.load(SeqCst) { 503 } else { 200 };
                if status == 200 {
                    answering.taken.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                }
                let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n");
                let _ = reader.get_mut().write_all(answer.as_bytes());
            }
        });
        hook
    }

    /// Waits for a notification about this object.
    fn wait_for(&self, name: &str, object: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let taken = self.taken.lock().unwrap().clone();
            let found =
                taken.iter().find(|it| it["name"] == name && it["details"]["object"] == object);
            if let Some(found) = found {
                return found.clone();
            }
            assert!(Instant::now() < until, "{name} {object} is not in {taken:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn what_users_do_is_told_also_after_kill_9() {
    let (data, hook) = (tempfile::tempdir().unwrap(), Hook::start());
    let file = |name: &str, value: &Value| {
        let path = data.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let up = Up::start(&data.path().join("data"), "none");
    let url = format!("http://{}/", hook.address);
    let receiver = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "Receiver", "metadata": {"name": "ops"},
        "spec": {"webhook": {"url": url}}});
    let key = data.path().join("key");
    std::fs::write(&key, "a key of more than sixteen bytes\n").unwrap();
    let secret = format!("hmac-key={}", key.display());
    let applied = up.fairlead(&[
        "receivers",
        "apply",
        &file("ops.json", &receiver),
        "--secret-file",
        &secret,
    ]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let rule = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "ResponseRule", "metadata": {"name": "writes"},
        "spec": {"event": "audit", "actions": ["notify"], "receivers": ["ops"],
                 "conditions": {"names": ["audit.write"]}}});
    assert_eq!(up.fairlead(&["responses", "apply", &file("writes.json", &rule)]).code, 0);
    let tested = up.fairlead(&["receivers", "test", "ops", "-o", "json"]);
    assert_eq!((tested.code, &tested.json()["taken"]), (0, &json!(true)), "{tested:?}");
    assert_ne!(up.fairlead(&["receivers", "test", "nobody"]).code, 0);

    let user = |name: &str| json!({"name": name, "password": "correct horse battery", "roles": ["viewer"]});
    let made = up.ask("POST", "/users", &user("ada"));
    assert!(made.status < 300, "{}", made.text);
    let told = hook.wait_for("audit.write", "ada");
    assert_eq!((&told["kind"], &told["details"]["user"]), (&json!("audit"), &json!("local")));

    // Refused, accepted and kept; the process dies, the next one tells it.
    hook.refuses.store(true, SeqCst);
    let made = up.ask("POST", "/users", &user("bob"));
    assert!(made.status < 300, "{}", made.text);
    let until = Instant::now() + PATIENCE;
    loop {
        let listed = up.fairlead(&["receivers", "-o", "json"]);
        let ops = listed.json()["receivers"][0].clone();
        if ops["queued"] == 1 && ops["state"] == "failing" {
            assert_eq!(listed.code, 1, "a receiver that fails is a finding");
            assert!(ops["why"].as_str().unwrap().contains("503"), "{ops}");
            assert!(!listed.out.contains("sixteen bytes"), "{}", listed.out);
            break;
        }
        assert!(Instant::now() < until, "{ops}");
        thread::sleep(Duration::from_millis(50));
    }
    drop(up);
    hook.refuses.store(false, SeqCst);
    let up = Up::start(&data.path().join("data"), "none");
    hook.wait_for("audit.write", "bob");
    let listed = up.fairlead(&["responses", "-o", "json"]).json();
    assert_eq!(listed["responses"][0]["state"], "active", "{listed}");
}

#[test]
fn what_neuvector_had_is_imported_and_again_changes_nothing() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("nv.json");
    let export = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "neuvector.com/v1", "kind": "NvClusterSecurityRule", "metadata": {"name": "shop"}, "spec": {
            "target": {"policymode": "Monitor", "selector": {"name": "shop", "criteria": [
                {"key": "domain", "op": "=", "value": "shop"}]}},
            "ingress": [{"selector": {"name": "external"}, "applications": ["any"], "ports": "tcp/443",
                "action": "allow", "name": "shop-in", "priority": 0}],
            "egress": [{"selector": {"name": "lost", "criteria": [{"key": "container", "op": "=", "value": "x"}]},
                "applications": ["any"], "ports": "any", "action": "allow", "name": "shop-out", "priority": 0}],
            "process": [{"name": "sh", "path": "/bin/sh", "action": "deny"}], "file": [], "response": []}},
    ]});
    std::fs::write(&file, export.to_string()).unwrap();
    let up = Up::start(&data.path().join("data"), "none");
    let file = file.to_str().unwrap();
    let dry = up.fairlead(&["guard", "import", file, "--dry-run", "-o", "json"]);
    // The group that cannot be, and the rule that names it.
    assert_eq!((dry.code, &dry.json()["refused"]), (1, &json!(2)), "{dry:?}");
    let before = up.get("/guard/groups").json();
    assert!(!before.to_string().contains("\"shop\""), "{before}");
    let written = up.fairlead(&["guard", "import", file]);
    assert_eq!(written.code, 1, "{written:?}");
    assert!(written.out.contains("process rules") && written.out.contains("not carried over"));
    let state = || {
        let rules = up.get("/guard/rules").json();
        let found = rules["rules"].as_array().unwrap().iter().any(|rule| rule["name"] == "shop-in");
        (found, rules)
    };
    let until = Instant::now() + PATIENCE;
    while !state().0 {
        assert!(Instant::now() < until, "{}", state().1);
        thread::sleep(Duration::from_millis(50));
    }
    let first = state().1;
    assert_eq!(up.fairlead(&["guard", "import", file]).code, 1);
    assert_eq!(state().1, first);
}
