use serde_json::json;

use super::*;

fn pool(name: &str, bits: u64, subnets: &Value) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "AddressPool", "metadata": { "name": name },
        "spec": { "blockSizeBits": bits, "subnets": subnets },
    })
}

fn block(pool: &str, index: u32, node: &str, ipv4: &str) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "AddressBlock",
        "metadata": {
            "name": format!("{pool}-{index}"),
            "finalizers": ["coil.cybozu.com"],
            "labels": { "coil.cybozu.com/node": node, "coil.cybozu.com/pool": pool },
        },
        "index": index, "ipv4": ipv4,
    })
}

fn egress(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "Egress",
        "metadata": { "name": name, "namespace": "internet" }, "spec": spec,
    })
}

fn cluster() -> Cluster {
    let nodes = [("n1", "192.0.2.1"), ("n2", "192.0.2.2")];
    let nodes = nodes.map(|(node, at)| (node.to_owned(), vec![at.parse().unwrap()]));
    Cluster { nodes: nodes.into(), pools: Vec::new() }
}

fn outcomes(imported: &Imported) -> Vec<(&str, Outcome)> {
    imported.report.iter().map(|it| (it.name.as_str(), it.outcome)).collect()
}

#[test]
fn pools_and_blocks_keep_their_addresses_and_their_nodes() {
    let documents = [
        block("default", 3, "n1", "10.64.0.96/27"),
        pool("default", 5, &json!([{ "ipv4": "10.64.0.0/25" }, { "ipv4": "10.65.0.0/24" }])),
        // Counted over both subnets, as here.
        block("default", 5, "n2", "10.65.0.32/27"),
        pool("both", 0, &json!([{ "ipv4": "10.66.0.0/24", "ipv6": "fd66::/120" }])),
    ];
    let imported = import(&documents, &cluster());
    assert!(imported.report.iter().all(|it| it.outcome == Outcome::Kept), "{:?}", imported.report);
    assert_eq!(imported.report.len(), 4);
    let spec = &imported.pools[0].spec;
    assert_eq!((spec.block_size_bits, spec.subnets.len()), (5, 2));
    let [first, second] = imported.blocks.as_slice() else { panic!() };
    assert_eq!(first.metadata.name.as_deref(), Some("default-3"));
    assert_eq!((first.spec.node.as_str(), first.spec.ipv4), ("n1", "10.64.0.96/27".parse().ok()));
    assert_eq!(first.spec.node_addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
    assert_eq!((second.spec.node.as_str(), second.spec.index), ("n2", 5));
    assert_eq!(import(&documents, &cluster()), imported, "again is the same");
}

#[test]
fn what_cannot_be_kept_is_said_one_by_one() {
    let mut leaving = block("default", 0, "n1", "10.64.0.0/27");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut nameless = block("default", 2, "n1", "10.64.0.64/27");
    nameless["metadata"]["labels"] = json!({ "coil.cybozu.com/pool": "default" });
    let documents = [
        pool("default", 5, &json!([{ "ipv4": "10.64.0.9/24" }])),
        pool("wrong", 5, &json!([{ "ipv4": "10.65.0.0/30" }])),
        leaving,
        nameless,
        block("default", 1, "n9", "10.64.0.32/27"),
        block("default", 4, "n1", "10.99.0.128/27"),
        block("default", 40, "n1", "10.64.5.0/27"),
        block("wrong", 0, "n1", "10.65.0.0/30"),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" } }),
        json!({ "apiVersion": API_VERSION, "kind": "BlockRequest", "metadata": { "name": "r" } }),
    ];
    let imported = import(&documents, &cluster());
    let refused: Vec<_> =
        outcomes(&imported).into_iter().filter(|(_, it)| *it == Outcome::Refused).collect();
    assert_eq!(refused.len(), 8, "{:?}", imported.report);
    assert!(imported.blocks.is_empty());
    assert_eq!(imported.report[0].outcome, Outcome::Changed);
    assert!(
        imported.report[0].why.contains("10.64.0.9/24 is 10.64.0.0/24"),
        "{:?}",
        imported.report
    );
    for (name, why) in [
        ("wrong", "blocks of it are refused too"),
        ("default-0", "being deleted"),
        ("default-2", "names no node"),
        ("default-1", "there is no node n9"),
        ("default-4", "ipv4 is 10.99.0.128/27, and 10.64.0.128/27 by its pool"),
        ("default-40", "has no block 40"),
        ("wrong-0", "there is no pool wrong"),
        ("x", "it is of v1"),
    ] {
        let said = imported.report.iter().find(|it| it.name == name).unwrap();
        assert!(said.why.contains(why), "{said:?}");
    }
}

#[test]
fn egresses_keep_what_they_are_for_and_lose_how_coil_runs_them() {
    let documents = [
        egress("plain", &json!({ "destinations": ["203.0.113.0/24", "::/0"], "replicas": 2 })),
        egress(
            "full",
            &json!({
                "destinations": ["198.51.100.7/24"],
                "fouSourcePortAuto": true,
                "sessionAffinity": "None",
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0 } },
                "podDisruptionBudget": { "maxUnavailable": 1 },
                "template": {
                    "metadata": { "labels": { "team": "net" } },
                    "spec": {
                        "serviceAccountName": "coil-egress",
                        "tolerations": [{ "operator": "Exists" }],
                        "containers": [
                            { "name": "egress", "image": "theirs", "resources": { "limits": { "cpu": "1" } } },
                            { "name": "beside", "image": "own" },
                        ],
                    },
                },
            }),
        ),
        egress("none", &json!({ "destinations": [] })),
        egress("bad", &json!({ "destinations": ["everywhere"] })),
    ];
    let imported = import(&documents, &Cluster::default());
    assert_eq!(
        outcomes(&imported),
        [
            ("internet/plain", Outcome::Kept),
            ("internet/full", Outcome::Changed),
            ("internet/none", Outcome::Refused),
            ("internet/bad", Outcome::Refused),
        ]
    );
    let why = &imported.report[1].why;
    for told in ["198.51.100.0/24", "fouSourcePortAuto", "image, serviceAccountName of Coil's own"]
    {
        assert!(why.contains(told), "{why}");
    }
    let full = &imported.egresses[1];
    assert_eq!(full.metadata.namespace.as_deref(), Some("internet"));
    let pod = &full.spec.template.as_ref().unwrap().spec;
    assert_eq!(
        pod["containers"],
        json!([
            { "name": "egress", "resources": { "limits": { "cpu": "1" } } },
            { "name": "beside", "image": "own" },
        ])
    );
    assert!(pod.contains_key("tolerations") && !pod.contains_key("serviceAccountName"));
}
