//! `fairlead mesh`, through the real binary: the plan from files, the rest against a real server.

#![allow(clippy::unwrap_used, reason = "tests")]

mod running;

use std::path::Path;
use std::process::Command;

use running::Up;
use serde_json::{Value, json};

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
}
