use objects::kinds::AdmissionRule;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Program, Settings, Unknown, decide};
use super::{matches, object, one, pod, program, rule, with};

fn images(images: &[&str]) -> Value {
    let container = |(i, image): (usize, &&str)| json!({"name": format!("c{i}"), "image": image});
    pod(json!({"containers": images.iter().enumerate().map(container).collect::<Vec<_>>()}))
}

fn on_image(name: &str, action: &str, mode: &str, items: &str) -> AdmissionRule {
    rule(
        name,
        json!({"action": action, "mode": mode, "criteria": one("image", "containsAny", items)}),
    )
}

#[test]
fn criteria_of_one_name_fold_and_of_different_names_all_hold() {
    let user = |op: &str, value: &str| json!({"name": "user", "op": op, "value": value});
    let cases = [
        // Negatives alone: all must hold.
        (json!([user("notContainsAny", "bob"), user("!regex", "^c")]), true),
        (json!([user("notContainsAny", "bob"), user("!regex", "^a")]), false),
        // Two positives: either.
        (json!([user("containsAny", "bob"), user("regex", "^a")]), true),
        // Negatives, then a positive: all the negatives, or the positive.
        (json!([user("notContainsAny", "alice"), user("containsAny", "alice")]), true),
        (json!([user("notContainsAny", "alice"), user("containsAny", "bob")]), false),
        // A negative after a positive: either.
        (json!([user("containsAny", "bob"), user("!regex", "^x")]), true),
        // Merged first: (neither p nor r) or q.
        (
            json!([
                user("notContainsAny", "p"),
                user("containsAny", "q"),
                user("notContainsAny", "alice")
            ]),
            false,
        ),
        // Not merged: not p, or q, or not r.
        (json!([user("!regex", "alice"), user("regex", "q"), user("!regex", "r$")]), true),
        // Different names.
        (
            json!([user("containsAny", "alice"),
                {"name": "namespace", "op": "containsAny", "value": "other"}]),
            false,
        ),
        (
            json!([user("containsAny", "bob"),
                {"name": "namespace", "op": "containsAny", "value": "shop"},
                user("containsAny", "alice")]),
            true,
        ),
    ];
    for (criteria, expected) in cases {
        assert_eq!(matches(&criteria, &with(json!({}))), expected, "{criteria}");
    }
}

#[test]
fn a_rule_must_match_one_container_with_all_its_criteria() {
    let criteria = json!([{"name": "image", "op": "containsAny", "value": "a/x"},
                          {"name": "runAsPrivileged", "op": "=", "value": "true"}]);
    let pod = |privileged: usize| {
        let mut pod = images(&["a/x", "a/y"]);
        pod["spec"]["containers"][privileged]["securityContext"] = json!({"privileged": true});
        pod
    };
    assert!(!matches(&criteria, &pod(1)));
    assert!(matches(&criteria, &pod(0)));
}

#[test]
fn allow_frees_its_container_only_and_one_denied_container_denies_all() {
    let rules = [
        on_image("deny-a", "deny", "", "a/*"),
        on_image("allow-ok", "allow", "", "a/ok"),
        on_image("watch", "deny", "monitor", "a/*,b/*"),
    ];
    let program = program(&rules);
    let decided = |what: &[&str]| {
        let request = object(&images(what));
        let decision = decide(&program, &request, &Unknown);
        let names = decision.monitored.iter().map(|hit| hit.rule.to_owned()).collect::<Vec<_>>();
        let by = decision.decided.map(|hit| (hit.rule.to_owned(), hit.container.unwrap()));
        (decision.allowed, by, names)
    };
    let by = |rule: &str, container: &str| Some((rule.to_owned(), container.to_owned()));
    let watch = vec!["watch".to_owned()];
    assert_eq!(decided(&["a/ok"]), (true, by("allow-ok", "c0"), vec![]));
    assert_eq!(decided(&["a/ok", "a/no"]), (false, by("deny-a", "c1"), vec![]));
    assert_eq!(decided(&["b/x", "a/ok", "b/y"]), (true, by("allow-ok", "c1"), watch.clone()));
    assert_eq!(decided(&["b/x", "a/no"]), (false, by("deny-a", "c1"), watch));
    assert_eq!(decided(&["c/x"]), (true, None, vec![]));
}

#[test]
fn layers_come_before_allow_and_critical_allow_before_all() {
    let of = |name: &str, action: &str, origin: &str, critical: bool| {
        rule(
            name,
            json!({"action": action, "origin": origin, "critical": critical,
                          "criteria": one("image", "containsAny", "*")}),
        )
    };
    let decided = |rules: &[AdmissionRule]| {
        let program = program(rules);
        decide(&program, &object(&with(json!({}))), &Unknown).decided.unwrap().rule.to_owned()
    };
    let user = of("user", "allow", "user_created", false);
    let ground = of("ground", "allow", "ground", false);
    let federal = of("federal", "deny", "federal", false);
    let critical = of("critical", "allow", "user_created", true);
    assert_eq!(decided(&[user.clone(), federal.clone()]), "federal");
    assert_eq!(decided(&[user.clone(), ground]), "ground");
    assert_eq!(decided(&[federal, user, critical]), "critical");
}

#[test]
fn the_mode_of_a_rule_stands_whatever_the_global_one() {
    let request = object(&with(json!({})));
    for (mode, global, allowed) in
        [("", true, false), ("", false, true), ("protect", false, false), ("monitor", true, true)]
    {
        let rules = [on_image("r", "deny", mode, "*")];
        let program = Program::compile(&rules, &Settings::new(global)).unwrap();
        let decision = decide(&program, &request, &Unknown);
        assert_eq!(decision.allowed, allowed, "{mode:?} {global}");
        assert_eq!(decision.monitored.len(), usize::from(allowed));
    }
}

#[test]
fn containers_are_selected_and_disabled_rules_are_not_looked_at() {
    let object = object(&pod(json!({"initContainers": [{"name": "i", "image": "x/bad"}],
                                    "containers": [{"name": "c", "image": "x/good"}]})));
    for (containers, disabled, allowed) in [
        (json!([]), false, false),
        (json!(["init_containers"]), false, false),
        (json!(["containers", "ephemeral_containers"]), false, true),
        (json!([]), true, true),
    ] {
        let rule = rule(
            "r",
            json!({"action": "deny", "containers": containers,
            "disabled": disabled, "criteria": one("image", "containsAny", "x/bad")}),
        );
        let program = program(&[rule]);
        assert_eq!(decide(&program, &object, &Unknown).allowed, allowed, "{containers}");
    }
}

#[test]
fn rules_of_one_name_or_that_are_wrong_do_not_compile() {
    let rules = [on_image("a", "deny", "", "x/y"), on_image("a", "deny", "", "x/z")];
    let problems = Program::compile(&rules, &Settings::new(true)).unwrap_err().to_string();
    assert!(problems.contains("is there twice"), "{problems}");
    let wrong = [rule("b", json!({"action": "deny", "criteria": one("image", "=", "x")}))];
    let problems = Program::compile(&wrong, &Settings::new(true)).unwrap_err().to_string();
    assert!(problems.contains("rule \"b\": spec.criteria[0].op"), "{problems}");
}

proptest! {
    /// Which rule is named may change with the order inside a layer; the verdict may not, nor may
    /// the place of allow rules among deny rules change anything.
    #[test]
    fn the_verdict_does_not_depend_on_the_order_of_rules(
        kinds in proptest::collection::vec((0..4_usize, 0..2_usize, 0..3_usize), 1..8),
        seed in any::<u64>(),
        image in 0..4_usize,
    ) {
        let image = ["a/x", "a/y", "b/x", "c/z"][image];
        let mut rules = Vec::new();
        for (i, (items, action, mode)) in kinds.iter().enumerate() {
            let items = ["a/*", "*/x", "b/x", "a/y"][*items];
            let action = ["allow", "deny"][*action];
            let mode = if action == "allow" { "" } else { ["", "monitor", "protect"][*mode] };
            rules.push(on_image(&format!("r{i}"), action, mode, items));
        }
        let request = object(&images(&[image]));
        let before = decide(&program(&rules), &request, &Unknown).allowed;
        let mut seed = seed | 1;
        for i in (1..rules.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            rules.swap(i, usize::try_from(seed >> 33).unwrap() % (i + 1));
        }
        prop_assert_eq!(decide(&program(&rules), &request, &Unknown).allowed, before);
    }
}
