//! `Plugins`: runs the credential plugins of kubeconfigs. kube's own implementation has neither a
//! deadline nor a bound.
//!
//! Contract:
//! - A run ends by its deadline: the plugin and its children are a process group, which is killed. So
//!   is one that prints more than [`MOST_OUTPUT`].
//! - One run at a time for a cluster. A program (`aws`, `gke-gcloud-auth-plugin`) that hangs for
//!   every cluster that uses it takes its share of the workers, and other programs have theirs.
//! - Its stdout is never shown, because it may be a token. Its stderr is shown, shortened.
//! - It inherits our environment without our own settings (`FAIRLEAD_…`), and no terminal.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::json;
use stallproof::lanes::{LanesConfig, Stage};
use stallproof::{Deadline, Lanes, Refused, Work};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::{Endpoint, Identity, Redacted};
use crate::failure::{Failure, Reason, one_line, short};

/// A longer output is not a credential.
pub(crate) const MOST_OUTPUT: usize = 1 << 20;
/// How much of stderr is kept for the error; the rest is read and dropped.
const MOST_ERRORS: usize = 4096;
/// Concurrent plugins; one program may have a quarter of them. Many are Python and take 50 MB each: 800
/// MB if one program hangs for sixteen clusters, 3.2 GB at worst.
const WORKERS: usize = 64;

/// The `exec` of a kubeconfig's user.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exec {
    pub(crate) version: Version,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    /// The values may be secrets.
    pub(crate) env: Vec<(String, Redacted<String>)>,
    pub(crate) install_hint: Option<String>,
    pub(crate) provide_cluster_info: bool,
    /// The cluster's extension `client.authentication.k8s.io/exec`.
    pub(crate) cluster_config: Option<serde_json::Value>,
}

/// The versions of `client.authentication.k8s.io` that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V1Beta1,
}

impl Version {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::V1, Self::V1Beta1].into_iter().find(|version| version.text() == text)
    }

    fn text(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }
}

/// The credentials that a plugin gave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Given {
    pub(crate) token: Option<Redacted<String>>,
    pub(crate) identity: Option<Identity>,
    /// How long they are valid from now on.
    pub(crate) valid_for: Option<Duration>,
}

impl Exec {
    /// The name of the program without its directory.
    pub(crate) fn program(&self) -> &str {
        let name = Path::new(&self.command).file_name().and_then(|name| name.to_str());
        name.unwrap_or(&self.command)
    }
}

#[derive(Debug)]
pub(crate) struct Plugins {
    lanes: Lanes<Arc<str>>,
    limit: Duration,
}

impl Plugins {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { lanes: Lanes::new(LanesConfig::new("exec-plugins", WORKERS)), limit }
    }

    pub(crate) fn register(&self, registry: &mut prometheus_client::registry::Registry) {
        self.lanes.register(registry);
    }

    /// Runs the plugin for `cluster` when it has a place.
    pub(crate) async fn run(
        &self,
        cluster: &str,
        exec: &Exec,
        endpoint: &Endpoint,
        deadline: Deadline,
    ) -> Result<Given, Failure> {
        let program = exec.program();
        let work = Work::new(Arc::from(cluster), program, deadline);
        // Boxed, because the pipes' buffers would be part of every cluster's task.
        let run = Box::pin(run(exec, endpoint, deadline.within(self.limit)));
        self.lanes.run(work, run).await.unwrap_or_else(|refused| {
            Err(Failure::new(
                Reason::Plugin,
                match refused {
                    Refused::Expired(Stage::Running) => {
                        format!("the plugin {program} did not end in time and was killed")
                    }
                    _ => format!(
                        "the plugin {program} was not run: too many of its kind are running or \
                         waiting already"
                    ),
                },
            ))
        })
    }
}

async fn run(exec: &Exec, endpoint: &Endpoint, deadline: Deadline) -> Result<Given, Failure> {
    let program = exec.program();
    let failed = |why: String| Failure::new(Reason::Plugin, format!("the plugin {program} {why}"));
    let allowed = deadline.remaining();

    let mut child = command(exec, endpoint).spawn().map_err(|error| {
        let hint = exec.install_hint.as_deref().map(|hint| one_line(hint, 300));
        let hint = hint.map_or(String::new(), |hint| format!("; {hint}"));
        failed(format!("cannot be run: {error}{hint}"))
    })?;
    // Declared after the child and so dropped before it: until then nobody else has its process id.
    let mut group = Group::of(&child);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let finished = deadline
        .bound(async {
            let errors = async { Ok(beginning(stderr).await) };
            let (output, errors) = tokio::try_join!(whole(stdout), errors)?;
            Ok((child.wait().await, output, errors))
        })
        .await;
    let (status, output, errors) = match finished {
        Ok(Ok(done)) => done,
        Ok(Err(why)) => return Err(failed(why)),
        Err(_) => {
            return Err(failed(format!("did not end within {} and was killed", short(allowed))));
        }
    };
    group.done();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(failed(ended(status, &errors))),
        Err(error) => return Err(failed(format!("cannot be waited for: {error}"))),
    }
    parse(&output, exec.version, Timestamp::now()).map_err(failed)
}

fn command(exec: &Exec, endpoint: &Endpoint) -> Command {
    let mut spec = json!({ "interactive": false });
    if exec.provide_cluster_info {
        let authorities =
            endpoint.authorities.as_ref().map(|ders| BASE64_STANDARD.encode(pem(ders)));
        let cluster = json!({
            "server": endpoint.server.to_string(),
            "tls-server-name": endpoint.tls_server_name,
            "insecure-skip-tls-verify": endpoint.insecure.then_some(true),
            "certificate-authority-data": authorities,
            "proxy-url": endpoint.proxy.as_ref().map(|proxy| proxy.0.to_string()),
            "config": exec.cluster_config,
        });
        let given = cluster.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let given = given.map(|(key, value)| (key.clone(), value.clone()));
        spec["cluster"] = serde_json::Value::Object(given.collect());
    }
    let info = json!({ "apiVersion": exec.version.text(), "kind": "ExecCredential", "spec": spec });
    let mut command = Command::new(&exec.command);
    command
        .args(&exec.args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FAIRLEAD_") {
            command.env_remove(name);
        }
    }
    command.envs(exec.env.iter().map(|(name, value)| (name, &value.0)));
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    command
}

fn pem(ders: &[Vec<u8>]) -> String {
    let certificate = |der: &Vec<u8>| {
        let text = BASE64_STANDARD.encode(der);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    ders.iter().map(certificate).collect()
}

/// The process group of a plugin. Dropping it kills the group unless the plugin is done.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &tokio::process::Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    /// Leaves alone what the plugin has left running.
    fn done(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // The group may be gone already.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

async fn whole(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, String> {
    let mut output = Vec::new();
    let Some(pipe) = pipe else { return Ok(output) };
    match pipe.take(MOST_OUTPUT as u64 + 1).read_to_end(&mut output).await {
        Ok(_) if output.len() > MOST_OUTPUT => {
            Err(format!("printed more than {} KiB and was killed", MOST_OUTPUT / 1024))
        }
        Ok(_) => Ok(output),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// Reads everything, so that the plugin never blocks on the pipe, and keeps the beginning.
async fn beginning(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let (mut kept, mut piece) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = pipe.read(&mut piece).await {
        let room = MOST_ERRORS - kept.len();
        kept.extend_from_slice(&piece[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn ended(status: ExitStatus, errors: &str) -> String {
    let how = match status.code() {
        Some(code) => format!("failed with exit code {code}"),
        None => "was killed by a signal".to_owned(),
    };
    let errors = one_line(errors, 300);
    if errors.is_empty() { format!("{how} and said nothing") } else { format!("{how}: {errors}") }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    kind: String,
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<Timestamp>,
}

fn parse(output: &[u8], asked: Version, now: Timestamp) -> Result<Given, String> {
    // serde's own message may quote the token.
    let credential: ExecCredential = serde_json::from_slice(output)
        .map_err(|_| "printed something that is not an ExecCredential".to_owned())?;
    if credential.kind != "ExecCredential" {
        return Err("printed something that is not an ExecCredential".to_owned());
    }
    if credential.api_version != asked.text() {
        return Err(format!(
            "answered in {} where {} was asked for; set apiVersion of the context's user to what \
             the plugin speaks",
            one_line(&credential.api_version, 60),
            asked.text()
        ));
    }
    let status = credential.status.ok_or("printed an ExecCredential without a status")?;
    let token = status.token.filter(|token| !token.is_empty()).map(Redacted);
    let identity = match (status.client_certificate_data, status.client_key_data) {
        (Some(certificate), Some(key)) => Some(Identity {
            certificate: certificate.into_bytes(),
            key: Redacted(key.into_bytes()),
        }),
        (None, None) => None,
        _ => return Err("gave a client certificate without its key, or a key alone".to_owned()),
    };
    if token.is_none() && identity.is_none() {
        return Err("gave neither a token nor a client certificate".to_owned());
    }
    let valid_for = status.expiration_timestamp.map(|expires| expires.duration_since(now));
    let valid_for = match valid_for {
        Some(left) => Some(Duration::try_from(left).map_err(|_| {
            "gave a credential that has expired already; is this machine's clock right?".to_owned()
        })?),
        None => None,
    };
    Ok(Given { token, identity, valid_for })
}

#[cfg(test)]
mod tests;
