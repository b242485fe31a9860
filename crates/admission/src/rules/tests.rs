use objects::kinds::admission_rule::RuleState;
use proptest::prelude::*;
use serde_json::json;

use super::super::{Facts, Operation, Request, Unknown, decide};
use super::*;

fn rule(name: &str, action: &str, image: &str) -> AdmissionRule {
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule", "metadata": {"name": name},
        "spec": {"action": action,
                 "criteria": [{"name": "image", "op": "containsAny", "value": image}]},
    }))
    .unwrap()
}

fn broken(name: &str) -> AdmissionRule {
    let mut rule = rule(name, "deny", "x");
    "nonsense".clone_into(&mut rule.spec.criteria[0].op);
    rule
}

fn names(rules: &Rules) -> Vec<&str> {
    rules.list().into_iter().map(|rule| rule.name.as_str()).collect()
}

#[test]
fn a_rule_that_is_not_right_says_why_and_the_others_go_on() {
    let settings = Settings::new(true);
    let mut rules = Rules::default();
    assert!(!rules.is_told(), "nothing is known before the store has told it");
    rules.reset(vec![broken("a"), rule("b", "deny", "evil/*")], &settings);
    assert!(rules.is_told());
    assert_eq!((rules.count(RuleState::Invalid), rules.count(RuleState::Active)), (1, 1));
    let listed = rules.list();
    assert!(listed[0].why.as_deref().unwrap().contains("nonsense"), "{listed:?}");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                     "spec": {"containers": [{"name": "c", "image": "evil/miner"}]}});
    let pod = Request::object(&pod, Operation::Create, "u", &[], &settings).unwrap();
    let facts: &dyn Facts = &Unknown;
    assert_eq!(decide(&rules.program, &pod, facts).decided.unwrap().rule, "b");

    rules.apply(rule("a", "allow", "evil/*"), &settings);
    assert!(decide(&rules.program, &pod, facts).allowed, "put right, it decides");
    rules.delete("a");
    assert!(!decide(&rules.program, &pod, facts).allowed);
}

/// Until it is known what images run as, a rule on that says what it does not see.
#[test]
fn a_rule_on_root_says_that_it_does_not_know_images() {
    let mut rules = Rules::default();
    for (name, criterion, value) in [
        ("a", "runAsRoot", "true"),
        ("b", "pspCompliance", "true"),
        ("c", "runAsRoot", "false"),
        ("d", "runAsPrivileged", "true"),
    ] {
        let mut made = rule(name, "deny", "x");
        made.spec.criteria[0] = serde_json::from_value(json!({
            "name": criterion, "op": "=", "value": value}))
        .unwrap();
        rules.apply(made, &Settings::new(true));
    }
    let why: Vec<_> = rules.list().iter().map(|rule| rule.why.clone()).collect();
    let [Some(root), Some(_), Some(no_root), None] = &why[..] else { panic!("{why:?}") };
    assert!(root.contains("without runAsUser does not count as root"), "{root}");
    assert!(no_root.contains("without runAsUser counts as not root"), "{no_root}");
    assert!(rules.list().iter().all(|rule| rule.state == RuleState::Active));
}

#[test]
fn rules_are_decided_allow_first_and_by_name() {
    let settings = Settings::new(true);
    let mut rules = Rules::default();
    let mut critical = rule("z", "allow", "x");
    critical.spec.critical = true;
    let all =
        vec![rule("b", "deny", "x"), rule("a", "deny", "x"), rule("c", "allow", "x"), critical];
    rules.reset(all, &settings);
    assert_eq!(names(&rules), ["z", "c", "a", "b"]);
}

#[test]
fn a_rule_that_stays_as_it_was_is_not_compiled_again() {
    let settings = Settings::new(true);
    let mut rules = Rules::default();
    rules.apply(rule("a", "deny", "x"), &settings);
    let before = rules.by_name["a"].compiled.clone().unwrap();
    let mut same = rule("a", "deny", "x");
    same.metadata.resource_version = Some("2".to_owned());
    rules.apply(same, &settings);
    assert!(Arc::ptr_eq(&before, rules.by_name["a"].compiled.as_ref().unwrap()));
    assert_eq!(rules.by_name["a"].stored.metadata.resource_version.as_deref(), Some("2"));
}

proptest! {
    /// Whatever order the store tells it in, what is there in the end decides.
    #[test]
    fn the_outcome_depends_only_on_what_is_there(
        steps in proptest::collection::vec((0..4_usize, 0..5_usize, 0..3_usize), 0..24),
    ) {
        let settings = Settings::new(false);
        let made = |name: usize, kind: usize| {
            let name = format!("r{name}");
            match kind {
                0 => rule(&name, "deny", "a/*"),
                1 => rule(&name, "allow", "b/*"),
                _ => broken(&name),
            }
        };
        let mut rules = Rules::default();
        let mut there: BTreeMap<usize, AdmissionRule> = BTreeMap::new();
        for (step, name, kind) in steps {
            let rule = made(name, kind);
            match step {
                0 => {
                    rules.delete(&format!("r{name}"));
                    there.remove(&name);
                }
                1 => {
                    there.retain(|other: &usize, _| other.is_multiple_of(2));
                    rules.reset(there.values().cloned().collect(), &settings);
                }
                _ => {
                    rules.apply(rule.clone(), &settings);
                    there.insert(name, rule);
                }
            }
        }
        let mut fresh = Rules::default();
        fresh.reset(there.into_values().collect(), &settings);
        prop_assert_eq!(names(&rules), names(&fresh));
        let program = |rules: &Rules| format!("{:?}", rules.program);
        prop_assert_eq!(program(&rules), program(&fresh));
    }

    /// No rule, however it is written, stops the others from being followed.
    #[test]
    fn no_rule_makes_following_panic(name in ".{0,20}", op in ".{0,12}", value in ".{0,60}") {
        let mut odd = rule("odd", "deny", "x");
        odd.spec.criteria[0] = serde_json::from_value(json!({"name": name, "op": op, "value": value})).unwrap();
        let mut rules = Rules::default();
        rules.apply(odd, &Settings::new(true));
        rules.apply(rule("even", "deny", "x"), &Settings::new(true));
        prop_assert_eq!(rules.by_name["even"].state, RuleState::Active);
    }
}
