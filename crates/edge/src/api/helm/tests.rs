//! Helm's releases on a real API server, as Helm writes them: what is in a revision, and the way back.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api as Kube, Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

use crate::api::tests::test_api::TestApi;

const NOTHING: Value = Value::Null;

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn release(revision: u32, status: &str, manifest: &str) -> Value {
    json!({
        "name": "shop", "namespace": "default", "version": revision, "manifest": manifest,
        "config": { "replicas": revision, "db": { "password": "hunter2" } },
        "chart": { "metadata": { "name": "shop", "version": format!("1.{revision}.0") },
            "values": { "image": "web", "replicas": 1 } },
        "info": { "first_deployed": "2026-01-01T00:00:00Z", "status": status, "notes": "Hello.",
            "last_deployed": "2026-01-02T00:00:00Z", "description": "Upgrade complete" },
        "hooks": [{ "name": "migrate", "kind": "Job", "events": ["pre-rollback"] }],
    })
}

async fn keep(client: &kube::Client, release: &Value) {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(release.to_string().as_bytes()).unwrap();
    let text = STANDARD.encode(gzip.finish().unwrap());
    let (name, revision) = (&release["name"], &release["version"]);
    let secret = object(json!({
        "metadata": { "name": format!("sh.helm.release.v1.{}.v{revision}", name.as_str().unwrap()),
            "labels": { "owner": "helm", "name": name, "version": revision.to_string(),
                "status": release["info"]["status"], "team": "blue" } },
        "type": "helm.sh/release.v1", "stringData": { "release": text },
    }));
    let secrets = Kube::<Secret>::namespaced(client.clone(), "default");
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

/// A revision as a Helm would read it, with its Secret's labels.
async fn kept(client: &kube::Client, revision: u32) -> (Value, Value) {
    let secrets = Kube::<Secret>::namespaced(client.clone(), "default");
    let secret = secrets.get(&format!("sh.helm.release.v1.shop.v{revision}")).await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("helm.sh/release.v1"));
    let packed = STANDARD.decode(&secret.data.unwrap()["release"].0).unwrap();
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    (serde_json::from_str(&text).unwrap(), json!(secret.metadata.labels))
}

fn deployment(image: &str, env: &str) -> String {
    format!(
        "---\n# Source: shop/web.yaml\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\n\
         spec:\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n\
         \u{20}   spec: {{containers: [{{name: main, image: '{image}'{env}}}]}}\n"
    )
}

fn settings(name: &str, annotation: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}{annotation}}}\ndata: {{a: b}}\n"
    )
}

fn secret(keys: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: login}}\nstringData: {{{keys}}}\n"
    )
}

/// Makes the objects of a manifest, as an installation by Helm would.
async fn install(world: &TestApi, manifest: &str) {
    use crate::api::tests::test_api::request;
    let mut asked = request(Method::POST, "/api/v1/clusters/real/apply", NOTHING);
    *asked.body_mut() = axum::body::Body::from(manifest.to_owned());
    let bearer = format!("Bearer {}", world.local).parse().unwrap();
    asked.headers_mut().insert("authorization", bearer);
    let applied = world.send(asked).await;
    assert!(applied.status == 200 && !applied.text.contains("failed"), "{}", applied.text);
}

#[tokio::test]
async fn a_kube_server_s_release_goes_back_to_an_older_revision() {
    requires!(kube);
    let (world, server) = tokio::join!(async { TestApi::new().ready().await }, KubeServer::start());
    world.import("real", server.access().kubeconfig()).await;
    let client = server.client().await;
    let old = deployment("web:1", "") + &settings("old", "") + &secret("password: hunter2");
    let keep_it = ", annotations: {helm.sh/resource-policy: keep}";
    let new = deployment("web:2", ", env: [{name: DEBUG, value: '1'}]")
        + &settings("new", "")
        + &settings("kept", keep_it)
        + &secret("password: hunter3, extra: more");
    install(&world, &new).await;
    keep(&client, &release(1, "superseded", &old)).await;
    keep(&client, &release(2, "deployed", &new)).await;
    // Somebody else's field, which is none of the release's.
    let deployments = Kube::<Deployment>::namespaced(client.clone(), "default");
    let theirs = Patch::Merge(json!({ "metadata": { "labels": { "theirs": "1" } } }));
    deployments.patch("web", &PatchParams::default(), &theirs).await.unwrap();

    contents(&world).await;
    refusals(&world, &client).await;
    dry_run(&world, &client).await;
    back(&world, &client).await;
    failing(&world, &client).await;
}

const RELEASE: &str = "/clusters/real/helm/default/shop";

async fn contents(world: &TestApi) {
    let values = world.ask(Method::GET, &format!("{RELEASE}/values"), NOTHING).await.json();
    let masked = json!({ "replicas": 2, "db": { "password": "<masked>" } });
    assert_eq!((&values["revision"], &values["values"]), (&json!(2), &masked), "{values}");
    let all = format!("{RELEASE}/values?all=true&revision=1&reveal=true");
    let all = world.ask(Method::GET, &all, NOTHING).await.json();
    let plain = json!({ "image": "web", "replicas": 1, "db": { "password": "hunter2" } });
    assert_eq!(all["values"], plain);
    let manifest = world.ask(Method::GET, &format!("{RELEASE}/manifest"), NOTHING).await;
    assert!(!manifest.text.contains("hunter") && manifest.text.contains("web:2"));
    let manifest = manifest.json();
    assert_eq!(
        (&manifest["masked"], &manifest["hooks"][0]["name"]),
        (&json!(2), &json!("migrate"))
    );
    let none = world.ask(Method::GET, &format!("{RELEASE}/values?revision=9"), NOTHING).await;
    assert!(none.status == 400 && none.text.contains("it has 1, 2"), "{}", none.text);

    // Who may not read Secrets reads neither; the reads are in the audit.
    let releases = [["real", "default", "releases.helm.sh", "*"], ["real", "default", "pods", "*"]];
    let ann = world.somebody("ann", &releases).await;
    for path in ["values", "manifest"] {
        let path = format!("{RELEASE}/{path}");
        assert_eq!(world.ask_as(&ann, Method::GET, &path, NOTHING).await.status, 403);
    }
    let audit = world.ask(Method::GET, "/audit?resource=releases.helm.sh", NOTHING).await.json();
    assert!(audit["entries"].as_array().unwrap().len() >= 3, "{audit}");
}

async fn refusals(world: &TestApi, client: &kube::Client) {
    let path = format!("{RELEASE}/rollback");
    let missing = world.ask(Method::POST, &path, json!({"revision": 7})).await;
    assert!(missing.status == 400 && missing.text.contains("it has 1, 2"), "{}", missing.text);
    // The release alone is not enough: each object needs its own right.
    let ann = world.somebody("abe", &[["real", "default", "releases.helm.sh", "*"]]).await;
    let refused = world.ask_as(&ann, Method::POST, &path, json!({})).await;
    assert_eq!((refused.status, &*refused.code()), (403, "forbidden"), "{}", refused.text);
    // What is there and is not of this release is not overwritten.
    let maps = Kube::<ConfigMap>::namespaced(client.clone(), "default");
    let foreign = object(json!({ "metadata": { "name": "old" }, "data": { "mine": "1" } }));
    maps.create(&PostParams::default(), &foreign).await.unwrap();
    let taken = world.ask(Method::POST, &path, json!({})).await;
    assert!(taken.status == 400 && taken.text.contains("not of this release"), "{}", taken.text);
    maps.delete("old", &Default::default()).await.unwrap();
    // Helm 4 may own fields server-side.
    let mut by_server = release(1, "deployed", &settings("x", ""));
    by_server["name"] = "four".into();
    by_server["apply_method"] = "ssa".into();
    keep(client, &by_server).await;
    let four = "/clusters/real/helm/default/four/rollback";
    let four = world.ask(Method::POST, four, json!({"revision": 1})).await;
    assert!(four.status == 400 && four.text.contains("helm rollback"), "{}", four.text);
    let secrets = Kube::<Secret>::namespaced(client.clone(), "default");
    assert!(secrets.get_opt("sh.helm.release.v1.shop.v3").await.unwrap().is_none());
}

fn outcomes(answer: &Value) -> Vec<String> {
    let objects = answer["objects"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let word = |object: &Value, key: &str| object[key].as_str().unwrap().to_owned();
    objects.iter().map(|it| format!("{} {}", word(it, "name"), word(it, "outcome"))).collect()
}

const EXPECTED: [&str; 5] =
    ["web configured", "old created", "login configured", "kept kept", "new deleted"];

async fn dry_run(world: &TestApi, client: &kube::Client) {
    let would =
        world.ask(Method::POST, &format!("{RELEASE}/rollback?dryRun=true"), json!({})).await;
    assert_eq!(would.status, 200, "{}", would.text);
    assert!(!would.text.contains("aHVudGVy") && !would.text.contains("hunter"), "{}", would.text);
    let would = would.json();
    assert_eq!(outcomes(&would), EXPECTED, "{would}");
    let diff = would["objects"][0]["diff"].as_str().unwrap();
    assert!(diff.contains("-        image: web:2") && diff.contains("DEBUG"), "{diff}");
    let deployments = Kube::<Deployment>::namespaced(client.clone(), "default");
    let template = deployments.get("web").await.unwrap().spec.template;
    assert_eq!(template.spec.unwrap().containers[0].image.as_deref(), Some("web:2"));
}

async fn back(world: &TestApi, client: &kube::Client) {
    let done = world.ask(Method::POST, &format!("{RELEASE}/rollback"), json!({})).await;
    assert_eq!(done.status, 200, "{}", done.text);
    let done = done.json();
    assert_eq!(outcomes(&done), EXPECTED, "{done}");
    assert_eq!((&done["revision"], &done["to"], &done["from"]), (&json!(3), &json!(1), &json!(2)));
    assert_eq!(done["hooksNotRun"][0]["name"], "migrate");

    let deployments = Kube::<Deployment>::namespaced(client.clone(), "default");
    let web = deployments.get("web").await.unwrap();
    let container = web.spec.template.spec.unwrap().containers.remove(0);
    assert_eq!((container.image.as_deref(), container.env), (Some("web:1"), None));
    let labels = web.metadata.labels.unwrap();
    assert_eq!((&*labels["theirs"], &*labels["app.kubernetes.io/managed-by"]), ("1", "Helm"));
    let maps = Kube::<ConfigMap>::namespaced(client.clone(), "default");
    assert!(maps.get_opt("new").await.unwrap().is_none());
    assert!(maps.get_opt("kept").await.unwrap().is_some() && maps.get("old").await.is_ok());
    let secrets = Kube::<Secret>::namespaced(client.clone(), "default");
    let data = secrets.get("login").await.unwrap().data.unwrap();
    assert_eq!((&*data["password"].0, data.len()), (&b"hunter2"[..], 1));

    // As Helm reads it: the new one is deployed, the others are not.
    let (release, labels) = kept(client, 3).await;
    assert_eq!((&release["version"], &release["info"]["status"]), (&json!(3), &json!("deployed")));
    assert_eq!(release["info"]["description"], "Rollback to 1");
    assert_eq!(release["info"]["first_deployed"], "2026-01-01T00:00:00Z");
    assert_eq!(
        (&release["config"]["replicas"], &release["chart"]["values"]["image"]),
        (&json!(1), &json!("web"))
    );
    assert_eq!(
        (&labels["status"], &labels["team"], &labels["version"]),
        (&json!("deployed"), &json!("blue"), &json!("3"))
    );
    let (before, labels) = kept(client, 2).await;
    assert_eq!(
        (&before["info"]["status"], &labels["status"]),
        (&json!("superseded"), &json!("superseded"))
    );
    let history = world.ask(Method::GET, &format!("{RELEASE}/history"), NOTHING).await.json();
    let told = &history["revisions"][0];
    assert_eq!((&told["revision"], &told["chart"]), (&json!(3), &json!("shop-1.1.0")), "{history}");
    let audit = "/audit?verb=update&resource=releases.helm.sh&outcome=ok";
    let audit = world.ask(Method::GET, audit, NOTHING).await.json();
    let entries = audit["entries"].as_array().unwrap();
    assert!(
        entries.iter().any(|it| it["after"]["to"] == 1 && it["before"]["revision"] == 2),
        "{audit}"
    );
}

/// An object that the server refuses: the revision is failed, and nothing of the newest goes.
async fn failing(world: &TestApi, client: &kube::Client) {
    let broken = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  \
                  selector: {matchLabels: {app: other}}\n  template:\n    metadata: {labels: {app: other}}\n    \
                  spec: {containers: [{name: main, image: 'web:9'}]}\n";
    keep(client, &release(4, "failed", broken)).await;
    keep(client, &release(5, "deployed", &(deployment("web:1", "") + &settings("old", "")))).await;
    let path = format!("{RELEASE}/rollback");
    let failed = world.ask(Method::POST, &path, json!({"revision": 4})).await;
    assert_eq!(failed.status, 200, "{}", failed.text);
    let failed = failed.json();
    assert_eq!(outcomes(&failed), ["web failed"], "{failed}");
    assert!(failed["objects"][0]["problem"].as_str().unwrap().contains("immutable"), "{failed}");
    assert!(failed["warnings"][0].as_str().unwrap().contains("revision 4 is failed"), "{failed}");
    let maps = Kube::<ConfigMap>::namespaced(client.clone(), "default");
    assert!(maps.get_opt("old").await.unwrap().is_some());
    assert_eq!(kept(client, 6).await.0["info"]["status"], "failed");
    assert_eq!(kept(client, 5).await.1["status"], "superseded");
}
