use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn what_is_rendered_wins_what_was_rendered_goes_and_the_rest_stays() {
    let before = json!({ "spec": { "replicas": 2, "paused": true, "minReadySeconds": 5 },
        "metadata": { "labels": { "app": "web", "old": "1" } } });
    let now = json!({ "spec": { "replicas": 3, "minReadySeconds": null },
        "metadata": { "labels": { "app": "web", "new": "1" } } });
    let live = json!({ "spec": { "replicas": 7, "paused": true, "minReadySeconds": 5, "strategy": {} },
        "metadata": { "labels": { "app": "web", "old": "1", "theirs": "1" }, "uid": "u" } });
    let merged = three_way(Some(&before), &now, &live, true);
    assert_eq!(
        merged,
        json!({ "spec": { "replicas": 3, "strategy": {} },
            "metadata": { "labels": { "app": "web", "theirs": "1", "new": "1" }, "uid": "u" } })
    );
}

#[test]
fn containers_and_variables_are_merged_by_name_and_others_injected_stay() {
    let container = |image: &str, env: Value| json!({ "name": "main", "image": image, "env": env });
    let before = json!({ "containers": [container("web:2", json!([{ "name": "A", "value": "2" },
        { "name": "GONE", "value": "1" }])), { "name": "old", "image": "old" }] });
    let now = json!({ "containers": [container("web:1", json!([{ "name": "A", "value": "1" }]))] });
    let live = json!({ "containers": [
        { "name": "main", "image": "web:2", "imagePullPolicy": "Always", "env": [
            { "name": "A", "value": "2" }, { "name": "GONE", "value": "1" },
            { "name": "THEIRS", "value": "1" }] },
        { "name": "old", "image": "old" }, { "name": "sidecar", "image": "mesh" }] });
    let merged = three_way(Some(&before), &now, &live, true);
    assert_eq!(
        merged,
        json!({ "containers": [
            { "name": "main", "image": "web:1", "imagePullPolicy": "Always", "env": [
                { "name": "A", "value": "1" }, { "name": "THEIRS", "value": "1" }] },
            { "name": "sidecar", "image": "mesh" }] })
    );
    // Of a custom resource a list is what is rendered.
    assert_eq!(three_way(Some(&before), &now, &live, false)["containers"], now["containers"]);
}

#[test]
fn ports_are_told_apart_by_number_and_protocol_and_other_lists_are_replaced() {
    let now =
        json!({ "ports": [{ "port": 53, "protocol": "UDP" }, { "port": 53, "name": "tcp" }] });
    let live = json!({ "ports": [{ "port": 53, "protocol": "UDP", "nodePort": 30001 },
        { "port": 53, "protocol": "TCP", "nodePort": 30002 }] });
    let merged = three_way(None, &now, &live, true);
    assert_eq!(merged["ports"][0]["nodePort"], 30001);
    assert_eq!(
        merged["ports"][1],
        json!({ "port": 53, "name": "tcp", "protocol": "TCP",
        "nodePort": 30002 })
    );
    // Twice the same name: nobody can say which is which.
    let twice = json!({ "env": [{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }] });
    let live = json!({ "env": [{ "name": "A", "value": "0" }, { "name": "B" }] });
    assert_eq!(three_way(None, &twice, &live, true), twice);
    let args = json!({ "args": ["a"], "tolerations": [{ "key": "x" }] });
    let live = json!({ "args": ["b", "c"], "tolerations": [{ "key": "y" }] });
    assert_eq!(three_way(None, &args, &live, true), args);
}

/// Small objects with the fields that are merged and some that are not.
fn object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_u8).prop_map(Value::from)
    ];
    let named = (0..3_u8, leaf.clone())
        .prop_map(|(name, value)| json!({ "name": name.to_string(), "value": value }));
    let field = prop_oneof![Just("env"), Just("args"), Just("a"), Just("b")];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(named.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map(field.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn merging_again_changes_nothing_more(before in object(), now in object(), live in object()) {
        let once = three_way(Some(&before), &now, &live, true);
        prop_assert_eq!(&three_way(Some(&before), &now, &once, true), &once);
        prop_assert_eq!(three_way(Some(&now), &now, &once, true), once);
    }
}
