//! `fairlead admission` as its users run it: files in, a verdict out.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

const RULES: &str = r#"
apiVersion: fairlead.dev/v1alpha1
kind: AdmissionRule
metadata: {name: no-privileged}
spec:
  action: deny
  criteria: [{name: runAsPrivileged, op: "=", value: "true"}]
---
apiVersion: fairlead.dev/v1alpha1
kind: AdmissionRule
metadata: {name: watch-hub}
spec:
  action: deny
  mode: monitor
  criteria: [{name: imageRegistry, op: containsAny, value: docker.io}]
---
- name: friends
  action: allow
  criteria: [{name: userGroups, op: containsAny, value: platform-*}]
"#;

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  template:
    spec:
      containers:
      - {name: web, image: nginx, securityContext: {privileged: true}}
"#;

const EXPORT: &str = r#"
apiVersion: neuvector.com/v1
kind: NvAdmissionControlSecurityRule
metadata: {name: local}
spec:
  config: {enable: true, mode: monitor, client_mode: service}
  rules:
  - {id: 1001, action: deny, comment: no root, containers: [containers], disabled: false,
     criteria: [{name: runAsRoot, op: "=", path: runAsRoot, value: "true"}]}
"#;

struct Case(TempDir);

impl Case {
    fn new(files: &[(&str, &str)]) -> Self {
        let case = Self(TempDir::new().unwrap());
        for (name, text) in files {
            fs::write(case.path(name), text).unwrap();
        }
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, args: &str) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_fairlead"))
            .arg("admission")
            .args(args.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn a_deployment_is_denied_with_rule_container_and_criterion_named() {
    let case = Case::new(&[("rules.yaml", RULES), ("d.yaml", DEPLOYMENT)]);
    let (code, out, _) = case.run("test --rules rules.yaml --object d.yaml");
    assert_eq!(code, 1, "{out}");
    for word in ["deployment/cart", "denied", "no-privileged", "web", "runAsPrivileged = true"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let (code, out, _) = case.run("test --rules rules.yaml --object d.yaml -o json");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &answer["allowed"]), (1, &Value::from(false)));
    assert_eq!(answer["objects"][0]["rule"], "no-privileged");
    assert_eq!(answer["objects"][0]["decided"]["container"], "web");
}

#[test]
fn who_asks_and_the_global_mode_count() {
    let case = Case::new(&[("rules.yaml", RULES), ("d.yaml", DEPLOYMENT)]);
    let (code, out, _) =
        case.run("test --rules rules.yaml --object d.yaml --user a --group platform-ops");
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("friends"), "{out}");
    let (code, out, _) = case.run("test --rules rules.yaml --object d.yaml --mode monitor -o yaml");
    assert_eq!(code, 0, "{out}");
    for word in ["no-privileged", "watch-hub"] {
        assert!(out.contains(word), "{out}");
    }
}

#[test]
fn explain_shows_every_criterion_and_what_is_there_instead() {
    let case = Case::new(&[("rules.yaml", RULES), ("d.yaml", DEPLOYMENT)]);
    let (code, out, _) = case.run("explain --rules rules.yaml --object d.yaml");
    assert_eq!(code, 1, "{out}");
    for word in [
        "not met: userGroups containsAny platform-*",
        "met: runAsPrivileged = true",
        "match (monitor)",
        "index.docker.io",
    ] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: cart, namespace: shop}
spec:
  hostPID: true
  containers:
  - {name: istio-proxy, image: "istio/proxyv2:1.20"}
"#;

const SIDECAR_RULES: &str = r#"
- {name: no-hub, action: deny, criteria: [{name: imageRegistry, op: containsAny, value: docker.io}]}
"#;

const HOST_RULES: &str = r#"
- {name: no-host-pid, action: deny, criteria: [{name: sharePidWithHost, op: "=", value: "true"}]}
"#;

#[test]
fn sidecars_are_spared_only_when_asked_for_and_only_what_concerns_them_alone() {
    let case =
        Case::new(&[("hub.yaml", SIDECAR_RULES), ("host.yaml", HOST_RULES), ("p.yaml", POD)]);
    let code = |args: &str| {
        let (code, out, said) = case.run(&format!("test {args} --object p.yaml"));
        assert!(code < 2, "{out} {said}");
        code
    };
    assert_eq!(code("--rules hub.yaml"), 1);
    assert_eq!(code("--rules hub.yaml --exempt-sidecars"), 0);
    assert_eq!(code("--rules host.yaml --exempt-sidecars"), 1);
}

#[test]
fn an_import_can_be_tested_at_once() {
    let case = Case::new(&[("export.yaml", EXPORT), ("d.yaml", DEPLOYMENT)]);
    let (code, rules, notes) = case.run("import export.yaml");
    assert_eq!(code, 0, "{notes}");
    assert!(notes.contains("its global mode is monitor"), "{notes}");
    fs::write(case.path("rules.yaml"), rules).unwrap();
    let (code, out, _) = case.run("test --rules rules.yaml --object d.yaml");
    assert_eq!(code, 0, "{out}");
    let root = r#"{name: runAsRoot, op: "=", path: runAsRoot, value: "true"}"#;
    let scan = EXPORT.replace(root, r#"{name: cveHighCount, op: ">=", value: "1"}"#);
    fs::write(case.path("scan.yaml"), scan).unwrap();
    let (code, rules, notes) = case.run("import scan.yaml");
    assert_eq!(code, 0, "{notes}");
    assert!(notes.contains("needs scan results") && !rules.contains("disabled: true"), "{notes}");
}

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    let wrong = RULES.replace("runAsPrivileged", "runsAsPrivileged");
    let case = Case::new(&[
        ("wrong.yaml", &wrong),
        ("d.yaml", DEPLOYMENT),
        ("export.yaml", EXPORT),
        ("broken.yaml", "a: ["),
    ]);
    for (args, sentence) in [
        ("test --rules wrong.yaml --object d.yaml", "there is no criterion \"runsAsPrivileged\""),
        ("test --rules export.yaml --object d.yaml", "fairlead admission import"),
        ("test --rules none.yaml --object d.yaml", "none.yaml"),
        ("test --rules broken.yaml --object d.yaml", "not YAML"),
        ("import d.yaml", "is not NvAdmissionControlSecurityRule"),
    ] {
        let (code, _, said) = case.run(args);
        assert_eq!(code, 2, "{args}: {said}");
        assert!(said.contains(sentence), "{args}: {said}");
    }
}

const SCANNED: &str = r#"{"SchemaVersion": 2, "ArtifactName": "docker.io/library/nginx:latest",
 "CreatedAt": "2026-01-02T03:04:05Z", "Results": [{"Vulnerabilities": [
  {"VulnerabilityID": "CVE-2024-3094", "PkgName": "liblzma5", "Severity": "CRITICAL"}]}]}"#;

const ON_SCANS: &str = r#"
- name: no-critical
  action: deny
  criteria: [{name: cveCriticalCount, op: ">=", value: "1"}]
"#;

const EXCEPTION: &str = "
apiVersion: fairlead.dev/v1alpha1
kind: VulnerabilityException
metadata: {name: xz}
spec: {name: CVE-2024-3094, packages: [liblzma5]}
";

#[test]
fn scan_results_decide_and_exceptions_take_out_of_them() {
    let case = Case::new(&[
        ("rules.yaml", ON_SCANS),
        ("d.yaml", DEPLOYMENT),
        ("trivy.json", SCANNED),
        ("exception.yaml", EXCEPTION),
        ("other.json", r#"{"some": "thing"}"#),
    ]);
    let test = "test --rules rules.yaml --object d.yaml";
    let (code, out, _) = case.run(&format!("{test} --images trivy.json"));
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("no-critical") && out.contains("1 of them"), "{out}");
    let (code, out, _) = case.run(&format!("{test} --images trivy.json exception.yaml"));
    assert_eq!(code, 0, "{out}");
    let (code, _, why) = case.run(test);
    assert!(code == 2 && why.contains("--images"), "{why}");
    let (code, _, why) = case.run(&format!("{test} --images other.json"));
    assert!(code == 2 && why.contains("other.json: is no report"), "{why}");
}
