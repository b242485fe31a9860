use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

fn rule(clusters: &[&str], namespaces: &[&str], resources: &[&str], verbs: &[&str]) -> Rule {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Rule {
        clusters: words(clusters),
        namespaces: words(namespaces),
        resources: words(resources),
        verbs: words(verbs),
    }
}

fn role(name: &str, allow: Vec<Rule>, deny: Vec<Rule>) -> Arc<Role> {
    Arc::new(Role::compile(name, &AccessRoleSpec { allow, deny }))
}

fn built(name: &str) -> Permissions {
    let role = built_in().iter().find(|role| &**role.name() == name).unwrap();
    Permissions::new(vec![Arc::clone(role)])
}

fn ask<'a>(
    cluster: &'a str,
    namespace: &'a str,
    resource: &'a str,
    verb: Verb,
) -> AccessRequest<'a> {
    let namespace = (namespace != NO_NAMESPACE).then_some(namespace);
    AccessRequest { cluster, namespace, resource, verb }
}

fn allows(permissions: &Permissions, ask: AccessRequest<'_>) -> bool {
    decide(permissions, &ask).is_allowed()
}

#[test]
fn nothing_said_is_no() {
    let asked = ask("prod", "web", "pods", Verb::Get);
    assert_eq!(decide(&Permissions::default(), &asked), Decision::NotAllowed);
    let elsewhere = role("dev", vec![rule(&["dev"], &["*"], &["*"], &["*"])], vec![]);
    assert_eq!(decide(&Permissions::new(vec![elsewhere]), &asked), Decision::NotAllowed);
}

#[test]
fn deny_wins_whichever_role_it_comes_from_and_both_are_named() {
    let all = role("all", vec![rule(&["*"], &["*"], &["*"], &["*"])], vec![]);
    let careful = role("careful", vec![], vec![rule(&["prod*"], &["*"], &["*"], &["delete"])]);
    for roles in [vec![Arc::clone(&all), Arc::clone(&careful)], vec![careful, all]] {
        let permissions = Permissions::new(roles);
        let denied = decide(&permissions, &ask("prod-1", "web", "pods", Verb::Delete));
        assert_eq!(denied, Decision::Denied { by: "careful".into() });
        let allowed = decide(&permissions, &ask("prod-1", "web", "pods", Verb::Get));
        assert_eq!(allowed, Decision::Allowed { by: "all".into() });
    }
}

#[test]
fn all_clusters_is_not_the_fleet_itself() {
    let everywhere = role("all", vec![rule(&["*", "?"], &["*"], &["*"], &["*"])], vec![]);
    let permissions = Permissions::new(vec![everywhere]);
    let asked = ask(FLEET, NO_NAMESPACE, "users.fairlead.dev", Verb::Create);
    assert_eq!(decide(&permissions, &asked), Decision::NotAllowed);
    assert!(allows(&Permissions::admin(), asked));
}

#[test]
fn a_resource_without_namespace_is_in_the_namespace_dash() {
    let team = role("team", vec![rule(&["*"], &["team-*"], &["*"], &["*"])], vec![]);
    let nodes = role("nodes", vec![rule(&["*"], &["-"], &["nodes"], &["*"])], vec![]);
    let team = Permissions::new(vec![team]);
    assert!(!allows(&team, ask("c", NO_NAMESPACE, "nodes", Verb::Get)));
    assert!(allows(&Permissions::new(vec![nodes]), ask("c", NO_NAMESPACE, "nodes", Verb::Get)));
}

#[test]
fn the_built_in_roles_are_as_documented() {
    let (admin, operator, viewer) = (built("admin"), built("operator"), built("viewer"));
    let table = [
        // what is asked, admin, operator, viewer
        (ask("c", "web", "pods", Verb::Get), true, true, true),
        (ask("c", "web", "pods", Verb::Log), true, true, true),
        (ask("c", "web", "pods", Verb::Exec), true, true, false),
        (ask("c", "web", "deployments.apps", Verb::Scale), true, true, false),
        (ask("c", NO_NAMESPACE, "nodes", Verb::Drain), true, true, false),
        (ask("c", "web", "secrets", Verb::Get), true, false, false),
        (ask("c", NO_NAMESPACE, "users.fairlead.dev", Verb::Get), true, false, false),
        (ask("c", "a", "rolebindings.rbac.authorization.k8s.io", Verb::Create), true, false, false),
        (ask(FLEET, NO_NAMESPACE, "clusters.fairlead.dev", Verb::List), true, true, true),
        (ask(FLEET, NO_NAMESPACE, "clusters.fairlead.dev", Verb::Create), true, true, false),
        (ask(FLEET, NO_NAMESPACE, "clustermeshes.fairlead.dev", Verb::Get), true, true, true),
        (ask(FLEET, NO_NAMESPACE, "clustermeshes.fairlead.dev", Verb::Update), true, true, false),
        (ask(FLEET, NO_NAMESPACE, "users.fairlead.dev", Verb::List), true, false, false),
        (ask(FLEET, NO_NAMESPACE, "audit.fairlead.dev", Verb::List), true, false, false),
    ];
    for (asked, by_admin, by_operator, by_viewer) in table {
        assert_eq!(allows(&admin, asked), by_admin, "admin {asked:?}");
        assert_eq!(allows(&operator, asked), by_operator, "operator {asked:?}");
        assert_eq!(allows(&viewer, asked), by_viewer, "viewer {asked:?}");
    }
    assert!(built_in().iter().all(|role| role.problems().is_empty()));
}

#[test]
fn what_cannot_be_read_allows_nothing_and_denies_all_and_is_told() {
    let broken = rule(&["*"], &["*"], &["pods"], &["patch"]);
    let allow = role("a", vec![broken.clone()], vec![]);
    let asked = ask("c", "web", "pods", Verb::Get);
    assert!(!allows(&Permissions::new(vec![Arc::clone(&allow)]), asked));
    assert_eq!(allow.problems(), [r#"allow[0]: verbs: there is no verb "patch""#]);

    let deny = role("d", vec![rule(&["*"], &["*"], &["*"], &["*"])], vec![broken]);
    assert!(!allows(&Permissions::new(vec![Arc::clone(&deny)]), asked));
    assert!(allows(&Permissions::new(vec![deny]), ask("c", "web", "services", Verb::Get)));

    let empty = role("e", vec![rule(&["*"], &[], &["*"], &["*"])], vec![]);
    assert_eq!(empty.problems(), ["allow[0]: namespaces is empty, so the rule never applies"]);
    let long = "x".repeat(1000);
    let long = role("l", vec![], vec![rule(&["*"], &[&long], &["*"], &["*"])]);
    assert_eq!(long.problems().len(), 1);
    let permissions = Permissions::new(vec![Arc::clone(&built_in()[0]), long]);
    assert!(!allows(&permissions, asked));
}

#[test]
fn a_cluster_is_seen_when_anything_in_it_is() {
    let allow = vec![rule(&["prod"], &["web"], &["pods"], &["get"])];
    let deny = vec![rule(&["*"], &["hidden"], &["*"], &["*"])];
    let permissions = Permissions::new(vec![role("r", allow, deny)]);
    assert!(permissions.may_see_cluster("prod") && !permissions.may_see_cluster("dev"));
    assert!(permissions.may_see_namespace("prod", "web"));
    assert!(!permissions.may_see_namespace("prod", "db"));
    assert!(!permissions.may_see_namespace("prod", "hidden"));
    assert!(!permissions.may_see_cluster(FLEET));
}

#[test]
fn a_cluster_that_is_denied_whole_is_not_seen() {
    let viewer = Arc::clone(&built_in()[2]);
    let hide = role("hide", vec![], vec![rule(&["secret-*"], &["*"], &["*"], &["*"])]);
    let permissions = Permissions::new(vec![viewer, hide]);
    assert!(permissions.may_see_cluster("prod"));
    assert!(!permissions.may_see_cluster("secret-lab"));
    assert!(!permissions.may_see_namespace("secret-lab", "default"));
}

#[test]
fn reach_tells_whether_each_namespace_must_be_asked_for() {
    let viewer = built("viewer");
    assert_eq!(viewer.reach("c", "pods", Verb::List), Reach::Everywhere);
    assert_eq!(viewer.reach("c", "secrets", Verb::List), Reach::Nowhere);
    assert_eq!(viewer.reach("c", "pods", Verb::Delete), Reach::Nowhere);
    let team = role("t", vec![rule(&["*"], &["team-*"], &["pods"], &["*"])], vec![]);
    assert_eq!(Permissions::new(vec![team]).reach("c", "pods", Verb::List), Reach::Somewhere);
    let allow = vec![rule(&["*"], &["*"], &["*"], &["*"])];
    let but = role("b", allow, vec![rule(&["*"], &["kube-system"], &["*"], &["*"])]);
    assert_eq!(Permissions::new(vec![but]).reach("c", "pods", Verb::List), Reach::Somewhere);
}

/// The words of the contract, with a matcher that tries every split.
fn reference(roles: &[AccessRoleSpec], ask: &AccessRequest<'_>) -> Option<bool> {
    fn glob(pattern: &str, word: &str) -> bool {
        match pattern.chars().next() {
            None => word.is_empty(),
            Some('*') => (0..=word.len()).any(|skip| glob(&pattern[1..], &word[skip..])),
            Some(c) => {
                let first = word.chars().next();
                first.is_some_and(|w| c == '?' || c == w) && glob(&pattern[1..], &word[1..])
            }
        }
    }
    let any = |patterns: &[String], word: &str| patterns.iter().any(|p| glob(p, word));
    let speaks = |rule: &Rule| {
        let cluster = if ask.cluster == "-" {
            rule.clusters.iter().any(|p| p == "-")
        } else {
            any(&rule.clusters, ask.cluster)
        };
        cluster
            && any(&rule.namespaces, ask.namespace.unwrap_or("-"))
            && any(&rule.resources, ask.resource)
            && any(&rule.verbs, ask.verb.as_str())
    };
    if roles.iter().any(|role| role.deny.iter().any(speaks)) {
        return Some(false);
    }
    roles.iter().any(|role| role.allow.iter().any(speaks)).then_some(true)
}

const CLUSTERS: [&str; 3] = ["-", "a", "ab"];
const NAMESPACES: [&str; 3] = ["-", "x", "xy"];
const RESOURCES: [&str; 3] = ["pods", "po", "pods.x"];

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    fn some(of: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
        vec(select(of).prop_map(str::to_owned), 0..3)
    }
    let clusters = some(&["*", "-", "a", "a*", "?b", "??"]);
    let namespaces = some(&["*", "-", "x", "x?", "?", "y*"]);
    let resources = some(&["*", "pods", "po*", "*.x", "p?"]);
    let verbs = some(&["*", "get", "l*", "list", "?et", "delete"]);
    let rule = (clusters, namespaces, resources, verbs).prop_map(
        |(clusters, namespaces, resources, verbs)| Rule { clusters, namespaces, resources, verbs },
    );
    vec(rule, 0..4)
}

fn specs() -> impl Strategy<Value = Vec<AccessRoleSpec>> {
    let spec = (rules(), rules()).prop_map(|(allow, deny)| AccessRoleSpec { allow, deny });
    vec(spec, 0..3)
}

fn compiled(specs: &[AccessRoleSpec]) -> Permissions {
    Permissions::new(specs.iter().map(|spec| Arc::new(Role::compile("r", spec))).collect())
}

proptest! {
    #[test]
    fn decisions_are_what_the_contract_says(
        specs in specs(),
        cluster in select(&CLUSTERS),
        namespace in select(&NAMESPACES),
        resource in select(&RESOURCES),
        verb in select(Verb::ALL),
    ) {
        let asked = ask(cluster, namespace, resource, verb);
        let decided = match decide(&compiled(&specs), &asked) {
            Decision::Allowed { .. } => Some(true),
            Decision::Denied { .. } => Some(false),
            Decision::NotAllowed => None,
        };
        prop_assert_eq!(decided, reference(&specs, &asked));
    }

    /// Whoever may do something in a place sees the place; `reach` never says more than `decide`.
    #[test]
    fn what_may_be_done_is_in_sight_and_in_reach(specs in specs(), verbs in subsequence(Verb::ALL, 3)) {
        let permissions = compiled(&specs);
        for cluster in CLUSTERS {
            for verb in &verbs {
                for resource in RESOURCES {
                    let reach = permissions.reach(cluster, resource, *verb);
                    for namespace in NAMESPACES {
                        let may = allows(&permissions, ask(cluster, namespace, resource, *verb));
                        if may {
                            prop_assert!(permissions.may_see_cluster(cluster));
                            prop_assert!(permissions.may_see_namespace(cluster, namespace));
                        }
                        prop_assert!(!(may && reach == Reach::Nowhere));
                        prop_assert!(may || reach != Reach::Everywhere);
                    }
                }
            }
        }
    }
}

#[test]
fn namespaces_that_rules_name_are_known_without_a_list() {
    let rule = |clusters: &[&str], namespaces: &[&str]| Rule {
        clusters: clusters.iter().map(ToString::to_string).collect(),
        namespaces: namespaces.iter().map(ToString::to_string).collect(),
        resources: vec!["*".to_owned()],
        verbs: vec!["*".to_owned()],
    };
    let spec = AccessRoleSpec {
        allow: vec![rule(&["eu*"], &["shop", "-", "team-*", "secret"]), rule(&["us"], &["bank"])],
        deny: vec![rule(&["*"], &["secret"])],
    };
    let permissions = Permissions::new(vec![Arc::new(Role::compile("role", &spec))]);
    assert_eq!(permissions.named_namespaces("eu-1"), BTreeSet::from(["shop".to_owned()]));
    assert_eq!(permissions.named_namespaces("us"), BTreeSet::from(["bank".to_owned()]));
    assert!(permissions.named_namespaces("asia").is_empty());
}

#[test]
fn everything_is_only_what_no_deny_takes_from() {
    let reaches = |permissions: &Permissions, namespace, verb| {
        permissions.reaches_all("prod", namespace, verb)
    };
    assert!(reaches(&built("admin"), None, Verb::Delete));
    assert!(!reaches(&built("operator"), None, Verb::Get), "Secrets are denied");
    let team =
        Permissions::new(vec![role("team", vec![rule(&["*"], &["a"], &["*"], &["*"])], vec![])]);
    assert!(reaches(&team, Some("a"), Verb::Exec));
    assert!(!reaches(&team, Some("b"), Verb::Get));
    assert!(!reaches(&team, None, Verb::Get));
    let pods = vec![rule(&["*"], &["*"], &["pods*"], &["*"])];
    assert!(!reaches(&Permissions::new(vec![role("pods", pods, vec![])]), None, Verb::Get));
}
