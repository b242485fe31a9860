use access::Role;
use objects::kinds::{AccessRoleSpec, Rule};

use super::*;

fn node(kind: &str, namespace: Option<&str>, name: &str) -> Node {
    Node {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(ToOwned::to_owned),
        name: name.to_owned(),
        state: "Running".to_owned(),
    }
}

#[test]
fn what_is_around_an_object_is_shown_by_its_own_kind_and_place() {
    let kinds =
        [("Pod", "pods", true), ("Node", "nodes", false), ("Namespace", "namespaces", false)];
    let around = kinds.map(|(kind, resource, namespaced)| {
        (("v1".to_owned(), kind.to_owned()), (resource.to_owned(), namespaced))
    });
    let around = Around(around.into());
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    let rule = Rule {
        clusters: words(&["c"]),
        namespaces: words(&["a", "-"]),
        resources: words(&["pods", "namespaces"]),
        verbs: words(&["get"]),
    };
    let spec = AccessRoleSpec { allow: vec![rule], deny: Vec::new() };
    let permissions = Permissions::new(vec![Role::compile("viewer", &spec).into()]);
    let shows =
        |kind, namespace, name| around.shows(&permissions, "c", &node(kind, namespace, name));
    assert!(shows("Pod", Some("a"), "p"));
    assert!(!shows("Pod", Some("b"), "p"));
    assert!(!shows("Node", None, "n"));
    assert!(shows("Namespace", None, "a"));
    assert!(!shows("Namespace", None, "b"));
    assert!(!shows("Stranger", Some("a"), "s"));
    assert!(!around.shows(&permissions, "d", &node("Pod", Some("a"), "p")));
}
