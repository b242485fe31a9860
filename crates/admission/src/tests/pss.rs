use serde_json::{Value, json};

use super::{matches, one};

/// A pod that keeps to the restricted level.
fn good() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "e", "ephemeral": {}}, {"name": "i", "image": {}}],
        "containers": [{"name": "c", "image": "x/y", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}})
}

fn violates(level: &str, pointer: &str, value: Value) -> bool {
    let mut pod = good();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[key] = value;
    matches(&one("violatePssPolicy", "=", level), &pod)
}

const OWN: &str = "/spec/containers/0/securityContext";

#[test]
fn baseline() {
    assert!(!violates("baseline", "/spec/x", json!(1)));
    let own = |key: &str| format!("{OWN}/{key}");
    let cases = [
        ("/spec/hostNetwork".to_owned(), json!(true), true),
        ("/spec/hostPID".to_owned(), json!(true), true),
        (own("privileged"), json!(true), true),
        (own("capabilities"), json!({"add": ["CHOWN"]}), false),
        (own("capabilities"), json!({"add": ["SYS_TIME"]}), true),
        (own("capabilities"), json!({"add": ["chown"]}), true),
        ("/spec/volumes".to_owned(), json!([{"name": "h", "hostPath": {"path": "/"}}]), true),
        ("/spec/containers/0/ports".to_owned(), json!([{"hostPort": 0}]), false),
        ("/spec/containers/0/ports".to_owned(), json!([{"hostPort": 80}]), true),
        (
            "/spec/containers/0/livenessProbe".to_owned(),
            json!({"httpGet": {"host": "10.0.0.1"}}),
            true,
        ),
        (
            "/spec/containers/0/lifecycle".to_owned(),
            json!({"preStop": {"tcpSocket": {"host": "x"}}}),
            true,
        ),
        (own("appArmorProfile"), json!({"type": "Unconfined"}), true),
        (own("appArmorProfile"), json!({"type": "Localhost"}), false),
        (
            "/metadata/annotations".to_owned(),
            json!({"container.apparmor.security.beta.kubernetes.io/any": "unconfined"}),
            true,
        ),
        (
            "/metadata/annotations".to_owned(),
            json!({"container.apparmor.security.beta.kubernetes.io/c": "l"}),
            true,
        ),
        (
            "/metadata/annotations".to_owned(),
            json!({"container.apparmor.security.beta.kubernetes.io/c": "localhost/x"}),
            false,
        ),
        (own("seLinuxOptions"), json!({"type": "container_engine_t"}), false),
        (own("seLinuxOptions"), json!({"type": "spc_t"}), true),
        ("/spec/securityContext/seLinuxOptions".to_owned(), json!({"role": "r"}), true),
        (own("procMount"), json!("Default"), false),
        (own("procMount"), json!("Unmasked"), true),
        ("/spec/securityContext/seccompProfile".to_owned(), json!({"type": "Unconfined"}), true),
        (
            "/spec/securityContext/sysctls".to_owned(),
            json!([{"name": "net.ipv4.tcp_notsent_lowat"}]),
            false,
        ),
        ("/spec/securityContext/sysctls".to_owned(), json!([{"name": "kernel.msgmax"}]), true),
        (own("windowsOptions"), json!({"hostProcess": true}), true),
        (own("runAsUser"), json!(0), false),
    ];
    for (pointer, value, expected) in cases {
        assert_eq!(violates("baseline", &pointer, value.clone()), expected, "{pointer} {value}");
    }
}

#[test]
fn restricted() {
    assert!(!violates("restricted", "/spec/x", json!(1)));
    let own = |key: &str| format!("{OWN}/{key}");
    let cases = [
        ("/spec/hostIPC".to_owned(), json!(true), true),
        ("/spec/volumes".to_owned(), json!([{"name": "n", "nfs": {}}]), true),
        (own("allowPrivilegeEscalation"), json!(null), true),
        ("/spec/securityContext/runAsNonRoot".to_owned(), json!(null), true),
        (own("runAsNonRoot"), json!(false), true),
        ("/spec/securityContext/runAsNonRoot".to_owned(), json!(false), true),
        (own("runAsUser"), json!(0), true),
        ("/spec/securityContext/runAsUser".to_owned(), json!(0), true),
        ("/spec/securityContext/seccompProfile".to_owned(), json!(null), true),
        (own("capabilities"), json!({"drop": ["NET_RAW"]}), true),
        (own("capabilities"), json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}), false),
        (own("capabilities"), json!({"drop": ["ALL"], "add": ["CHOWN"]}), true),
    ];
    for (pointer, value, expected) in cases {
        assert_eq!(violates("restricted", &pointer, value.clone()), expected, "{pointer} {value}");
    }
}

#[test]
fn user_namespaces_and_windows_lift_what_they_lift() {
    let judged = |level: &str, change: &dyn Fn(&mut Value)| {
        let mut pod = good();
        change(&mut pod);
        matches(&one("violatePssPolicy", "=", level), &pod)
    };
    let lifted = |pod: &mut Value| {
        pod["spec"]["hostUsers"] = json!(false);
        pod["spec"]["securityContext"]["runAsUser"] = json!(0);
        pod["spec"]["securityContext"]["runAsNonRoot"] = json!(false);
    };
    assert!(!judged("restricted", &lifted));
    let unmasked = |pod: &mut Value| {
        lifted(pod);
        pod.pointer_mut(OWN).unwrap()["procMount"] = json!("Unmasked");
    };
    assert!(!judged("baseline", &unmasked));
    assert!(judged("restricted", &unmasked));
    let windows = |pod: &mut Value| {
        pod["spec"]["os"] = json!({"name": "windows"});
        pod["spec"]["containers"][0]["securityContext"] = json!({});
        pod["spec"]["securityContext"] = json!({"runAsNonRoot": true});
    };
    assert!(!judged("restricted", &windows));
}
