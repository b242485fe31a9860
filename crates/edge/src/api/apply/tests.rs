use super::*;

fn applied(name: &str, outcome: ApplyOutcome) -> Applied {
    Applied {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("shop".to_owned()),
        name: name.to_owned(),
        outcome,
        diff: String::new(),
        changed: None,
        warnings: Vec::new(),
    }
}

#[test]
fn the_audit_names_what_was_applied_up_to_a_bound() {
    let two = [applied("a", ApplyOutcome::Created), applied("b", ApplyOutcome::Unchanged)];
    assert_eq!(details(&two), "configmap/a in shop created, configmap/b in shop unchanged");
    let many = vec![applied("a", ApplyOutcome::Created); NAMED + 3];
    assert!(details(&many).ends_with(", and 3 more"));
}

#[test]
fn what_failed_has_a_problem_with_a_code() {
    let failed = |why: &str, conflicts| ApplyOutcome::Failed { why: why.to_owned(), conflicts };
    let conflict = apply::Conflict { field: ".data.a".to_owned(), manager: "kubectl".to_owned() };
    let refusals = BTreeMap::from([("no".to_owned(), ErrorCode::Forbidden)]);
    let code = |outcome| {
        let one = ApplyResult::new("c", applied("a", outcome), &refusals);
        serde_json::to_value(one).unwrap()["problem"]["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(code(failed("no", Vec::new())), "forbidden");
    assert_eq!(code(failed("taken", vec![conflict])), "conflict");
    assert_eq!(code(failed("c: namespaces \"b\" not found", Vec::new())), "not-found");
    assert_eq!(code(failed("quota", Vec::new())), "refused");
}

#[test]
fn one_large_object_takes_no_room_from_the_others_in_the_audit() {
    let mut recorded = Recorded::default();
    recorded.add("configmap/large".to_owned(), &json!("x".repeat(RECORDED_EACH)));
    recorded.add("configmap/small".to_owned(), &json!({ "data": { "a": "b" } }));
    assert_eq!(recorded.values["configmap/large"], json!({ "bytes": RECORDED_EACH + 2 }));
    assert_eq!(recorded.values["configmap/small"]["data"]["a"], "b");
    for number in 0..NAMED {
        recorded.add(format!("configmap/{number}"), &json!("x".repeat(RECORDED_EACH - 2)));
    }
    assert!(Value::Object(recorded.values).to_string().len() < 16 << 10);
}
