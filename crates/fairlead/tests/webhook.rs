//! The admission webhook as a cluster meets it: a real API server calls a real process over TLS.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod running;

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use objects::kinds::AdmissionRule;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use running::{PATIENCE, Up, http};
use serde_json::{Value, json};
use testkit::{KubeServer, requires};

const CONFIGURATION: &str = "fairlead-admission";

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn deployment(name: &str, image: &str) -> Deployment {
    parse(json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": image}]},
            },
        },
    }))
}

fn rule(name: &str, mode: &str, image: &str) -> AdmissionRule {
    parse(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
        "metadata": {"name": name},
        "spec": {"action": "deny", "mode": mode,
                 "criteria": [{"name": "image", "op": "containsAny", "value": image}]},
    }))
}

/// A process whose store and whose cluster is the server.
fn up(server: &KubeServer, data: &Path, port: u16, policy: &str) -> Up {
    Up::start_with(data, "none", |command| {
        command
            .env("KUBECONFIG", server.kubeconfig_path())
            .args(["--store", "kubernetes"])
            .args(["--admission-listen", &format!("127.0.0.1:{port}")])
            .args(["--admission-url", &format!("https://127.0.0.1:{port}")])
            .args(["--admission-failure-policy", policy, "--admission-timeout", "5s"])
    })
}

/// A port that is free now; nobody else in this test's network asks for it by number.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

struct World {
    server: KubeServer,
    deployments: Api<Deployment>,
    configurations: Api<ValidatingWebhookConfiguration>,
    namespace: String,
}

impl World {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    /// With more flags of the API server.
    async fn with(flags: &[&str]) -> Self {
        let server = KubeServer::start_with(flags).await;
        let client = server.client().await;
        let deadline = stallproof::Deadline::after(PATIENCE);
        objects::install(client.clone(), deadline).await.unwrap();
        let home: Namespace = parse(json!({"metadata": {"name": "fairlead"}}));
        Api::all(client.clone()).create(&PostParams::default(), &home).await.unwrap();
        let namespace = server.namespace().await;
        Self {
            deployments: Api::namespaced(client.clone(), &namespace),
            configurations: Api::all(client),
            server,
            namespace,
        }
    }

    async fn create(&self, name: &str, image: &str) -> Result<Deployment, String> {
        let made = self.deployments.create(&PostParams::default(), &deployment(name, image)).await;
        made.map_err(|error| match error {
            kube::Error::Api(status) => status.message,
            other => other.to_string(),
        })
    }

    /// Waits until reviews are asked for, and answered: what a protecting rule denies is refused by
    /// its sentence.
    async fn until_guarded(&self) -> String {
        eventually("nothing is refused", async || {
            let params = PostParams { dry_run: true, ..PostParams::default() };
            let probe = deployment("probe", "docker.io/evil/miner:1");
            match self.deployments.create(&params, &probe).await {
                Err(kube::Error::Api(status)) if status.message.contains("no-miners") => {
                    Some(status.message)
                }
                _ => None,
            }
        })
        .await
    }
}

#[tokio::test]
async fn a_kube_api_server_asks_and_is_answered_over_tls() {
    requires!(kube);
    let world = World::new().await;
    let client = world.server.client().await;
    let rules = Api::<AdmissionRule>::all(client.clone());
    for made in [rule("no-miners", "protect", "evil/*"), rule("seen-latest", "monitor", "*:latest")]
    {
        rules.create(&PostParams::default(), &made).await.unwrap();
    }
    // The server's schema takes it, our check does not.
    let mut broken = rule("broken", "protect", "x");
    "nonsense".clone_into(&mut broken.spec.criteria[0].name);
    rules.create(&PostParams::default(), &broken).await.unwrap();
    let data = tempfile::tempdir().unwrap();
    let up = up(&world.server, data.path(), port(), "fail");

    let said = world.until_guarded().await;
    assert!(
        said.contains("denied the request: denied by rule \"no-miners\": container \"web\""),
        "{said}"
    );
    assert!(said.contains("image containsAny evil/*"), "{said}");
    let refused = world.create("miner", "docker.io/evil/miner:1").await.unwrap_err();
    assert!(refused.contains("no-miners"), "{refused}");
    world.create("shop", "harbor.acme.io/web/cart:v2").await.unwrap();
    world.create("lazy", "harbor.acme.io/web/cart:latest").await.unwrap();

    // What was decided is in the audit, and on the command line.
    let audit = up.wait_for("/admission/audit", |audit| {
        audit["lines"].as_array().unwrap().iter().any(|line| line["owner"] == "Deployment/lazy")
    });
    let line = |owner: &str, outcome: &str| {
        let mut lines = audit["lines"].as_array().unwrap().iter();
        let found = lines.find(|l| l["owner"] == owner && l["outcome"] == outcome);
        found.unwrap_or_else(|| panic!("{owner} {outcome}: {audit:#}")).clone()
    };
    assert_eq!(line("Deployment/miner", "denied")["rule"], "no-miners");
    assert_eq!(line("Deployment/lazy", "monitored")["rule"], "seen-latest");
    assert_eq!(line("Deployment/shop", "allowed")["namespace"], world.namespace);
    let printed = up.fairlead(&["admission", "audit", "--outcome", "denied"]);
    assert!(printed.code == 0 && printed.out.contains("Deployment/miner"), "{printed:?}");

    // A bad rule is named where people look for it, and holds up no other.
    let printed = up.fairlead(&["admission", "rules", "-o", "json"]);
    assert_eq!(printed.code, 1, "{printed:?}");
    let listed = printed.json();
    let listed =
        listed["rules"].as_array().unwrap().iter().find(|r| r["name"] == "broken").unwrap();
    assert_eq!(listed["state"], "invalid");
    eventually("the rule's status does not say it", async || {
        let status = rules.get("broken").await.unwrap().status?;
        (status.state.to_string() == "invalid" && status.why?.contains("nonsense")).then_some(())
    })
    .await;

    // Who asks for a pod is who is judged, whatever owner they name.
    let by_robots = parse::<AdmissionRule>(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
        "metadata": {"name": "not-by-robots"},
        "spec": {"action": "deny", "mode": "protect",
                 "criteria": [{"name": "user", "op": "notContainsAny", "value": "admin"},
                              {"name": "image", "op": "containsAny", "value": "*/robots"}]},
    }));
    rules.create(&PostParams::default(), &by_robots).await.unwrap();
    let owner = world.deployments.get("shop").await.unwrap();
    let pods = Api::<Pod>::namespaced(client.clone(), &world.namespace);
    let pod: Pod = parse(json!({
        "metadata": {"generateName": "shop-", "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "controller": true,
            "uid": owner.metadata.uid,
        }]},
        "spec": {"containers": [{"name": "web", "image": "acme/robots"}]},
    }));
    pods.create(&PostParams::default(), &pod).await.unwrap();

    repaired(&world).await;
    secret_is_kept(&client).await;
}

/// The attacks of somebody who may make pods, with an API server that admits what is not answered.
#[tokio::test]
async fn a_kube_api_server_is_no_way_around_the_rules() {
    requires!(kube);
    let world = World::new().await;
    let client = world.server.client().await;
    let rules = Api::<AdmissionRule>::all(client.clone());
    let by_admin = parse::<AdmissionRule>(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
        "metadata": {"name": "not-by-admin"},
        "spec": {"action": "deny", "mode": "protect",
                 "criteria": [{"name": "userGroups", "op": "containsAny", "value": "system:masters"},
                              {"name": "image", "op": "containsAny", "value": "*/robots"}]},
    }));
    for made in [rule("no-miners", "protect", "evil/*,istio/*"), by_admin] {
        rules.create(&PostParams::default(), &made).await.unwrap();
    }
    let data = tempfile::tempdir().unwrap();
    let _up = up(&world.server, data.path(), port(), "ignore");
    world.until_guarded().await;

    let pods = Api::<Pod>::namespaced(client.clone(), &world.namespace);
    let owned = |name: &str, image: &str, value: &str| -> Pod {
        parse(json!({
            "metadata": {"name": name, "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "controller": true,
                "uid": "00000000-0000-4000-8000-000000000000",
            }]},
            "spec": {"containers": [{"name": "web", "image": image,
                                     "env": [{"name": "A", "value": value}]}]},
        }))
    };
    let refused = async |pod: Pod| match pods.create(&PostParams::default(), &pod).await {
        Err(kube::Error::Api(status)) => status.message,
        other => panic!("{other:?}"),
    };
    // A sidecar's image; an owner that was made up; a pod that JSON makes six times as large.
    let said = refused(owned("mesh", "istio/proxyv2", "")).await;
    assert!(said.contains("no-miners"), "{said}");
    let said = refused(owned("orphan", "acme/robots", "")).await;
    assert!(said.contains("not-by-admin"), "{said}");
    let said = refused(owned("large", "docker.io/evil/miner:1", &"<".repeat(1_200_000))).await;
    assert!(said.contains("no-miners"), "{said}");

    // A pod that runs, and whose image is another then.
    pods.create(&PostParams::default(), &owned("cart", "acme/cart", "")).await.unwrap();
    let params = PatchParams::default();
    let runs = json!({"status": {"phase": "Running"}});
    pods.patch_status("cart", &params, &Patch::Merge(runs)).await.unwrap();
    let image = |image: &str| {
        Patch::Strategic(json!({"spec": {"containers": [{"name": "web", "image": image}]}}))
    };
    let patched = pods.patch("cart", &params, &image("evil/miner")).await;
    let Err(kube::Error::Api(status)) = patched else { panic!("{patched:?}") };
    assert!(status.message.contains("no-miners"), "{status:?}");
    pods.patch("cart", &params, &image("acme/cart:2")).await.unwrap();

    // What is there and would be refused today can still be let go of by who touches nothing of it.
    rules.create(&PostParams::default(), &rule("no-carts", "protect", "acme/cart*")).await.unwrap();
    // Another one each time: what changes nothing is not looked at.
    let mut tag = 3;
    eventually("the new rule is not heeded", async || {
        tag += 1;
        pods.patch("cart", &params, &image(&format!("acme/cart:{tag}"))).await.err()
    })
    .await;
    let finalizers = json!({"metadata": {"finalizers": ["example.com/mine"]}});
    pods.patch("cart", &params, &Patch::Merge(finalizers)).await.unwrap();
}

/// What somebody changes of the registration is put back.
async fn repaired(world: &World) {
    let edit = json!({"webhooks": [{
        "name": "admission.fairlead.dev", "failurePolicy": "Ignore", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
    }]});
    let params = PatchParams::default();
    world.configurations.patch(CONFIGURATION, &params, &Patch::Merge(edit)).await.unwrap();
    eventually("the edit stays", async || {
        let found = world.configurations.get(CONFIGURATION).await.unwrap();
        let webhook = found.webhooks.unwrap_or_default().into_iter().next()?;
        (webhook.failure_policy.as_deref() == Some("Fail")
            && webhook.client_config.url?.ends_with("/admit")
            && webhook.client_config.ca_bundle.is_some())
        .then_some(())
    })
    .await;
    world.configurations.delete(CONFIGURATION, &Default::default()).await.unwrap();
    eventually("it is not made again", async || {
        world.configurations.get_opt(CONFIGURATION).await.unwrap()
    })
    .await;
    world.until_guarded().await;
}

async fn secret_is_kept(client: &kube::Client) {
    let secrets = Api::<Secret>::namespaced(client.clone(), "fairlead");
    let secret = secrets.get("fairlead-admission-certificates").await.unwrap();
    let state = &secret.data.unwrap()["state.json"].0;
    let state: Value = serde_json::from_slice(state).unwrap();
    assert!(state["serving"]["certificate"].as_str().unwrap().starts_with("-----BEGIN CERT"));
}

#[tokio::test]
async fn a_kube_api_server_does_as_its_failure_policy_says_while_the_process_is_away() {
    requires!(kube);
    let world = World::new().await;
    let rules = Api::<AdmissionRule>::all(world.server.client().await);
    let made = rule("no-miners", "protect", "evil/*");
    rules.create(&PostParams::default(), &made).await.unwrap();
    let data = tempfile::tempdir().unwrap();
    let port = port();

    let first = up(&world.server, data.path(), port, "fail");
    world.until_guarded().await;
    let certificate = served(&world).await;
    first.kill();
    let refused = world.create("a", "acme/cart").await.unwrap_err();
    assert!(refused.contains("failed calling webhook"), "{refused}");

    // Back: with the certificate that it had, because that is in the store.
    let second = up(&world.server, data.path(), port, "ignore");
    world.until_guarded().await;
    assert_eq!(served(&world).await, certificate);
    eventually("the policy is not the new one", async || {
        let found = world.configurations.get(CONFIGURATION).await.unwrap();
        let policy = found.webhooks?.into_iter().next()?.failure_policy?;
        (policy == "Ignore").then_some(())
    })
    .await;
    second.kill();
    // The API server may still go by the policy of before for a moment.
    eventually("nothing is admitted", async || world.create("b", "evil/miner").await.ok()).await;

    // Turned off, it takes the registration back.
    let _third = Up::start_with(data.path(), "none", |command| {
        command.env("KUBECONFIG", world.server.kubeconfig_path()).args([
            "--store",
            "kubernetes",
            "--admission-webhook",
            "off",
        ])
    });
    eventually("the registration stays", async || {
        world.configurations.get_opt(CONFIGURATION).await.unwrap().is_none().then_some(())
    })
    .await;
}

async fn served(world: &World) -> Vec<u8> {
    let found = world.configurations.get(CONFIGURATION).await.unwrap();
    found.webhooks.unwrap()[0].client_config.ca_bundle.clone().unwrap().0
}

/// Writes what an API server is given to show a certificate to the webhook at `host`, and the authority by
/// which the webhook knows it; the flag that names it.
fn client_certificates(dir: &Path, host: &str) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(dir.join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap();
    std::fs::write(dir.join("client.crt"), certificate.pem()).unwrap();
    std::fs::write(dir.join("client.key"), key.serialize_pem()).unwrap();
    let at = dir.display();
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\nusers:\n- name: '{host}'\n  user:\n    \
         client-certificate: {at}/client.crt\n    client-key: {at}/client.key\n"
    );
    std::fs::write(dir.join("webhooks.yaml"), kubeconfig).unwrap();
    let admission = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n\
         - name: ValidatingAdmissionWebhook\n  configuration:\n    \
         apiVersion: apiserver.config.k8s.io/v1\n    kind: WebhookAdmissionConfiguration\n    \
         kubeConfigFile: {at}/webhooks.yaml\n"
    );
    std::fs::write(dir.join("admission.yaml"), admission).unwrap();
    format!("--admission-control-config-file={at}/admission.yaml")
}

#[tokio::test]
async fn only_api_servers_with_a_certificate_of_the_configured_authority_are_answered() {
    requires!(kube);
    let (data, port) = (tempfile::tempdir().unwrap(), port());
    let flag = client_certificates(data.path(), &format!("127.0.0.1:{port}"));
    let world = World::with(&[&flag]).await;
    let rules = Api::<AdmissionRule>::all(world.server.client().await);
    let made = rule("no-miners", "protect", "evil/*");
    rules.create(&PostParams::default(), &made).await.unwrap();
    let authority = data.path().join("ca.crt");
    let up = Up::start_with(&data.path().join("data"), "none", |command| {
        command
            .env("KUBECONFIG", world.server.kubeconfig_path())
            .args(["--store", "kubernetes"])
            .args(["--admission-listen", &format!("127.0.0.1:{port}")])
            .args(["--admission-url", &format!("https://127.0.0.1:{port}")])
            .args(["--admission-failure-policy", "fail", "--admission-timeout", "5s"])
            .arg("--admission-client-ca")
            .arg(&authority)
    });
    // The policy is to fail: what is made was asked about, and answered.
    world.until_guarded().await;
    world.create("shop", "harbor.acme.io/web/cart:v2").await.unwrap();

    // Anybody else gets no further than the handshake.
    let url = format!("https://127.0.0.1:{port}/admit");
    let stranger = std::panic::catch_unwind(|| http::send("POST", &url, &[], "{}", PATIENCE));
    assert!(stranger.is_err(), "{stranger:?}");
    drop(up);
}

#[test]
fn an_authority_that_cannot_be_read_is_a_sentence_and_nothing_is_served() {
    let data = tempfile::tempdir().unwrap();
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_fairlead"))
        .env("FAIRLEAD_CONFIG", "/dev/null")
        .args(["up", "--api-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"])
        .args(["--agents-listen=127.0.0.1:0", "--guard-observe=off", "--fleet-kubeconfig=none"])
        .args(["--admission-webhook=on", "--admission-listen=127.0.0.1:0"])
        .args(["--admission-client-ca=/nowhere/ca.crt", "--data"])
        .arg(data.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains("admission.client-ca") && said.contains("/nowhere/ca.crt"), "{said}");
}
