//! Controllers as they run in pods: several of them on one API server, each on an address of its own.

#![allow(dead_code, clippy::unwrap_used, reason = "tests, each of which uses a part")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::KubeServer;

#[path = "../http/mod.rs"]
pub(crate) mod http;

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// How long a controller that was told to stop goes on answering.
pub(crate) const DELAY: Duration = Duration::from_secs(6);

/// One controller, killed when dropped.
pub(crate) struct Controller {
    pub(crate) child: Child,
    pub(crate) data: PathBuf,
    /// Loopback has many addresses: each replica has one, as each pod has.
    pub(crate) address: String,
    pub(crate) api: String,
    /// The port of the admin endpoints.
    pub(crate) admin: u16,
    /// The port of the webhook.
    pub(crate) hook: u16,
}

impl Controller {
    pub(crate) fn start(kubeconfig: &Path, dir: &Path, address: &str, port: u16) -> Self {
        Self::start_with(kubeconfig, dir, address, port, &[])
    }

    pub(crate) fn start_with(
        kubeconfig: &Path,
        dir: &Path,
        address: &str,
        port: u16,
        flags: &[&str],
    ) -> Self {
        let data = dir.join(address);
        let mut names = vec!["127.77.0.1", "127.77.0.2", "127.77.0.3"];
        if !names.contains(&address) {
            names.push(address);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        command
            .env("FAIRLEAD_CONFIG", "/dev/null")
            .env("KUBECONFIG", kubeconfig)
            .env("POD_IP", address)
            .args(["controller", "--fleet-namespace=fairlead"])
            .args(["--fleet-secrets-namespace=fairlead"])
            .arg(format!("--data={}", data.display()))
            .arg(format!("--api-listen={address}:{port}"))
            .args(["--api-tls=auto", &format!("--api-names={}", names.join(","))])
            .args(["--agents-listen=*:0", "--admin-listen=*:0"])
            .args(["--admin-tls=auto", "--admission-listen=*:0"])
            .args(["--admission-service=fairlead/fairlead-webhook"])
            .arg(format!("--shutdown-delay={}s", DELAY.as_secs()))
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.join(format!("{address}.log"))).unwrap());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut api, mut admin, mut hook) = (String::new(), 0, 0);
        for line in lines.map_while(Result::ok) {
            match line.trim().split_once(' ') {
                Some(("api", place)) => place.trim().trim_end_matches('/').clone_into(&mut api),
                Some(("admin", place)) => {
                    let place = place.trim().trim_end_matches('/');
                    assert!(place.starts_with("https://*:"), "{place}");
                    admin = place.rsplit_once(':').unwrap().1.parse().unwrap();
                }
                Some(("hook", place)) => {
                    let place = place.trim().trim_start_matches("https://*:");
                    hook = place.trim_end_matches("/admit").parse().unwrap();
                }
                Some(("data", _)) => break,
                _ => {}
            }
        }
        assert!(admin != 0, "it did not start: {}", log(dir, address));
        Self { child, data, address: address.to_owned(), api, admin, hook }
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.data.join("ca.crt")
    }

    /// The command line against this one, as somebody in the pod runs it.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
        command
            .args(args)
            .env("FAIRLEAD_CONFIG", "/dev/null")
            .env("FAIRLEAD_SERVER", &self.api)
            .env("FAIRLEAD_CA_FILE", self.ca())
            .env("FAIRLEAD_DATA", &self.data);
        command
    }

    /// What it came to: code, output and errors.
    pub(crate) fn fairlead(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.command(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// `/readyz`, in plain words on loopback: status and text.
    pub(crate) fn readyz(&self) -> (u16, String) {
        let url = format!("http://127.0.0.1:{}/readyz", self.admin);
        let answer = http::get(&url, None, Duration::from_secs(5));
        (answer.status, answer.text)
    }

    /// Asks for a review as an API server does: of a pod with this image.
    pub(crate) fn review(&self, pod: &str, image: &str) {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "u", "operation": "CREATE", "namespace": "shop",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "userInfo": {"username": "alice"},
                "object": {"metadata": {"name": pod, "namespace": "shop"},
                           "spec": {"containers": [{"name": "c", "image": image}]}}}});
        let url = format!("https://127.0.0.1:{}/admit", self.hook);
        let kind = [("content-type", "application/json")];
        let answer = http::send("POST", &url, &kind, &review.to_string(), PATIENCE);
        assert_eq!(answer.status, 200, "{}", self.address);
    }

    /// The answer of the API to the machine's owner.
    pub(crate) fn ask(&self, path: &str) -> Value {
        let token = std::fs::read_to_string(self.data.join("token")).unwrap();
        let url = format!("{}/api/v1{path}", self.api);
        http::get(&url, Some(token.trim()), PATIENCE).json()
    }

    /// The status and the text of the answer to a DELETE by the machine's owner.
    pub(crate) fn delete(&self, path: &str) -> (u16, String) {
        let token = std::fs::read_to_string(self.data.join("token")).unwrap();
        let (url, bearer) =
            (format!("{}/api/v1{path}", self.api), format!("Bearer {}", token.trim()));
        let answer = http::send("DELETE", &url, &[("authorization", &bearer)], "", PATIENCE);
        (answer.status, answer.text)
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn log(dir: &Path, address: &str) -> String {
    std::fs::read_to_string(dir.join(format!("{address}.log"))).unwrap_or_default()
}

pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) async fn prepared() -> KubeServer {
    let server = KubeServer::start().await;
    let client = server.client().await;
    objects::install(client.clone(), stallproof::Deadline::after(PATIENCE)).await.unwrap();
    let home: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "fairlead"}})).unwrap();
    Api::all(client).create(&PostParams::default(), &home).await.unwrap();
    server
}

/// The address of the one that leads.
pub(crate) async fn leader(leases: &Api<Lease>) -> Option<String> {
    let holder = leases.get_opt("fairlead-controller").await.unwrap()?.spec?.holder_identity?;
    let (_, address) = holder.rsplit_once('@')?;
    Some(address.split('_').next()?.to_owned())
}

/// What is published under this name.
pub(crate) async fn bundle(maps: &Api<ConfigMap>, name: &str) -> String {
    eventually("whom to trust is published", async || {
        maps.get_opt(name).await.unwrap()?.data?.remove("ca.crt")
    })
    .await
}

/// A pod as the controller's Deployment makes them, with the status that a kubelet writes.
pub(crate) async fn replica_pod(pods: &Api<Pod>, name: &str, phase: &str, address: &str) {
    let pod = json!({"metadata": {"name": name,
                                  "labels": {"app.kubernetes.io/name": "fairlead-controller"}},
                     "spec": {"containers": [{"name": "controller", "image": "fairlead"}]}});
    create(pods, pod).await;
    let status = json!({"status": {"phase": phase, "podIP": address, "podIPs": [{"ip": address}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

pub(crate) fn texts(list: &Value, field: &str) -> Vec<String> {
    let all = list.as_array().unwrap().iter();
    all.map(|it| it[field].as_str().unwrap_or_default().to_owned()).collect()
}

pub(crate) async fn create<K>(api: &Api<K>, object: serde_json::Value)
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}
