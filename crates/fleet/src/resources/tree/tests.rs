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
    assert_eq!(shape(&grow(&root, &objects, &mut 100)), "r1(p1()) r2(p2())");
}

#[test]
fn a_circle_of_owners_ends() {
    let root = object("Knot", "a", &["b"]);
    let objects = [object("Knot", "b", &["a"]), object("Knot", "a", &["b"])];
    let tree = shape(&grow(&root, &objects, &mut 100));
    assert_eq!(tree.matches('(').count(), DEPTH);
}

#[test]
fn a_thicket_is_cut_where_its_room_ends() {
    let names: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let objects: Vec<_> = names.iter().map(|name| object("Knot", name, &names)).collect();
    let mut room = 1_000;
    let tree = shape(&grow(&objects[0], &objects, &mut room));
    assert_eq!((tree.matches('(').count(), room), (1_000, 0));
}
