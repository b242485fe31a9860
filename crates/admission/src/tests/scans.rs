//! Criteria on scan results: what each means, on what is known and on what is not.

use serde_json::{Value, json};

use super::{object, pod, rule};
use crate::{Facts, Images, Program, Reports, Settings, decide};

/// 2026-01-01.
const NOW: i64 = 1_767_225_600;
const IMAGE: &str = "harbor.acme.io/web/cart:v2";

struct Scanned(Images);

impl Facts for Scanned {
    fn images(&self) -> Option<&Images> {
        Some(&self.0)
    }

    fn now(&self) -> i64 {
        NOW
    }
}

fn scanned(documents: &[Value]) -> Scanned {
    let mut reports = Reports::default();
    for document in documents {
        reports.add(document, NOW).unwrap_or_else(|why| panic!("{why}: {document}"));
    }
    Scanned(reports.images())
}

fn compile(spec: Value) -> Program {
    let settings = Settings { scan_results: true, ..Settings::new(true) };
    let compiled = Program::compile(&[rule("r", spec)], &settings);
    compiled.unwrap_or_else(|problems| panic!("{problems}"))
}

fn of_image(image: &str) -> Value {
    pod(json!({"containers": [{"name": "web", "image": image}]}))
}

fn denies_image(criteria: &Value, facts: &dyn Facts, image: &str) -> bool {
    let program = compile(json!({"action": "deny", "criteria": criteria}));
    !decide(&program, &object(&of_image(image)), facts).allowed
}

fn denies(criteria: &Value, facts: &dyn Facts) -> bool {
    denies_image(criteria, facts, IMAGE)
}

/// Whether an allow rule of these criteria lets the image in.
fn allows_image(criteria: &Value, facts: &dyn Facts, image: &str) -> bool {
    let program = compile(json!({"action": "allow", "criteria": criteria}));
    decide(&program, &object(&of_image(image)), facts).decided.is_some()
}

fn allows(criteria: &Value, facts: &dyn Facts) -> bool {
    allows_image(criteria, facts, IMAGE)
}

fn one(name: &str, op: &str, value: &str) -> Value {
    json!([{"name": name, "op": op, "value": value}])
}

fn with_sub(name: &str, value: &str, sub: &str, of: &str) -> Value {
    json!([{"name": name, "op": ">=", "value": value,
            "sub_criteria": [{"name": sub, "op": ">=", "value": of}]}])
}

fn finding(id: &str, package: &str, severity: &str) -> Value {
    json!({"VulnerabilityID": id, "PkgName": package, "Severity": severity})
}

/// `trivy image -f json` of the image.
fn trivy(vulnerabilities: Value) -> Value {
    json!({"SchemaVersion": 2, "ArtifactName": IMAGE, "CreatedAt": "2025-12-31T00:00:00Z",
           "Metadata": {"OS": {"Family": "debian", "Name": "12.4"}},
           "Results": [{"Vulnerabilities": vulnerabilities, "Packages": [
               {"Name": "openssl", "Version": "3.0.11"},
               {"Name": "org.apache.logging.log4j:log4j-core", "Version": "2.17.1"}]}]})
}

#[test]
fn counts_are_of_pairs_of_vulnerability_and_package() {
    let facts = scanned(&[trivy(json!([
        finding("CVE-1", "a", "CRITICAL"),
        finding("CVE-1", "b", "CRITICAL"),
        finding("CVE-1", "b", "HIGH"),
        finding("CVE-2", "a", "HIGH"),
        finding("CVE-3", "a", "MEDIUM"),
        finding("CVE-4", "a", "UNKNOWN"),
        {"VulnerabilityID": "CVE-5", "PkgName": "a", "Severity": "HIGH", "FixedVersion": "2"},
        {"VulnerabilityID": "CVE-5", "PkgName": "a", "Severity": "LOW"},
    ]))]);
    let counts = [
        ("cveCriticalCount", 2),
        ("cveHighCount", 4),
        ("cveHighCountNoCritical", 2),
        ("cveMediumCount", 1),
        ("cveCriticalWithFixCount", 0),
        ("cveHighWithFixCount", 1),
        ("cveHighWithFixCountNoCritical", 1),
    ];
    for (name, count) in counts {
        assert!(count == 0 || denies(&one(name, ">=", &count.to_string()), &facts), "{name}");
        assert!(!denies(&one(name, ">=", &(count + 1).to_string()), &facts), "{name}");
        assert!(allows(&one(name, "<=", &count.to_string()), &facts), "{name}");
        assert!(
            count == 0 || !allows(&one(name, "<=", &(count - 1).to_string()), &facts),
            "{name}"
        );
    }
}

#[test]
fn only_what_was_published_long_enough_ago_is_counted() {
    let published = |id: &str, at: &str| json!({"VulnerabilityID": id, "PkgName": "a", "Severity": "CRITICAL", "PublishedDate": at});
    let facts = scanned(&[trivy(json!([
        published("CVE-1", "2025-12-02T00:00:00Z"),
        published("CVE-2", "2025-12-02T00:00:01Z"),
        published("CVE-3", ""),
        published("CVE-4", "2026-02-01T00:00:00Z"),
    ]))]);
    let denies_after = |count: &str, days: &str| {
        denies(&with_sub("cveCriticalCount", count, "publishDays", days), &facts)
    };
    assert!(denies_after("2", "30") && !denies_after("3", "30"));
    assert!(denies_after("3", "29.5") && !denies_after("4", "0"));
    assert!(denies(&one("cveCriticalCount", ">=", "4"), &facts));
}

#[test]
fn scores_are_compared_in_tenths_and_the_higher_one_counts() {
    let scored = |id: &str, cvss: Value| json!({"VulnerabilityID": id, "PkgName": "a", "Severity": "LOW", "CVSS": cvss});
    let facts = scanned(&[trivy(json!([
        scored(
            "CVE-1",
            json!({"nvd": {"V2Score": 7.5, "V3Score": 6.0}, "redhat": {"V3Score": 9.9}})
        ),
        scored("CVE-2", json!({"redhat": {"V3Score": 8.1}, "ghsa": {"V3Score": 7.0}})),
        scored("CVE-3", json!(null)),
    ]))]);
    assert!(denies(&one("cveScoreCount", ">=", "8.1"), &facts));
    assert!(!denies(&one("cveScoreCount", ">=", "8.2"), &facts));
    assert!(denies(&with_sub("cveScoreCount", "7.5", "count", "2"), &facts));
    assert!(!denies(&with_sub("cveScoreCount", "7.6", "count", "2"), &facts));
}

#[test]
fn names_are_compared_without_case_and_with_aliases() {
    let facts = scanned(&[trivy(json!([
        finding("GHSA-jfh8-c2jp-5v3q", "log4j", "CRITICAL"),
        {"VulnerabilityID": "DSA-5532", "PkgName": "openssl", "Severity": "HIGH",
         "VendorIDs": ["CVE-2023-5363"]},
    ]))]);
    let cases = [
        ("containsAny", "ghsa-JFH8-c2jp-5v3q", true),
        ("containsAny", "*5363*", true),
        ("containsAny", "5363", false),
        ("containsAll", "CVE-2023-5363, GHSA-*", true),
        ("containsAll", "CVE-2023-5363, CVE-2000-1", false),
        ("notContainsAny", "CVE-2023-5363", false),
        ("notContainsAny", "CVE-2000-1", true),
        ("containsOtherThan", "GHSA-*, CVE-2023-*", false),
        ("containsOtherThan", "CVE-2023-*", true),
    ];
    for (op, value, expected) in cases {
        let criteria = one("cveNames", op, value);
        assert_eq!(denies(&criteria, &facts), expected, "{op} {value}");
        assert_eq!(allows(&criteria, &facts), expected, "{op} {value}");
    }
}

#[test]
fn modules_are_compared_by_name_and_version() {
    let facts = scanned(&[trivy(json!([]))]);
    let cases = [
        ("containsAny", "openssl", true),
        ("containsAny", "Openssl", false),
        ("containsAny", "open*", false),
        ("containsAny", "openssl=3.0.*", true),
        ("containsAny", "openssl >= 3.0.11", true),
        ("containsAny", "openssl>3.0.11", false),
        ("containsAny", "openssl<3.0.2", false),
        ("containsAny", "openssl<3.0.12", true),
        ("containsAny", "openssl==3.0.11", false),
        ("containsAny", "log4j-core<2.18", true),
        ("containsAny", "org.apache.logging.log4j/log4j-core", true),
        ("containsAll", "openssl, curl", false),
        ("notContainsAny", "curl", true),
        ("containsOtherThan", "openssl", true),
        ("containsOtherThan", "openssl, log4j-core", false),
    ];
    for (op, value, expected) in cases {
        assert_eq!(denies(&one("modules", op, value), &facts), expected, "{op} {value}");
    }
}

#[test]
fn what_is_unknown_never_helps_anybody_in() {
    let facts = scanned(&[]);
    let cases = [
        ("cveHighCount", ">=", "1", false, false),
        ("cveNames", "containsAny", "*", false, false),
        ("cveNames", "containsAll", "*", false, false),
        ("cveNames", "containsOtherThan", "x", false, false),
        ("cveNames", "notContainsAny", "x", true, false),
        ("modules", "containsAny", "a", false, false),
        ("modules", "notContainsAny", "a", true, false),
        ("imageScanned", "=", "true", false, false),
        ("imageScanned", "=", "false", true, true),
        ("imageSigned", "=", "true", false, false),
        ("imageSigned", "=", "false", true, false),
        ("imageVerifiers", "containsAny", "a/b", false, false),
        ("imageVerifiers", "notContainsAny", "a/b", true, false),
        ("imageCompliance", "=", "true", false, false),
        ("imageCompliance", "=", "false", true, false),
    ];
    for (name, op, value, in_deny, in_allow) in cases {
        let criteria = one(name, op, value);
        assert_eq!(denies(&criteria, &facts), in_deny, "deny: {name} {op} {value}");
        assert_eq!(allows(&criteria, &facts), in_allow, "allow: {name} {op} {value}");
    }
    assert!(!allows(&one("cveHighCount", "<=", "100"), &facts));
    assert!(!denies(&with_sub("cveCriticalCount", "1", "publishDays", "1"), &facts));
    assert!(!denies(&one("cveScoreCount", ">=", "1"), &facts));
    assert!(denies(&one("imageNoOS", "=", "true"), &facts));
    assert!(!denies(&one("imageNoOS", "=", "false"), &facts));

    let program = compile(json!({"action": "deny", "criteria": one("cveHighCount", ">=", "1")}));
    let decision = decide(&program, &object(&of_image(IMAGE)), &facts);
    assert_eq!(decision.warnings, [format!("image not scanned: {IMAGE}")]);
}

#[test]
fn each_part_is_known_by_itself() {
    // Trivy knows nothing of signatures and set-uid files, and of secrets what it found.
    let facts = scanned(&[trivy(json!([]))]);
    assert!(allows(&one("imageScanned", "=", "true"), &facts));
    assert!(allows(&one("cveHighCount", "<=", "0"), &facts));
    assert!(allows(&one("imageCompliance", "=", "false"), &facts));
    assert!(!allows(&one("imageSigned", "=", "false"), &facts));
    assert!(!denies(&one("imageNoOS", "=", "true"), &facts));
    // Grype knows no packages without findings.
    let grype = json!({"source": {"target": {"userInput": IMAGE}}, "distro": {"name": "alpine"},
        "descriptor": {"timestamp": "2025-12-30T00:00:00.123Z"}, "matches": []});
    let facts = scanned(&[grype]);
    assert!(!allows(&one("modules", "notContainsAny", "openssl"), &facts));
    assert!(allows(&one("cveNames", "notContainsAny", "CVE-1"), &facts));
}

#[test]
fn an_image_with_a_digest_is_found_by_it_alone() {
    let digest = "sha256:aaaa";
    let mut report = trivy(json!([finding("CVE-1", "a", "CRITICAL")]));
    report["Metadata"]["RepoDigests"] = json!([format!("harbor.acme.io/web/cart@{digest}")]);
    let facts = scanned(&[report]);
    let bad = one("cveCriticalCount", ">=", "1");
    let cases = [
        (IMAGE.to_owned(), true),
        (format!("other.io/x@{digest}"), true),
        (format!("{IMAGE}@{digest}"), true),
        (format!("{IMAGE}@sha256:bbbb"), false),
        ("harbor.acme.io/web/cart:v3".to_owned(), false),
        ("harbor.acme.io/web/cart".to_owned(), false),
        ("other.io/web/cart:v2".to_owned(), false),
        ("HARBOR.acme.io/web/cart:v2".to_owned(), true),
    ];
    for (image, expected) in cases {
        assert_eq!(denies_image(&bad, &facts, &image), expected, "{image}");
    }
}

#[test]
fn what_was_scanned_without_a_registry_refuses_and_lets_nobody_in() {
    let mut report = trivy(json!([finding("CVE-1", "a", "CRITICAL")]));
    report["ArtifactName"] = json!("nginx:1.25");
    let facts = scanned(&[report]);
    let bad = one("cveCriticalCount", ">=", "1");
    assert!(denies_image(&bad, &facts, "nginx:1.25"));
    assert!(denies_image(&bad, &facts, "quay.io/library/nginx:1.25"));
    assert!(!allows_image(&one("imageScanned", "=", "true"), &facts, "nginx:1.25"));
}

#[test]
fn of_several_contents_of_a_tag_one_refuses_and_all_must_let_in() {
    let report = |digest: &str, at: &str, found: Value| {
        let mut report = trivy(found);
        report["CreatedAt"] = json!(at);
        report["Metadata"]["RepoDigests"] = json!([format!("harbor.acme.io/web/cart@{digest}")]);
        report
    };
    let sick = json!([finding("CVE-1", "a", "CRITICAL")]);
    let old = report("sha256:aa", "2025-01-01T00:00:00Z", sick.clone());
    let new = report("sha256:bb", "2025-06-01T00:00:00Z", json!([]));
    let again = report("sha256:aa", "2025-07-01T00:00:00Z", json!([]));
    let (bad, good) = (one("cveCriticalCount", ">=", "1"), one("cveCriticalCount", "<=", "0"));
    let facts = scanned(&[old.clone(), new.clone()]);
    assert!(denies(&bad, &facts) && !allows(&good, &facts));
    // A newer result of the same content takes the place of the older one, in whatever order they come.
    for documents in [[old.clone(), new.clone(), again.clone()], [again, new, old]] {
        let facts = scanned(&documents);
        assert!(!denies(&bad, &facts) && allows(&good, &facts));
    }
}

#[test]
fn exceptions_take_a_vulnerability_out_of_a_package() {
    let found = json!([
        finding("CVE-2024-1", "a", "CRITICAL"),
        finding("CVE-2024-1", "b", "CRITICAL"),
        {"VulnerabilityID": "CVE-2025-9", "PkgName": "a", "Severity": "CRITICAL",
         "PublishedDate": "2025-12-30T12:00:00Z"},
    ]);
    let left = |spec: Value| {
        let exception =
            json!({"kind": "VulnerabilityException", "metadata": {"name": "e"}, "spec": spec});
        let facts = scanned(&[trivy(found.clone()), exception]);
        let count = |n: usize| denies(&one("cveCriticalCount", ">=", &n.to_string()), &facts);
        (1..=3).take_while(|n| count(*n)).count()
    };
    assert_eq!(left(json!({"name": "cve-2024-1"})), 1);
    assert_eq!(left(json!({"name": "CVE-2024-*", "packages": ["a"]})), 2);
    assert_eq!(left(json!({"name": "CVE-2024-1", "domains": ["shop"]})), 1);
    assert_eq!(left(json!({"name": "CVE-2024-1", "domains": ["other"]})), 3);
    assert_eq!(left(json!({"name": "CVE-2024-1", "images": ["web/*"]})), 1);
    assert_eq!(left(json!({"name": "CVE-2024-1", "images": ["web/cart:v3"]})), 3);
    assert_eq!(left(json!({"name": "CVE-2024-1", "until": "2025-12-31T00:00:00Z"})), 3);
    assert_eq!(left(json!({"name": "CVE-2024-1", "until": "2026-12-31T00:00:00Z"})), 1);
    assert_eq!(left(json!({"name": "_RecentVuln", "days": 2})), 2);
    assert_eq!(left(json!({"name": "_RecentVuln", "days": 1})), 3);
    assert_eq!(left(json!({"name": "2024"})), 3);
}

#[test]
fn what_has_a_fix_in_one_package_is_not_without_one_in_another() {
    let found = |id: &str, package: &str, fixed: &str, published: &str| {
        json!({"VulnerabilityID": id, "PkgName": package, "Severity": "CRITICAL",
               "FixedVersion": fixed, "PublishedDate": published})
    };
    let (new, old) = ("2025-12-30T12:00:00Z", "2020-01-01T00:00:00Z");
    let all = json!([
        found("CVE-1", "a", "", new),
        found("CVE-1", "b", "2.0", new),
        found("CVE-2", "a", "", new),
        found("CVE-3", "a", "", new),
        found("CVE-3", "b", "", old),
    ]);
    let left = |name: &str| {
        let exception = json!({"kind": "VulnerabilityException", "metadata": {"name": "e"},
                               "spec": {"name": name, "days": 5}});
        let facts = scanned(&[trivy(all.clone()), exception]);
        let count = |n: usize| denies(&one("cveCriticalCount", ">=", &n.to_string()), &facts);
        (1..=5).take_while(|n| count(*n)).count()
    };
    // CVE-2 alone has no fix anywhere; CVE-3 is old by what is said of one of its packages.
    assert_eq!(left("_RecentVulnWithoutFix"), 4);
    assert_eq!(left("_RecentVuln"), 2);
}

#[test]
fn statements_of_vendors_silence_what_they_name() {
    let purl = "pkg:deb/debian/openssl@3.0.11?arch=amd64";
    let mut report = trivy(json!([{"VulnerabilityID": "CVE-1", "PkgName": "openssl",
        "Severity": "CRITICAL", "PkgIdentifier": {"PURL": purl}}]));
    report["Metadata"]["RepoDigests"] = json!(["harbor.acme.io/web/cart@sha256:aa"]);
    let statement = |product: Value, status: &str, at: &str| {
        json!({"@context": "https://openvex.dev/ns/v0.2.0", "timestamp": at, "statements": [
            {"vulnerability": {"name": "CVE-1"}, "products": [product], "status": status}]})
    };
    let (older, newer) = ("2025-01-01T00:00:00Z", "2025-02-01T00:00:00Z");
    let counts = |documents: &[Value]| {
        let facts = scanned(&[&[report.clone()], documents].concat());
        denies(&one("cveCriticalCount", ">=", "1"), &facts)
    };
    let image = json!({"@id": "pkg:oci/cart@sha256%3Aaa?repository_url=harbor.acme.io/web"});
    let other = json!({"@id": "pkg:oci/cart@sha256%3Abb"});
    let package = json!({"@id": "pkg:deb/debian/openssl@3.0.11"});
    let named = json!({"@id": "pkg:oci/cart"});
    assert!(!counts(&[statement(image.clone(), "not_affected", older)]));
    assert!(!counts(&[statement(package, "fixed", older)]));
    assert!(counts(&[statement(other, "not_affected", older)]));
    assert!(counts(&[statement(named, "not_affected", older)]));
    assert!(counts(&[
        statement(image.clone(), "not_affected", older),
        statement(image.clone(), "affected", newer),
    ]));
    let part = |purl: &str| {
        let mut product = image.clone();
        product["subcomponents"] = json!([{"@id": purl}]);
        statement(product, "not_affected", older)
    };
    assert!(!counts(&[part("pkg:deb/debian/openssl")]));
    assert!(counts(&[part("pkg:deb/debian/curl")]));
}

#[test]
fn every_form_of_report_says_the_same() {
    let digest = "sha256:0123456789abcdef";
    let forms = [
        (
            "trivy",
            json!({"SchemaVersion": 2, "ArtifactName": IMAGE, "CreatedAt": "2025-12-31T00:00:00Z",
            "Metadata": {"RepoDigests": [format!("harbor.acme.io/web/cart@{digest}")]},
            "Results": [{"Vulnerabilities": [{"VulnerabilityID": "CVE-1", "PkgName": "a",
                "InstalledVersion": "1", "FixedVersion": "2", "Severity": "CRITICAL",
                "CVSS": {"nvd": {"V3Score": 9.8}}}]}]}),
        ),
        (
            "trivy-operator",
            json!({"apiVersion": "aquasecurity.github.io/v1alpha1",
            "kind": "VulnerabilityReport", "report": {"updateTimestamp": "2025-12-31T00:00:00Z",
            "registry": {"server": "harbor.acme.io"},
            "artifact": {"repository": "web/cart", "tag": "v2", "digest": digest},
            "vulnerabilities": [{"vulnerabilityID": "CVE-1", "resource": "a", "fixedVersion": "2",
                "severity": "CRITICAL", "score": 9.8}]}}),
        ),
        (
            "grype",
            json!({"source": {"target": {"userInput": IMAGE, "manifestDigest": digest}},
            "descriptor": {"timestamp": "2025-12-31T00:00:00Z"}, "matches": [
            {"vulnerability": {"id": "CVE-1", "severity": "Critical", "fix": {"state": "fixed"},
                "cvss": [{"metrics": {"baseScore": 9.8}}]}, "artifact": {"name": "a"}}]}),
        ),
        (
            "neuvector",
            json!({"result": {"Registry": "https://harbor.acme.io/", "Repository": "web/cart",
            "Tag": "v2", "Digest": digest, "Vuls": [{"Name": "CVE-1", "PackageName": "a",
            "FixedVersion": "2", "Severity": "Critical", "Score": 5.0, "ScoreV3": 9.8}]}}),
        ),
        (
            "sbomscanner",
            json!({"apiVersion": "storage.sbomscanner.kubewarden.io/v1alpha1",
            "kind": "VulnerabilityReport", "imageMetadata": {"registryURI": "harbor.acme.io",
            "repository": "web/cart", "tag": "v2", "digest": digest},
            "report": {"results": [{"vulnerabilities": [{"cve": "CVE-1", "packageName": "a",
            "severity": "CRITICAL", "fixedVersions": ["2"], "cvss": {"nvd": {"v3score": "9.8"}}}]}]}}),
        ),
        (
            "cyclonedx",
            json!({"bomFormat": "CycloneDX", "metadata": {"timestamp": "2025-12-31T00:00:00Z",
            "component": {"type": "container", "name": "harbor.acme.io/web/cart:v2", "purl":
            format!("pkg:oci/cart@{}?repository_url=harbor.acme.io%2Fweb%2Fcart&tag=v2", digest.replace(':', "%3A"))}},
            "components": [{"bom-ref": "r", "type": "library", "name": "a", "version": "1"}],
            "vulnerabilities": [{"id": "CVE-1", "ratings": [{"severity": "critical", "score": 9.8,
            "method": "CVSSv31"}], "affects": [{"ref": "r"}]},
            {"id": "CVE-2", "ratings": [{"severity": "critical"}],
             "analysis": {"state": "not_affected"}, "affects": [{"ref": "r"}]}]}),
        ),
    ];
    for (form, report) in forms {
        let facts = scanned(&[report]);
        for image in [IMAGE.to_owned(), format!("elsewhere.io/x@{digest}")] {
            let denies = |criteria: &Value| denies_image(criteria, &facts, &image);
            assert!(denies(&one("cveCriticalCount", ">=", "1")), "{form} {image}");
            assert!(!denies(&one("cveHighCount", ">=", "2")), "{form} {image}");
            assert!(denies(&one("cveScoreCount", ">=", "9.8")), "{form} {image}");
            let fixable = denies(&one("cveCriticalWithFixCount", ">=", "1"));
            assert_eq!(fixable, form != "cyclonedx", "{form} {image}");
            assert!(allows_image(&one("imageScanned", "=", "true"), &facts, &image), "{form}");
        }
    }
}

#[test]
fn parts_of_several_reports_make_one_record() {
    let of = |kind: &str, more: Value| {
        let mut report = json!({"updateTimestamp": "2025-12-31T00:00:00Z",
            "registry": {"server": "harbor.acme.io"},
            "artifact": {"repository": "web/cart", "tag": "v2", "digest": "sha256:aa"}});
        report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "aquasecurity.github.io/v1alpha1", "kind": kind, "report": report})
    };
    let found = of(
        "VulnerabilityReport",
        json!({"vulnerabilities": [],
        "os": {"family": "alpine", "name": "3.19"}}),
    );
    let packages = of(
        "SbomReport",
        json!({"components": {"components": [
        {"name": "musl", "version": "1.2", "type": "library", "purl": "pkg:apk/alpine/musl@1.2"},
        {"name": "alpine", "version": "3.19", "type": "operating-system"}]}}),
    );
    let secrets = of("ExposedSecretReport", json!({"secrets": [{"ruleID": "aws"}]}));
    let facts = scanned(&[found, packages.clone(), secrets]);
    let all = json!([{"name": "cveHighCount", "op": "<=", "value": "0"},
        {"name": "modules", "op": "containsAny", "value": "musl"},
        {"name": "imageCompliance", "op": "=", "value": "true"}]);
    assert!(allows(&all, &facts));
    assert!(denies(&one("modules", "notContainsAny", "alpine"), &facts));
    // Packages alone are no scan for vulnerabilities.
    let facts = scanned(&[packages]);
    assert!(denies(&one("imageScanned", "=", "false"), &facts));
}

#[test]
fn signatures_are_those_that_verifiers_accept() {
    let report = |verifiers: Value| {
        json!({"Registry": "harbor.acme.io", "Repository": "web/cart", "Tag": "v2", "Vuls": [],
               "SignatureInfo": {"Verifiers": verifiers}, "SetIdPerms": [{"Type": "setuid"}]})
    };
    let signed = scanned(&[report(json!(["public/release"]))]);
    assert!(allows(&one("imageSigned", "=", "true"), &signed));
    assert!(allows(&one("imageVerifiers", "containsAny", "public/*"), &signed));
    assert!(denies(&one("imageCompliance", "=", "true"), &signed));
    let unsigned = scanned(&[report(json!([]))]);
    assert!(denies(&one("imageSigned", "=", "false"), &unsigned));
    assert!(allows(&one("imageSigned", "=", "false"), &unsigned));
}

#[test]
fn a_damaged_report_is_refused() {
    let add =
        |document: Value| Reports::default().add(&document, NOW).map_err(|why| why.to_string());
    let cases = [
        (json!({"a": 1}), "form that is known"),
        (json!({"SchemaVersion": 2, "ArtifactName": IMAGE, "Results": "x"}), "list in Results"),
        (json!({"SchemaVersion": 2, "ArtifactName": "", "Results": []}), "of which image"),
        (trivy(json!([{"PkgName": "a", "Severity": "HIGH"}])), "without VulnerabilityID"),
        (trivy(json!({})), "list in Vulnerabilities"),
        (
            json!({"apiVersion": "aquasecurity.github.io/v1alpha1", "kind": "ConfigAuditReport"}),
            "says nothing",
        ),
        (
            json!({"kind": "VulnerabilityException", "metadata": {"name": "e"}, "spec": {"name": ""}}),
            "is empty",
        ),
        (json!({"kind": "VulnerabilityException", "spec": {"name": "_RecentVuln"}}), "spec.days"),
    ];
    for (document, why) in cases {
        let error = add(document.clone()).expect_err(&document.to_string());
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn without_a_source_rules_on_scans_are_refused_unless_disabled() {
    let on_scans = |disabled: bool| {
        rule(
            "r",
            json!({"action": "deny", "disabled": disabled, "criteria": one("cveHighCount", ">=", "1")}),
        )
    };
    let without = Settings { scan_results: false, ..Settings::new(true) };
    let problems = Program::compile(&[on_scans(false)], &without).unwrap_err();
    assert!(problems.to_string().contains("needs scan results"), "{problems}");
    assert!(Program::compile(&[on_scans(true)], &without).is_ok());
}

proptest::proptest! {
    #[test]
    fn no_report_panics(text in "[a-zA-Z0-9:@/%?&=._-]{0,40}", at in 0_usize..6) {
        let fields = ["ArtifactName", "purl", "digest", "Registry", "PublishedDate", "version"];
        let value = json!({"SchemaVersion": 2, "bomFormat": "CycloneDX", "ArtifactName": IMAGE,
            "metadata": {"component": {"name": text, "purl": format!("pkg:oci/{text}"), "version": text}},
            "components": [{"purl": text, "name": text, "group": text, "version": text}],
            fields[at]: text});
        let _ = Reports::default().add(&value, NOW);
        let trivy = json!({"SchemaVersion": 2, "ArtifactName": text, "CreatedAt": text, "Results": [
            {"Vulnerabilities": [{"VulnerabilityID": text, "PublishedDate": text, "PkgName": text}]}]});
        let _ = Reports::default().add(&trivy, NOW);
    }
}
