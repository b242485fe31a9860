use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Operation, Request, Settings, Unknown, decide, explain, import, response};
use super::{one, program, rule, with};

fn review(version: &str, operation: &str, object: &Value) -> Vec<u8> {
    let kind = object["kind"].clone();
    let api = object["apiVersion"].as_str().unwrap_or_default();
    let group = api.rsplit_once('/').map_or("", |(group, _)| group);
    json!({"apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview",
           "request": {"uid": "u-1", "operation": operation, "namespace": "shop",
                       "kind": {"group": group, "version": "v1", "kind": kind},
                       "userInfo": {"username": "alice", "groups": ["devs"]}, "object": object}})
    .to_string()
    .into_bytes()
}

#[test]
fn the_answer_is_in_the_version_of_the_request_and_names_rule_container_and_criterion() {
    let rule =
        rule("no-root", json!({"action": "deny", "criteria": one("runAsRoot", "=", "true")}));
    let program = program(&[rule]);
    let settings = Settings::new(true);
    let what = with(json!({"securityContext": {"runAsUser": 0}}));
    for version in ["v1", "v1beta1"] {
        let request = Request::review(&review(version, "CREATE", &what), &settings).unwrap();
        let decision = decide(&program, &request, &Unknown);
        let answer = response(Ok((&request, &decision)));
        assert_eq!(answer["apiVersion"], format!("admission.k8s.io/{version}"));
        assert_eq!(answer["response"]["uid"], "u-1");
        assert_eq!(answer["response"]["allowed"], false);
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        for word in ["no-root", "web", "runAsRoot = true"] {
            assert!(message.contains(word), "{message}");
        }
    }
}

#[test]
fn what_cannot_be_decoded_is_refused_in_the_version_that_asked() {
    let mut what = with(json!({}));
    what["spec"]["hostPID"] = json!("yes");
    let settings = Settings::new(true);
    let broken = Request::review(&review("v1beta1", "CREATE", &what), &settings).unwrap_err();
    let answer = response(Err(&broken));
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1beta1");
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["uid"], "u-1");
    assert!(broken.to_string().contains("expected a boolean"), "{broken}");
}

#[test]
fn other_kinds_operations_and_states_are_let_through() {
    let settings = Settings::new(true);
    let passed = |operation: &str, what: &Value| {
        let request = Request::review(&review("v1", operation, what), &settings).unwrap();
        request.passed().is_some()
    };
    let plain = with(json!({}));
    assert!(!passed("CREATE", &plain) && !passed("UPDATE", &plain));
    assert!(passed("DELETE", &plain) && passed("CONNECT", &plain));
    let mut leaving = plain.clone();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(passed("UPDATE", &leaving));
    assert!(passed("CREATE", &json!({"apiVersion": "v1", "kind": "Secret"})));
    assert!(passed("CREATE", &json!({"apiVersion": "volcano.sh/v1", "kind": "Job"})));
    assert!(passed("CREATE", &json!({"apiVersion": "apps/v1", "kind": "Deployment"})));
}

#[test]
fn every_kind_is_read_at_its_template() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "x/bad"}]}});
    let kinds = [
        ("apps/v1", "Deployment"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "ReplicaSet"),
        ("v1", "ReplicationController"),
        ("batch/v1", "Job"),
        ("batch/v1", "CronJob"),
        ("apps.openshift.io/v1", "DeploymentConfig"),
    ];
    for (api, kind) in kinds {
        let spec = match kind {
            "CronJob" => json!({"jobTemplate": {"spec": {"template": template}}}),
            _ => json!({"template": template}),
        };
        let what =
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        assert!(super::matches(&one("image", "containsAny", "x/bad"), &what), "{kind}");
    }
}

#[test]
fn exported_rules_are_carried_over_whole_or_not_at_all() {
    let document = json!({"apiVersion": "neuvector.com/v1",
    "kind": "NvAdmissionControlSecurityRule", "metadata": {"name": "local"},
    "spec": {"config": {"mode": "protect", "enable": true}, "rules": [
        {"id": 1001, "action": "deny", "rule_mode": "protect", "containers": ["containers"],
         "criteria": [{"name": "namespace", "op": "containsAny", "path": "namespace",
                       "value": "a"}]},
        {"id": 1002, "action": "exception", "containers": ["containers"],
         "criteria": [{"name": "user", "op": "regexContainsAny", "value": "^a"}]},
        {"id": 1003, "action": "deny", "containers": ["containers"],
         "criteria": [{"name": "cveHighCount", "op": ">=", "value": "1"},
                      {"name": "namespace", "op": "containsAny", "value": "a"}]},
        {"id": 1004, "action": "deny", "containers": ["containers"],
         "criteria": [{"name": "user", "op": "regexContainsAnyEx", "value": "a"}]},
        {"id": 1005, "action": "deny",
         "criteria": [{"name": "runAsRoot", "op": "=", "value": "true"}]},
    ]}});
    let imported = import(&[document]).unwrap();
    let names: Vec<_> = imported.rules.iter().map(|r| r.metadata.name.clone().unwrap()).collect();
    assert_eq!(names, ["nv-1001", "nv-1002", "nv-1003", "nv-1005"]);
    assert_eq!(imported.rules[1].spec.criteria[0].op, "regex");
    let waiting = &imported.rules[2].spec;
    assert!(!waiting.disabled && waiting.criteria.len() == 2);
    let why = |rule: &str| {
        let notes = imported.notes.iter().filter(|note| note.rule == rule);
        notes.map(|note| (note.carried, note.why.as_str())).collect::<Vec<_>>()
    };
    assert!(why("nv-1001").is_empty() && why("nv-1002").is_empty(), "{:?}", imported.notes);
    assert!(matches!(why("nv-1003")[..], [(true, text)] if text.contains("cveHighCount")));
    assert!(matches!(why("nv-1004")[..], [(false, text)] if text.contains("it has containsAny")));
    assert!(matches!(why("nv-1005")[..], [(true, scope), (true, root)]
        if scope.contains("init and ephemeral") && root.contains("runAsUser")));
    assert!(matches!(why("config")[..], [(true, text)] if text.contains("protect")));
    assert!(import(&[json!({"kind": "Pod"})]).is_err());
}

/// Words that mean something, so that arbitrary JSON gets past the first field.
fn json_like() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("apiVersion"),
        Just("v1"),
        Just("apps/v1"),
        Just("kind"),
        Just("Pod"),
        Just("Deployment"),
        Just("metadata"),
        Just("labels"),
        Just("spec"),
        Just("template"),
        Just("containers"),
        Just("initContainers"),
        Just("image"),
        Just("env"),
        Just("name"),
        Just("value"),
        Just("valueFrom"),
        Just("securityContext"),
        Just("volumes"),
        Just("hostPath"),
        Just("resources"),
        Just("limits"),
        Just("cpu"),
        Just("criteria"),
        Just("op"),
        Just("image"),
        Just("containsAny"),
        Just("rules"),
        Just("nginx:1@sha256:a"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(word.clone(), inner, 0..6).prop_map(|map| {
                map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_object_makes_a_decision_panic(
        spec in json_like(), metadata in json_like(), container in json_like(),
    ) {
        let rules = [
            rule("a", json!({"action": "deny", "mode": "monitor",
                             "criteria": one("envVarSecrets", "=", "true")})),
            rule("b", json!({"action": "deny", "criteria": one("violatePssPolicy", "=", "restricted")})),
            rule("c", json!({"action": "deny", "criteria": [{"type": "customPath", "name": "x",
                "path": "item.spec.containers.0.name", "value_type": "string",
                "op": "notContainsAny", "value": "x?"}]})),
            rule("d", json!({"action": "allow", "criteria": one("labels", "containsOtherThan", "a=b*")})),
        ];
        let program = program(&rules);
        let mut spec = spec;
        if let Value::Object(spec) = &mut spec {
            spec.insert("containers".to_owned(), json!([container]));
        }
        for what in [
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}),
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": spec}}),
            spec,
        ] {
            let settings = Settings::new(true);
            let request = Request::object(&what, Operation::Create, "u", &[], &settings);
            if let Ok(request) = request {
                let decision = decide(&program, &request, &Unknown);
                let _ = (response(Ok((&request, &decision))), explain(&program, &request, &Unknown));
            }
        }
    }

    #[test]
    fn no_bytes_make_a_review_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        if let Err(broken) = Request::review(&bytes, &Settings::new(true)) {
            let _ = response(Err(&broken));
        }
    }

    #[test]
    fn no_request_makes_a_review_panic(request in json_like(), object in json_like()) {
        let mut review = json!({"apiVersion": "admission.k8s.io/v1", "request": request});
        if review["request"].is_object() {
            review["request"]["kind"] = json!({"group": "", "kind": "Pod"});
            review["request"]["operation"] = json!("CREATE");
            review["request"]["object"] = object;
        }
        let _ = Request::review(review.to_string().as_bytes(), &Settings::new(true));
    }

    /// What is nearly a review: bytes changed, cut out and doubled.
    #[test]
    fn no_damage_to_a_review_makes_a_decision_panic(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6),
    ) {
        let rules = [rule("r", json!({"action": "deny", "criteria": [
            {"name": "image", "op": "containsAny", "value": "harbor.*/*"},
            {"type": "customPath", "name": "x", "path": "item.spec.containers.0.image",
             "value_type": "key", "op": "exist"}]}))];
        let program = program(&rules);
        let what = with(json!({"env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "1"}}}));
        let mut bytes = review("v1", "CREATE", &what);
        for (at, byte, edit) in edits {
            let at = at.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                _ => bytes.insert(at, bytes[at]),
            }
        }
        match Request::review(&bytes, &Settings::new(true)) {
            Ok(request) => {
                let decision = decide(&program, &request, &Unknown);
                let _ = response(Ok((&request, &decision)));
            }
            Err(broken) => {
                let _ = response(Err(&broken));
            }
        }
    }

    /// An object is read the same from a review and by itself.
    #[test]
    fn a_review_and_an_object_are_one(container in json_like(), metadata in json_like()) {
        let what = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                          "spec": {"containers": [container]}});
        let settings = Settings::new(true);
        let sent = Request::review(&review("v1", "CREATE", &what), &settings);
        let groups = ["devs".to_owned()];
        let given = Request::object(&what, Operation::Create, "alice", &groups, &settings);
        prop_assert_eq!(sent.is_ok(), given.is_ok(), "{:?} {:?}", sent, given);
        if let (Ok(sent), Ok(mut given)) = (sent, given) {
            // What only a review says.
            given.uid.clone_from(&sent.uid);
            given.namespace.clone_from(&sent.namespace);
            prop_assert_eq!(format!("{sent:#?}"), format!("{given:#?}"));
        }
    }

    #[test]
    fn no_export_makes_an_import_panic(rules in json_like()) {
        let _ = import(&[json!({"kind": "NvAdmissionControlSecurityRule", "spec": {"rules": [rules]}})]);
    }
}
