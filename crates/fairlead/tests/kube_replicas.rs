//! What guard knows is read from any replica: two controllers as processes on one API server. And a response rule
//! quarantines a real pod.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod controllers;
#[path = "../../fleet/tests/kubelet/mod.rs"]
#[allow(dead_code, reason = "the tests of the fleet use more of it")]
mod kubelet;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use controllers::{Controller, PATIENCE, create, eventually, leader, prepared, replica_pod, texts};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kubelet::Kubelet;
use objects::Objects;
use serde_json::{Value, json};
use stallproof::{Deadline, Ledger, Tasks};
use testkit::requires;
use traffic::conversations::{LocalWorkload, Moment, Protocol, Record, Report, Totals};
use traffic::ingest::{ActiveIngest, Ingest, ReportSink, Settings};

fn record(client: [u8; 4], server: [u8; 4], port: u16, bytes: u64) -> Record {
    Record {
        client: client.into(),
        server: server.into(),
        port,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes, packets: 3, sessions: 2 },
        first: Moment::now().before(Duration::from_secs(10)),
        last: Moment::now(),
    }
}

/// A term of counting, as a controller that led leaves it on disk: two conversations, and their history.
async fn count(data: &Path, bytes: u64) {
    let (active, tasks) = (ActiveIngest::default(), Tasks::new("before"));
    let objects = Objects::embedded(&data.join("before"), &tasks).unwrap();
    let below = tasks.clone();
    let settings = Settings::new(data.join("guard"));
    let begin = move |ingest: &Ingest| ingest.follow_store(&objects, &below);
    let term = active.clone().hold(settings, Ledger::default(), tasks.clone(), begin);
    let mut changes = active.changes();
    let term = tasks.spawn("term", term);
    let soon = Deadline::after(PATIENCE);
    soon.bound(changes.changed()).await.unwrap();
    let ingest = active.ingest().unwrap();
    let workload = |name: &str, number| LocalWorkload {
        namespace: "shop".into(),
        name: name.into(),
        addresses: vec![[10, 0, 0, number].into()],
        from: Moment(0),
    };
    ingest.set_workloads("node-1", &[workload("web", 1), workload("db", 2)]);
    let records = vec![
        record([10, 0, 0, 1], [10, 0, 0, 2], 5432, bytes),
        record([192, 0, 2, 7], [10, 0, 0, 1], 443, 70),
    ];
    let agent = "node-1".into();
    let report = Report { agent, incarnation: 1, sequence: 1, records, ..Report::default() };
    let op = Ledger::default().begin("report", "node-1", "node-1");
    ingest.offer(&report, |_| true, soon, &op).await.unwrap();
    while ingest.view().conversations(|_| true, Moment(0)).count() < 2 {
        assert!(!soon.has_passed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tasks.stop("the term is over");
    soon.bound(term).await.unwrap().unwrap();
    tasks.shutdown(Duration::from_secs(30)).await;
}

/// A pod of the namespace `shop`, with the status that a kubelet writes.
async fn pod(pods: &Api<Pod>, name: &str, address: &str) {
    create(
        pods,
        json!({"metadata": {"name": name},
               "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "web/cart:1"}]}}),
    )
    .await;
    let status =
        json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

/// The answer, once there is one that fits: a replica may not know yet who leads.
async fn answer(replica: &Controller, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let found = eventually(path, async || {
        last = replica.ask(path);
        fits(&last).then(|| last.clone())
    });
    found.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_kube_any_replica_tells_of_conversations_history_violations_and_queues() {
    requires!(kube);
    let server = prepared().await;
    let client = server.client().await;
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = ("127.77.0.1", "127.77.0.2");
    let home = Api::<Pod>::namespaced(client.clone(), "fairlead");
    replica_pod(&home, "replica-1", "Running", first).await;
    replica_pod(&home, "replica-2", "Running", second).await;
    create(&Api::<Namespace>::all(client.clone()), json!({"metadata": {"name": "shop"}})).await;
    let pods = Api::<Pod>::namespaced(client.clone(), "shop");
    pod(&pods, "web", "10.0.0.1").await;
    pod(&pods, "db", "10.0.0.2").await;
    // Both have led before, each for a while.
    count(&dir.path().join(first), 4000).await;
    count(&dir.path().join(second), 300).await;

    let port = TcpListener::bind((first, 0)).unwrap().local_addr().unwrap().port();
    let kubeconfig = server.kubeconfig_path();
    let [one, two] = [first, second].map(|at| {
        let flags = ["--notify-quarantine=on"];
        Controller::start_with(&kubeconfig, dir.path(), at, port, &flags)
    });
    for replica in [&one, &two] {
        eventually("every replica is ready", async || {
            (replica.readyz().0 == 200 && replica.ca().exists()).then_some(())
        })
        .await;
    }
    let leases = Api::<Lease>::namespaced(client.clone(), "fairlead");
    let leads = eventually("somebody leads", async || leader(&leases).await).await;
    let [leads, mut follows] = if one.address == leads { [one, two] } else { [two, one] };

    // Conversations are the leader's, history is of both.
    let whole = |it: &Value| it["matched"] == 2 && it.get("missing").is_none();
    let here = answer(&leads, "/guard/conversations", |it| it["matched"] == 2).await;
    let there = answer(&follows, "/guard/conversations", |it| it["matched"] == 2).await;
    assert_eq!(here["totals"], there["totals"]);
    let past = "/guard/history?from=2020-01-01T00:00:00Z";
    for replica in [&leads, &follows] {
        let history = answer(replica, past, whole).await;
        assert_eq!(history["totals"]["bytes"], 4000 + 300 + 2 * 70, "{history}");
        let with = answer(replica, &format!("{past}&end=192.0.2.7"), |it| it["matched"] == 1).await;
        assert_eq!(
            (&with["conversations"][0]["bytes"], &with["complete"]),
            (&json!(140), &json!(true))
        );
        let (code, out, err) =
            replica.fairlead(&["conversations", "--since", "1h", "--until", "0s"]);
        assert!(code == 0 && out.contains("tcp/5432 (postgresql)"), "{out}{err}");
        let (code, out, err) = replica.fairlead(&["conversations", "--export", "jsonl"]);
        assert!(code == 0 && out.lines().count() == 4, "{out}{err}");
        let (code, out, err) = replica.fairlead(&["conversations", "--export", "otlp"]);
        assert!(code == 0 && out.contains("\"resourceLogs\""), "{out}{err}");
    }

    let file = |name: &str, value: Value| {
        let path = dir.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // What was learned is written down and compared by whichever replica is asked.
    let learned = |it: &Value| {
        let rules = it["rules"].as_array().cloned().unwrap_or_default();
        rules.iter().any(|it| it["origin"] == "learned")
    };
    let rules = answer(&follows, "/guard/rules", learned).await;
    let name = rules["rules"][0]["name"].as_str().unwrap().to_owned();
    let (code, out, err) = follows.fairlead(&["rules", "promote", &name]);
    assert!(code == 0 && out.contains(&name), "{out}{err}");
    let (code, out, err) = follows.fairlead(&["rules", "delete", &name]);
    assert_eq!(code, 0, "{out}{err}");
    let export = file(
        "export",
        json!({"kind": "NvClusterSecurityRule", "metadata": {"name": "nobody"}, "spec": {
            "target": {"selector": {"name": "containers"}}, "egress": [],
            "ingress": [{"selector": {"name": "external"}, "applications": ["any"], "ports": "any",
                         "action": "deny", "name": "nobody-from-outside", "priority": 0}]}}),
    );
    let (code, out, err) = follows.fairlead(&["guard", "import", &export, "--diff"]);
    assert!(code == 1 && out.contains("nobody-from-outside"), "{code} {out}{err}");

    // Who watches at the one that does not lead hears of a violation, and of the queue that waits for a
    // receiver; the pod is put apart, as the rule says.
    let heard = dir.path().join("heard");
    let mut watching = follows.command(&["violations", "-w", "-o", "json"]);
    let mut watching = watching.stdout(File::create(&heard).unwrap()).spawn().unwrap();
    let kind = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let nobody = json!({"webhook": {"url": "http://127.0.0.1:1/"}});
    let responses =
        json!({"event": "violation", "actions": ["notify", "quarantine"], "receivers": ["ops"]});
    let denies = json!({"from": "external", "to": "any", "action": "deny", "priority": 10});
    for (verb, object) in [
        ("receivers", kind("Receiver", "ops", nobody)),
        ("responses", kind("ResponseRule", "apart", responses)),
        ("rules", kind("NetworkRule", "nothing-from-outside", denies)),
    ] {
        let path = file(verb, object);
        let (code, out, err) = follows.fairlead(&[verb, "apply", &path]);
        assert_eq!(code, 0, "{out}{err}");
        if verb == "responses" {
            // The leader must know of both before there is something to tell.
            let known = |it: &Value| it["responses"].as_array().is_some_and(|it| it.len() == 1);
            answer(&leads, "/responses", known).await;
            eventually("the leader knows the receiver", async || {
                // Nobody listens there: it is known, and takes nothing.
                (leads.fairlead(&["receivers", "test", "ops"]).0 == 1).then_some(())
            })
            .await;
        }
    }
    let one = |it: &Value| it["violations"].as_array().is_some_and(|it| it.len() == 1);
    for replica in [&leads, &follows] {
        let told = answer(replica, "/guard/violations", one).await;
        assert_eq!(told["violations"][0]["rule"], "nothing-from-outside");
    }
    eventually("who watches hears of it", async || {
        std::fs::read_to_string(&heard).unwrap().contains("nothing-from-outside").then_some(())
    })
    .await;
    watching.kill().unwrap();
    watching.wait().unwrap();
    for replica in [&leads, &follows] {
        let waits = |it: &Value| it["receivers"][0]["queued"] == 1 && it.get("missing").is_none();
        let listed = answer(replica, "/receivers", waits).await;
        assert_eq!(listed["receivers"].as_array().unwrap().len(), 1, "{listed}");
    }
    let labels =
        eventually("the pod is put apart", async || pods.get("web").await.unwrap().metadata.labels)
            .await;
    assert_eq!(labels.get("fairlead.dev/quarantine").map(String::as_str), Some("true"));
    assert_eq!(pods.get("db").await.unwrap().metadata.labels, None, "only who it is about");
    let audited = |it: &Value| {
        let entries = it["entries"].as_array().cloned().unwrap_or_default();
        entries.iter().any(|it| it["via"] == "response-rule/apart" && it["outcome"] == "ok")
    };
    let audit = answer(&follows, "/audit?resource=pods", audited).await;
    assert_eq!(audit["entries"][0]["name"], "web", "{audit}");

    let added = ["clusters", "add", "home", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let (code, out, err) = follows.fairlead(&added);
    assert_eq!(code, 0, "{out}{err}");
    forwards_of_all_replicas(&client, &leads, &follows).await;

    // Who is gone costs what only it had, and is named.
    follows.child.kill().unwrap();
    follows.child.wait().unwrap();
    let left = answer(&leads, past, |it| it.get("missing").is_some()).await;
    let own = if leads.address == first { 4000 } else { 300 };
    assert_eq!(left["totals"]["bytes"], own + 70, "{left}");
    let list = leads.ask("/forwards");
    let gone = if leads.address == first { "replica-2" } else { "replica-1" };
    assert_eq!((&list["forwards"], &list["missing"][0]["replica"]), (&json!([]), &json!(gone)));
}

/// A port-forward through one replica is listed by the other, which has it ended.
async fn forwards_of_all_replicas(client: &kube::Client, here: &Controller, there: &Controller) {
    let kubelet = Kubelet::start().await;
    let nodes = Api::<Node>::all(client.clone());
    create(&nodes, json!({"metadata": {"name": "node-1"}})).await;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": kubelet.address.ip()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.address.port()}}}});
    nodes.patch_status("node-1", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let ready = |list: &Value| list["clusters"][0]["state"] == "ready";
    answer(there, "/clusters", ready).await;
    let port = format!(":{}", kubelet::PORT);
    let mut forward = there.command(&["forward", "web", &port, "-n", "shop", "--cluster", "home"]);
    let mut forward = forward.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(forward.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut tcp = TcpStream::connect(line.split_whitespace().next().unwrap()).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    tcp.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    tcp.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"HELLO");

    let one = |list: &Value| list["forwards"].as_array().is_some_and(|it| it.len() == 1);
    let own = answer(there, "/forwards", one).await;
    assert!(own["forwards"][0].get("replica").is_none(), "{own}");
    let seen = answer(here, "/forwards", one).await;
    let it = &seen["forwards"][0];
    assert_eq!((&it["pod"], &it["bytesToPod"]), (&json!("web"), &json!(5)), "{seen}");
    assert!(seen.get("missing").is_none(), "{seen}");
    let (id, replica) = (it["id"].as_u64().unwrap(), it["replica"].as_str().unwrap());
    let end = |of: &str| here.delete(&format!("/forwards/{id}?replica={of}"));
    assert_eq!(end("replica-9").0, 404);
    let (status, text) = end(replica);
    assert_eq!(status, 204, "{text}");
    // Its bytes end, and it leaves both lists.
    assert!(matches!(tcp.read(&mut heard), Ok(0) | Err(_)));
    let none = |list: &Value| list["forwards"] == json!([]);
    answer(here, "/forwards", none).await;
    forward.kill().unwrap();
    forward.wait().unwrap();
    // The replica that did it has it in its audit; the one that was asked has nothing more to say.
    let path = "/audit?resource=portforwards";
    let audit = answer(here, path, |it| it["entries"][0]["outcome"] == "ok").await;
    assert_eq!(texts(&audit["entries"], "outcome"), ["ok"], "{audit}");
}
