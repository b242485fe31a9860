use std::collections::BTreeMap;

use objects::kinds::admission_rule::RiskyTag;
use serde_json::{Value, json};

use super::super::{
    Facts, Images, Operation, Owner, Reports, Request, RiskyTags, Settings, Unknown, decide,
};
use super::{matches, matches_with, object, one, pod, program, rule, with};

fn table(cases: &[(&str, &str, &str, bool)], what: &Value) {
    for (name, op, value, expected) in cases {
        assert_eq!(matches(&one(name, op, value), what), *expected, "{name} {op} {value}");
    }
}

#[test]
fn texts_of_the_object_and_the_request() {
    table(
        &[
            ("image", "containsAny", "web/*", true),
            ("image", "notContainsAny", "web/*", false),
            ("imageRegistry", "containsAny", "*.acme.io", true),
            ("imageRegistry", "notContainsAny", "docker.io", true),
            ("namespace", "containsAny", "kube-*, sh?p", true),
            ("namespace", "notContainsAny", "shop", false),
            ("user", "containsAny", "al*", true),
            ("user", "regex", "^ali", true),
            ("user", "!regex", "^ali", false),
            ("userGroups", "containsAll", "devs,system:*", true),
            ("userGroups", "containsAll", "devs,ops", false),
            ("userGroups", "containsOtherThan", "devs", true),
            ("userGroups", "containsOtherThan", "devs,system:*", false),
            ("userGroups", "notContainsAny", "ops", true),
            ("userGroups", "regex", "^sys", true),
            ("userGroups", "!regex", "^sys", false),
        ],
        &with(json!({})),
    );
}

#[test]
fn labels_are_the_objects_with_the_templates_over_them() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "labels": {"a": "object", "b": "2"}},
        "spec": {"template": {"metadata": {"labels": {"a": "template", "e": ""}},
                              "spec": {"containers": [{"name": "c", "image": "x/y"}]}}}});
    table(
        &[
            ("labels", "containsAny", "a=template", true),
            ("labels", "containsAny", "a=object", false),
            ("labels", "containsAll", "a, b=?", true),
            ("labels", "containsAny", "e=", true),
            ("labels", "containsAny", "b=", false),
            ("labels", "containsAny", "*", false),
            ("labels", "containsOtherThan", "a,b,e", false),
            ("labels", "containsOtherThan", "a,b=3,e", true),
            ("annotations", "notContainsAny", "x", true),
            ("annotations", "containsOtherThan", "x", false),
        ],
        &deployment,
    );
}

#[test]
fn host_paths_count_where_this_container_mounts_them() {
    let what = pod(json!({
        "volumes": [{"name": "v", "hostPath": {"path": "/srv/data"}},
                    {"name": "unused", "hostPath": {"path": "/etc"}}, {"name": "e", "emptyDir": {}}],
        "containers": [{"name": "c", "image": "x/y", "volumeMounts": [
            {"name": "v", "mountPath": "/in"}, {"name": "e", "mountPath": "/e"}]}],
    }));
    table(
        &[
            ("mountVolumes", "containsAny", "/srv/data", true),
            ("mountVolumes", "containsAny", "/srv/data/in,/srv,/in,/etc", false),
            ("mountVolumes", "containsAny", "/srv/*", true),
            ("mountVolumes", "containsOtherThan", "/srv/*", false),
            ("mountVolumes", "notContainsAny", "/etc", true),
        ],
        &what,
    );
}

#[test]
fn variables_are_those_the_object_tells() {
    let what = with(json!({"env": [
        {"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "E"},
        {"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]}));
    table(
        &[
            ("envVars", "containsAny", "A=1", false),
            ("envVars", "containsAll", "A=2,E=,NS=shop,IP=", true),
            ("envVars", "containsAny", "S", false),
            ("envVars", "containsOtherThan", "A,E,NS,IP", false),
        ],
        &what,
    );
}

#[test]
fn flags_of_containers_and_pods() {
    let empty = with(json!({}));
    let secure = |context: Value| with(json!({"securityContext": context}));
    let of_pod = |mut spec: Value| {
        spec["containers"] = json!([{"name": "c", "image": "x/y"}]);
        pod(spec)
    };
    let cases = [
        ("runAsPrivileged", "true", empty.clone(), false),
        ("runAsPrivileged", "false", empty.clone(), true),
        ("runAsPrivileged", "true", secure(json!({"privileged": true})), true),
        ("runAsRoot", "true", empty.clone(), false),
        ("runAsRoot", "true", secure(json!({"runAsUser": 0})), true),
        ("runAsRoot", "true", of_pod(json!({"securityContext": {"runAsUser": 0}})), true),
        ("allowPrivEscalation", "true", empty.clone(), false),
        ("allowPrivEscalation", "true", secure(json!({"allowPrivilegeEscalation": true})), true),
        (
            "allowPrivEscalation",
            "true",
            secure(json!({"capabilities": {"add": ["SYS_ADMIN"]}})),
            true,
        ),
        ("sharePidWithHost", "true", of_pod(json!({"hostPID": true})), true),
        ("shareIpcWithHost", "true", of_pod(json!({"hostIPC": true})), true),
        ("shareNetWithHost", "false", of_pod(json!({"hostNetwork": true})), false),
        ("sharePidWithHost", "true", of_pod(json!({"shareProcessNamespace": true})), false),
        ("pspCompliance", "true", empty, false),
        ("pspCompliance", "true", of_pod(json!({"hostIPC": true})), true),
    ];
    for (name, value, what, expected) in cases {
        assert_eq!(matches(&one(name, "=", value), &what), expected, "{name} {value} {what}");
    }
}

#[test]
fn a_criterion_that_is_not_met_takes_over_nothing() {
    let criteria = json!([{"name": "namespace", "op": "containsAny", "value": "*"},
                          {"name": "pspCompliance", "op": "=", "value": "true"}]);
    assert!(!matches(&criteria, &with(json!({}))));
}

#[test]
fn amounts_are_alternatives_and_unset_is_zero() {
    let limit = |name: &str, op: &str, value: &str| {
        json!([{"name": "resourceLimit",
                "sub_criteria": [{"name": name, "op": op, "value": value}]}])
    };
    let what = with(json!({"resources": {"limits": {"cpu": "1100m", "memory": "1Gi"},
                                         "requests": {"memory": 1000}}}));
    for (name, op, value, expected) in [
        ("cpuLimit", ">", "1", true),
        ("cpuLimit", ">", "1.1", false),
        ("cpuLimit", "<=", "1.1", true),
        ("cpuRequest", ">", "1", true),
        ("memoryLimit", ">", "1073741823", true),
        ("memoryLimit", "<=", "1.073741824e9", true),
        ("memoryRequest", "<=", "1000", true),
    ] {
        assert_eq!(matches(&limit(name, op, value), &what), expected, "{name} {op} {value}");
    }
    assert!(matches(&limit("memoryLimit", "<=", "0"), &with(json!({}))));
    let both = json!([{"name": "resourceLimit", "sub_criteria": [
        {"name": "cpuLimit", "op": ">", "value": "9"},
        {"name": "memoryLimit", "op": "<=", "value": "2e9"}]}]);
    assert!(matches(&both, &what));
}

struct Known {
    class: BTreeMap<(&'static str, &'static str), &'static str>,
    tags: Option<RiskyTags>,
    owner: Option<Owner>,
    images: Option<Images>,
}

impl Facts for Known {
    fn owner(&self, _: &str) -> Option<&Owner> {
        self.owner.as_ref()
    }

    fn storage_class(&self, namespace: &str, claim: &str) -> Option<&str> {
        let found = self.class.iter().find(|((n, c), _)| *n == namespace && *c == claim);
        found.map(|(_, class)| *class)
    }

    fn risky_tags(&self, namespace: &str, account: &str) -> Option<RiskyTags> {
        self.tags.filter(|_| namespace == "shop" && account == "default")
    }

    fn images(&self) -> Option<&Images> {
        self.images.as_ref()
    }
}

const NOTHING: Known = Known { class: BTreeMap::new(), tags: None, owner: None, images: None };

#[test]
fn storage_classes_of_claims_templates_and_volumes() {
    let claim = |spec: Value| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "shop"}, "spec": spec})
    };
    let gold = claim(json!({"storageClassName": "gold"}));
    table(
        &[
            ("storageClassName", "containsAny", "go*", true),
            ("storageClassName", "notContainsAny", "gold", false),
            ("namespace", "containsAny", "shop", true),
            ("image", "notContainsAny", "x/y", false),
        ],
        &gold,
    );
    assert!(!matches(&one("storageClassName", "notContainsAny", "x"), &claim(json!({}))));
    let empty = claim(json!({"storageClassName": ""}));
    assert!(matches(&one("storageClassName", "notContainsAny", "x"), &empty));

    let set = |classes: &[Option<&str>]| {
        let template = |class: &Option<&str>| json!({"spec": {"storageClassName": class}});
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"},
               "spec": {"volumeClaimTemplates": classes.iter().map(template).collect::<Vec<_>>(),
                        "template": {"spec": {"containers": [{"name": "c", "image": "x/y"}]}}}})
    };
    let not_gold = one("storageClassName", "notContainsAny", "gold");
    assert!(matches(&not_gold, &set(&[Some("gold"), Some("tin")])));
    assert!(!matches(&not_gold, &set(&[Some("gold"), None])));
    assert!(!matches(&not_gold, &set(&[])));

    let what = pod(json!({"containers": [{"name": "c", "image": "x/y"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}));
    let known = Known { class: BTreeMap::from([(("shop", "data"), "tin")]), ..NOTHING };
    assert!(matches_with(&not_gold, &what, &known));
    assert!(!matches(&not_gold, &what));
}

#[test]
fn an_allow_rule_holds_for_claims_too() {
    let rules = [
        rule(
            "no",
            json!({"action": "deny", "criteria": one("storageClassName", "containsAny", "*")}),
        ),
        rule("ok", json!({"action": "allow", "criteria": one("namespace", "containsAny", "shop")})),
    ];
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "shop"}, "spec": {"storageClassName": "gold"}});
    let program = program(&rules);
    let decision = decide(&program, &object(&claim), &Unknown);
    assert_eq!(decision.decided.map(|hit| hit.rule), Some("ok"));
}

#[test]
fn risky_roles_are_those_of_the_bindings_and_unknown_ones_warn() {
    let mut tags = RiskyTags::default();
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    tags.grant(&words(&["create"]), &words(&["*"]));
    assert!(tags.contains(RiskyTag::ExecIntoContainer) && tags.contains(RiskyTag::CreatePod));
    assert!(!tags.contains(RiskyTag::ViewSecret) && !tags.contains(RiskyTag::AnyActionWorkload));
    let known = Known { tags: Some(tags), ..NOTHING };
    let on = |tag| one("saBindRiskyRole", "containsTagAny", tag);
    let what = with(json!({}));
    assert!(matches_with(&on("risky_role_view_secret,risky_role_create_pod"), &what, &known));
    assert!(!matches_with(&on("risky_role_view_secret"), &what, &known));

    let rule = rule("r", json!({"action": "deny", "criteria": on("risky_role_create_pod")}));
    let program = program(&[rule]);
    let decision = decide(&program, &object(&what), &Unknown);
    assert!(decision.allowed && decision.warnings.len() == 1, "{decision:?}");
}

#[test]
fn an_owned_object_is_its_owners_users() {
    let mut what = with(json!({}));
    what["metadata"]["ownerReferences"] =
        json!([{"uid": "u", "kind": "ReplicaSet", "name": "x", "controller": true}]);
    what["metadata"]["labels"] = json!({"own": "1"});
    let matches_with = |criteria: &Value, what: &Value, facts: &dyn Facts| {
        let rule = rule("r", json!({"action": "deny", "criteria": criteria}));
        let (settings, create) = (Settings::new(true), Operation::Create);
        let user = "system:serviceaccount:kube-system:replicaset-controller";
        let request = Request::object(what, create, user, &[], &settings).unwrap();
        !decide(&program(&[rule]), &request, facts).allowed
    };
    let matches = |criteria: &Value, what: &Value| matches_with(criteria, what, &Unknown);
    let (is, is_not) = (one("user", "containsAny", "alice"), one("user", "notContainsAny", "bob"));
    // Nobody knows who: neither is met.
    assert!(!matches(&is, &what) && !matches(&is_not, &what));
    assert!(!matches(&one("userGroups", "!regex", "zzz"), &what));
    assert!(matches(&one("labels", "containsAny", "own"), &what));
    let labels = BTreeMap::from([("root".to_owned(), "1".to_owned())]);
    let by = Some(("carol".to_owned(), vec!["ops".to_owned()]));
    let known = Known { owner: Some(Owner { by, labels, ..Owner::default() }), ..NOTHING };
    assert!(matches_with(&one("user", "containsAny", "carol"), &what, &known));
    assert!(matches_with(&one("labels", "containsAny", "root"), &what, &known));
    assert!(!matches_with(&one("labels", "containsAny", "own"), &what, &known));
}

#[test]
fn what_is_known_of_an_image_is_added() {
    let mut reports = Reports::default();
    let report = json!({"SchemaVersion": 2, "ArtifactName": "harbor.acme.io/web/cart:v2", "Metadata": {
        "ImageConfig": {"config": {"Labels": {"l": "image"}, "Env": ["A=image"]}}}});
    reports.add(&report, 0).unwrap();
    let known = Known { images: Some(reports.images()), ..NOTHING };
    let what = with(json!({"env": [{"name": "A", "value": "own"}]}));
    assert!(matches_with(&one("labels", "containsAny", "l=image"), &what, &known));
    assert!(!matches_with(&one("envVars", "containsAny", "A=image"), &what, &known));
    assert!(matches_with(&one("runAsRoot", "=", "true"), &what, &known));
}

#[test]
fn custom_paths_reach_places() {
    let path = |path: &str, value_type: &str, op: &str, value: &str| {
        json!([{"name": "customPath", "type": "customPath", "template_kind": "podTemplate",
                "path": path, "value_type": value_type, "op": op, "value": value}])
    };
    let what = pod(json!({"priority": 5, "hostPID": true,
        "tolerations": [{"key": "a"}, {"key": "b"}],
        "containers": [
            {"name": "c", "image": "x/y", "command": ["run", "-v"], "stdin": true},
            {"name": "d", "image": "x/z"},
            {"name": "mesh", "image": "istio/proxyv2:1", "tty": true}]}));
    let cases = [
        ("item.spec.containers.0.stdin", "key", "exist", "", true),
        ("item.spec.containers.0.stdin", "key", "notExist", "", false),
        ("item.spec.containers[_].tty", "key", "exist", "", true),
        ("item.spec.containers.0.image", "string", "containsAny", "x/z", true),
        ("item.spec.containers.0.image", "string", "notContainsAny", "x/z", true),
        ("item.spec.containers.0.image", "string", "containsOtherThan", "x/*", true),
        ("item.spec.containers.0.image", "string", "containsOtherThan", "x/*,istio/*", false),
        ("item.spec.containers.0.command", "string", "containsAll", "run,-?", true),
        ("item.spec.containers.0.image", "string", "containsAll", "x/y,x/z", false),
        ("item.spec.tolerations.0.key", "string", "containsAny", "b", true),
        ("item.spec.nothing", "string", "notContainsAny", "b", false),
        ("item.spec.priority", "number", ">=", "5", true),
        ("item.spec.priority", "number", ">", "5", false),
        ("item.spec.priority", "number", "!=", "4", true),
        ("item.spec.hostPID", "boolean", "=", "true", true),
        ("item.spec.hostPID", "string", "notContainsAny", "x", false),
        ("item.metadata.namespace", "string", "containsAny", "shop", true),
    ];
    for (at, value_type, op, value, expected) in cases {
        let criteria = path(at, value_type, op, value);
        assert_eq!(matches(&criteria, &what), expected, "{criteria}");
    }
    // Two paths must both hold.
    let mut both = path("item.spec.priority", "number", "=", "5");
    both.as_array_mut()
        .unwrap()
        .extend(path("item.spec.nothing", "key", "exist", "").as_array().unwrap().clone());
    assert!(!matches(&both, &what));
}

#[test]
fn a_found_secret_is_named_by_its_variable_and_never_shown() {
    let value = "aB3!dE5gH7jK9mN1pQ3s";
    let what = with(json!({"env": [{"name": "DB_PASSWORD", "value": value}]}));
    let rule = rule("r", json!({"action": "deny", "criteria": one("envVarSecrets", "=", "true")}));
    let program = program(&[rule]);
    let decision = decide(&program, &object(&what), &Unknown);
    let said = decision.sentence();
    assert!(!decision.allowed && said.contains("DB_PASSWORD looks like: credential"), "{said}");
    assert!(!said.contains(value), "{said}");
}
