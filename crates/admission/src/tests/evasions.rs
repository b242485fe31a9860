//! Ways around the rules that are closed, each with the attack as its test.

use serde_json::{Value, json};

use super::super::{Facts, Operation, Owner, Program, Request, Settings, Unknown, decide, explain};
use super::{matches, one, pod, program, rule, with};

const REPLICASET_CONTROLLER: &str = "system:serviceaccount:kube-system:replicaset-controller";

fn deny(criteria: &Value) -> Program {
    program(&[rule("r", json!({"action": "deny", "criteria": criteria}))])
}

/// A review as an API server sends it.
fn review(user: &str, subresource: &str, object: &Value, before: Option<&Value>) -> Vec<u8> {
    let api = object["apiVersion"].as_str().unwrap();
    let group = api.rsplit_once('/').map_or("", |(group, _)| group);
    let operation = if before.is_some() { "UPDATE" } else { "CREATE" };
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "operation": operation, "subResource": subresource, "namespace": "shop",
        "kind": {"group": group, "version": "v1", "kind": object["kind"]},
        "userInfo": {"username": user, "groups": ["devs"]},
        "object": object, "oldObject": before}})
    .to_string()
    .into_bytes()
}

fn read(bytes: &[u8], settings: &Settings) -> Request {
    Request::review(bytes, settings).unwrap()
}

/// A pod that runs and says that a ReplicaSet controls it.
fn running(image: &str) -> Value {
    let mut running = with(json!({"image": image}));
    running["metadata"]["uid"] = json!("uid-p");
    running["metadata"]["ownerReferences"] =
        json!([{"uid": "uid-rs", "kind": "ReplicaSet", "name": "rs", "controller": true}]);
    running["status"] = json!({"phase": "Running"});
    running
}

// An image name switched every rule off.

fn sidecar(image: &str) -> Value {
    let mut what = pod(json!({
        "hostPID": true,
        "volumes": [{"name": "v", "hostPath": {"path": "/etc"}}],
        "containers": [{"name": "istio-proxy", "image": image,
                        "env": [{"name": "A", "value": "b"}],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                        "securityContext": {"privileged": true, "runAsUser": 0}}],
    }));
    what["metadata"]["labels"] = json!({"team": "shop"});
    what
}

/// What is asked of a container's image, variables and resources alone.
fn of_container() -> Vec<Value> {
    let image = one("image", "containsAny", "istio/*,istio-release/*,linkerd-io/*");
    let and_namespace =
        json!([{"name": "namespace", "op": "containsAny", "value": "shop"}, image[0]]);
    vec![
        image,
        and_namespace,
        one("imageRegistry", "containsAny", "docker.io,gcr.io"),
        one("envVars", "containsAny", "A=b"),
        json!([{"name": "resourceLimit",
                "sub_criteria": [{"name": "cpuLimit", "op": "<=", "value": "0"}]}]),
    ]
}

/// What is asked of the pod, of privileges, of the host, of mounts; and what may be.
fn of_pod() -> Vec<Value> {
    let privileged_image = json!([{"name": "image", "op": "containsAny", "value": "*proxy*"},
                                  {"name": "runAsPrivileged", "op": "=", "value": "true"}]);
    vec![
        one("namespace", "containsAny", "shop"),
        one("user", "containsAny", "*"),
        one("labels", "containsAny", "team=shop"),
        one("runAsPrivileged", "=", "true"),
        one("runAsRoot", "=", "true"),
        one("allowPrivEscalation", "=", "true"),
        one("sharePidWithHost", "=", "true"),
        one("pspCompliance", "=", "true"),
        one("violatePssPolicy", "=", "baseline"),
        one("mountVolumes", "containsAny", "/etc"),
        json!([{"type": "customPath", "name": "x", "value_type": "boolean", "op": "=",
                "path": "item.spec.containers.0.securityContext.privileged", "value": "true"}]),
        privileged_image,
    ]
}

#[test]
fn an_image_name_switches_no_rule_off() {
    for image in ["istio/proxyv2", "gcr.io/istio-release/proxyv2:1", "gcr.io/linkerd-io/proxy:1"] {
        for criteria in of_container().iter().chain(&of_pod()) {
            assert!(matches(criteria, &sidecar(image)), "{image} {criteria}");
        }
    }
}

/// A cluster in which the ReplicaSet's template has these containers, and alice made it.
struct Template(&'static [&'static str], Owner);

impl Template {
    fn of(containers: &'static [&'static str]) -> Self {
        let by = Some(("alice".to_owned(), vec![]));
        let labels = [("team".to_owned(), "shop".to_owned())].into();
        Self(containers, Owner { by, labels, ..Owner::default() })
    }
}

impl Facts for Template {
    fn owner(&self, uid: &str) -> Option<&Owner> {
        (uid == "uid-rs").then_some(&self.1)
    }

    fn injected(&self, controller: Option<&str>, container: &str) -> bool {
        controller == Some("uid-rs") && !self.0.contains(&container)
    }
}

#[test]
fn an_injected_sidecar_is_spared_what_concerns_it_alone_where_a_setting_says_so() {
    let mut what = sidecar("istio/proxyv2:1");
    what["metadata"]["ownerReferences"] = running("x")["metadata"]["ownerReferences"].clone();
    let spare = Settings { exempt_sidecars: true, ..Settings::new(true) };
    let denied =
        |criteria: &Value, what: &Value, user: &str, before: Option<&Value>, facts: &Template| {
            let request = read(&review(user, "", what, before), &spare);
            !decide(&deny(criteria), &request, facts).allowed
        };
    let injected = Template::of(&["web"]);
    for criteria in of_container() {
        assert!(!denied(&criteria, &what, REPLICASET_CONTROLLER, None, &injected), "{criteria}");
        // Another image, one of the template, one of a pod that somebody wrote, one that was there.
        let other = sidecar("evil.io/istio/proxyv2");
        let written = Template::of(&["istio-proxy"]);
        let mut before = what.clone();
        before["metadata"]["labels"] = json!({"team": "other"});
        if !criteria.to_string().contains("istio/") && !criteria.to_string().contains("docker.io") {
            assert!(
                denied(&criteria, &other, REPLICASET_CONTROLLER, None, &injected),
                "{criteria}"
            );
        }
        assert!(denied(&criteria, &what, REPLICASET_CONTROLLER, None, &written), "{criteria}");
        assert!(denied(&criteria, &what, "alice", None, &injected), "{criteria}");
        let update = denied(&criteria, &what, REPLICASET_CONTROLLER, Some(&before), &injected);
        assert!(update, "{criteria}");
    }
    for criteria in of_pod() {
        assert!(denied(&criteria, &what, REPLICASET_CONTROLLER, None, &injected), "{criteria}");
    }
    // Who writes it into a template has not had it injected.
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "shop"}, "spec": {"template": {"spec": what["spec"]}}});
    assert!(denied(&of_container()[0], &deployment, "alice", None, &injected));
    // An allow rule that names it lets it in all the same.
    let rules = [
        rule("mesh", json!({"action": "allow", "criteria": of_container()[0]})),
        rule("no-root", json!({"action": "deny", "criteria": one("runAsRoot", "=", "true")})),
    ];
    let request = read(&review(REPLICASET_CONTROLLER, "", &what, None), &spare);
    assert!(decide(&program(&rules), &request, &injected).allowed);
}

// A running pod that says it has an owner could be changed freely.

#[test]
fn the_image_of_a_running_owned_pod_may_not_be_patched() {
    let settings = Settings::new(true);
    let (before, after) = (running("web/cart:1"), running("evil/miner"));
    let program = deny(&one("image", "containsAny", "evil/*"));
    for user in ["bob", REPLICASET_CONTROLLER] {
        let request = read(&review(user, "", &after, Some(&before)), &settings);
        assert!(!decide(&program, &request, &Unknown).allowed, "{user}");
    }
}

#[test]
fn everything_that_rules_look_at_is_looked_at_when_it_changes() {
    let settings = Settings::new(true);
    let everything = deny(&one("namespace", "containsAny", "*"));
    let denied = |subresource: &str, after: &Value, before: Option<&Value>| {
        let request = read(&review("bob", subresource, after, before), &settings);
        !decide(&everything, &request, &Unknown).allowed
    };
    let before = running("web/cart:1");
    type Edit = fn(&mut Value);
    let edits: [(&str, Edit); 9] = [
        ("", |pod| pod["metadata"]["labels"] = json!({"app": "x"})),
        ("", |pod| pod["metadata"]["annotations"] = json!({"a": "x"})),
        ("", |pod| pod["spec"]["containers"][0]["image"] = json!("web/cart:2")),
        ("", |pod| pod["spec"]["initContainers"] = json!([{"name": "i", "image": "x"}])),
        ("ephemeralcontainers", |pod| {
            pod["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "x"}]);
        }),
        ("resize", |pod| {
            pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "64"}});
        }),
        // Not what that subresource is for; but what it is called decides nothing.
        ("resize", |pod| pod["spec"]["containers"][0]["image"] = json!("web/cart:2")),
        ("", |pod| pod["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "b"}])),
        ("", |pod| pod["spec"]["hostPID"] = json!(true)),
    ];
    for (subresource, edit) in edits {
        let mut after = before.clone();
        edit(&mut after);
        assert!(denied(subresource, &after, Some(&before)), "{subresource} {after}");
    }
    // What no rule looks at may change, and nobody is asked who does it.
    let edits: [(&str, Edit); 5] = [
        ("", |_| {}),
        ("", |pod| pod["metadata"]["finalizers"] = json!(["a/b"])),
        ("", |pod| pod["status"] = json!({"phase": "Succeeded"})),
        ("", |pod| pod["spec"]["activeDeadlineSeconds"] = json!(30)),
        ("resize", |pod| pod["metadata"]["managedFields"] = json!([{"manager": "x"}])),
    ];
    for (subresource, edit) in edits {
        let mut after = before.clone();
        edit(&mut after);
        assert!(!denied(subresource, &after, Some(&before)), "{subresource} {after}");
        let request = read(&review("bob", subresource, &after, Some(&before)), &settings);
        assert!(explain(&everything, &request, &Unknown).is_empty());
    }
    // Without the old object, or with one that cannot be read, nobody knows what changes.
    let request = Request::object(&before, Operation::Update, "bob", &[], &settings).unwrap();
    assert!(!decide(&everything, &request, &Unknown).allowed);
    assert!(denied("", &before, Some(&json!({"spec": 1}))));
}

/// The labels of a template, the classes of claims, and what only a `customPath` sees.
#[test]
fn what_a_workload_makes_is_looked_at_when_it_changes() {
    let settings = Settings::new(true);
    let before = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "shop"},
        "spec": {"replicas": 1, "template": {"metadata": {"labels": {"app": "s"}},
            "spec": {"terminationGracePeriodSeconds": 30,
                     "containers": [{"name": "c", "image": "x/y"}]}},
            "volumeClaimTemplates": [{"spec": {"storageClassName": "slow"}}]}});
    let looked_at = |pointer: &str, value: Value, criteria: &Value| {
        let mut after = before.clone();
        *after.pointer_mut(pointer).unwrap() = value;
        let request = read(&review("bob", "", &after, Some(&before)), &settings);
        decide(&deny(criteria), &request, &Unknown).passed.is_none()
    };
    let any = one("namespace", "containsAny", "*");
    let grace = |path: &str| {
        json!([{"type": "customPath", "name": "x", "value_type": "number", "op": ">", "path": path,
                "value": "60"}])
    };
    let labels = "/spec/template/metadata/labels/app";
    assert!(looked_at(labels, json!("t"), &any));
    let class = "/spec/volumeClaimTemplates/0/spec/storageClassName";
    assert!(looked_at(class, json!("fast"), &any));
    let seconds = "/spec/template/spec/terminationGracePeriodSeconds";
    assert!(!looked_at(seconds, json!(90), &any), "no rule looks at it");
    assert!(looked_at(seconds, json!(90), &grace("item.spec.terminationGracePeriodSeconds")));
    assert!(!looked_at(seconds, json!(90), &grace("item.spec.activeDeadlineSeconds")));
    assert!(!looked_at("/spec/replicas", json!(9), &any));
}

/// A claim may be made without a class, unlooked-at, and be given one after that.
#[test]
fn a_claim_is_looked_at_when_it_gets_its_class() {
    let claim = |class: Option<&str>| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
               "metadata": {"name": "c", "namespace": "shop"}, "spec": {"storageClassName": class}})
    };
    let denied = |before: Option<&str>, after: Option<&str>| {
        let bytes = review("bob", "", &claim(after), Some(&claim(before)));
        let program = deny(&one("storageClassName", "containsAny", "gold"));
        !decide(&program, &read(&bytes, &Settings::new(true)), &Unknown).allowed
    };
    assert!(denied(None, Some("gold")) && denied(Some("slow"), Some("gold")));
    assert!(!denied(Some("gold"), Some("gold")), "it has it already");
    assert!(!denied(None, None) && !denied(None, Some("slow")));
}

// An invented owner reference took an object out of every rule on users and labels.

#[test]
fn an_invented_owner_changes_nothing() {
    let settings = Settings::new(true);
    let trusting = Settings { controllers: ["bob".to_owned()].into(), ..Settings::new(true) };
    let mut what = running("x/y");
    what["metadata"]["labels"] = json!({"own": "1"});
    let alices = Template::of(&[]);
    let denied = |criteria: &Value, user: &str, subresource: &str, settings: &Settings| {
        let before = (!subresource.is_empty()).then(|| running("x/z"));
        let request = read(&review(user, subresource, &what, before.as_ref()), settings);
        let facts: [&dyn Facts; 2] = [&Unknown, &alices];
        facts.map(|facts| !decide(&deny(criteria), &request, facts).allowed)
    };
    let bob = [
        one("user", "containsAny", "bob"),
        one("user", "notContainsAny", "alice"),
        one("user", "regex", "^b"),
        one("userGroups", "containsAny", "devs"),
        one("labels", "containsAny", "own"),
        one("labels", "notContainsAny", "team=shop"),
    ];
    for criteria in &bob {
        assert_eq!(denied(criteria, "bob", "", &settings), [true, true], "{criteria}");
        // Also of a part of it, and by a name like a controller's.
        assert_eq!(denied(criteria, "bob", "resize", &settings), [true, true], "{criteria}");
    }
    let named = "system:serviceaccount:shop:replicaset-controller";
    assert_eq!(denied(&one("user", "containsAny", named), named, "", &settings), [true, true]);
    // A controller is believed: alice made it, or nobody knows who did.
    let alice = one("user", "containsAny", "alice");
    assert_eq!(denied(&alice, REPLICASET_CONTROLLER, "", &settings), [false, true]);
    assert_eq!(denied(&alice, "bob", "", &trusting), [false, true], "the settings name bob");
    // But not with what is done to a pod that runs: that is nobody's but the requester's.
    assert_eq!(denied(&alice, REPLICASET_CONTROLLER, "resize", &settings), [false, false]);
}

// A few spellings.

#[test]
fn a_path_is_the_same_however_it_is_written() {
    let sock = "/var/run/docker.sock";
    let spelled = [
        "/var/run//docker.sock",
        "/var/run/../run/docker.sock",
        "/var/run/docker.sock/",
        "//var/./run/docker.sock",
    ];
    let mounting = |path: &str| {
        pod(json!({"volumes": [{"name": "v", "hostPath": {"path": path}}],
            "containers": [{"name": "c", "image": "x/y", "volumeMounts": [{"name": "v"}]}]}))
    };
    for path in spelled {
        assert!(matches(&one("mountVolumes", "containsAny", sock), &mounting(path)), "{path}");
        assert!(
            matches(&one("mountVolumes", "containsAny", "/var/run/*"), &mounting(path)),
            "{path}"
        );
        assert!(matches(&one("mountVolumes", "containsAll", path), &mounting(sock)), "{path}");
        assert!(!matches(&one("mountVolumes", "notContainsAny", sock), &mounting(path)), "{path}");
    }
    // What an allow rule names is not left by going back up.
    let escape = mounting("/srv/data/../../etc");
    assert!(!matches(&one("mountVolumes", "containsAny", "/srv/data/*"), &escape));
    assert!(matches(&one("mountVolumes", "containsOtherThan", "/srv/data/*"), &escape));
}

#[test]
fn all_capabilities_are_more_than_one() {
    let escalates = one("allowPrivEscalation", "=", "true");
    let adds = |capability: &str| {
        with(json!({"securityContext": {"allowPrivilegeEscalation": false,
                                        "capabilities": {"add": ["CHOWN", capability]}}}))
    };
    for capability in ["ALL", "all", "SYS_ADMIN"] {
        assert!(matches(&escalates, &adds(capability)), "{capability}");
        assert!(matches(&one("pspCompliance", "=", "true"), &adds(capability)), "{capability}");
    }
    assert!(!matches(&escalates, &adds("NET_BIND_SERVICE")));
}

/// A user may put anything into managedFields; what is too deep to be read hides nothing.
#[test]
fn what_is_too_deep_to_be_read_is_denied_by_rules_that_would_look_there() {
    let deep = format!("{}1{}", "{\"f:a\":".repeat(200), "}".repeat(200));
    let mut what = with(json!({"securityContext": {"privileged": true}}));
    what["metadata"]["managedFields"] = json!([{"fieldsV1": "DEEP"}]);
    let text = String::from_utf8(review("bob", "", &what, None)).unwrap();
    let request = read(text.replace("\"DEEP\"", &deep).as_bytes(), &Settings::new(true));
    let on_path = json!([{"type": "customPath", "name": "x", "value_type": "boolean", "op": "=",
        "path": "item.spec.containers.0.securityContext.privileged", "value": "true"}]);
    assert!(!decide(&deny(&on_path), &request, &Unknown).allowed);
    let by_name = one("runAsPrivileged", "=", "true");
    assert!(!decide(&deny(&by_name), &request, &Unknown).allowed);
    assert!(decide(&deny(&one("shareIpcWithHost", "=", "true")), &request, &Unknown).allowed);
}
