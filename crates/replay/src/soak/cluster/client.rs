//! Requests from outside: of a user to the controllers, of an administrator to the API server.
//!
//! A thread with a runtime of its own, in the network namespace that was asked for: whatever it connects to,
//! it does from there. Callers wait, with an end.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use futures::{AsyncBufReadExt as _, FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kernel::netns::Namespace;
use kube::Api;
use kube::api::AttachParams;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// Beyond what a caller waits for.
const SPARE: Duration = Duration::from_secs(5);
/// Lines that wait to be read; whoever sends them waits then.
const LINES: usize = 1024;

/// Whom to ask, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) url: String,
    /// The authority's certificate, in base64; without one, any is taken.
    pub(super) authority: Option<String>,
    pub(super) server_name: Option<&'static str>,
    pub(super) token: String,
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Said(u16, String),
    /// The connection failed or was cut: that is an answer too.
    Failed(String),
    Silence,
}

impl Answer {
    /// The body of an answer that is a success.
    pub(super) fn ok(&self) -> Option<Value> {
        match self {
            Self::Said(200..=299, body) => serde_json::from_str(body).ok(),
            _ => None,
        }
    }

    pub(super) fn told(&self) -> String {
        match self {
            Self::Said(status, body) => {
                format!("{status}: {}", body.chars().take(300).collect::<String>())
            }
            Self::Failed(why) => why.clone(),
            Self::Silence => "no answer".to_owned(),
        }
    }
}

pub(super) struct Clients {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    known: Mutex<BTreeMap<Target, kube::Client>>,
}

impl Clients {
    /// In this network namespace, or in that of this process.
    pub(super) fn start(netns: Option<PathBuf>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let netns = netns.map(Namespace::open).transpose().map_err(io::Error::other)?;
        let thread = std::thread::Builder::new().name("clients".to_owned()).spawn(move || {
            let run = move || {
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
            };
            match netns {
                Some(netns) => {
                    // The thread that enters has a small stack; one that it starts is in the same network.
                    let entered = netns.run_in(|| std::thread::scope(|all| all.spawn(run).join()));
                    if let Err(error) = entered {
                        eprintln!("soak: cannot enter the cluster's network: {error}");
                    }
                }
                None => run(),
            }
        })?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread), known: Mutex::default() })
    }

    /// Runs `work` on the clients' thread.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    fn wait<T: Send + 'static>(
        &self,
        within: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, is_done) = sync_channel(1);
        self.handle.spawn(async move {
            if let Ok(answer) = tokio::time::timeout(within, work).await {
                let _ = done.try_send(answer);
            }
        });
        is_done.recv_timeout(within + SPARE).ok()
    }

    fn client(&self, target: &Target) -> Result<kube::Client, String> {
        if let Some(known) = self.known.lock().get(target) {
            return Ok(known.clone());
        }
        let config = kubeconfig(target);
        let made = self.wait(SPARE, async move {
            let mut config =
                kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
                    .await
                    .map_err(|error| error.to_string())?;
            config.connect_timeout = Some(SPARE);
            // A refusal is an answer.
            config.default_retry = false;
            kube::Client::try_from(config).map_err(|error| error.to_string())
        });
        let client = made.ok_or("no client in time")??;
        let mut known = self.known.lock();
        // Addresses and tokens change: those of before are not needed any more.
        if known.len() > 32 {
            known.clear();
        }
        known.insert(target.clone(), client.clone());
        Ok(client)
    }

    /// `content` is the body with its type.
    pub(super) fn ask(
        &self,
        target: &Target,
        (method, path): (&str, &str),
        content: Option<(&str, String)>,
        within: Duration,
    ) -> Answer {
        let client = match self.client(target) {
            Ok(client) => client,
            Err(why) => return Answer::Failed(why),
        };
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("request-timeout", within.as_secs().to_string());
        let mut body = Vec::new();
        if let Some((kind, text)) = content {
            request = request.header("content-type", kind);
            body = text.into_bytes();
        }
        let request = match request.body(Body::from(body)) {
            Ok(request) => request,
            Err(error) => return Answer::Failed(error.to_string()),
        };
        let asked = self.wait(within + SPARE, async move {
            let answer = client.send(request).await.map_err(|error| error.to_string())?;
            let status = answer.status().as_u16();
            let body =
                answer.into_body().collect_bytes().await.map_err(|error| error.to_string())?;
            Ok((status, String::from_utf8_lossy(&body).into_owned()))
        });
        match asked {
            Some(Ok((status, body))) => Answer::Said(status, body),
            Some(Err::<_, String>(why)) => Answer::Failed(why),
            None => Answer::Silence,
        }
    }
}

impl Clients {
    /// The lines of an answer that goes on until it is cut, or until nobody reads it any more.
    pub(super) fn lines(&self, target: &Target, path: &str) -> Result<Receiver<String>, String> {
        let client = self.client(target)?;
        let request = http::Request::builder().uri(path).header("accept", "text/event-stream");
        let request = request.body(Vec::new()).map_err(|error| error.to_string())?;
        let (told, lines) = channel(LINES);
        let opened = self.wait(SPARE, async move { client.request_stream(request).await });
        let stream =
            opened.ok_or("no stream was opened in time")?.map_err(|error| error.to_string())?;
        self.spawn(async move {
            let mut stream = std::pin::pin!(stream.lines());
            while let Some(Ok(line)) = stream.next().await {
                if told.send(line).await.is_err() {
                    break;
                }
            }
        });
        Ok(lines)
    }

    /// `cat` in a pod: what is typed, and what it says back.
    pub(super) fn shell(
        &self,
        target: &Target,
        namespace: &str,
        pod: &str,
    ) -> Result<(Sender<String>, Receiver<String>), String> {
        let pods: Api<Pod> = Api::namespaced(self.client(target)?, namespace);
        let pod = pod.to_owned();
        let opened = self.wait(2 * SPARE, async move {
            let how = AttachParams::default().stdin(true).stdout(true).stderr(false);
            pods.exec(&pod, ["cat"], &how).await
        });
        let mut shell =
            opened.ok_or("no shell was opened in time")?.map_err(|error| error.to_string())?;
        let (mut stdin, stdout) =
            shell.stdin().zip(shell.stdout()).ok_or("a shell without input or output")?;
        // What it said does not end when the connection breaks; its status does.
        let mut ended = shell.take_status().ok_or("a shell without a status")?.boxed();
        let (keys, mut typed) = channel::<String>(LINES);
        let (told, lines) = channel(LINES);
        self.spawn(async move {
            let mut said = BufReader::new(stdout).lines();
            loop {
                tokio::select! {
                    _ = &mut ended => break,
                    line = said.next_line() => {
                        let Ok(Some(line)) = line else { break };
                        if told.send(line).await.is_err() {
                            break;
                        }
                    }
                    line = typed.recv() => {
                        let Some(line) = line else { break };
                        let line = format!("{line}\n");
                        if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
                            break;
                        }
                    }
                }
            }
            shell.abort();
        });
        Ok((keys, lines))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.known.lock().clear();
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn kubeconfig(target: &Target) -> Kubeconfig {
    let Target { url, authority, server_name, token } = target;
    let mut cluster = json!({ "server": url });
    match authority {
        Some(authority) => cluster["certificate-authority-data"] = json!(authority),
        None => cluster["insecure-skip-tls-verify"] = json!(true),
    }
    if let Some(name) = server_name {
        cluster["tls-server-name"] = json!(name);
    }
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{ "name": "it", "cluster": cluster }],
        "users": [{ "name": "it", "user": { "token": token } }],
        "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
    });
    // JSON is YAML, and this is what the type is made of.
    Kubeconfig::from_yaml(&text.to_string()).unwrap_or_default()
}
