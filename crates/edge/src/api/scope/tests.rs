use std::time::Duration;

use access::{AuthMethod, Identity, LOCAL, Role};
use objects::kinds::{AccessRoleSpec, Rule};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use stallproof::Deadline;

use super::*;
use crate::api::trail::Trail;

pub(crate) const NAMESPACES_THERE: [&str; 4] = ["a", "ab", "b", "kube-system"];

pub(crate) fn caller(permissions: Permissions) -> Caller {
    let who = Identity { user: LOCAL.into(), via: AuthMethod::Local };
    let deadline = Deadline::after(Duration::from_secs(60));
    Caller { who, permissions: Arc::new(permissions), deadline, trail: Trail::default() }
}

pub(crate) fn permissions(allow: Vec<Rule>, deny: Vec<Rule>) -> Permissions {
    Permissions::new(vec![Role::compile("role", &AccessRoleSpec { allow, deny }).into()])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

pub(crate) fn rule(namespaces: &[&str], resources: &[&str], verbs: &[&str]) -> Rule {
    let clusters = words(&["c"]);
    let (namespaces, resources) = (words(namespaces), words(resources));
    Rule { clusters, namespaces, resources, verbs: words(verbs) }
}

/// Whatever an administrator may write.
pub(crate) fn any_permissions() -> impl Strategy<Value = Permissions> {
    let some =
        |of: &'static [&'static str]| subsequence(of, 1..of.len()).prop_map(|some| words(&some));
    let rule = (
        some(&["c", "d", "*"]),
        some(&["a", "a*", "b", "*", "-", "kube-*"]),
        some(&["pods", "*", "namespaces", "p*"]),
        some(&["list", "watch", "get", "*"]),
    );
    let rule = rule.prop_map(|(clusters, namespaces, resources, verbs)| Rule {
        clusters,
        namespaces,
        resources,
        verbs,
    });
    let rules = |most| proptest::collection::vec(rule.clone(), 0..most);
    (rules(4), rules(3)).prop_map(|(allow, deny)| permissions(allow, deny))
}

pub(crate) fn found(plural: &str, namespaced: bool) -> ServedKind {
    ServedKind {
        resource: ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: plural.to_owned(),
            plural: plural.to_owned(),
        },
        singular: String::new(),
        namespaced,
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    }
}

/// What a list over pods is asked for.
pub(crate) fn any_namespace() -> impl Strategy<Value = Option<&'static str>> {
    proptest::option::of(select(&NAMESPACES_THERE[..]))
}

/// The pods that an API server would list there.
pub(crate) fn pods_in(namespace: Option<&str>) -> Vec<(&'static str, String)> {
    let there = NAMESPACES_THERE.into_iter();
    let there = there.filter(|there| namespace.is_none_or(|namespace| namespace == *there));
    there.flat_map(|there| (0..3).map(move |n| (there, format!("pod-{n}")))).collect()
}

proptest! {
    #[test]
    fn nothing_of_an_invisible_namespace_is_in_a_scope(
        permissions in any_permissions(),
        namespace in any_namespace(),
        verb in select(&[Verb::List, Verb::Watch][..]),
    ) {
        let caller = caller(permissions);
        if let Ok(scope) = Scope::list(&caller, "c", &found("pods", true), namespace, verb) {
            for (within, name) in pods_in(namespace) {
                if scope.has(Some(within), &name) {
                    prop_assert!(caller.permissions.may_see_namespace("c", within));
                    let ask = AccessRequest { cluster: "c", namespace: Some(within), resource: "pods", verb };
                    prop_assert!(access::decide(&caller.permissions, &ask).is_allowed());
                }
            }
        }
        if let Ok(scope) = Scope::list(&caller, "c", &found("namespaces", false), namespace, verb) {
            for name in NAMESPACES_THERE {
                let seen = caller.permissions.may_see_namespace("c", name);
                prop_assert_eq!(scope.has(None, name), seen);
            }
        }
    }

    #[test]
    fn a_stream_goes_on_only_where_it_would_be_the_same(
        before in any_permissions(),
        after in any_permissions(),
        namespace in any_namespace(),
    ) {
        let (before, after) = (caller(before), caller(after));
        let pods = found("pods", true);
        if let Ok(old) = Scope::list(&before, "c", &pods, namespace, Verb::Watch) {
            prop_assert!(old.holds(&before.permissions));
            if old.holds(&after.permissions) {
                let new = Scope::list(&after, "c", &pods, namespace, Verb::Watch).unwrap();
                for (within, name) in pods_in(namespace) {
                    prop_assert_eq!(old.has(Some(within), &name), new.has(Some(within), &name));
                }
            }
        }
    }
}

#[test]
fn what_may_be_seen_but_not_done_is_refused() {
    let caller = caller(permissions(vec![rule(&["a"], &["pods"], &["get"])], Vec::new()));
    let pods = found("pods", true);
    for namespace in [None, Some("a")] {
        let refused = Scope::list(&caller, "c", &pods, namespace, Verb::List).unwrap_err();
        assert_eq!(refused.code, super::super::ErrorCode::Forbidden);
    }
    assert!(Scope::list(&caller, "c", &pods, Some("b"), Verb::List).unwrap().is_empty());
    let code = |result: Result<(), Problem>| result.unwrap_err().code.text();
    let pod = |namespace| (Some(namespace), "pods", "p");
    assert!(permit(&caller, "c", pod("a"), Verb::Get).is_ok());
    assert_eq!(code(permit(&caller, "c", pod("a"), Verb::Delete)), "forbidden");
    assert_eq!(code(permit(&caller, "c", pod("b"), Verb::Get)), "not-found");
    assert_eq!(code(permit(&caller, "c", (None, "namespaces", "b"), Verb::Get)), "not-found");
}

proptest! {
    /// Several namespaces show what each of them shows alone, and are refused when one of them is.
    #[test]
    fn several_namespaces_show_what_each_shows_alone(
        permissions in any_permissions(),
        namespaces in subsequence(&NAMESPACES_THERE[..], 0..4),
    ) {
        let caller = caller(permissions);
        let pods = found("pods", true);
        let names = words(&namespaces);
        let together = Scope::list_among(&caller, "c", &pods, &names, Verb::List);
        let alone: Vec<_> = names
            .iter()
            .map(|name| Scope::list(&caller, "c", &pods, Some(name), Verb::List))
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        prop_assert_eq!(together.is_ok(), alone.iter().all(Result::is_ok));
        let Ok(together) = together else { return Ok(()) };
        for namespace in NAMESPACES_THERE {
            let at = names.iter().position(|name| name == namespace);
            let expected = at.is_some_and(|at| alone[at].as_ref().unwrap().has(Some(namespace), "p"));
            // A scope of one namespace is asked of nothing else.
            if names.len() > 1 || at.is_some() {
                prop_assert_eq!(together.has(Some(namespace), "p"), expected, "{}", namespace);
            }
        }
        prop_assert!(together.holds(&caller.permissions));
        let nothing = Arc::new(Permissions::default());
        prop_assert!(!together.holds(&nothing) || together.is_empty());
    }
}
