#![allow(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use serde_json::{Value, json};

use super::AdmissionRule;
use crate::store::Kind;

fn rule(spec: Value) -> Result<AdmissionRule, String> {
    let value = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
                       "metadata": {"name": "r"}, "spec": spec});
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn problems(spec: Value) -> String {
    rule(spec).and_then(|rule| rule.check().map_err(|p| p.to_string())).err().unwrap_or_default()
}

fn deny(criterion: Value) -> Value {
    json!({"action": "deny", "criteria": [criterion]})
}

#[test]
fn every_criterion_of_neuvector_that_needs_no_scan_is_accepted() {
    let path = |value_type, op, value| {
        json!({"name": "customPath", "type": "customPath",
        "template_kind": "podTemplate", "path": "item.spec.containers.0.image",
        "value_type": value_type, "op": op, "value": value})
    };
    let criteria = [
        json!({"name": "image", "op": "containsAny", "value": "web/*"}),
        json!({"name": "namespace", "op": "notContainsAny", "value": "a, b"}),
        json!({"name": "user", "op": "regex", "value": "^a,b$"}),
        json!({"name": "userGroups", "op": "containsOtherThan", "value": "a"}),
        json!({"name": "labels", "op": "containsAll", "value": "a=b,c"}),
        json!({"name": "runAsRoot", "op": "=", "value": " true "}),
        json!({"name": "violatePssPolicy", "op": "=", "value": "restricted"}),
        json!({"name": "resourceLimit", "sub_criteria": [
            {"name": "cpuLimit", "op": ">", "value": "1e3"},
            {"name": "memoryRequest", "op": "<=", "value": "0"}]}),
        json!({"name": "resourceLimit", "sub": [{"name": "cpuLimit", "op": ">", "value": "1"}]}),
        json!({"name": "storageClassName", "op": "containsAny", "value": "gold"}),
        json!({"name": "saBindRiskyRole", "type": "saBindRiskyRole", "op": "containsTagAny",
               "value": "risky_role_view_secret"}),
        path("string", "containsAny", "a*"),
        path("key", "notExist", ""),
        path("number", "<=", "3"),
        path("boolean", "=", "true"),
    ];
    for criterion in criteria {
        assert_eq!(problems(deny(criterion.clone())), "", "{criterion}");
    }
}

#[test]
fn what_would_mean_something_else_is_refused_with_a_sentence() {
    let cases = [
        (deny(json!({"name": "colour", "op": "=", "value": "x"})), "there is no criterion"),
        (deny(json!({"name": "cveHighCount", "op": ">", "value": "1"})), "it has >=, <="),
        (deny(json!({"name": "cveHighCount", "op": "<=", "value": "1"})), "in a deny rule"),
        (deny(json!({"name": "cveHighCount", "op": ">=", "value": "0"})), "always true"),
        (deny(json!({"name": "cveHighCount", "op": ">=", "value": "-1"})), "zero or more"),
        (deny(json!({"name": "cveHighCount", "op": ">=", "value": "NaN"})), "zero or more"),
        (deny(json!({"name": "cveHighCount", "op": ">=", "value": "0x10"})), "zero or more"),
        (deny(json!({"name": "cveScore", "op": ">=", "value": "7"})), "cveScoreCount"),
        (deny(json!({"name": "cveScoreCount", "op": ">=", "value": "11"})), "above 10"),
        (
            deny(json!({"name": "cveScoreCount", "op": ">=", "value": "7", "sub_criteria": [
            {"name": "count", "op": ">=", "value": "0"}]})),
            "always true",
        ),
        (
            deny(json!({"name": "cveMediumCount", "op": ">=", "value": "1", "sub_criteria": [
            {"name": "count", "op": ">=", "value": "1"}]})),
            "it has publishDays",
        ),
        (deny(json!({"name": "modules", "op": "containsAny", "value": ">=1"})), "has no name"),
        (deny(json!({"name": "modules", "op": "containsAny", "value": "a>="})), "has no version"),
        (
            deny(json!({"name": "modules", "op": "containsAny", "value": "a>1 2"})),
            "compared as a version",
        ),
        (
            deny(json!({"name": "imageVerifiers", "op": "containsAny", "value": "x"})),
            "root/verifier",
        ),
        (
            deny(json!({"name": "imageVerifiers", "op": "containsOtherThan", "value": "a/x"})),
            "it has containsAny",
        ),
        (
            json!({"action": "allow", "criteria": [{"name": "cveScoreCount", "op": ">=", "value": "7"}]}),
            "deny rules only",
        ),
        (
            json!({"action": "allow", "criteria": [{"name": "imageNoOS", "op": "=", "value": "true"}]}),
            "deny rules only",
        ),
        (
            json!({"action": "allow", "criteria": [{"name": "cveHighCount", "op": ">=", "value": "7",
            "sub_criteria": [{"name": "publishDays", "op": ">=", "value": "3"}]}]}),
            "deny rules only",
        ),
        (deny(json!({"name": "image", "op": "regex", "value": "x"})), "it has containsAny"),
        (deny(json!({"name": "image", "op": "containsAny", "value": " , "})), "has no item"),
        (deny(json!({"name": "labels", "op": "containsAny", "value": "=x"})), "has no key"),
        (deny(json!({"name": "user", "op": "regex", "value": "("})), "not a regular expression"),
        (deny(json!({"name": "user", "op": "regex", "value": " "})), "is empty"),
        (deny(json!({"name": "runAsRoot", "op": "=", "value": "yes"})), "not true or false"),
        (deny(json!({"name": "pspCompliance", "op": "=", "value": "false"})), "the one value"),
        (deny(json!({"name": "violatePssPolicy", "op": "=", "value": "Baseline"})), "restricted"),
        (deny(json!({"name": "resourceLimit"})), "never matches"),
        (
            deny(json!({"name": "image", "op": "containsAny", "value": "x", "sub_criteria": [
            {"name": "cpuLimit", "op": ">", "value": "1"}]})),
            "resourceLimit",
        ),
        (
            deny(json!({"name": "resourceLimit", "sub_criteria": [
            {"name": "memoryLimit", "op": ">", "value": "1Gi"}]})),
            "write 1073741824",
        ),
        (
            deny(json!({"name": "resourceLimit", "sub_criteria": [
            {"name": "cpuLimit", "op": ">", "value": "500m"}]})),
            "write 0.500",
        ),
        (
            deny(json!({"name": "resourceLimit", "sub_criteria": [
            {"name": "cpuLimit", "op": ">", "value": "inf"}]})),
            "no plain number",
        ),
        (
            deny(json!({"name": "resourceLimit", "sub_criteria": [
            {"name": "cpuLimit", "op": ">=", "value": "1"}]})),
            "it has >, <=",
        ),
        (deny(json!({"name": "saBindRiskyRole", "op": "containsTagAny", "value": "x"})), "no tag"),
        (
            deny(json!({"name": "x", "type": "customPath", "path": "spec.a", "value_type": "key",
                     "op": "exist"})),
            "does not start with item.",
        ),
        (
            deny(
                json!({"name": "x", "type": "customPath", "path": "item.a", "value_type": "number",
                     "op": "=", "value": "1,2"}),
            ),
            "not one number",
        ),
        (
            deny(
                json!({"name": "x", "type": "customPath", "path": "item.a", "value_type": "boolean",
                     "op": "!=", "value": "true"}),
            ),
            "it has exist",
        ),
        (deny(json!({"name": "x", "colour": "red"})), "unknown field `colour`"),
        (json!({"action": "deny", "criteria": []}), "matches nothing"),
        (json!({"action": "exception", "criteria": []}), "expected `allow` or `deny`"),
        (
            json!({"action": "allow", "mode": "monitor", "criteria": [
            {"name": "runAsRoot", "op": "=", "value": "true"}]}),
            "for deny rules",
        ),
        (
            json!({"action": "allow", "criteria": [
            {"name": "sharePidWithHost", "op": "=", "value": "true"}]}),
            "for deny rules only",
        ),
        (
            json!({"action": "deny", "criteria": [
            {"name": "storageClassName", "op": "containsAny", "value": "x"},
            {"name": "image", "op": "containsAny", "value": "x/y"}]}),
            "with namespace only",
        ),
    ];
    for (spec, sentence) in cases {
        let problems = problems(spec.clone());
        assert!(problems.contains(sentence), "{spec}: {problems:?}");
    }
}

#[test]
fn a_disabled_rule_may_wait_for_scan_results() {
    let mut spec = deny(json!({"name": "cveHighCount", "op": ">=", "value": "1"}));
    spec["disabled"] = json!(true);
    assert_eq!(problems(spec), "");
}

#[test]
fn what_is_hardly_meant_is_warned_about() {
    let warned = |name: &str, value: &str| {
        let spec = deny(json!({"name": name, "op": "containsAny", "value": value}));
        rule(spec).unwrap().spec.warnings().into_iter().map(|(_, w)| w).collect::<String>()
    };
    assert!(warned("image", "harbor.acme.io/").contains("imageRegistry is meant"));
    assert!(warned("image", "harbor.acme.io").contains("imageRegistry is meant"));
    assert!(warned("image", "web/cart@sha256").contains("only the repository"));
    assert!(warned("image", "nginx:1").contains("library/nginx"));
    assert!(warned("namespace", "a=b").contains("key=value"));
    assert_eq!(warned("image", "harbor.acme.io/web/cart:1, *:v2*"), "");
}
