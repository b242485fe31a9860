use std::collections::BTreeSet;
use std::slice::from_ref;
use std::sync::Arc;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use objects::Kind;
use objects::kinds::{Group, GroupMode, NetworkRule, Protocol};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{GroupMatcher, Learned, Policy, Program, export};
use crate::conversations::{
    Conversation, End, Endpoint, Judge, Moment, PodFacts, ResolvedName, Service, Totals, Verdict,
};
use crate::groups::Groups;
use crate::names::Names;

fn rule(name: &str, spec: Value) -> NetworkRule {
    NetworkRule::new(name, serde_json::from_value(spec).unwrap())
}

fn pod(app: &str, number: u8) -> PodFacts {
    let labels = [("app", app.to_owned()), ("pod-template-hash", format!("h{number}"))];
    PodFacts {
        uid: format!("{app}-{number}").into(),
        namespace: "shop".into(),
        name: format!("{app}-{number}").into(),
        owner: Some(format!("Deployment/{app}").into()),
        node: "a".into(),
        addresses: vec![[10, 0, 0, number].into()],
        images: Vec::new(),
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        from: Moment(0),
        until: None,
    }
}

fn workload(app: &str) -> End {
    let endpoint = Endpoint::Workload {
        namespace: "shop".into(),
        name: format!("{app}-1").into(),
        owner: format!("Deployment/{app}").into(),
        node: "a".into(),
    };
    End { endpoint: Arc::new(endpoint), address: [10, 0, 0, 1].into() }
}

fn outside() -> End {
    End { endpoint: Arc::new(Endpoint::External { name: None }), address: [192, 0, 2, 1].into() }
}

fn groups(mode: GroupMode) -> Groups {
    let mut groups = Groups::new(mode);
    for app in ["web", "db"] {
        groups.apply_pod(&pod(app, 1), Moment(0));
        groups.apply_pod(&pod(app, 2), Moment(0));
    }
    groups
}

fn tcp(port: u16) -> Service<'static> {
    Service { protocol: Protocol::TCP, port, application: None }
}

fn policy(mode: GroupMode, rules: &[NetworkRule]) -> Policy {
    let program = Program::compile(rules, &[]).unwrap();
    Policy { program, groups: groups(mode), names: Names::default() }
}

fn notice(client: End, server: End, protocol: Protocol, port: u16) -> Conversation {
    Conversation {
        client,
        server,
        protocol,
        port,
        application: None,
        verdict: Verdict::Discovered,
        rule: None,
        totals: Totals::ZERO,
        first: Moment(0),
        last: Moment(0),
    }
}

#[test]
fn a_rule_by_name_decides_by_what_the_clients_node_told() {
    let spec = json!({"criteria": [{"key": "domain", "op": "=", "value": "*.example.com"}]});
    let names = Group::new("names", serde_json::from_value(spec).unwrap());
    let out = |name: &str, action: &str| {
        rule(name, json!({"from": "shop/Deployment/web", "to": name, "action": action}))
    };
    let judged = |mode, rules: &[NetworkRule], told: Option<&[ResolvedName]>| {
        let mut policy = policy(mode, rules);
        policy.groups.apply_group(&names).unwrap();
        if let Some(told) = told {
            policy.names.tell("a", told, Moment(0));
        }
        let judgement = policy.judge(&workload("web"), &outside(), tcp(443));
        (judgement.verdict, judgement.rule.map(|rule| rule.to_string()))
    };
    let address = outside().address;
    let known = [ResolvedName { name: "api.example.com".into(), address }];
    let other = [ResolvedName { name: "api.example.org".into(), address }];
    let by = |name: &str| Some(name.to_owned());
    let allow = [out("names", "allow")];
    for mode in [GroupMode::Monitor, GroupMode::Protect] {
        let against = match mode {
            GroupMode::Protect => Verdict::ViolatesUnenforced,
            _ => Verdict::Violates,
        };
        assert_eq!(judged(mode, &allow, Some(&known)), (Verdict::Allowed, by("names")));
        assert_eq!(judged(mode, &allow, Some(&other)), (against, None));
        assert_eq!(judged(mode, &allow, Some(&[])), (against, None));
        // The node told nothing: it is not known, and the rule that it depends on is named.
        assert_eq!(judged(mode, &allow, None), (Verdict::Unjudged, by("names")));
        // Either way it is against the rules, or allowed.
        assert_eq!(judged(mode, &[out("names", "deny")], None), (against, None));
        let both = [out("names", "allow"), out("external", "allow")];
        assert_eq!(judged(mode, &both, None), (Verdict::Allowed, by("external")));
    }
    assert_eq!(judged(GroupMode::Discover, &allow, None), (Verdict::Discovered, None));
    let deny = [out("names", "deny")];
    assert_eq!(judged(GroupMode::Discover, &deny, None), (Verdict::Unjudged, by("names")));
    assert_eq!(judged(GroupMode::Discover, &deny, Some(&known)), (Verdict::Violates, by("names")));
    // A rule that decides before it leaves nothing to depend on.
    let mut first = [out("names", "allow"), out("external", "deny")];
    first[1].spec.priority = 1;
    assert_eq!(judged(GroupMode::Monitor, &first, None), (Verdict::Violates, by("external")));
}

#[test]
fn the_first_rule_that_speaks_of_it_decides() {
    let rules = [
        rule("b-allow", json!({"from": "any", "to": "any", "action": "allow"})),
        rule("a-deny", json!({"from": "external", "to": "shop/Deployment/db", "action": "deny"})),
        rule(
            "first",
            json!({"from": "external", "to": "any", "ports": ["tcp/5432"], "action": "allow",
                   "priority": 1}),
        ),
        rule(
            "off",
            json!({"from": "any", "to": "any", "action": "deny", "priority": 0,
                           "disabled": true}),
        ),
    ];
    let policy = policy(GroupMode::Monitor, &rules);
    let judged = |client: End, server: End, port| {
        let judgement = policy.judge(&client, &server, tcp(port));
        (judgement.verdict, judgement.rule.unwrap().to_string())
    };
    let allowed = |rule: &str| (Verdict::Allowed, rule.to_owned());
    assert_eq!(judged(outside(), workload("db"), 5432), allowed("first"));
    assert_eq!(judged(outside(), workload("db"), 80), (Verdict::Violates, "a-deny".to_owned()));
    assert_eq!(judged(outside(), workload("web"), 80), allowed("b-allow"));
}

#[test]
fn the_laxer_mode_decides_what_becomes_of_what_no_rule_allows() {
    let verdict =
        |mode, client: &End, server: &End| policy(mode, &[]).judge(client, server, tcp(80)).verdict;
    let (web, db, out) = (workload("web"), workload("db"), outside());
    assert_eq!(verdict(GroupMode::Discover, &web, &db), Verdict::Discovered);
    assert_eq!(verdict(GroupMode::Monitor, &out, &db), Verdict::Violates);
    assert_eq!(verdict(GroupMode::Protect, &web, &out), Verdict::ViolatesUnenforced);
    assert_eq!(verdict(GroupMode::Protect, &out, &out), Verdict::Unjudged);
    let mut policy = policy(GroupMode::Protect, &[]);
    let spec = json!({"mode": "discover", "criteria": [
        {"key": "label", "label": "app", "op": "=", "value": "web"}]});
    let learning = Group::new("learning", serde_json::from_value(spec).unwrap());
    policy.groups.apply_group(&learning).unwrap();
    assert_eq!(policy.judge(&web, &db, tcp(80)).verdict, Verdict::Discovered);
    assert_eq!(policy.judge(&out, &db, tcp(80)).verdict, Verdict::ViolatesUnenforced);
}

#[test]
fn a_rule_that_denies_counts_while_learning_and_what_protects_nothing_says_so() {
    let deny = rule("no", json!({"from": "any", "to": "shop/Deployment/db", "action": "deny"}));
    let judge =
        |mode| policy(mode, from_ref(&deny)).judge(&workload("web"), &workload("db"), tcp(1));
    assert_eq!(judge(GroupMode::Discover).verdict, Verdict::Violates);
    let protected = judge(GroupMode::Protect).verdict;
    assert!(
        protected.is_violation()
            && protected.to_string().contains("stopped where policies are enforced")
    );
}

#[test]
fn applications_and_made_groups_are_looked_at() {
    let rules = [rule(
        "redis",
        json!({"from": "front", "to": "any", "applications": ["redis"], "action": "allow"}),
    )];
    let mut policy = policy(GroupMode::Monitor, &rules);
    let spec = json!({"criteria": [{"key": "label", "label": "app", "op": "=", "value": "web"}]});
    policy.groups.apply_group(&Group::new("front", serde_json::from_value(spec).unwrap())).unwrap();
    let redis = Service { application: Some("redis"), ..tcp(6379) };
    let verdict =
        |client: &str, service| policy.judge(&workload(client), &workload("db"), service).verdict;
    assert_eq!(verdict("web", redis), Verdict::Allowed);
    assert_eq!(verdict("web", tcp(6379)), Verdict::Violates);
    assert_eq!(verdict("db", redis), Verdict::Violates);
}

#[test]
fn a_wrong_rule_compiles_to_nothing() {
    let rules = [rule("wrong", json!({"from": "A", "to": "any", "action": "deny"}))];
    let problem = Program::compile(&rules, &[]).unwrap_err().to_string();
    assert!(problem.contains("\"wrong\"") && problem.contains("spec.from"), "{problem}");
}

#[test]
fn what_was_learned_is_allowed_from_then_on() {
    let mut learned = Learned::default();
    let seen = notice(workload("web"), workload("db"), Protocol::TCP, 5432);
    assert!(learned.learn(&seen));
    assert!(!learned.learn(&seen));
    let program = Program::compile(&[], &learned.rules()).unwrap();
    let policy = Policy { program, groups: groups(GroupMode::Monitor), names: Names::default() };
    let judgement = policy.judge(&workload("web"), &workload("db"), tcp(5432));
    assert_eq!(judgement.verdict, Verdict::Allowed);
    assert!(judgement.rule.unwrap().starts_with("learned-shop-deployment-web-shop-deployment-db-"));
    let other = policy.judge(&workload("web"), &workload("db"), tcp(5433));
    assert_eq!(other.verdict, Verdict::Violates);
}

#[test]
fn learned_rules_are_few_and_readable() {
    let mut learned = Learned::default();
    let mut see = |protocol, port| {
        learned.learn(&notice(outside(), workload("web"), protocol, port));
    };
    (8000..8020).for_each(|port| see(Protocol::TCP, port));
    see(Protocol::TCP, 443);
    // Far apart, and too many: any.
    (1..=12).for_each(|n| see(Protocol::UDP, n * 5000));
    see(Protocol::ICMP, 0);
    let rules = learned.rules();
    assert_eq!(rules.len(), 1);
    let ports: Vec<_> = rules[0].ports.iter().map(ToString::to_string).collect();
    assert_eq!(ports, ["icmp", "tcp/443", "tcp/8000-8019", "udp"]);
    assert_eq!((&*rules[0].from, &*rules[0].to), ("external", "shop/Deployment/web"));
}

#[test]
fn a_promoted_rule_is_right_and_means_the_same() {
    let mut learned = Learned::default();
    for port in [80, 443, 8000, 8001] {
        learned.learn(&notice(outside(), workload("web"), Protocol::TCP, port));
    }
    let promoted = learned.rules()[0].promote();
    assert_eq!(promoted.check(), Ok(()));
    assert_eq!(promoted.spec.ports, ["tcp/80", "tcp/443", "tcp/8000-8001"]);
    let policy = policy(GroupMode::Monitor, &[promoted]);
    let verdict = |port| policy.judge(&outside(), &workload("web"), tcp(port)).verdict;
    assert_eq!((verdict(8001), verdict(8002)), (Verdict::Allowed, Verdict::Violates));
    learned.forget("external", "shop/Deployment/web");
    assert!(learned.rules().is_empty());
}

proptest! {
    #[test]
    fn every_port_seen_is_allowed_by_few_ranges_and_survives_a_checkpoint(
        ports in prop::collection::vec(any::<u16>(), 1..100),
    ) {
        let mut learned = Learned::default();
        for port in &ports {
            let before = learned.rules();
            let changed = learned.learn(&notice(outside(), workload("web"), Protocol::TCP, *port));
            prop_assert!(changed || learned.rules() == before);
        }
        let rules = learned.rules();
        prop_assert!(rules[0].ports.len() <= 8);
        for port in ports.iter().collect::<BTreeSet<_>>() {
            prop_assert!(rules[0].ports.iter().any(|it| it.contains(Protocol::TCP, *port)));
        }
        prop_assert_eq!(Learned::load(&learned.save()), Ok(learned));
    }

    #[test]
    fn no_bytes_make_loading_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Learned::load(&bytes);
    }
}

fn exported(rules: &[NetworkRule], groups: &Groups) -> (Vec<String>, Vec<String>) {
    let exported = export(rules, groups);
    let yaml = exported.policies.iter().map(|it| serde_saphyr::to_string(it).unwrap()).collect();
    let notes = exported.notes.iter().map(|note| format!("{}: {}", note.rule, note.why)).collect();
    (yaml, notes)
}

#[test]
fn rules_are_exported_as_network_policies() {
    let mut groups = groups(GroupMode::Monitor);
    let criteria = json!([{"key": "address", "op": "=", "value": "192.0.2.7/24"}]);
    let office = serde_json::from_value(json!({"criteria": criteria})).unwrap();
    groups.apply_group(&Group::new("office", office)).unwrap();
    let rules = [
        rule(
            "web-db",
            json!({"from": "shop/Deployment/web", "to": "shop/Deployment/db",
                   "ports": ["tcp/5432", "tcp/6000-6010"], "action": "allow"}),
        ),
        rule("x-office", json!({"from": "office", "to": "shop/Deployment/db", "action": "allow"})),
    ];
    let (yaml, notes) = exported(&rules, &groups);
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(yaml.len(), 1);
    let expected = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: learned.shop.deployment.db
  namespace: shop
spec:
  ingress:
    - from:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: shop
          podSelector:
            matchLabels:
              app: web
      ports:
        - port: 5432
          protocol: TCP
        - endPort: 6010
          port: 6000
          protocol: TCP
    - from:
        - ipBlock:
            cidr: 192.0.2.0/24
  podSelector:
    matchLabels:
      app: db
  policyTypes:
    - Ingress
";
    let parsed: Value = serde_saphyr::from_str(&yaml[0]).unwrap();
    assert_eq!(parsed, serde_saphyr::from_str::<Value>(expected).unwrap(), "{}", yaml[0]);
    let back: NetworkPolicy = serde_saphyr::from_str(&yaml[0]).unwrap();
    assert_eq!(back, export(&rules, &groups).policies[0]);
}

#[test]
fn what_a_network_policy_cannot_say_is_noted_and_left_out() {
    let mut groups = groups(GroupMode::Monitor);
    let mut stray = pod("web", 9);
    stray.owner = Some("StatefulSet/impostor".into());
    groups.apply_pod(&stray, Moment(0));
    let by_name = json!({"criteria": [{"key": "name", "op": "prefix", "value": "web"}]});
    groups.apply_group(&Group::new("named", serde_json::from_value(by_name).unwrap())).unwrap();
    let allow = |name: &str, from: &str, to: &str| {
        rule(name, json!({"from": from, "to": to, "action": "allow"}))
    };
    let db = "shop/Deployment/db";
    let rules = [
        rule("a", json!({"from": "any", "to": db, "action": "deny"})),
        rule("b", json!({"from": "any", "to": db, "action": "allow", "applications": ["http"]})),
        rule("c", json!({"from": "any", "to": db, "action": "allow", "ports": ["icmp"]})),
        allow("d", "any", "shop/Deployment/web"),
        allow("e", "any", "external"),
        allow("f", "named", db),
        allow("g", "hosts", db),
        allow("h", "any", "shop/Deployment/none"),
        allow("i", "external", db),
        rule("j", json!({"from": "any", "to": db, "action": "allow", "ports": ["tcp/0"]})),
    ];
    let (yaml, notes) = exported(&rules, &groups);
    assert_eq!(yaml.len(), 1, "only one is in it");
    let expected = [
        "a: denies",
        "b: is about applications",
        "c: is about icmp",
        "d: the labels of shop/Deployment/web would select shop/StatefulSet/impostor",
        "e: is about what enters external",
        "f: the group named has a criterion",
        "g: a NetworkPolicy has no word for hosts",
        "h: shop/Deployment/none has no pods",
        "i: a NetworkPolicy has no word for external: it allows every address",
        "j: is about port 0",
    ];
    assert_eq!(notes.len(), expected.len(), "{notes:?}");
    for (note, expected) in notes.iter().zip(expected) {
        assert!(note.starts_with(expected), "{note}");
    }
}

/// A pod of one run of a CronJob, with what the Job controller adds to its labels.
fn run_of(cron_job: &str, number: u8, app: Option<&str>) -> PodFacts {
    let mut pod = pod(cron_job, number);
    let (job, uid) = (format!("{cron_job}-2900{number}"), format!("uid-{number}"));
    let labels = [
        ("batch.kubernetes.io/controller-uid", uid.as_str()),
        ("batch.kubernetes.io/job-completion-index", "0"),
        ("batch.kubernetes.io/job-name", job.as_str()),
        ("controller-uid", uid.as_str()),
        ("job-name", job.as_str()),
    ];
    let labels = labels.into_iter().chain(app.map(|app| ("app", app)));
    pod.labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    pod.owner = Some(format!("CronJob/{cron_job}").into());
    pod
}

#[test]
fn the_policy_of_a_cron_job_selects_every_run_of_it() {
    let mut groups = groups(GroupMode::Monitor);
    groups.apply_pod(&run_of("backup", 8, Some("backup")), Moment(0));
    let (db, backup) = ("shop/Deployment/db", "shop/CronJob/backup");
    let rules = [
        rule("from", json!({"from": backup, "to": db, "action": "allow"})),
        rule("to", json!({"from": "any", "to": backup, "action": "allow"})),
    ];
    let exported = export(&rules, &groups);
    assert_eq!(exported.notes, []);
    let said = serde_json::to_value(&exported.policies).unwrap();
    let expected = json!({ "matchLabels": { "app": "backup" } });
    assert_eq!(said[0]["spec"]["podSelector"], expected, "{said}");
    assert_eq!(said[1]["spec"]["ingress"][0]["from"][0]["podSelector"], expected, "{said}");
}

#[test]
fn a_workload_with_labels_of_one_run_only_is_left_out_with_the_reason() {
    let mut groups = groups(GroupMode::Monitor);
    groups.apply_pod(&run_of("backup", 8, None), Moment(0));
    let mut bare = pod("bare", 9);
    bare.labels.clear();
    groups.apply_pod(&bare, Moment(0));
    let to = |name: &str, to: &str| rule(name, json!({"from": "any", "to": to, "action": "allow"}));
    let rules = [to("a", "shop/CronJob/backup"), to("b", "shop/Deployment/bare")];
    let (yaml, notes) = exported(&rules, &groups);
    assert_eq!(yaml, Vec::<String>::new(), "an empty selector would select every pod");
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("only labels of one run or revision"), "{}", notes[0]);
    assert!(notes[0].contains("job-name") && notes[0].contains("pod template"), "{}", notes[0]);
    assert!(notes[1].contains("no label in common"), "{}", notes[1]);
}

#[test]
fn a_made_group_of_labels_is_a_selector() {
    let mut groups = groups(GroupMode::Monitor);
    let criteria = json!([
        {"key": "namespace", "op": "=", "value": "shop"},
        {"key": "label", "label": "app", "op": "=", "value": "web"},
        {"key": "label", "label": "app", "op": "=", "value": "api"},
        {"key": "label", "label": "tier", "op": "!=", "value": "test"},
    ]);
    let front = serde_json::from_value(json!({"criteria": criteria})).unwrap();
    groups.apply_group(&Group::new("front", front)).unwrap();
    let rules = [rule("r", json!({"from": "workloads", "to": "front", "action": "allow"}))];
    let policies = export(&rules, &groups).policies;
    let selector = policies[0].spec.clone().unwrap().pod_selector.unwrap();
    assert_eq!(
        serde_json::to_value(selector).unwrap(),
        json!({"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["web", "api"]},
            {"key": "tier", "operator": "NotIn", "values": ["test"]}]})
    );
    assert_eq!(policies[0].metadata.namespace.as_deref(), Some("shop"));
}

proptest! {
    /// However rules are looked up, it is the first of all in their order.
    #[test]
    fn the_first_of_all_rules_decides(
        drawn in prop::collection::vec((0..6_usize, 0..6_usize, 0..4_u16, 0..3_i32), 0..30),
    ) {
        const WHO: [&str; 6] =
            ["any", "workloads", "external", "hosts", "shop/Deployment/web", "shop/Deployment/db"];
        let rules: Vec<_> = drawn
            .iter()
            .enumerate()
            .map(|(n, (from, to, port, priority))| {
                let ports: Vec<_> = (*port > 0).then(|| format!("tcp/{port}")).into_iter().collect();
                let spec = json!({"from": WHO[*from], "to": WHO[*to], "ports": ports,
                                  "action": "allow", "priority": priority});
                rule(&format!("r{n:02}"), spec)
            })
            .collect();
        let policy = policy(GroupMode::Monitor, &rules);
        let mut order: Vec<_> = rules.iter().collect();
        order.sort_by_key(|rule| (rule.spec.priority, rule.metadata.name.clone()));
        let host = End {
            endpoint: Arc::new(Endpoint::Host { name: "a".into() }),
            address: [192, 168, 0, 1].into(),
        };
        let ends = [workload("web"), workload("db"), outside(), host];
        for (client, server) in ends.iter().flat_map(|a| ends.iter().map(move |b| (a, b))) {
            for port in 1..4 {
                let has = |who: &str, end: &End| GroupMatcher::new(who).unwrap().has(&policy.groups, end);
                let first = order.iter().find(|rule| {
                    has(&rule.spec.from, client)
                        && has(&rule.spec.to, server)
                        && (rule.spec.ports.is_empty()
                            || rule.spec.ports.contains(&format!("tcp/{port}")))
                });
                let judged = policy.judge(client, server, tcp(port));
                if judged.verdict != Verdict::Unjudged {
                    let first = first.and_then(|rule| rule.metadata.name.as_deref());
                    prop_assert_eq!(judged.rule.as_deref(), first);
                }
            }
        }
    }
}
