//! Reviews and what is known of images while a process runs.

use objects::kinds::{ImageReport, VulnerabilityException};

use super::*;
use crate::ImageLimits;

const CART: &str = "harbor.acme.io/web/cart:v2";

fn trivy(image: &str, at: &str, vulnerabilities: Value) -> Value {
    json!({"SchemaVersion": 2, "ArtifactName": image, "CreatedAt": at,
           "Metadata": {"OS": {"Family": "debian", "Name": "12"}},
           "Results": [{"Vulnerabilities": vulnerabilities}]})
}

fn critical(id: &str) -> Value {
    json!({"VulnerabilityID": id, "PkgName": "openssl", "InstalledVersion": "3.0.1",
           "FixedVersion": "3.0.2", "Severity": "CRITICAL"})
}

fn no_critical() -> Value {
    deny(json!([{"name": "cveCriticalCount", "op": ">=", "value": "1"}]))
}

fn asked(image: &str) -> Value {
    review(owned("Pod", "p", None, image), "alice")
}

async fn knows(court: &Court, images: usize) {
    court
        .until(|admission| {
            let known = admission.images(LOCAL_CLUSTER).unwrap();
            known.is_told() && known.len() == images
        })
        .await;
}

async fn until_allowed(court: &Court, image: &str, allowed: bool) {
    court.until(|_| court.ask(&asked(image))["allowed"] == allowed).await;
}

#[tokio::test]
async fn what_is_imported_decides_and_what_is_withdrawn_does_not() {
    let court = Court::with(&[no_critical()]).await;
    knows(&court, 0).await;
    assert_eq!(court.ask(&asked(CART))["allowed"], true);
    court.import(&trivy(CART, "2026-01-01T00:00:00Z", json!([critical("CVE-1")]))).await;
    until_allowed(&court, CART, false).await;
    assert_eq!(court.ask(&asked("harbor.acme.io/web/cart:v3"))["allowed"], true);
    // A newer scan of the same image takes its place, in the store as well.
    court.import(&trivy(CART, "2026-01-02T00:00:00Z", json!([]))).await;
    until_allowed(&court, CART, true).await;
    let kept = court.objects.list::<ImageReport>(&Within::default(), soon()).await.unwrap().items;
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].spec.images, [CART]);
    assert_eq!(kept[0].spec.imported_by, "alice");
    let id = Id::of(&kept[0]);
    court.objects.delete::<ImageReport>(&id, Expected::Any, soon()).await.unwrap();
    knows(&court, 0).await;
}

#[tokio::test]
async fn an_exception_ends_by_itself_while_the_process_runs() {
    let court = Court::with(&[no_critical()]).await;
    knows(&court, 0).await;
    court.import(&trivy(CART, "2026-01-01T00:00:00Z", json!([critical("CVE-1")]))).await;
    until_allowed(&court, CART, false).await;
    // Exceptions end with a whole second.
    let until = Timestamp::from_second(Timestamp::now().as_second() + 4).unwrap();
    let exception = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "VulnerabilityException",
        "metadata": {"name": "openssl"},
        "spec": {"name": "CVE-1", "packages": ["openssl"], "until": until.to_string()}});
    court.import(&exception).await;
    // It is taken in, or its time was over before it was.
    court.until(|_| Timestamp::now() >= until || court.ask(&asked(CART))["allowed"] == true).await;
    until_allowed(&court, CART, false).await;
    assert!(Timestamp::now() >= until, "the exception ended before its time");
    let id = Id::cluster("openssl");
    assert!(court.objects.get::<VulnerabilityException>(&id, soon()).await.unwrap().is_some());
}

#[tokio::test]
async fn statements_of_vendors_take_findings_out() {
    let court = Court::with(&[no_critical()]).await;
    knows(&court, 0).await;
    let purl = "pkg:deb/debian/openssl@3.0.1";
    let mut finding = critical("CVE-1");
    finding["PkgIdentifier"] = json!({"PURL": purl});
    court.import(&trivy(CART, "2026-01-01T00:00:00Z", json!([finding]))).await;
    until_allowed(&court, CART, false).await;
    let mut vex = json!({"@context": "https://openvex.dev/ns/v0.2.0", "@id": "https://acme.io/vex/1",
        "timestamp": "2026-01-01T00:00:00Z",
        "statements": [{"vulnerability": {"name": "CVE-1"}, "products": [{"@id": purl}],
                        "status": "not_affected"}]});
    court.import(&vex).await;
    until_allowed(&court, CART, true).await;
    vex["statements"][0]["status"] = json!("affected");
    court.import(&vex).await;
    until_allowed(&court, CART, false).await;
}

#[tokio::test]
async fn nothing_is_decided_on_images_before_what_is_known_of_them_is_read() {
    let court = Court::with(&[no_critical()]).await;
    let not_told = Snapshot::new(Images::default());
    court.admission.0.clusters.update(|clusters| {
        clusters.insert("starting".into(), ClusterFacts::new(not_told)).is_none()
    });
    let body = asked(CART).to_string();
    let undecided = court.admission.review("starting", body.as_bytes());
    assert_eq!(undecided, Err(Undecided::ImagesNotReady));
}

#[tokio::test]
async fn the_oldest_reports_make_room() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("court");
    let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
    let images = ImageLimits { reports: 2, ..ImageLimits::default() };
    let settings = Settings { images, ..Settings::new(true) };
    let readiness = Readiness::default();
    let admission = Admission::start(&objects, settings, vec![], &readiness, &tasks);
    let court = Court { admission, objects, readiness, tasks, _data: data };
    for (day, name) in [(3, "c"), (1, "a"), (2, "b")] {
        let at = format!("2026-01-0{day}T00:00:00Z");
        court.import(&trivy(&format!("acme.io/{name}:1"), &at, json!([]))).await;
    }
    court.until(|admission| admission.images(LOCAL_CLUSTER).unwrap().left_out() == 1).await;
    let (all, shown) = court.admission.images(LOCAL_CLUSTER).unwrap().list("", 0, 10);
    let names: Vec<_> = shown.iter().map(|image| image.images[0].as_str()).collect();
    assert_eq!((all, names), (2, vec!["acme.io/b:1", "acme.io/c:1"]));
}

/// trivy-operator's definitions, as far as a server needs them.
fn trivy_definition(kind: &str, plural: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.aquasecurity.github.io")},
        "spec": {"group": "aquasecurity.github.io", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn trivy_report(name: &str, digest: &str, severity: &str) -> Value {
    json!({"apiVersion": "aquasecurity.github.io/v1alpha1", "kind": "VulnerabilityReport",
        "metadata": {"name": name, "namespace": "default", "labels": {
            "trivy-operator.resource.kind": "ReplicaSet", "trivy-operator.resource.name": "cart-1",
            "trivy-operator.container.name": "cart"}},
        "report": {"updateTimestamp": "2026-01-01T00:00:00Z",
            "registry": {"server": "harbor.acme.io"},
            "artifact": {"repository": "web/cart", "tag": "v2", "digest": digest},
            "os": {"family": "debian", "name": "12.4"},
            "scanner": {"name": "Trivy", "vendor": "Aqua Security", "version": "0.50"},
            "summary": {"criticalCount": 1, "highCount": 0, "mediumCount": 0, "lowCount": 0},
            "vulnerabilities": [{"vulnerabilityID": "CVE-2024-1", "resource": "openssl",
                "installedVersion": "3.0.1", "fixedVersion": "", "severity": severity,
                "title": "long text", "links": [], "score": 9.8,
                "publishedDate": "2024-01-01T00:00:00Z"}]}})
}

#[tokio::test]
async fn reports_of_a_clusters_scanner_count_there_alone_and_its_definitions_may_come_late() {
    use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
    use kube::core::{ApiResource, GroupVersionKind};
    testkit::requires!(kube);
    let server = testkit::KubeServer::start().await;
    let client = server.client().await;
    let court = Court::with(&[no_critical()]).await;
    knows(&court, 0).await;
    let cluster = Objects::kubernetes(client.clone(), "fairlead");
    court.admission.follow_cluster("prod", &cluster, &court.tasks);
    let of = |name: &str| court.admission.images(name).unwrap();
    let dynamic = |group: &str, version: &str, kind: &str, plural: &str| {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    };
    let (group, version) = ("apiextensions.k8s.io", "v1");
    let crds = dynamic(group, version, "CustomResourceDefinition", "customresourcedefinitions");
    let crds: Api<DynamicObject> = Api::all_with(client.clone(), &crds);
    // Without definitions: nobody has told, and nobody is waited for without an end.
    court.until(|_| of("prod").is_told()).await;
    for (kind, plural) in [
        ("VulnerabilityReport", "vulnerabilityreports"),
        ("SbomReport", "sbomreports"),
        ("ExposedSecretReport", "exposedsecretreports"),
    ] {
        let definition = serde_json::from_value(trivy_definition(kind, plural)).unwrap();
        crds.create(&PostParams::default(), &definition).await.unwrap();
    }
    let reports = dynamic(
        "aquasecurity.github.io",
        "v1alpha1",
        "VulnerabilityReport",
        "vulnerabilityreports",
    );
    let reports: Api<DynamicObject> = Api::namespaced_with(client, "default", &reports);
    let digest = format!("sha256:{}", "a".repeat(64));
    let report = trivy_report("replicaset-cart-1-cart", &digest, "CRITICAL");
    let report: DynamicObject = serde_json::from_value(report).unwrap();
    let patience = soon();
    while reports.create(&PostParams::default(), &report).await.is_err() {
        assert!(!patience.has_passed(), "the definition is never served");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    court.until(|_| of("prod").len() == 1).await;
    let pinned = format!("elsewhere.io/anything@{digest}");
    let allowed = |cluster: &str, image: &str| {
        let body = asked(image).to_string();
        let answer = court.admission.review(cluster, body.as_bytes()).unwrap();
        serde_json::from_slice::<Value>(&answer).unwrap()["response"]["allowed"] == true
    };
    assert!(!allowed("prod", CART) && !allowed("prod", &pinned));
    assert!(allowed(LOCAL_CLUSTER, CART), "another cluster's scanner has no say here");
    // The workload goes, and its report with it: what was found is still so.
    let gone = DeleteParams::default();
    reports.delete("replicaset-cart-1-cart", &gone).await.unwrap();
    let mild = trivy_report("other", &format!("sha256:{}", "b".repeat(64)), "LOW");
    let mild: DynamicObject = serde_json::from_value(mild).unwrap();
    reports.create(&PostParams::default(), &mild).await.unwrap();
    court.until(|_| of("prod").len() == 2).await;
    assert!(!allowed("prod", &pinned));
}

#[tokio::test]
async fn signatures_are_verified_again_when_what_is_trusted_changes() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../../pki/src/sigstore/tests/vectors.json"))
            .unwrap();
    let digest = vectors["digest"].as_str().unwrap();
    let pinned = format!("registry.example/web/cart@{digest}");
    let unsigned = deny(json!([{"name": "imageSigned", "op": "=", "value": "false"}]));
    let court = Court::with(&[unsigned]).await;
    knows(&court, 0).await;
    assert_eq!(court.ask(&asked(&pinned))["allowed"], false, "nothing is known of it");
    court.import(&vectors["bundle"]).await;
    knows(&court, 1).await;
    assert_eq!(court.ask(&asked(&pinned))["allowed"], false, "nobody is trusted");
    let root = |subject: &str| -> objects::kinds::ImageTrustRoot {
        serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "ImageTrustRoot",
            "metadata": {"name": "acme"},
            "spec": {"trustedRoot": vectors["trustedRoot"].to_string(), "verifiers": [
                {"name": "ci", "certIssuer": vectors["identity"]["iss"], "certSubject": subject}]},
        }))
        .unwrap()
    };
    let subject = vectors["identity"]["sub"].as_str().unwrap();
    court.objects.apply(&root(subject), Expected::Any, soon()).await.unwrap();
    until_allowed(&court, &pinned, true).await;
    let shown = court.admission.images(LOCAL_CLUSTER).unwrap().list("", 0, 1).1;
    assert_eq!(shown[0].verifiers, Some(vec!["acme/ci".to_owned()]));
    assert_eq!(court.ask(&asked("registry.example/web/cart:v1"))["allowed"], false);
    court.objects.apply(&root("eve@acme.example"), Expected::Any, soon()).await.unwrap();
    until_allowed(&court, &pinned, false).await;
}
