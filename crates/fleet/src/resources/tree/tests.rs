use serde_json::json;

use super::*;

fn object(kind: &str, uid: &str, owners: &[&str]) -> DynamicObject {
    let owners: Vec<_> = owners
        .iter()
        .map(|uid| json!({ "apiVersion": "v1", "kind": "Any", "name": uid, "uid": uid }))
        .collect();
    serde_json::from_value(json!({ "apiVersion": "v1", "kind": kind,
        "metadata": { "name": uid, "uid": uid, "ownerReferences": owners } }))
    .unwrap()
}

fn shape(branches: &[Branch]) -> String {
    let one = |branch: &Branch| format!("{}({})", branch.node.name, shape(&branch.owned));
    branches.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_owned_hangs_below_its_owner_and_nothing_else_does() {
    let root = object("Deployment", "d", &[]);
    let objects = [
        object("ReplicaSet", "r2", &["d"]),
        object("ReplicaSet", "r1", &["d"]),
        object("Pod", "p1", &["r1"]),
        object("Pod", "p2", &["r2"]),
        object("Pod", "stranger", &["elsewhere"]),
        object("Pod", "orphan", &[]),
    ];
    assert_eq!(shape(&grow(&root, &objects)), "r1(p1()) r2(p2())");
}

#[test]
fn a_circle_of_owners_ends() {
    let root = object("Knot", "a", &["b"]);
    let objects = [object("Knot", "b", &["a"]), object("Knot", "a", &["b"])];
    let tree = shape(&grow(&root, &objects));
    assert_eq!(tree.matches('(').count(), DEPTH);
}
