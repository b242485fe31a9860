//! NetworkPolicy v1.

use super::table::Truth;

/// A policy of namespace x that selects pods by `selector`.
fn policy(name: &str, spec: &str) -> String {
    let spec: Vec<_> = spec.trim_matches('\n').lines().map(|line| format!("  {line}")).collect();
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{namespace: x, name: {name}}}\n\
         spec:\n{}\n---\n",
        spec.join("\n")
    )
}

fn one(spec: &str) -> Truth {
    Truth::of(&policy("p", spec))
}

#[test]
fn without_a_policy_everything_is_allowed() {
    let truth = Truth::of("").holds();
    let answer = truth.answer("x/a", "y/b", "TCP", 80);
    assert_eq!((answer.egress.tier, answer.ingress.policy), (None, None));
}

#[test]
fn default_deny_ingress_isolates_every_pod_of_the_namespace() {
    one("podSelector: {}\npolicyTypes: [Ingress]").deny("*", "x/*", "*").holds();
}

#[test]
fn default_deny_egress_and_default_deny_all() {
    one("podSelector: {}\npolicyTypes: [Egress]").deny("x/*", "*", "*").holds();
    one("podSelector: {}\npolicyTypes: [Ingress, Egress]")
        .deny("x/*", "*", "*")
        .deny("*", "x/*", "*")
        .holds();
}

#[test]
fn without_policy_types_ingress_is_meant_and_egress_if_there_are_rules() {
    one("podSelector: {}").deny("*", "x/*", "*").holds();
    one("podSelector: {}\negress: []").deny("*", "x/*", "*").holds();
    let egress = "podSelector: {}\negress:\n- to:\n  - podSelector: {}";
    one(egress).deny("*", "x/*", "*").deny("x/*", "*", "*").holds();
    let ignored = "podSelector: {}\npolicyTypes: [Egress]\ningress:\n- {}";
    one(ignored).deny("x/*", "*", "*").holds();
}

#[test]
fn only_selected_pods_are_isolated() {
    one("podSelector: {matchLabels: {pod: a}}").deny("*", "x/a", "*").holds();
    let either = "podSelector:\n  matchExpressions:\n  - {key: pod, operator: In, values: [a, b]}";
    one(either).deny("*", "x/a", "*").deny("*", "x/b", "*").holds();
    let neither =
        "podSelector:\n  matchExpressions:\n  - {key: pod, operator: NotIn, values: [a, b]}";
    one(neither).deny("*", "x/c", "*").holds();
    one("podSelector:\n  matchExpressions:\n  - {key: pod, operator: Exists}")
        .deny("*", "x/*", "*")
        .holds();
    one("podSelector:\n  matchExpressions:\n  - {key: pod, operator: DoesNotExist}").holds();
}

#[test]
fn an_empty_rule_accepts_everything() {
    one("podSelector: {}\ningress:\n- {}").holds();
    one("podSelector: {}\npolicyTypes: [Egress]\negress:\n- {}").holds();
    one("podSelector: {}\ningress:\n- from: []\n  ports: []").holds();
}

#[test]
fn peers_by_pod_are_of_the_own_namespace() {
    one("podSelector: {matchLabels: {pod: a}}\ningress:\n- from:\n  - podSelector: {matchLabels: {pod: b}}")
        .deny("*", "x/a", "*")
        .allow("x/b", "x/a", "*")
        .holds();
}

#[test]
fn peers_by_namespace_are_all_of_its_pods() {
    let labels =
        "podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {matchLabels: {ns: y}}";
    one(labels).deny("*", "x/*", "*").allow("y/*", "x/*", "*").holds();
    let expression = "podSelector: {}\ningress:\n- from:\n  - namespaceSelector:\n      matchExpressions:\n      - {key: ns, operator: In, values: [y, z]}";
    one(expression).deny("*", "x/*", "*").allow("y/*", "x/*", "*").allow("z/*", "x/*", "*").holds();
    let by_name = "podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: z}}";
    one(by_name).deny("*", "x/*", "*").allow("z/*", "x/*", "*").holds();
    one("podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {}").holds();
}

#[test]
fn selectors_of_one_peer_must_both_hold_and_of_two_peers_either() {
    let both = "podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {matchLabels: {ns: y}}\n    podSelector: {matchLabels: {pod: a}}";
    one(both).deny("*", "x/*", "*").allow("y/a", "x/*", "*").holds();
    let either = "podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {matchLabels: {ns: y}}\n  - podSelector: {matchLabels: {pod: a}}";
    one(either).deny("*", "x/*", "*").allow("y/*", "x/*", "*").allow("x/a", "x/*", "*").holds();
    let everywhere = "podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {}\n    podSelector: {matchLabels: {pod: a}}";
    one(everywhere).deny("*", "x/*", "*").allow("*/a", "x/*", "*").holds();
}

#[test]
fn ports_are_of_the_destination_and_of_a_protocol() {
    one("podSelector: {}\ningress:\n- ports:\n  - {port: 81}")
        .deny("*", "x/*", "*")
        .allow("*", "x/*", "TCP/81")
        .holds();
    one("podSelector: {}\ningress:\n- ports:\n  - {protocol: UDP, port: 80}\n  - {protocol: SCTP, port: 81}")
        .deny("*", "x/*", "*")
        .allow("*", "x/*", "UDP/80")
        .allow("*", "x/*", "SCTP/81")
        .holds();
    one("podSelector: {}\npolicyTypes: [Egress]\negress:\n- ports:\n  - {port: 80}")
        .deny("x/*", "*", "*")
        .allow("x/*", "*", "TCP/80")
        .holds();
    one("podSelector: {}\ningress:\n- ports:\n  - {protocol: UDP}")
        .deny("*", "x/*", "*")
        .allow("*", "x/*", "UDP")
        .holds();
}

#[test]
fn ranges_of_ports_hold_both_ends() {
    let range = |first, last| {
        one(&format!(
            "podSelector: {{}}\ningress:\n- ports:\n  - {{port: {first}, endPort: {last}}}"
        ))
        .deny("*", "x/*", "*")
    };
    range(80, 81).allow("*", "x/*", "TCP").holds();
    range(79, 80).allow("*", "x/*", "TCP/80").holds();
    range(81, 65535).allow("*", "x/*", "TCP/81").holds();
    range(82, 82).holds();
}

#[test]
fn named_ports_are_those_of_the_destination() {
    one("podSelector: {}\ningress:\n- ports:\n  - {port: serve-81-tcp}")
        .deny("*", "x/*", "*")
        .allow("*", "x/*", "TCP/81")
        .holds();
    one("podSelector: {}\npolicyTypes: [Egress]\negress:\n- ports:\n  - {port: serve-80-udp, protocol: UDP}\n  to:\n  - namespaceSelector: {matchLabels: {ns: y}}")
        .deny("x/*", "*", "*")
        .allow("x/*", "y/*", "UDP/80")
        .holds();
    // The name is that of a port of another protocol, or of none.
    one("podSelector: {}\ningress:\n- ports:\n  - {port: serve-81-tcp, protocol: UDP}")
        .deny("*", "x/*", "*")
        .holds();
    one("podSelector: {}\ningress:\n- ports:\n  - {port: no-such}").deny("*", "x/*", "*").holds();
}

#[test]
fn a_named_port_is_another_number_in_another_pod() {
    let pod = |name: &str, port: u16, last: u8| {
        serde_json::json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "x", "name": name, "labels": {"pod": "web"}},
            "spec": {"nodeName": "n1", "containers": [
                {"name": "c", "ports": [{"name": "http", "containerPort": port}]}]},
            "status": {"podIPs": [{"ip": format!("10.0.1.{last}")}]}})
    };
    let more = [pod("old", 80, 20), pod("new", 8080, 21), pod("none", 9, 22)];
    let spec = "podSelector: {matchLabels: {pod: web}}\ningress:\n- ports:\n  - {port: http}";
    let ingress = Truth::with(&policy("p", spec), objects::kinds::GroupMode::Discover, &more);
    let spec = "podSelector: {matchLabels: {pod: a}}\npolicyTypes: [Egress]\negress:\n- ports:\n  - {port: http}";
    let egress = Truth::with(&policy("p", spec), objects::kinds::GroupMode::Discover, &more);
    for truth in [ingress, egress] {
        for (to, port, allowed) in [
            ("x/old", 80, true),
            ("x/old", 8080, false),
            ("x/new", 80, false),
            ("x/new", 8080, true),
            ("x/none", 80, false),
            ("x/none", 9, true),
        ] {
            assert_eq!(truth.answer("x/a", to, "TCP", port).allowed(), allowed, "{to} {port}");
        }
    }
}

#[test]
fn policies_add_up() {
    let first = policy(
        "first",
        "podSelector: {matchLabels: {pod: a}}\ningress:\n- from:\n  - podSelector: {matchLabels: {pod: b}}\n  ports:\n  - {port: 80}",
    );
    let second = policy(
        "second",
        "podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {matchLabels: {ns: y}}\n  ports:\n  - {port: 81}",
    );
    let truth = Truth::of(&format!("{first}{second}"))
        .deny("*", "x/*", "*")
        .allow("y/*", "x/*", "TCP/81")
        .allow("x/b", "x/a", "TCP/80")
        .holds();
    let answer = truth.answer("x/b", "x/a", "TCP", 80).ingress;
    assert_eq!(answer.policy.as_deref(), Some("x/first"));
    assert_eq!(answer.rule.as_deref(), Some("ingress[0]"));
    let answer = truth.answer("x/b", "x/a", "TCP", 81).ingress;
    assert_eq!((answer.tier.as_deref(), answer.rule), (Some("NetworkPolicy"), None));
    assert!(answer.why.contains("x/first, x/second"), "{}", answer.why);
}

#[test]
fn both_ends_must_allow() {
    let egress = policy(
        "out",
        "podSelector: {matchLabels: {pod: a}}\npolicyTypes: [Egress]\negress:\n- to:\n  - namespaceSelector: {matchLabels: {ns: y}}",
    );
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: y, name: in}\nspec:\n  podSelector: {matchLabels: {pod: b}}\n  ingress:\n  - from:\n    - namespaceSelector: {matchLabels: {ns: x}}\n      podSelector: {matchLabels: {pod: c}}\n";
    Truth::of(&format!("{egress}{ingress}"))
        .deny("x/a", "*", "*")
        .allow("x/a", "y/*", "*")
        .deny("*", "y/b", "*")
        .allow("x/c", "y/b", "*")
        .holds();
}

#[test]
fn blocks_of_addresses_hold_pods_too_and_have_exceptions() {
    let egress = |block: &str| {
        one(&format!(
            "podSelector: {{}}\npolicyTypes: [Egress]\negress:\n- to:\n  - ipBlock: {block}"
        ))
        .deny("x/*", "*", "*")
    };
    egress("{cidr: 10.0.2.2/32}").allow("x/*", "y/b", "*").holds();
    egress("{cidr: 10.0.2.0/24, except: [10.0.2.2/32]}")
        .allow("x/*", "y/*", "*")
        .deny("x/*", "y/b", "*")
        .holds();
    egress("{cidr: 0.0.0.0/0, except: [10.0.0.0/16]}").holds();
    let ingress = "podSelector: {}\ningress:\n- from:\n  - ipBlock: {cidr: 10.0.3.1/32}";
    one(ingress).deny("*", "x/*", "*").allow("z/a", "x/*", "*").holds();
    let hole = policy(
        "hole",
        "podSelector: {}\npolicyTypes: [Egress]\negress:\n- to:\n  - ipBlock: {cidr: 10.0.2.0/24, except: [10.0.2.2/32]}",
    );
    let fill = policy(
        "fill",
        "podSelector: {}\npolicyTypes: [Egress]\negress:\n- to:\n  - ipBlock: {cidr: 10.0.2.2/32}",
    );
    Truth::of(&format!("{hole}{fill}")).deny("x/*", "*", "*").allow("x/*", "y/*", "*").holds();
}

#[test]
fn the_families_are_judged_each_by_its_own_blocks() {
    let truth = one(
        "podSelector: {}\npolicyTypes: [Egress]\negress:\n- to:\n  - ipBlock: {cidr: 'fd00:2::/64'}",
    );
    assert!(truth.answer("x/a", "fd00:2::1", "TCP", 80).allowed());
    assert!(!truth.answer("x/a", "10.0.2.1", "TCP", 80).allowed());
    assert!(!truth.answer("x/a", "fd00:3::1", "TCP", 80).allowed());
    let by_label =
        one("podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {matchLabels: {ns: y}}");
    assert!(by_label.answer("fd00:2::1", "fd00:1::1", "TCP", 80).allowed());
    assert!(!by_label.answer("fd00:3::1", "fd00:1::1", "TCP", 80).allowed());
}

#[test]
fn addresses_outside_are_nobodys_pods() {
    let truth = one("podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {}");
    assert!(!truth.answer("203.0.113.9", "x/a", "TCP", 80).allowed());
    assert!(truth.answer("x/a", "203.0.113.9", "TCP", 80).allowed());
    let truth = one("podSelector: {}\ningress:\n- from:\n  - ipBlock: {cidr: 203.0.113.0/24}");
    assert!(truth.answer("203.0.113.9", "x/a", "TCP", 80).allowed());
    assert!(!truth.answer("y/a", "x/a", "TCP", 80).allowed());
}

#[test]
fn protocols_without_ports_are_accepted_by_rules_without_ports_alone() {
    let all =
        one("podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {matchLabels: {ns: y}}");
    assert!(all.answer("y/a", "x/a", "ICMP", 0).allowed());
    assert!(!all.answer("z/a", "x/a", "ICMP", 0).allowed());
    let ports = one("podSelector: {}\ningress:\n- ports:\n  - {port: 80}\n  - {protocol: UDP}");
    assert!(!ports.answer("y/a", "x/a", "ICMP", 0).allowed());
    assert!(!ports.answer("y/a", "x/a", "ip-47", 0).allowed());
}

#[test]
fn a_pod_and_its_own_node_reach_each_other_whatever_network_policies_say() {
    let truth = one("podSelector: {}\npolicyTypes: [Ingress, Egress]");
    for from in ["192.168.0.1", "z/host-n1"] {
        let own = truth.answer(from, "x/a", "TCP", 80);
        assert!(own.allowed(), "{own:?}");
        assert!(own.ingress.why.contains("own pods"), "{}", own.ingress.why);
        assert!(!truth.answer(from, "x/b", "TCP", 80).allowed());
    }
    for to in ["192.168.0.1", "z/host-n1"] {
        let own = truth.answer("x/a", to, "TCP", 80);
        assert!(own.allowed(), "{own:?}");
        assert!(own.egress.why.contains("own node"), "{}", own.egress.why);
        // Another node is an address like others.
        assert!(!truth.answer("x/b", to, "TCP", 80).allowed());
    }
}

#[test]
fn pods_in_a_nodes_network_are_not_isolated_and_not_selected() {
    let theirs = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: z, name: p}\nspec:\n  podSelector: {}\n  policyTypes: [Ingress, Egress]\n";
    let truth = Truth::of(theirs);
    assert!(truth.answer("x/a", "z/host-n2", "TCP", 80).allowed());
    assert!(truth.answer("z/host-n2", "x/a", "TCP", 80).allowed());
    assert!(!truth.answer("x/a", "z/b", "TCP", 80).allowed());
    // It has the label that is selected, and the node's address, which is not.
    let selecting = one(
        "podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {}\n    podSelector: {matchLabels: {pod: a}}",
    );
    assert!(!selecting.answer("z/host-n2", "x/a", "TCP", 80).allowed());
    let by_address = one("podSelector: {}\ningress:\n- from:\n  - ipBlock: {cidr: 192.168.0.2/32}");
    assert!(by_address.answer("z/host-n2", "x/a", "TCP", 80).allowed());
}

#[test]
fn a_pod_reaches_itself_whatever_its_policies_say() {
    let truth = one("podSelector: {}\npolicyTypes: [Ingress, Egress]").deny("x/*", "*", "*");
    let truth = truth.deny("*", "x/*", "*").holds();
    assert!(truth.answer("x/a", "10.0.1.1", "TCP", 80).allowed());
    assert!(!truth.answer("x/a", "10.0.1.2", "TCP", 80).allowed());
}

#[test]
fn a_pod_that_ended_has_no_address_any_more() {
    let ended = serde_json::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "y", "name": "job", "labels": {"pod": "job"}},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Succeeded", "podIPs": [{"ip": "10.0.1.77"}]}});
    let spec = "podSelector: {}\ningress:\n- from:\n  - namespaceSelector: {matchLabels: {ns: y}}";
    let truth = Truth::with(&policy("p", spec), objects::kinds::GroupMode::Discover, &[ended]);
    assert!(!truth.answer("10.0.1.77", "x/a", "TCP", 80).allowed());
    let probe = serde_json::json!({"from": "y/job", "to": "x/a", "port": 80});
    assert!(truth.probe(&probe).unwrap_err().contains("ended"));
}
