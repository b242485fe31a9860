//! Guard's groups and rules, and quarantine.

use objects::kinds::GroupMode;
use serde_json::json;

use super::table::Truth;

fn group(name: &str, mode: &str, criteria: &str) -> String {
    let mode = if mode.is_empty() { String::new() } else { format!("mode: {mode}, ") };
    format!(
        "apiVersion: fairlead.dev/v1alpha1\nkind: Group\nmetadata: {{name: {name}}}\n\
         spec: {{{mode}criteria: [{criteria}]}}\n---\n"
    )
}

fn rule(name: &str, from: &str, to: &str, action: &str, more: &str) -> String {
    format!(
        "apiVersion: fairlead.dev/v1alpha1\nkind: NetworkRule\nmetadata: {{name: {name}}}\n\
         spec: {{from: {from}, to: {to}, action: {action}{more}}}\n---\n"
    )
}

const X: &str = "{key: namespace, op: '=', value: x}";
const Y: &str = "{key: namespace, op: '=', value: y}";

#[test]
fn what_no_rule_allows_is_denied_between_ends_in_protect() {
    let both = group("x", "protect", X) + &group("y", "protect", Y);
    let truth = Truth::of(&both)
        .deny("x/*", "x/*", "*")
        .deny("y/*", "y/*", "*")
        .deny("x/*", "y/*", "*")
        .deny("y/*", "x/*", "*")
        .holds();
    let answer = truth.answer("x/a", "y/a", "TCP", 80).egress;
    assert_eq!((answer.tier.as_deref(), answer.policy), (Some("Guard"), None));
    // The laxer end decides: z is in discover. An end that is no workload has no say.
    assert!(truth.answer("z/a", "x/a", "TCP", 80).allowed());
    assert!(!truth.answer("x/a", "1.1.1.1", "TCP", 80).allowed());
    assert!(!truth.answer("1.1.1.1", "x/a", "TCP", 80).allowed());
}

#[test]
fn monitor_reports_and_stops_nothing() {
    let monitored = group("x", "monitor", X) + &group("y", "protect", Y);
    let truth = Truth::of(&monitored).deny("y/*", "y/*", "*").holds();
    assert!(truth.answer("x/a", "y/a", "TCP", 80).allowed());
    Truth::of(&(group("x", "monitor", X) + &rule("no", "x", "any", "deny", ""))).holds();
}

#[test]
fn rules_decide_by_priority_and_their_groups() {
    let rules = group("x", "protect", X)
        + &group("y", "protect", Y)
        + &group("web", "", "{key: label, label: pod, op: '=', value: a}")
        + &rule("web", "web", "y", "allow", ", ports: [tcp/80-81]")
        + &rule("not-b", "any", "y-b", "deny", ", priority: 10")
        + &group(
            "y-b",
            "",
            "{key: label, label: pod, op: '=', value: b}, {key: namespace, op: '=', value: y}",
        );
    let truth = Truth::of(&rules)
        .deny("x/*", "x/*", "*")
        .deny("y/*", "y/*", "*")
        .deny("x/*", "y/*", "*")
        .deny("y/*", "x/*", "*")
        .allow("*/a", "y/*", "TCP")
        .deny("x/*", "y/b", "*")
        .deny("y/*", "y/b", "*")
        .allow("z/*", "y/*", "*")
        .holds();
    let answer = truth.answer("x/a", "y/b", "TCP", 80).egress;
    assert_eq!(answer.policy.as_deref(), Some("not-b"));
    assert_eq!(answer.kind.as_deref(), Some("NetworkRule"));
}

#[test]
fn reserved_groups_tell_hosts_from_the_world() {
    let rules = group("x", "protect", X)
        + &rule("dns", "x", "external", "allow", ", ports: [udp/53]")
        + &rule("hosts", "hosts", "x", "allow", ", ports: [tcp/80]")
        + &rule("own", "workloads", "workloads", "allow", "");
    let truth = Truth::of(&rules).holds();
    for (from, to, protocol, port, allowed) in [
        ("x/a", "1.1.1.1", "UDP", 53, true),
        ("x/a", "1.1.1.1", "TCP", 53, false),
        ("x/a", "192.168.0.2", "UDP", 53, false),
        ("x/a", "10.0.99.9", "UDP", 53, false),
        ("192.168.0.2", "x/a", "TCP", 80, true),
        ("192.168.0.2", "x/a", "TCP", 81, false),
        ("192.168.0.1", "x/a", "TCP", 81, true),
        ("1.1.1.1", "x/a", "TCP", 80, false),
    ] {
        let answer = truth.answer(from, to, protocol, port);
        assert_eq!(answer.allowed(), allowed, "{from} {to} {protocol}/{port}: {answer:?}");
    }
}

#[test]
fn groups_of_addresses_hold_what_is_no_workload() {
    let rules = group("x", "protect", X)
        + &group(
            "partner",
            "",
            "{key: address, op: '=', value: 203.0.113.0/24}, {key: address, op: '!=', value: 203.0.113.9}",
        )
        + &rule("partner", "x", "partner", "allow", "");
    let truth = Truth::of(&rules);
    assert!(truth.answer("x/a", "203.0.113.8", "TCP", 443).allowed());
    assert!(!truth.answer("x/a", "203.0.113.9", "TCP", 443).allowed());
}

#[test]
fn the_default_mode_is_of_workloads_in_no_group() {
    let truth = Truth::with("", GroupMode::Protect, &[]).deny("*", "*", "*").holds();
    assert!(!truth.answer("x/a", "1.1.1.1", "TCP", 443).allowed());
    let open =
        Truth::with(&rule("all", "workloads", "workloads", "allow", ""), GroupMode::Protect, &[]);
    open.holds();
}

#[test]
fn a_rule_on_applications_decides_about_no_packet() {
    let rules = group("x", "protect", X)
        + &rule("http", "any", "any", "allow", ", applications: [http]")
        + "# warns\n";
    Truth::of(&rules).deny("x/*", "x/*", "*").holds();
}

#[test]
fn guard_comes_after_network_policy_and_before_the_baseline() {
    let np = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: x, name: np}\nspec:\n  podSelector: {matchLabels: {pod: a}}\n  ingress:\n  - {}\n---\n";
    let baseline = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: base}\nspec:\n  tier: Baseline\n  priority: 1\n  subject: {namespaces: {matchLabels: {ns: x}}}\n  ingress:\n  - {action: Deny, from: [{namespaces: {}}]}\n---\n";
    let guard = group("x", "protect", X) + &rule("b", "any", "x", "allow", ", ports: [tcp/80]");
    let all = format!("{np}{guard}{baseline}");
    let truth = Truth::of(&all)
        // z is in discover: guard says nothing, the baseline denies.
        .deny("z/*", "x/*", "*")
        .deny("y/*", "x/*", "*")
        .deny("x/*", "x/*", "*")
        .allow("*", "x/*", "TCP/80")
        // A NetworkPolicy accepted it; guard at the source still denies what no rule of its own allows.
        .allow("z/*", "x/a", "*")
        .allow("y/*", "x/a", "*")
        .holds();
    assert_eq!(
        truth.answer("x/b", "x/a", "TCP", 81).ingress.tier.as_deref(),
        Some("NetworkPolicy")
    );
    assert_eq!(truth.answer("x/b", "x/a", "TCP", 81).egress.tier.as_deref(), Some("Guard"));
}

#[test]
fn quarantine_comes_before_everything() {
    let accept = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: open}\nspec:\n  tier: Admin\n  priority: 0\n  subject: {namespaces: {}}\n  ingress:\n  - {action: Accept, from: [{namespaces: {}}]}\n  egress:\n  - {action: Accept, to: [{namespaces: {}}]}\n";
    let pod = |name: &str, value: &str, last: u8| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "x", "name": name, "labels": {"fairlead.dev/quarantine": value}},
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"podIPs": [{"ip": format!("10.0.1.{last}")}]}})
    };
    let more = [pod("apart", "true", 50), pod("not", "false", 51)];
    let truth = Truth::with(accept, GroupMode::Discover, &more);
    for (from, to, allowed) in [
        ("x/apart", "x/a", false),
        ("x/a", "x/apart", false),
        ("x/apart", "1.1.1.1", false),
        ("192.168.0.1", "x/apart", true),
        ("x/not", "x/a", true),
    ] {
        assert_eq!(truth.answer(from, to, "TCP", 80).allowed(), allowed, "{from} {to}");
    }
    let answer = truth.answer("x/a", "x/apart", "TCP", 80).ingress;
    assert_eq!(answer.tier.as_deref(), Some("Quarantine"));
}
