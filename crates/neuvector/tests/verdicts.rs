//! The verdicts of NeuVector's own code, case by case, beside the verdicts of what its rules become here.
//!
//! Each row names the place in NeuVector's sources (commit 1b8b7075) that gives its verdict: `adjustAction`,
//! `createIPRule` and `policyModeToDefaultAction` are in `agent/policy/network.go`, `calculateIPPolicyFromCache`,
//! `getMixedGroupPolicyForIngress`, `ruleAdjustOrder` and `fillAddrForGroup` in `controller/cache/policy.go`,
//! `normalizePorts` in `controller/rest/policy.go`, `dpi_policy_…` in `dp/dpi/dpi_policy.c`. Ours may be
//! stricter, and then the row says so; it may never be laxer.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::IpAddr;
use std::sync::Arc;

use neuvector::{Settings, import};
use objects::kinds::{GroupMode, Protocol};
use serde_json::{Value, json};
use traffic::conversations::{
    End, Endpoint, Judge, Labels, Moment, PodFacts, ResolvedName, Service, Verdict,
};
use traffic::groups::Groups;
use traffic::names::Names;
use traffic::rules::{Policy, Program};

use Side::{Db, External, Node, Unmanaged, Web};

/// What NeuVector does, the laxest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Theirs {
    /// It passes: by a rule, or because nothing is decided about it.
    Passes,
    /// It passes, and a rule is learned from it.
    Learns,
    Violates,
    Denies,
}

use Theirs::{Denies, Learns, Passes, Violates};

/// Who talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Web,
    Db,
    Node,
    External,
    /// In the cluster's networks, and nobody's.
    Unmanaged,
}

impl Side {
    fn end(self) -> End {
        let pod = |name: &str, node: &str| Endpoint::Workload {
            namespace: "shop".into(),
            name: format!("{name}-0").into(),
            owner: format!("Deployment/{name}").into(),
            node: node.into(),
        };
        let (endpoint, address) = match self {
            Web => (pod("web", "node-1"), [10, 0, 0, 1]),
            Db => (pod("db", "node-2"), [10, 0, 0, 2]),
            Node => (Endpoint::Host { name: "node-1".into() }, [192, 168, 0, 1]),
            External => (Endpoint::External { name: None }, [203, 0, 113, 7]),
            Unmanaged => (Endpoint::Unmanaged, [10, 0, 9, 9]),
        };
        End { endpoint: Arc::new(endpoint), address: IpAddr::from(address) }
    }
}

/// A rule as an export has it: from, to, action, ports, priority, applications.
type Rule = (&'static str, &'static str, &'static str, &'static str, u32, &'static [&'static str]);

struct Row {
    what: &'static str,
    /// Of web and db.
    modes: [&'static str; 2],
    rules: Vec<Rule>,
    talk: (Side, Side, Protocol, u16, Option<&'static str>),
    theirs: Theirs,
    ours: Theirs,
}

const TCP: Protocol = Protocol::TCP;
const UDP: Protocol = Protocol::UDP;
const WEB: &str = "nv.web.shop";
const DB: &str = "nv.db.shop";
const ANY: &[&str] = &["any"];

fn groups() -> Vec<Value> {
    let service = |name: &str| {
        json!([{"key": "service", "op": "=", "value": format!("{name}.shop")},
               {"key": "domain", "op": "=", "value": "shop"}])
    };
    let address = |value: &str| json!([{"key": "address", "op": "=", "value": value}]);
    let app = json!([{"key": "app", "op": "=", "value": "db"}]);
    [
        (WEB, service("web")),
        (DB, service("db")),
        ("labelled", app.clone()),
        ("fed.labelled", app),
        ("office", address("203.0.113.0/24")),
        ("range", address("198.51.100.1,203.0.113.5-203.0.113.9")),
        ("elsewhere", address("198.51.100.0/24")),
        ("private", address("10.0.0.0/8")),
        ("names", address("*.example.com")),
        ("other-names", address("*.example.org")),
        (
            "mixed",
            json!([{"key": "address", "op": "=", "value": "www.example.com"},
                         {"key": "address", "op": "=", "value": "198.51.100.1"}]),
        ),
        ("vhost", address("vh:www.example.com")),
    ]
    .map(|(name, criteria)| {
        json!({"kind": "NvGroupDefinition", "metadata": {"name": name},
               "spec": {"selector": {"name": name, "criteria": criteria}}})
    })
    .into()
}

fn documents(row: &Row) -> Vec<Value> {
    let mut documents = groups();
    for (name, mode) in [WEB, DB].into_iter().zip(row.modes) {
        documents.push(
            json!({"kind": "NvClusterSecurityRule", "metadata": {"name": name}, "spec": {
            "target": {"policymode": mode, "selector": {"name": name, "name_referral": true}},
            "ingress": [], "egress": []}}),
        );
    }
    for (i, (from, to, action, ports, priority, applications)) in row.rules.iter().enumerate() {
        let name = if to.starts_with("fed.") { (*to).to_owned() } else { format!("r{i}") };
        documents.push(json!({"kind": "NvClusterSecurityRule", "metadata": {"name": name}, "spec": {
            "target": {"selector": {"name": to, "name_referral": true}},
            "ingress": [{"selector": {"name": from, "name_referral": true}, "applications": applications,
                "ports": ports, "action": action, "name": format!("rule-{i}"), "priority": priority}],
            "egress": []}}));
    }
    documents
}

fn judged(row: &Row) -> Verdict {
    let imported = import(&documents(row), &Settings::default()).unwrap();
    let mut groups = Groups::new(GroupMode::Discover);
    for (name, node, number) in [("web", "node-1", 1), ("db", "node-2", 2)] {
        let pod = PodFacts {
            uid: name.into(),
            namespace: "shop".into(),
            name: format!("{name}-0").into(),
            owner: Some(format!("Deployment/{name}").into()),
            node: node.into(),
            addresses: vec![[10, 0, 0, number].into()],
            images: Vec::new(),
            labels: Labels::from([("app".to_owned(), name.to_owned())]),
            from: Moment(0),
            until: None,
        };
        groups.apply_pod(&pod, Moment(0));
    }
    for group in &imported.groups {
        groups.apply_group(group).unwrap();
    }
    let program = Program::compile(&imported.rules, &[]).unwrap();
    let (client, server, protocol, port, application) = row.talk;
    let service = Service { protocol, port, application };
    let names = Names::default();
    // The node of the clients resolved the name to the address outside.
    let address = External.end().address;
    names.tell("node-1", &[ResolvedName { name: "www.example.com".into(), address }], Moment(0));
    Policy { program, groups, names }.judge(&client.end(), &server.end(), service).verdict
}

fn rank(verdict: Verdict) -> Theirs {
    match verdict {
        Verdict::Allowed | Verdict::Unjudged => Passes,
        Verdict::Discovered => Learns,
        Verdict::Violates => Violates,
        Verdict::ViolatesUnenforced | Verdict::Stopped => Denies,
    }
}

fn row(what: &'static str, modes: [&'static str; 2], rules: &[Rule]) -> Row {
    let talk = (Web, Db, TCP, 80, None);
    Row { what, modes, rules: rules.to_vec(), talk, theirs: Passes, ours: Passes }
}

impl Row {
    fn talk(self, client: Side, server: Side, protocol: Protocol, port: u16) -> Self {
        Self { talk: (client, server, protocol, port, None), ..self }
    }

    fn application(self, name: &'static str) -> Self {
        let (client, server, protocol, port, _) = self.talk;
        Self { talk: (client, server, protocol, port, Some(name)), ..self }
    }

    fn both(self, verdict: Theirs) -> Self {
        Self { theirs: verdict, ours: verdict, ..self }
    }

    fn stricter(self, theirs: Theirs, ours: Theirs) -> Self {
        assert!(theirs < ours, "{}: ours is not stricter", self.what);
        Self { theirs, ours, ..self }
    }
}

const MODES: [&str; 3] = ["Discover", "Monitor", "Protect"];
const PROTECT: [&str; 2] = ["Protect", "Protect"];

/// Without a rule, and with one that denies: the laxer mode counts.
fn modes() -> Vec<Row> {
    let mut rows = Vec::new();
    for (i, web) in MODES.into_iter().enumerate() {
        for (j, db) in MODES.into_iter().enumerate() {
            let laxer = i.min(j);
            rows.push(
                row(
                    "no rule: getMixedGroupPolicyForIngress, else the server's mode",
                    [web, db],
                    &[],
                )
                .both([Learns, Violates, Denies][laxer]),
            );
            rows.push(
                row("deny: adjustAction", [web, db], &[(WEB, DB, "deny", "any", 0, ANY)])
                    .both([Violates, Violates, Denies][laxer]),
            );
            rows.push(
                row("allow: adjustAction", [web, db], &[(WEB, DB, "allow", "any", 0, ANY)])
                    .both(Passes),
            );
        }
        // An end that is no container has no mode.
        for (client, server) in [(External, Web), (Web, External), (Node, Web)] {
            rows.push(
                row("no rule: policyModeToDefaultAction", [web, "Discover"], &[])
                    .talk(client, server, TCP, 443)
                    .both([Learns, Violates, Denies][i]),
            );
        }
        for (from, to, client, server) in
            [("external", WEB, External, Web), (WEB, "external", Web, External)]
        {
            rows.push(
                row("deny: adjustAction", [web, "Discover"], &[(from, to, "deny", "any", 0, ANY)])
                    .talk(client, server, TCP, 443)
                    .both([Violates, Violates, Denies][i]),
            );
        }
    }
    rows
}

fn order() -> Vec<Row> {
    let allow = |priority| (WEB, DB, "allow", "any", priority, ANY);
    let deny = |priority| (WEB, DB, "deny", "any", priority, ANY);
    vec![
        row("the greatest priority: crdHandleNetworkRules", PROTECT, &[allow(0), deny(5)])
            .both(Denies),
        row("the greatest priority", PROTECT, &[deny(0), allow(5)]).both(Passes),
        row("of one priority in no certain order", PROTECT, &[allow(0), deny(0)])
            .stricter(Passes, Denies),
        row(
            "rules of a federation come first, whatever their priority",
            PROTECT,
            &[allow(100), ("fed.containers", "fed.labelled", "deny", "any", 0, ANY)],
        )
        .both(Denies),
        row(
            "a rule of a federation that allows, too",
            PROTECT,
            &[deny(100), ("fed.containers", "fed.labelled", "allow", "any", 0, ANY)],
        )
        .both(Passes),
        row(
            "what denies nodes comes last: ruleAdjustOrder",
            PROTECT,
            &[("nodes", DB, "deny", "any", 5, ANY), ("nodes", DB, "allow", "any", 0, ANY)],
        )
        .talk(Node, Db, TCP, 80)
        .stricter(Passes, Denies),
        row(
            "a rule for other ports does not decide",
            PROTECT,
            &[(WEB, DB, "deny", "tcp/443", 5, ANY), allow(0)],
        )
        .both(Passes),
    ]
}

fn ports_and_applications() -> Vec<Row> {
    let allow = |ports| (WEB, DB, "allow", ports, 0, ANY);
    let deny = |ports| (WEB, DB, "deny", ports, 5, ANY);
    let http: Rule = (WEB, DB, "allow", "any", 0, &["HTTP"]);
    let talk = |row: Row, protocol, port| row.talk(Web, Db, protocol, port);
    vec![
        row("a number is of TCP: normalizePorts", PROTECT, &[allow("80")]).both(Passes),
        talk(row("a number is not of UDP", PROTECT, &[allow("80")]), UDP, 80).both(Denies),
        talk(row("within a range", PROTECT, &[allow("8000-8010")]), TCP, 8010).both(Passes),
        talk(row("past a range", PROTECT, &[allow("8000-8010")]), TCP, 8011).both(Denies),
        row("a range that ends before it begins is refused", PROTECT, &[allow("90-70")])
            .both(Denies),
        row("empty is any", PROTECT, &[allow("")]).both(Passes),
        talk(row("every port of TCP", PROTECT, &[allow("tcp/any")]), UDP, 80).both(Denies),
        talk(
            row("any in a list is TCP and UDP", PROTECT, &[deny("any,tcp/80"), allow("any")]),
            UDP,
            53,
        )
        .both(Denies),
        talk(row("a list", PROTECT, &[allow("tcp/80,udp/53")]), UDP, 53).both(Passes),
        // Unless policy.icmp is on: dpi_add_default_policy.
        talk(row("ICMP is not looked at", PROTECT, &[]), Protocol::ICMP, 0)
            .stricter(Passes, Denies),
        row("an application that was recognized", PROTECT, &[http])
            .application("http")
            .both(Passes),
        row("another application: dpi_rule_add", PROTECT, &[http]).application("ssh").both(Denies),
        // DP_POLICY_ACTION_CHECK_APP: it passes until the application is known.
        row("no application is known yet", PROTECT, &[http]).stricter(Passes, Denies),
        row(
            "a rule that denies one application denies all here",
            PROTECT,
            &[(WEB, DB, "deny", "any", 5, &["HTTP"]), allow("any")],
        )
        .application("ssh")
        .stricter(Passes, Denies),
        row(
            "one that denies an application denies it",
            PROTECT,
            &[(WEB, DB, "deny", "any", 5, &["HTTP"]), allow("any")],
        )
        .application("http")
        .both(Denies),
        row(
            "an unknown application is refused: normalizeApps",
            PROTECT,
            &[(WEB, DB, "allow", "any", 0, &["Whatever"])],
        )
        .both(Denies),
    ]
}

fn ends() -> Vec<Row> {
    let allows = |what, from, to| row(what, PROTECT, &[(from, to, "allow", "any", 0, ANY)]);
    let denies = |what, from, to| {
        row(what, PROTECT, &[(from, to, "deny", "any", 5, ANY), (WEB, DB, "allow", "any", 0, ANY)])
    };
    let outside = |row: Row| row.talk(External, Web, TCP, 443);
    let out = |row: Row| row.talk(Web, External, TCP, 443);
    vec![
        outside(allows("external: CLUSWLExternal", "external", WEB)).both(Passes),
        out(allows("external", WEB, "external")).both(Passes),
        // An address of its networks that it does not know passes for some minutes, and is denied then:
        // _dpi_policy_chk_unknown_ip.
        allows("external is no unmanaged address", "external", WEB)
            .talk(Unmanaged, Web, TCP, 443)
            .stricter(Passes, Denies),
        allows("nodes: CLUSHostAddrGroup", "nodes", WEB).talk(Node, Web, TCP, 80).both(Passes),
        allows("nodes are no containers", "nodes", DB).both(Denies),
        allows("containers: CLUSWLAllContainer", "containers", DB).both(Passes),
        // createWorkloadRule adds the addresses of a container's node, which may stand for it (NatIP).
        allows("containers are no nodes", "containers", DB)
            .talk(Node, Db, TCP, 80)
            .stricter(Passes, Denies),
        allows("containers are not outside", "containers", WEB)
            .talk(External, Web, TCP, 80)
            .both(Denies),
        allows("there is no group any: fillAddrForGroup", "any", DB).both(Denies),
        allows("a group that nobody made", "ghosts", DB).both(Denies),
        allows("a label", WEB, "labelled").both(Passes),
        allows("a label of another", "labelled", DB).both(Denies),
        outside(allows("a network: getIPList", "office", WEB)).both(Passes),
        outside(allows("a list of addresses and ranges", "range", WEB)).both(Passes),
        outside(allows("another network", "elsewhere", WEB)).both(Denies),
        out(allows("a network as the server", WEB, "office")).both(Passes),
        outside(denies("a network that is denied", "office", WEB)).both(Denies),
        // An address in it may be a pod's.
        allows("a private network is refused in allow rules", "private", DB)
            .stricter(Passes, Denies),
        out(allows("a name that resolved: policy_match_ipv4_fqdn_code", WEB, "names")).both(Passes),
        out(allows("another name", WEB, "other-names")).both(Denies),
        out(allows("names and addresses: addresses alone here", WEB, "mixed"))
            .stricter(Passes, Denies),
        // Its rules are for the Host header or the SNI.
        out(allows("a virtual host is refused", WEB, "vhost")).stricter(Passes, Denies),
        out(denies("names that are denied: any here", WEB, "names")).both(Denies),
        denies("names that are denied, and something else", WEB, "names").stricter(Passes, Denies),
        // The addresses of tunnels between nodes, and of one host.
        allows("Workload:ingress is refused", "Workload:ingress", WEB)
            .talk(Node, Web, TCP, 80)
            .stricter(Passes, Denies),
        allows("Host: is refused", "Host:192.168.0.1", WEB)
            .talk(Node, Web, TCP, 80)
            .stricter(Passes, Denies),
        denies("Host: that is denied: any here", "Host:192.168.0.9", DB).stricter(Passes, Denies),
        // A sidecar's redirection is within the pod: both judge the address and port outside of it
        // (match_proxymesh_parent_policy).
        row("a pod with a sidecar", PROTECT, &[(WEB, DB, "allow", "tcp/80", 0, ANY)]).both(Passes),
    ]
}

#[test]
fn no_verdict_is_laxer_than_neuvectors() {
    let rows = [modes(), order(), ports_and_applications(), ends()];
    let mut seen = 0;
    for row in rows.into_iter().flatten() {
        let Row { what, modes, rules, talk, theirs, ours } = &row;
        let verdict = rank(judged(&row));
        assert_eq!(verdict, *ours, "{what}: {modes:?} {rules:?} {talk:?}");
        assert!(verdict >= *theirs, "{what}: laxer than NeuVector");
        seen += 1;
    }
    assert_eq!(seen, 27 + 9 + 6 + 7 + 16 + 28);
}
