//! `fairlead images verify` as its users run it: signatures in files, and in a real registry.

#![allow(clippy::unwrap_used, reason = "tests")]

mod controllers;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use controllers::{Controller, create, eventually, http, prepared};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use objects::kinds::ImageReport;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

struct Case(TempDir);

impl Case {
    fn new() -> (Self, Value) {
        let vectors = include_str!("../../pki/src/sigstore/tests/vectors.json");
        let vectors: Value = serde_json::from_str(vectors).unwrap();
        let case = Self(tempfile::tempdir().unwrap());
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        for (file, value) in [
            ("cosign.pub", &vectors["keypair"]["p256"]["publicKey"]),
            ("foreign.pub", &vectors["foreignKey"]),
            ("bundle.json", &vectors["bundle"]),
            ("trusted_root.json", &vectors["trustedRoot"]),
        ] {
            fs::write(case.path(file), text(value)).unwrap();
        }
        (case, vectors)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// The exit code, and what was printed.
    fn verify(&self, image: &str, args: &str) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
        command.current_dir(self.0.path()).args(["images", "verify", image]);
        let output = command.args(args.split_whitespace()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    }
}

const IDENTITY: &str = "--issuer https://issuer.example --subject ci@acme.example";

#[test]
fn signatures_in_files_are_verified_with_what_is_given() {
    let (case, vectors) = Case::new();
    let image = format!("acme.io/web/cart@{}", vectors["digest"].as_str().unwrap());
    let keypair = json!({"Base64Signature": vectors["keypair"]["p256"]["signature"],
                         "Payload": base64(vectors["payload"].as_str().unwrap().as_bytes())});
    fs::write(case.path("sig.json"), keypair.to_string()).unwrap();
    let (code, said) = case.verify(&image, "--signature sig.json --key cosign.pub");
    assert_eq!(code, 0, "{said}");
    let (code, said) = case.verify(&image, "--signature sig.json --key foreign.pub");
    assert!(code == 1 && said.contains("not by this key"), "{code} {said}");
    let root = format!("--signature bundle.json --trusted-root trusted_root.json {IDENTITY}");
    let (code, said) = case.verify(&image, &root);
    assert_eq!(code, 0, "{said}");
    let other = root.replace("ci@acme", "eve@acme");
    let (code, said) = case.verify(&image, &format!("{other} -o json"));
    assert!(code == 1 && said.contains("subject is"), "{code} {said}");
    let (code, said) = case.verify("acme.io/web/cart:v2", "--signature sig.json --key cosign.pub");
    assert!(code == 2 && said.contains("@sha256"), "{code} {said}");
    let (code, said) = case.verify(&image, "--signature sig.json");
    assert!(code == 2 && said.contains("--key"), "{code} {said}");
    let (code, said) = case.verify(&image, &format!("--signature bundle.json {IDENTITY}"));
    assert!(code == 2 && said.contains("--trusted-root"), "{code} {said}");
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A real registry on loopback, of the Debian package docker-registry.
struct DockerRegistry {
    process: Child,
    address: String,
    _dir: TempDir,
}

impl DockerRegistry {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let storage = dir.path().join("storage");
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n",
            storage.display()
        );
        let file = dir.path().join("config.yml");
        fs::write(&file, config).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(began.elapsed() < PATIENCE, "the registry does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { process, address, _dir: dir }
    }

    fn blob(&self, bytes: &str) -> Value {
        let base = format!("http://{}", self.address);
        let begun =
            http::send("POST", &format!("{base}/v2/web/cart/blobs/uploads/"), &[], "", PATIENCE);
        assert_eq!(begun.status, 202, "{}", begun.text);
        let place = begun.headers["location"].to_str().unwrap().to_owned();
        let place = if place.starts_with('/') { format!("{base}{place}") } else { place };
        let joint = if place.contains('?') { '&' } else { '?' };
        let url = format!("{place}{joint}digest={}", digest(bytes));
        let octets = [("content-type", "application/octet-stream")];
        let put = http::send("PUT", &url, &octets, bytes, PATIENCE);
        assert_eq!(put.status, 201, "{}", put.text);
        json!({"mediaType": "application/octet-stream", "digest": digest(bytes), "size": bytes.len()})
    }

    fn manifest(&self, reference: &str, manifest: &Value) -> String {
        let text = manifest.to_string();
        let media = manifest["mediaType"].as_str().unwrap();
        let url = format!("http://{}/v2/web/cart/manifests/{reference}", self.address);
        let put = http::send("PUT", &url, &[("content-type", media)], &text, PATIENCE);
        assert_eq!(put.status, 201, "{}", put.text);
        digest(&text)
    }
}

impl DockerRegistry {
    /// Puts a signature where cosign does: the payload is a layer, the signature an annotation.
    fn sign(&self, vectors: &Value) {
        let mut layer = self.blob(vectors["payload"].as_str().unwrap());
        layer["mediaType"] = json!("application/vnd.dev.cosign.simplesigning.v1+json");
        layer["annotations"] = json!({
            "dev.cosignproject.cosign/signature": vectors["keypair"]["p256"]["signature"],
            "dev.sigstore.cosign/bundle": vectors["keypairBundle"].to_string(),
        });
        let config = self.blob("{}");
        let manifest =
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
        let tag = vectors["digest"].as_str().unwrap().replace(':', "-");
        self.manifest(&format!("{tag}.sig"), &manifest);
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

#[test]
fn signatures_are_read_from_the_registry() {
    testkit::requires!(docker_registry);
    let (case, vectors) = Case::new();
    let registry = DockerRegistry::start();
    let signed = vectors["digest"].as_str().unwrap();
    let image = format!("{}/web/cart@{signed}", registry.address);
    let by_key = "--plain-http --key cosign.pub";
    let (code, said) = case.verify(&image, by_key);
    assert!(code == 1 && said.contains("no signature"), "{code} {said}");

    let tag = signed.replace(':', "-");
    registry.sign(&vectors);
    let (code, said) = case.verify(&image, by_key);
    assert_eq!(code, 0, "{said}");
    let (code, said) = case.verify(&image, "--plain-http --key foreign.pub");
    assert!(code == 1 && said.contains("not by this key"), "{code} {said}");

    // A bundle among the referrers, which this registry has under a tag.
    let mut layer = registry.blob(&vectors["bundle"].to_string());
    layer["mediaType"] = json!(BUNDLE);
    let config = registry.blob("{}");
    let bundle = json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE,
                        "config": config, "layers": [layer]});
    let of = registry.manifest("bundle", &bundle);
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{"mediaType": MANIFEST, "artifactType": BUNDLE, "digest": of,
                       "size": bundle.to_string().len()}]});
    registry.manifest(&tag, &index);
    let identity = format!("--plain-http --trusted-root trusted_root.json {IDENTITY}");
    let (code, said) = case.verify(&image, &identity);
    assert_eq!(code, 0, "{said}");
    let (code, said) = case.verify(&format!("{}/web/other:1", registry.address), by_key);
    assert!(code == 2 && said.contains("there is no web/other:1"), "{code} {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_kube_a_controller_reads_signatures_of_what_runs_from_registries_that_are_named() {
    testkit::requires!(docker_registry);
    testkit::requires!(kube);
    let (case, vectors) = Case::new();
    let (registry, unnamed) = (DockerRegistry::start(), DockerRegistry::start());
    registry.sign(&vectors);
    unnamed.sign(&vectors);
    let server = prepared().await;
    let client = server.client().await;
    create(&Api::<Namespace>::all(client.clone()), json!({"metadata": {"name": "shop"}})).await;
    let pods = Api::<Pod>::namespaced(client.clone(), "shop");
    let signed = vectors["digest"].as_str().unwrap();
    let image = format!("{}/web/cart@{signed}", registry.address);
    let strange = format!("{}/web/cart@sha256:{}", unnamed.address, "0".repeat(64));
    for (name, image) in [("cart", &image), ("strange", &strange)] {
        let container = json!({"name": "c", "image": "web/cart:1"});
        create(&pods, json!({"metadata": {"name": name}, "spec": {"containers": [container]}}))
            .await;
        let status = json!({"name": "c", "image": "web/cart:1", "imageID": image, "ready": true,
                            "restartCount": 0});
        let status = json!({"status": {"phase": "Running", "containerStatuses": [status]}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
    let named = format!("--admission-registries=http://{}", registry.address);
    let address = "127.77.0.3";
    let port = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
    let controller =
        Controller::start_with(&server.kubeconfig_path(), case.0.path(), address, port, &[&named]);
    eventually("it is ready", async || {
        (controller.readyz().0 == 200 && controller.ca().exists()).then_some(())
    })
    .await;
    let verifier = json!({"name": "release", "publicKey": vectors["keypair"]["p256"]["publicKey"]});
    let root = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "ImageTrustRoot",
        "metadata": {"name": "ours"},
        "spec": {"rootlessKeypairsOnly": true, "verifiers": [verifier]}});
    fs::write(case.path("root.json"), root.to_string()).unwrap();
    let file = case.path("root.json");
    let (code, out, err) = controller.fairlead(&["images", "import", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{out}{err}");

    let shown = eventually("the signature was read, and verified", async || {
        let (_, out, _) = controller.fairlead(&["images", "show", &image, "-o", "json"]);
        let shown: Value = serde_json::from_str(&out).ok()?;
        shown["records"].to_string().contains("ours/release").then_some(shown)
    })
    .await;
    assert_eq!(shown["known"], true, "{shown}");
    // One object for one signature, and nothing of a registry that nobody named.
    let reports = Api::<ImageReport>::all(client).list(&ListParams::default()).await.unwrap();
    assert_eq!(reports.items.len(), 1, "{:?}", reports.items);
}
