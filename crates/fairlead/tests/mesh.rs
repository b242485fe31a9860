//! `fairlead mesh`, through the real binary: the plan from files, the rest against a real server.

#![allow(clippy::unwrap_used, reason = "tests")]

mod running;

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, PostParams};
use objects::kinds::{WireguardNode, WireguardPeer};
use running::Up;
use serde_json::{Value, json};
use testkit::{KubeServer, requires};
use wireguard::PrivateKey;

const MESH: &str = "
apiVersion: fairlead.dev/v1alpha1
kind: ClusterMesh
metadata: {name: prod, namespace: fairlead}
spec:
  clusters:
  - name: eu
    local: true
    allowedNetworks: [10.1.0.0/16, 10.4.0.0/24, 10.96.0.0/16]
  - name: us
    kubeconfigSecretRef: {name: us, key: kubeconfig}
    allowedNetworks: [10.2.0.0/16]
    persistentKeepalive: 25
";

fn node(name: &str, key: &str, wireguard: &str, pods: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {
            "kilo.squat.ai/key": key, "kilo.squat.ai/wireguard-ip": wireguard,
            "kilo.squat.ai/force-endpoint": format!("{name}.example.com:51820"),
        }},
        "spec": {"podCIDRs": [pods]},
    })
}

/// Runs in `dir` with the files of [`write`].
fn run(dir: &Path, args: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fairlead"))
        .args(["mesh", "plan"])
        .args(args.split_whitespace())
        .current_dir(dir)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn write(dir: &Path) {
    let put = |name: &str, text: String| std::fs::write(dir.join(name), text).unwrap();
    let eu = [node("eu-1", "K1", "10.4.0.1/24", "10.1.0.0/24")];
    let us = node("us-1", "K2", "10.2.255.1/32", "10.2.0.0/24");
    put("mesh.yaml", MESH.to_owned());
    put("eu.json", json!({"apiVersion": "v1", "kind": "List", "items": eu}).to_string());
    // Several documents, JSON being YAML.
    put(
        "us.yaml",
        format!(
            "---\n{us}\n---\n{}\n",
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "us-2"},
                "spec": {"podCIDRs": ["10.2.1.0/24"]},
            })
        ),
    );
}

#[test]
fn a_plan_for_our_own_data_plane_reads_what_agents_say() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let put = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
    put("mesh.yaml", MESH.replace("spec:\n", "spec:\n  dataPlane: wireguard\n"));
    let key = "b8a8LyxAlV0vKMcV8jcW5x7JG3l9Tss5g5WgqcSSOTk=";
    let said = json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "WireguardNode", "metadata": {"name": "eu-1"},
        "spec": {"node": "eu-1", "publicKey": key, "port": 51821},
    });
    let node = node("eu-1", "K1", "10.4.0.1/24", "10.1.0.0/24");
    put("eu.json", json!({"apiVersion": "v1", "kind": "List", "items": [node, said]}).to_string());
    let args = "--mesh mesh.yaml --nodes eu=eu.json --nodes us=us.yaml -o json";
    let (code, out, err) = run(dir.path(), args);
    assert_eq!((code, err.as_str()), (0, ""));
    let plan: Value = serde_json::from_str(&out).unwrap();
    let peer = &plan["targets"][1]["creates"][0];
    assert_eq!(
        (&peer["apiVersion"], &peer["kind"]),
        (&json!("fairlead.dev/v1alpha1"), &json!("WireguardPeer"))
    );
    assert_eq!(
        peer["spec"],
        json!({"allowedIPs": ["10.1.0.0/24"], "persistentKeepalive": 25, "publicKey": key})
    );
    assert_eq!(plan["skipped"][0]["reason"], "NodeNoPublicKey");
    // Another kind is a mistake that does not pass for none.
    put(
        "us.yaml",
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}).to_string(),
    );
    let (code, _, err) = run(dir.path(), args);
    assert_eq!(code, 2);
    assert!(err.contains("has a Pod; a Node, WireguardNode, AddressBlock or a list"), "{err}");
}

#[test]
fn a_plan_is_made_from_files_and_applied_leaves_nothing_to_write() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let both = "--mesh mesh.yaml --nodes eu=eu.json --nodes us=us.yaml";
    let (code, out, err) = run(dir.path(), &format!("{both} -o json"));
    assert_eq!((code, err.as_str()), (0, ""));
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["targets"][1]["cluster"], "us");
    let peer = &plan["targets"][1]["creates"][0];
    assert_eq!(peer["apiVersion"], "kilo.squat.ai/v1alpha1");
    assert_eq!(peer["metadata"]["name"], "prod--eu--eu-1");
    assert_eq!(
        peer["metadata"]["labels"],
        json!({"fairlead.dev/mesh": "prod", "fairlead.dev/mesh-namespace": "fairlead",
               "fairlead.dev/source-cluster": "eu"})
    );
    assert_eq!(
        peer["spec"],
        json!({"allowedIPs": ["10.1.0.0/24", "10.4.0.1/32", "10.96.0.0/16"],
               "endpoint": {"dnsOrIP": {"dns": "eu-1.example.com"}, "port": 51820},
               "persistentKeepalive": 25, "publicKey": "K1"})
    );
    assert_eq!(plan["skipped"][0]["reason"], "NodeNoWireguardIP");
    assert_eq!(plan["status"]["conditions"][0]["status"], "False");

    for (target, file) in [(0, "eu-peers.json"), (1, "us-peers.json")] {
        let list = json!({"apiVersion": "kilo.squat.ai/v1alpha1", "kind": "PeerList",
                          "items": plan["targets"][target]["creates"]});
        std::fs::write(dir.path().join(file), list.to_string()).unwrap();
    }
    let peers = "--peers eu=eu-peers.json --peers us=us-peers.json";
    let (code, out, _) = run(dir.path(), &format!("{both} {peers}"));
    assert_eq!(code, 0);
    assert!(out.starts_with("nothing to write\n"), "{out}");
    assert!(out.contains("NodeNoWireguardIP"), "{out}");
    // A cluster whose nodes nobody gave is away: its peers stay.
    let (code, out, _) = run(dir.path(), &format!("--mesh mesh.yaml --nodes eu=eu.json {peers}"));
    assert_eq!(code, 0);
    assert!(out.starts_with("nothing to write\n"), "{out}");
    assert!(out.contains("Unreachable") && out.contains("--nodes us=FILE"), "{out}");
}

#[test]
fn what_cannot_be_planned_is_told_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    std::fs::write(dir.path().join("one.yaml"), MESH.split("  - name: us").next().unwrap())
        .unwrap();
    std::fs::write(dir.path().join("broken.yaml"), "a: [").unwrap();
    for (args, sentence) in [
        ("--mesh none.yaml --nodes eu=eu.json", "none.yaml cannot be read"),
        ("--mesh eu.json --nodes eu=eu.json", "has a Node; a ClusterMesh"),
        ("--mesh one.yaml --nodes eu=eu.json", "needs at least two clusters"),
        ("--mesh mesh.yaml --nodes asia=eu.json", "the mesh has no cluster asia; it has eu, us"),
        ("--mesh mesh.yaml --nodes eu=broken.yaml", "broken.yaml: is not YAML"),
        ("--mesh mesh.yaml --nodes eu=eu.json --nodes eu=eu.json", "is given twice"),
        ("--mesh mesh.yaml --nodes eu.json", "expected CLUSTER=FILE"),
    ] {
        let (code, out, err) = run(dir.path(), args);
        assert_eq!((code, out.as_str()), (2, ""), "{args}");
        assert!(err.contains(sentence), "{args}: {err}");
    }
}

#[test]
fn a_mesh_is_applied_shown_checked_and_deleted_on_one_machine() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let file = dir.path().join("mesh.yaml");
    let file = file.to_str().unwrap();
    let up = Up::start(&dir.path().join("data"), "none");
    let none = up.fairlead(&["mesh", "status"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""), "{none:?}");
    assert!(none.err.contains("mesh apply"), "{none:?}");
    let applied = up.fairlead(&["mesh", "apply", file]);
    assert_eq!((applied.code, applied.out.as_str()), (0, "mesh fairlead/prod applied\n"));

    // Who leads is this process: it says what it waits for.
    let waits = |answer: &Value| {
        let clusters = &answer["meshes"][0]["status"]["clusters"];
        clusters[1]["why"] == "waiting for Secret fairlead/us"
            && clusters[0]["why"].as_str().is_some_and(|why| why.contains("clusterRef"))
    };
    up.wait_for("/meshes", waits);
    let shown = up.fairlead(&["mesh", "status", "prod"]);
    assert_eq!(shown.code, 1, "{shown:?}");
    assert!(shown.out.contains("fairlead/prod") && shown.out.contains("Secret fairlead/us"));
    let listed = up.fairlead(&["mesh", "status", "-o", "json"]).json();
    assert_eq!(listed["meshes"][0]["spec"]["clusters"][1]["persistentKeepalive"], 25);
    let dot = up.fairlead(&["mesh", "status", "-o", "dot"]).out;
    assert!(dot.starts_with("graph meshes {") && dot.contains(r#""0/eu" -- "0/us""#), "{dot}");
    let checked = up.fairlead(&["mesh", "check", "fairlead/prod", "eu", "us"]);
    assert_eq!(checked.code, 1, "{checked:?}");
    let lines: Vec<&str> = checked.out.lines().skip(1).collect();
    assert!(lines[0].starts_with("ClusterUnreachable"), "{checked:?}");
    assert!(lines[1].starts_with("ClusterWaiting"), "{checked:?}");

    let stranger = up.fairlead(&["mesh", "check", "none", "eu", "us"]);
    assert!(stranger.code == 2 && stranger.err.contains("there is no mesh none"), "{stranger:?}");
    let held = up.fairlead(&["mesh", "forget", "prod", "us"]);
    assert!(held.code != 0 && held.err.contains("us is in the mesh"), "{held:?}");
    let deleted = up.fairlead(&["mesh", "delete", "prod"]);
    assert_eq!(deleted.code, 0, "{deleted:?}");
    // Written down as joined, and never seen: a person gives them up.
    let leaving = |answer: &Value| {
        let joined =
            answer["meshes"][0]["status"]["joined"].as_array().cloned().unwrap_or_default();
        joined.len() == 2 && joined.iter().all(|joined| joined["leaving"].is_string())
    };
    up.wait_for("/meshes", leaving);
    for cluster in ["eu", "us"] {
        let forgotten = up.fairlead(&["mesh", "forget", "prod", cluster]);
        assert_eq!(forgotten.code, 0, "{forgotten:?}");
    }
    up.wait_for("/meshes", |answer| answer["meshes"] == json!([]));

    // Networks of two clusters that overlap are no refusal; who applies them hears of it.
    let same = std::fs::read_to_string(file).unwrap().replace("10.2.0.0/16", "10.1.2.0/24");
    std::fs::write(file, same).unwrap();
    let applied = up.fairlead(&["mesh", "apply", file]);
    let said = "mesh fairlead/prod applied, but 10.1.0.0/16 of eu overlaps 10.1.2.0/24 of us: \
                the peers of both stay as they are\n";
    assert_eq!((applied.code, applied.out.as_str()), (0, said));
}

/// A kubeconfig with a context for each server.
fn kubeconfig(path: &Path, servers: &[(&str, &KubeServer)]) {
    let mut all = json!({"apiVersion": "v1", "kind": "Config"});
    for (list, key) in [("clusters", "cluster"), ("users", "user"), ("contexts", "context")] {
        let entries = servers.iter().map(|(name, server)| {
            let access: Value = serde_json::from_str(server.access().kubeconfig()).unwrap();
            let value = match list {
                "contexts" => json!({"cluster": name, "user": name}),
                _ => access[list][0][key].clone(),
            };
            json!({"name": name, key: value})
        });
        all[list] = entries.collect();
    }
    std::fs::write(path, all.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_a_laptop_is_let_in_by_every_cluster_until_it_is_revoked() {
    requires!(kube);
    let (eu, us) = tokio::join!(KubeServer::start(), KubeServer::start());
    let clients = [eu.client().await, us.client().await];
    let node_key = PrivateKey::generate().unwrap().public().to_string();
    let limit = stallproof::Deadline::after(running::PATIENCE);
    for client in &clients {
        objects::install(client.clone(), limit).await.unwrap();
    }
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "eu-1", "annotations": {"fairlead.dev/wireguard-endpoint": "gate.example.com:51821"}},
        "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]},
    }))
    .unwrap();
    Api::all(clients[0].clone()).create(&PostParams::default(), &node).await.unwrap();
    let said: WireguardNode = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "WireguardNode", "metadata": {"name": "eu-1"},
        "spec": {"node": "eu-1", "publicKey": node_key, "port": 51821},
    }))
    .unwrap();
    Api::all(clients[0].clone()).create(&PostParams::default(), &said).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (config, file) = (dir.path().join("kubeconfig"), dir.path().join("mesh.yaml"));
    kubeconfig(&config, &[("eu", &eu), ("us", &us)]);
    let mesh = "
apiVersion: fairlead.dev/v1alpha1
kind: ClusterMesh
metadata: {name: prod, namespace: fairlead}
spec:
  dataPlane: wireguard
  clusters:
  - {name: eu, clusterRef: eu, allowedNetworks: [10.1.0.0/16, 10.96.0.0/16]}
  - {name: us, clusterRef: us, allowedNetworks: [10.2.0.0/16]}
";
    std::fs::write(&file, mesh).unwrap();
    let up = Up::start(&dir.path().join("data"), config.to_str().unwrap());
    let add = ["mesh", "peer", "add", "laptop", "--mesh", "prod", "-o", "json"];
    let none = up.fairlead(&add);
    assert!(none.code == 2 && none.err.contains("there is no mesh prod"), "{none:?}");
    assert_eq!(up.fairlead(&["mesh", "apply", file.to_str().unwrap()]).code, 0);
    let with_endpoint =
        |answer: &Value| answer["clusters"][0]["nodes"][0]["endpoint"] == "gate.example.com:51821";
    up.wait_for("/meshes/fairlead/prod/tunnels", with_endpoint);
    // There are no addresses to give yet.
    let refused = up.fairlead(&add);
    assert!(refused.code != 0 && refused.err.contains("externalNetworks"), "{refused:?}");
    std::fs::write(&file, mesh.replace("spec:", "spec:\n  externalNetworks: [10.99.0.0/24]"))
        .unwrap();
    assert_eq!(up.fairlead(&["mesh", "apply", file.to_str().unwrap()]).code, 0);

    let added = up.fairlead(&[&add[..], &["--network", "192.168.7.0/24", "--qr"]].concat());
    assert_eq!(added.code, 0, "{added:?}");
    let answer = added.json();
    assert_eq!(answer["peer"]["addresses"], json!(["10.99.0.1"]));
    let text = answer["configuration"].as_str().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let private = lines.iter().find_map(|it| it.strip_prefix("PrivateKey = ")).unwrap();
    let key = private.parse::<PrivateKey>().unwrap().public().to_string();
    assert_eq!(answer["peer"]["publicKey"], key.as_str());
    for line in [
        "Address = 10.99.0.1/32",
        &format!("PublicKey = {node_key}"),
        "Endpoint = gate.example.com:51821",
        "AllowedIPs = 10.1.0.0/24, 10.96.0.0/16",
    ] {
        assert!(lines.contains(&line), "{line}: {text}");
    }
    // A QR code has a quiet zone of four around it; the least has 21 on a side.
    assert!(added.err.lines().filter(|it| it.contains('\u{2588}')).count() > 10, "{}", added.err);
    let listed = up.fairlead(&["mesh", "peer", "list", "-o", "json"]).json();
    assert_eq!(listed["peers"][0]["mesh"], "fairlead/prod");
    assert!(!listed.to_string().contains(private), "the private key is nobody's");

    // Both clusters let it in, at its addresses, and nothing but its key is known of it.
    let peers = async |client: &kube::Client| {
        let all = Api::<WireguardPeer>::all(client.clone()).list(&ListParams::default()).await;
        let all = all.unwrap().items.into_iter();
        let own = all.filter(|it| it.metadata.name.as_deref() == Some("prod--external--laptop"));
        own.map(|it| it.spec).collect::<Vec<_>>()
    };
    let until = std::time::Instant::now() + running::PATIENCE;
    for client in &clients {
        let peer = loop {
            match peers(client).await.pop() {
                Some(peer) => break peer,
                None => assert!(std::time::Instant::now() < until, "it is let in"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        };
        assert_eq!(peer.public_key, key);
        assert_eq!(peer.allowed_ips, ["10.99.0.1/32", "192.168.7.0/24"]);
        assert!(peer.endpoint.is_none());
    }
    // The configuration is lost: the name has a key already, and gets another, at the same address.
    let again = up.fairlead(&add);
    assert!(again.code != 0 && again.err.contains("--replace"), "{again:?}");
    let anew = up.fairlead(&[&add[..], &["--replace"]].concat()).json();
    assert_eq!(anew["peer"]["addresses"], json!(["10.99.0.1"]));
    assert_ne!(anew["peer"]["publicKey"], key.as_str());
    let second =
        up.fairlead(&["mesh", "peer", "add", "office", "--mesh", "prod", "-o", "json"]).json();
    assert_eq!(second["peer"]["addresses"], json!(["10.99.0.2"]));

    let revoked = up.fairlead(&["mesh", "peer", "revoke", "laptop", "--mesh", "prod"]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    for client in &clients {
        while !peers(client).await.is_empty() {
            assert!(std::time::Instant::now() < until + running::PATIENCE, "it is let in still");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    let twice = up.fairlead(&["mesh", "peer", "revoke", "laptop", "--mesh", "prod"]);
    assert!(twice.code != 0 && twice.err.contains("has no peer laptop"), "{twice:?}");
    // Who let it in and who revoked it is on record.
    let audit = up.fairlead(&["audit", "-o", "json"]).out;
    assert!(audit.contains("/peers") || audit.contains("laptop"), "{audit}");
    assert!(!audit.contains(private), "the private key is nobody's");
}
