//! `fairlead mesh plan`, through the real binary.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

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
