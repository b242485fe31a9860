use serde_json::json;

use super::Probe;
use crate::Inputs;

fn inputs() -> Inputs {
    let mut inputs = Inputs::default();
    let pod = |name: &str, addresses: serde_json::Value, ports: serde_json::Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "x", "name": name},
               "spec": {"containers": [{"name": "c", "ports": ports}]},
               "status": {"podIPs": addresses}})
    };
    let both = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
    let web = json!([{"name": "http", "containerPort": 8080},
                     {"name": "http", "containerPort": 8081, "protocol": "UDP"}]);
    for document in [
        pod("both", both, web),
        pod("six", json!([{"ip": "fd00::2"}]), json!([])),
        pod("four", json!([{"ip": "10.0.0.3"}]), json!([])),
        pod("none", json!([]), json!([])),
    ] {
        assert!(inputs.add_cluster(&document).is_ok_and(|added| added));
    }
    inputs.complete();
    inputs
}

fn wrong(probe: serde_json::Value) -> String {
    let inputs = inputs();
    let probe: Probe = serde_json::from_value(probe).unwrap_or_else(|e| panic!("{e}"));
    probe.answer(&inputs.cluster, &inputs.policies).err().unwrap_or_default()
}

#[test]
fn what_cannot_be_meant_is_said_by_field() {
    for (probe, expected) in [
        (json!({"from": "x/nobody", "to": "x/both", "port": 80}), "from: there is no pod x/nobody"),
        (json!({"from": "web", "to": "x/both", "port": 80}), "from: \"web\" is neither"),
        (json!({"from": "x/four", "to": "x/six", "port": 80}), "no address of one family"),
        (json!({"from": "x/four", "to": "x/both"}), "port: is missing"),
        (json!({"from": "x/four", "to": "x/both", "port": 0}), "port: is 0"),
        (json!({"from": "x/four", "to": "x/both", "port": "dns"}), "has no TCP port named \"dns\""),
        (json!({"from": "x/four", "to": "1.1.1.1", "port": "http"}), "1.1.1.1 is no pod"),
        (
            json!({"from": "x/four", "to": "x/both", "protocol": "ICMP", "port": "http"}),
            "has no ports",
        ),
        (
            json!({"from": "x/four", "to": "x/both", "protocol": "HTTP", "port": 8}),
            "is no protocol",
        ),
    ] {
        let sentence = wrong(probe.clone());
        assert!(sentence.contains(expected), "{probe}: {sentence}");
    }
}

#[test]
fn ends_use_the_first_address_of_a_common_family() {
    let inputs = inputs();
    let connection = |from: &str, to: &str| {
        let probe: Probe = serde_json::from_value(json!({"from": from, "to": to, "port": 80}))
            .unwrap_or_else(|e| panic!("{e}"));
        let connection = probe.connection(&inputs.cluster).unwrap_or_else(|e| panic!("{e}"));
        (
            connection.from.address.map(|it| it.to_string()),
            connection.to.address.map(|it| it.to_string()),
        )
    };
    let pair = |a: &str, b: &str| (Some(a.to_owned()), Some(b.to_owned()));
    assert_eq!(connection("x/six", "x/both"), pair("fd00::2", "fd00::1"));
    assert_eq!(connection("x/both", "x/four"), pair("10.0.0.1", "10.0.0.3"));
    assert_eq!(connection("::ffff:10.0.0.3", "x/both"), pair("10.0.0.3", "10.0.0.1"));
    assert_eq!(connection("x/none", "x/both"), (None, Some("10.0.0.1".to_owned())));
}

#[test]
fn a_port_by_name_is_that_of_the_protocol() {
    let inputs = inputs();
    for (protocol, number) in [("TCP", 8080), ("UDP", 8081), ("udp", 8081)] {
        let probe = json!({"from": "x/four", "to": "x/both", "protocol": protocol, "port": "http"});
        let probe: Probe = serde_json::from_value(probe).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(probe.connection(&inputs.cluster).map(|it| it.port), Ok(number));
    }
}

#[test]
fn a_number_is_not_looked_at_where_the_protocol_has_no_ports() {
    let probe = json!({"from": "x/four", "to": "x/both", "protocol": "ICMP", "port": 0});
    assert_eq!(wrong(probe), "");
}

#[test]
fn the_answer_is_the_contract() {
    let inputs = inputs();
    let probe: Probe =
        serde_json::from_value(json!({"from": "x/both", "to": "1.1.1.1", "port": 53,
        "protocol": "UDP", "expected": "ignored"}))
        .unwrap_or_else(|e| panic!("{e}"));
    let answer = probe.answer(&inputs.cluster, &inputs.policies).unwrap_or_else(|e| panic!("{e}"));
    let side = |why: &str| {
        json!({"verdict": "allow", "tier": null, "policy": null, "rule": null,
                                  "kind": null, "why": why})
    };
    assert_eq!(
        json!(answer),
        json!({"from": "x/both", "to": "1.1.1.1", "protocol": "UDP", "port": 53,
        "verdict": "allow", "egress": side("no policy selects the source"),
        "ingress": side("the destination is no pod that policies select")})
    );
}
