use super::*;

fn annotations(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_pod_chooses_by_our_annotation_and_by_coils() {
    let chosen = Egress::chosen(&annotations(&[
        ("egress.fairlead.dev/internet", "a, b"),
        ("egress.coil.cybozu.com/internet", "b,c"),
        ("egress.coil.cybozu.com/other", "a"),
        ("egress.example.com/other", "z"),
        ("egress.fairlead.dev/", "nobody"),
        ("egress.fairlead.dev/UPPER", "nobody"),
        ("egress.fairlead.dev/internet2", "not/a/name,,"),
    ]));
    assert_eq!(chosen, ["internet/a", "internet/b", "internet/c", "other/a"]);
}

#[test]
fn what_coils_manifests_leave_out_has_coils_defaults() {
    let spec: EgressSpec = serde_json::from_value(serde_json::json!({
        "destinations": ["0.0.0.0/0", "::/0"],
        "fouSourcePortAuto": true,
    }))
    .unwrap();
    assert_eq!((spec.replicas, spec.session_affinity), (1, SessionAffinity::ClientIp));
    assert_eq!(spec.failure, EgressFailure::Drop);
    Egress::new("a", spec).check().unwrap();
}

#[test]
fn what_cannot_be_is_refused_with_every_reason() {
    let spec: EgressSpec = serde_json::from_value(serde_json::json!({
        "destinations": [],
        "replicas": -1,
        "strategy": { "type": "Sometimes" },
        "podDisruptionBudget": { "minAvailable": 1, "maxUnavailable": "50%" },
        "clientNamespaces": ["Not A Name"],
    }))
    .unwrap();
    let Invalid(problems) = Egress::new("a", spec).check().unwrap_err();
    let fields: Vec<_> = problems.iter().map(|(field, _)| field.as_str()).collect();
    let expected = [
        "spec.destinations",
        "spec.replicas",
        "spec.strategy.type",
        "spec.podDisruptionBudget",
        "spec.clientNamespaces",
    ];
    assert_eq!(fields, expected);
}
