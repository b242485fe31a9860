//! ClusterNetworkPolicy v1alpha2, and AdminNetworkPolicy and BaselineAdminNetworkPolicy v1alpha1.

use objects::kinds::GroupMode;

use super::table::Truth;

/// A policy of a tier; `rules` are its ingress and egress, indented by two.
fn cluster(name: &str, tier: &str, priority: u16, subject: &str, rules: &str) -> String {
    format!(
        "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n\
         metadata: {{name: {name}}}\nspec:\n  tier: {tier}\n  priority: {priority}\n  subject: {subject}\n\
         {rules}\n---\n"
    )
}

const X: &str = "{namespaces: {matchLabels: {ns: x}}}";
const ALL: &str = "{namespaces: {}}";

fn from(action: &str, peer: &str, more: &str) -> String {
    format!("  - {{action: {action}, from: [{peer}]{more}}}\n")
}

fn to(action: &str, peer: &str, more: &str) -> String {
    format!("  - {{action: {action}, to: [{peer}]{more}}}\n")
}

fn ns(name: &str) -> String {
    format!("{{namespaces: {{matchLabels: {{kubernetes.io/metadata.name: {name}}}}}}}")
}

const NETWORK_POLICY: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: x, name: np}\nspec:\n  podSelector: {}\n  policyTypes: [Ingress, Egress]\n";

#[test]
fn rules_decide_in_their_order_in_both_directions() {
    let rules = |field: &str, rule: fn(&str, &str, &str) -> String| {
        let (y, z) = (ns("y"), ns("z"));
        let on = ", protocols: [{tcp: {destinationPort: {number: 80}}}, {udp: {destinationPort: {number: 80}}}]";
        format!(
            "  {field}:\n{}{}{}{}{}",
            rule("Accept", &z, ""),
            rule("Deny", &z, ""),
            rule("Deny", &y, on),
            rule("Pass", &y, on),
            rule("Accept", &y, ", protocols: [{sctp: {destinationPort: {number: 81}}}]"),
        ) + &rule("Deny", &y, "")
    };
    let both = format!("{}{}", rules("egress", to), rules("ingress", from));
    let truth = Truth::of(&cluster("gress", "Admin", 15, X, &both))
        .deny("x/*", "y/*", "*")
        .deny("y/*", "x/*", "*")
        .allow("x/*", "y/*", "SCTP/81")
        .allow("y/*", "x/*", "SCTP/81")
        .holds();
    let said = |port| truth.answer("x/a", "y/a", "TCP", port).egress;
    assert_eq!(said(80).rule.as_deref(), Some("egress[2]"));
    assert_eq!(said(81).rule.as_deref(), Some("egress[5]"));
    assert_eq!(said(81).tier.as_deref(), Some("Admin"));
    assert_eq!(said(81).policy.as_deref(), Some("gress"));
    assert_eq!(said(81).kind.as_deref(), Some("ClusterNetworkPolicy"));
}

#[test]
fn the_lower_priority_number_decides() {
    let pods =
        "{pods: {namespaceSelector: {matchLabels: {ns: x}}, podSelector: {matchLabels: {pod: a}}}}";
    let y =
        "{pods: {namespaceSelector: {matchLabels: {ns: y}}, podSelector: {matchLabels: {pod: b}}}}";
    let deny = |priority| {
        let rules = format!("  ingress:\n{}", from("Deny", y, ""));
        cluster("deny", "Admin", priority, pods, &rules)
    };
    let pass = |priority| {
        let rules = format!("  ingress:\n{}", from("Pass", y, ""));
        cluster("pass", "Admin", priority, pods, &rules)
    };
    Truth::of(&(deny(50) + &pass(60))).deny("y/b", "x/a", "*").holds();
    Truth::of(&(deny(50) + &pass(40))).holds();
    // Of one priority, the first by name.
    Truth::of(&(deny(50) + &pass(50))).deny("y/b", "x/a", "*").holds();
}

#[test]
fn the_tiers_are_asked_in_order() {
    let rules = |action: &str| {
        format!("  ingress:\n{}  egress:\n{}", from(action, &ns("y"), ""), to(action, &ns("y"), ""))
    };
    let admin = |action| cluster("admin", "Admin", 10, X, &rules(action));
    let baseline = |action| cluster("base", "Baseline", 10, X, &rules(action));
    let allow = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: x, name: np}\nspec:\n  podSelector: {}\n  policyTypes: [Ingress, Egress]\n  ingress:\n  - from:\n    - namespaceSelector: {matchLabels: {ns: y}}\n  egress:\n  - to:\n    - namespaceSelector: {matchLabels: {ns: y}}\n---\n";
    let isolated = |truth: Truth| {
        truth
            .deny("x/*", "*", "*")
            .deny("*", "x/*", "*")
            .allow("x/*", "y/*", "*")
            .allow("y/*", "x/*", "*")
    };
    // Admin denies what a NetworkPolicy accepts.
    let all = |action| admin(action) + allow + &baseline("Deny");
    isolated(Truth::of(&all("Deny"))).deny("x/*", "y/*", "*").deny("y/*", "x/*", "*").holds();
    // Admin passes: the NetworkPolicy accepts, and the baseline is not asked.
    isolated(Truth::of(&all("Pass"))).holds();
    // Without the NetworkPolicy the baseline is.
    Truth::of(&(admin("Pass") + &baseline("Deny")))
        .deny("x/*", "y/*", "*")
        .deny("y/*", "x/*", "*")
        .holds();
    // Admin accepts what a NetworkPolicy would not.
    let closed = format!("{}{NETWORK_POLICY}", admin("Accept"));
    isolated(Truth::of(&closed)).holds();
    // A NetworkPolicy decides about every pod that it selects: the baseline's Accept comes too late.
    let late = format!("{NETWORK_POLICY}---\n{}", baseline("Accept"));
    Truth::of(&late).deny("x/*", "*", "*").deny("*", "x/*", "*").holds();
    // A pass in the baseline is the end of it.
    let base = cluster("one", "Baseline", 1, X, &rules("Pass")) + &baseline("Deny");
    Truth::of(&base).holds();
}

#[test]
fn ports_are_numbers_ranges_and_whole_protocols() {
    let deny = |protocols: &str| {
        let rules = format!(
            "  ingress:\n{}",
            from("Deny", "{namespaces: {}}", &format!(", protocols: [{protocols}]"))
        );
        Truth::of(&cluster("p", "Admin", 1, X, &rules))
    };
    deny("{tcp: {destinationPort: {number: 80}}}").deny("*", "x/*", "TCP/80").holds();
    deny("{udp: {destinationPort: {range: {start: 80, end: 81}}}}").deny("*", "x/*", "UDP").holds();
    deny("{sctp: {destinationPort: {range: {start: 81, end: 90}}}}")
        .deny("*", "x/*", "SCTP/81")
        .holds();
    deny("{tcp: {}}, {udp: {destinationPort: {number: 81}}}")
        .deny("*", "x/*", "TCP")
        .deny("*", "x/*", "UDP/81")
        .holds();
    let icmp = deny("{tcp: {}}");
    assert!(icmp.answer("y/a", "x/a", "ICMP", 0).allowed());
}

#[test]
fn named_ports_are_those_of_the_destination_whatever_the_protocol() {
    let named = ", protocols: [{destinationNamedPort: serve-80-udp}]";
    let ingress = format!("  ingress:\n{}", from("Deny", "{namespaces: {}}", named));
    Truth::of(&cluster("p", "Admin", 1, X, &ingress)).deny("*", "x/*", "UDP/80").holds();
    let egress =
        format!("  egress:\n{}{}", to("Accept", &ns("y"), named), to("Deny", &ns("y"), ""));
    Truth::of(&cluster("p", "Admin", 1, X, &egress))
        .deny("x/*", "y/*", "*")
        .allow("x/*", "y/*", "UDP/80")
        .holds();
}

#[test]
fn networks_hold_pods_and_the_world() {
    let networks = |action: &str, list: &str| to(action, &format!("{{networks: [{list}]}}"), "");
    let rules = format!(
        "  egress:\n{}{}",
        networks("Accept", "10.0.2.1/32, 'fd00:3::/64'"),
        networks("Deny", "0.0.0.0/0, '::/0'")
    );
    let truth = Truth::of(&cluster("p", "Admin", 1, X, &rules))
        .deny("x/*", "*", "*")
        .allow("x/*", "y/a", "*")
        .holds();
    assert!(truth.answer("x/a", "fd00:3::2", "TCP", 80).allowed());
    assert!(!truth.answer("x/a", "2001:db8::1", "TCP", 80).allowed());
    assert!(!truth.answer("x/a", "1.1.1.1", "ICMP", 0).allowed());
    assert!(truth.answer("y/a", "1.1.1.1", "TCP", 80).allowed());
}

#[test]
fn nodes_are_peers_by_their_labels() {
    let rules = format!(
        "  egress:\n{}{}{}",
        to(
            "Accept",
            "{nodes: {matchLabels: {kubernetes.io/os: linux}}}",
            ", protocols: [{tcp: {destinationPort: {number: 36363}}}]"
        ),
        to(
            "Pass",
            "{nodes: {matchLabels: {kubernetes.io/hostname: n2}}}",
            ", protocols: [{udp: {destinationPort: {number: 34346}}}]"
        ),
        to("Deny", &format!("{}, {{nodes: {{}}}}, {{networks: [0.0.0.0/0]}}", ns("y")), ""),
    );
    let truth = Truth::of(&cluster("p", "Admin", 75, X, &rules));
    let mut cases = Vec::new();
    for to in ["192.168.0.2", "z/host-n2"] {
        cases.extend([
            (to, "TCP", 36363, true),
            (to, "TCP", 36364, false),
            (to, "UDP", 34346, true),
        ]);
    }
    cases.extend([("192.168.0.3", "UDP", 34346, false), ("192.168.0.3", "SCTP", 80, false)]);
    for (to, protocol, port, allowed) in cases {
        let answer = truth.answer("x/a", to, protocol, port);
        assert_eq!(answer.allowed(), allowed, "{to} {protocol}/{port}: {answer:?}");
    }
}

#[test]
fn subjects_are_namespaces_or_pods_and_peers_too() {
    let deny = |subject: &str, peer: &str| {
        Truth::of(&cluster(
            "p",
            "Admin",
            1,
            subject,
            &format!("  ingress:\n{}", from("Deny", peer, "")),
        ))
    };
    deny(ALL, "{namespaces: {matchLabels: {ns: y}}}").deny("y/*", "*", "*").holds();
    deny(
        "{pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: c}}}}",
        "{pods: {namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}, podSelector: {matchExpressions: [{key: pod, operator: In, values: [a, b]}]}}}",
    )
    .deny("y/a", "*/c", "*")
    .deny("y/b", "*/c", "*")
    .deny("z/a", "*/c", "*")
    .deny("z/b", "*/c", "*")
    .holds();
}

#[test]
fn domain_names_accept_what_they_resolve_to() {
    let rules = format!(
        "  egress:\n{}{}",
        to("Accept", "{domainNames: ['*.example.com', Exact.Example.org.]}", ""),
        to("Deny", "{networks: [0.0.0.0/0]}", ""),
    );
    let truth = Truth::of(&cluster("p", "Admin", 1, X, &rules));
    let allowed = |name: &str| {
        let probe =
            serde_json::json!({"from": "x/a", "to": "203.0.113.5", "port": 443, "toName": name});
        truth.probe(&probe).unwrap().allowed()
    };
    assert!(
        allowed("www.example.com") && allowed("a.b.example.com.") && allowed("exact.example.org")
    );
    assert!(
        !allowed("example.com") && !allowed("wwwexample.com") && !allowed("www.exact.example.org")
    );
    assert!(!truth.answer("x/a", "203.0.113.5", "TCP", 443).allowed());
}

#[test]
fn what_is_of_a_later_version_fails_closed() {
    let rules = |action: &str| {
        let peer = "{starships: {}}";
        format!("  ingress:\n{}# warns\n", from(action, peer, ""))
    };
    // It accepts nothing: the next rule decides.
    let accept = cluster("p", "Admin", 1, X, &(rules("Accept") + &from("Deny", &ns("y"), "")));
    Truth::of(&accept).deny("y/*", "x/*", "*").holds();
    for action in ["Deny", "Pass"] {
        Truth::of(&cluster("p", "Admin", 1, X, &rules(action))).deny("*", "x/*", "*").holds();
    }
    let protocol =
        format!("  ingress:\n{}# warns\n", from("Pass", &ns("y"), ", protocols: [{quic: {}}]"));
    Truth::of(&cluster("p", "Admin", 1, X, &protocol)).deny("*", "x/*", "*").holds();
}

#[test]
fn the_older_kinds_are_converted() {
    let admin = "apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: old}
spec:
  priority: 10
  subject: {namespaces: {matchLabels: {ns: x}}}
  ingress:
  - {action: Allow, from: [{namespaces: {matchLabels: {ns: y}}}], ports: [{portNumber: {port: 80}}, {portRange: {protocol: UDP, start: 80, end: 81}}, {namedPort: serve-81-sctp}]}
  - {action: Pass, from: [{pods: {namespaceSelector: {matchLabels: {ns: z}}, podSelector: {matchLabels: {pod: a}}}}]}
  - {action: Deny, from: [{namespaces: {}}]}
";
    let baseline = "---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec:
  subject: {namespaces: {matchLabels: {ns: x}}}
  ingress:
  - {action: Deny, from: [{namespaces: {matchLabels: {ns: z}}}], ports: [{portNumber: {protocol: TCP, port: 81}}]}
";
    let truth = Truth::of(&format!("{admin}{baseline}"))
        .deny("*", "x/*", "*")
        .allow("y/*", "x/*", "TCP/80")
        .allow("y/*", "x/*", "UDP")
        .allow("y/*", "x/*", "SCTP/81")
        .allow("z/a", "x/*", "*")
        .deny("z/a", "x/*", "TCP/81")
        .holds();
    let answer = truth.answer("z/a", "x/a", "TCP", 81).ingress;
    assert_eq!(answer.kind.as_deref(), Some("BaselineAdminNetworkPolicy"));
    assert_eq!(answer.tier.as_deref(), Some("Baseline"));
}

#[test]
fn a_node_reaches_its_own_pods_whatever_the_tier() {
    let rules = format!("  ingress:\n{}", from("Deny", "{namespaces: {}}", ""));
    let truth = Truth::with(&cluster("p", "Admin", 1, ALL, &rules), GroupMode::Discover, &[]);
    assert!(truth.answer("192.168.0.1", "x/a", "TCP", 80).allowed());
}
