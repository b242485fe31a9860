use proptest::prelude::*;
use serde_json::json;

use super::*;

fn diff(before: Option<Value>, after: Value) -> String {
    let secret = after["kind"] == "Secret";
    Diff { before, after, secret }.compare().0
}

#[test]
fn a_change_is_shown_as_yaml_and_what_the_server_writes_is_not() {
    let object = |version: &str, script: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "it", "resourceVersion": version, "generation": 3, "uid": version,
                "managedFields": [{ "manager": version }], "creationTimestamp": version,
            },
            "data": { "run.sh": script },
        })
    };
    let diff = diff(Some(object("1", "one\ntwo\nthree\n")), object("2", "one\n2\nthree\n"));
    let expected = "\
--- before
+++ after
@@ -2,7 +2,7 @@
 data:
   run.sh: |
     one
-    two
+    2
     three
 kind: ConfigMap
 metadata:
";
    assert_eq!(diff, expected);
}

#[test]
fn what_is_new_is_all_added() {
    let made = diff(None, json!({ "kind": "ConfigMap", "metadata": { "name": "it", "uid": "1" } }));
    let expected = "\
--- before
+++ after
@@ -0,0 +1,3 @@
+kind: ConfigMap
+metadata:
+  name: it
";
    assert_eq!(made, expected);
}

#[test]
fn a_secret_shows_which_values_change_and_none_of_them() {
    let secret = |data: Value| {
        json!({
            "kind": "Secret",
            "metadata": { "annotations": { LAST_APPLIED: data.to_string() } },
            "data": data,
        })
    };
    let before =
        secret(json!({ "kept": "aGlkZGVu", "rotated": "aGlkZGVuMQ==", "dropped": "aGlkZGVuMg==" }));
    let after =
        secret(json!({ "kept": "aGlkZGVu", "rotated": "aGlkZGVuMw==", "added": "aGlkZGVuNA==" }));
    let diff = diff(Some(before), after);
    assert!(!diff.contains("aGlk"), "{diff}");
    for line in [
        "   kept: '***'",
        "-  rotated: '***'",
        "+  rotated: '*** (changed)'",
        "-  dropped: '***'",
        "+  added: '***'",
    ] {
        assert!(diff.lines().any(|it| it.replace('"', "'") == line), "{line} in:\n{diff}");
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[a-z: |>#'\"\n-]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn equal_objects_have_no_diff(object in anything(), secret: bool) {
        let diff = Diff { before: Some(object.clone()), after: object, secret };
        prop_assert_eq!(diff.compare().0, "");
    }

    #[test]
    fn different_objects_have_one(before in anything(), after in anything()) {
        prop_assume!(before != after);
        let (before, after) = (json!({ "spec": before }), json!({ "spec": after }));
        let diff = Diff { before: Some(before), after, secret: false }.compare().0;
        prop_assert!(!diff.is_empty());
    }
}

#[test]
fn what_changed_has_the_fields_that_differ_and_no_value_of_a_secret() {
    let object = |replicas: u32, label: Option<&str>, password: &str| {
        json!({
            "kind": "Secret", "metadata": { "name": "it", "uid": password, "labels": { "a": label } },
            "spec": { "replicas": replicas, "paused": false },
            "data": { "password": password, "user": "same" },
        })
    };
    let diff = |before, after| Diff { before, after, secret: true }.compare().1;
    let changed = diff(Some(object(1, None, "aHVudGVyMg==")), object(2, Some("b"), "aHVudGVyMw=="));
    let before = json!({
        "metadata": { "labels": { "a": null } }, "spec": { "replicas": 1 },
        "data": { "password": "***" },
    });
    assert_eq!(changed.before, Some(before));
    let after = json!({
        "metadata": { "labels": { "a": "b" } }, "spec": { "replicas": 2 },
        "data": { "password": "*** (changed)" },
    });
    assert_eq!(changed.after, after);
    let made = diff(None, object(1, None, "aHVudGVyMg=="));
    assert_eq!((made.before, &made.after["data"]["password"]), (None, &json!("***")));
    let gone = diff(Some(json!({ "kind": "Secret", "old": 1 })), json!({ "kind": "Secret" }));
    assert_eq!((gone.before, gone.after), (Some(json!({ "old": 1 })), json!({})));
}
