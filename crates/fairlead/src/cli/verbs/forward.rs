use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::cli::client::{
    Access, ClientError, ClientResult, FrameReceiver, FrameSender, Route, Server, Target,
};
use crate::output::{self, Failure};
use tunnel::{AT_ONCE, Slots};

mod peer;
mod tunnel;

/// Reach ports of a pod, a Service or a workload on this machine's loopback
///
/// For a Service or a workload a ready pod is taken, as kubectl does; when that pod is gone, the next
/// connection goes to another one. A port of a Service is mapped to the pod's.
///
/// Examples:
///   fairlead forward web-0 8080:80        127.0.0.1:8080 is port 80 of the pod
///   fairlead forward db-0 5432 -n shop    the same port on both sides
///   fairlead forward db-0 :5432 9090      any free port; several at once
///   fairlead forward svc/web 8080:80      port 80 of the Service
///   fairlead forward svc/web 8443:https   a port by its name
///   fairlead forward deploy/web 8080      a pod of a Deployment; or sts, rs, ds, job
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// A pod's name, or KIND/NAME of a Service or a workload
    #[arg(value_name = "POD|KIND/NAME")]
    object: String,
    /// LOCAL:REMOTE, PORT for both, or :REMOTE for any free local port; REMOTE may be a port's name
    #[arg(required = true, value_name = "LOCAL:REMOTE", value_parser = ports)]
    ports: Vec<Ports>,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ports {
    /// 0 for any; none for the same as the other side.
    local: Option<u16>,
    /// A number or a name.
    remote: String,
}

fn ports(text: &str) -> Result<Ports, String> {
    let expected = || "expected LOCAL:REMOTE, such as 8080:80 or 8080:http".to_owned();
    let (local, remote) = match text.split_once(':') {
        None => (None, text),
        Some(("", remote)) => (Some(0), remote),
        Some((local, remote)) => (Some(local.parse().map_err(|_| expected())?), remote),
    };
    let is_number = remote.parse::<u16>().is_ok_and(|port| port > 0);
    let named = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = remote.len() <= 63
        && remote.bytes().all(named)
        && remote.bytes().any(|byte| byte.is_ascii_lowercase());
    if is_number || is_name {
        Ok(Ports { local, remote: remote.to_owned() })
    } else {
        Err(expected())
    }
}

/// The kind and the name of an object, as people write them; a name alone is a pod's.
pub(super) fn object(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        None | Some(("pod" | "pods" | "po", _)) => {
            ("pods", text.rsplit('/').next().unwrap_or(text))
        }
        Some(found) => found,
    }
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let server = args.target.open()?;
    let cluster = args.target.one(&server, Access::Write).await?;
    let server = Arc::new(server);
    let mut listeners = JoinSet::new();
    for ports in &args.ports {
        let (kind, name) = object(&args.object);
        let target = ForwardTarget {
            cluster: cluster.clone(),
            namespace: args.target.namespace().to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            port: ports.remote.clone(),
        };
        // What is not there is said now, not to the first browser that connects.
        let pod = target.resolve(&server).await?;
        let local = ports.local.unwrap_or(pod.asked_port);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await.map_err(|e| {
            Failure(format!(
                "port {local} of 127.0.0.1 cannot be taken: {e}; give another one, such as \
                 :{} for any that is free",
                ports.remote
            ))
        })?;
        let address = listener.local_addr()?;
        output::line(&format!("{address} is port {} of {}", ports.remote, target.shown(&pod)))?;
        let connector = PodConnector { server: server.clone(), target, pod: Mutex::new(pod) };
        listeners.spawn(listen(listener, Arc::new(connector), Complaints::Told));
    }
    // A listener serves until the process ends.
    while listeners.join_next().await.is_some() {}
    Err(Failure("nothing listens any more".to_owned()).into())
}

/// The object and the port that connections are for.
pub(super) struct ForwardTarget {
    pub(super) cluster: String,
    pub(super) namespace: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) port: String,
}

/// The pod that connections go to.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResolvedPod {
    pub(super) pod: String,
    port: u16,
    asked_port: u16,
}

impl ForwardTarget {
    fn is_pod(&self) -> bool {
        self.kind == "pods"
    }

    pub(super) async fn resolve(&self, server: &Server) -> ClientResult<ResolvedPod> {
        let object = Route::to(["clusters", &self.cluster, "resources", &self.kind, &self.name]);
        match self.port.parse() {
            // Nothing is to be found out, only that it is there.
            Ok(port) if self.is_pod() => {
                server.get::<Value>(&object.with("namespace", &self.namespace)).await?;
                Ok(ResolvedPod { pod: self.name.clone(), port, asked_port: port })
            }
            _ => {
                let route = object.and("forward-target").with("namespace", &self.namespace);
                server.get(&route.with("port", &self.port)).await
            }
        }
    }

    fn shown(&self, resolved: &ResolvedPod) -> String {
        let ResolvedPod { pod, port, .. } = resolved;
        if self.is_pod() && port.to_string() == self.port {
            pod.clone()
        } else if self.is_pod() {
            format!("{pod} ({port})")
        } else {
            format!("{}/{} (port {port} of the pod {pod})", self.kind, self.name)
        }
    }
}

/// Opens connections to a pod, which may become another pod.
pub(super) struct PodConnector {
    server: Arc<Server>,
    target: ForwardTarget,
    /// Written by the connection that finds that the pod is gone; read by every one.
    pod: Mutex<ResolvedPod>,
}

impl PodConnector {
    /// Connects to a port of one pod, which is known to be there.
    pub(super) fn to_port(
        server: Arc<Server>,
        target: ForwardTarget,
        pod: &str,
        port: u16,
    ) -> Self {
        let pod = ResolvedPod { pod: pod.to_owned(), port, asked_port: port };
        Self { server, target, pod: Mutex::new(pod) }
    }

    async fn open(&self) -> ClientResult<(FrameSender, FrameReceiver)> {
        let pod = self.pod.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let refused = match self.connect(&pod).await {
            Err(ClientError::Refused(problem)) if !self.target.is_pod() => problem,
            answer => return answer,
        };
        // The pod may be gone; then there may be another one.
        let other = self.target.resolve(&self.server).await?;
        if other.pod == pod.pod {
            return Err(ClientError::Refused(refused));
        }
        eprintln!("the pod {} is no more; from now on it is {}", pod.pod, other.pod);
        self.pod.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&other);
        self.connect(&other).await
    }

    async fn connect(&self, pod: &ResolvedPod) -> ClientResult<(FrameSender, FrameReceiver)> {
        let ForwardTarget { cluster, namespace, .. } = &self.target;
        let route = Route::to(["clusters", cluster, "resources", "pods", &pod.pod, "forward"])
            .with("namespace", namespace)
            .with("port", pod.port);
        self.server.socket(&route).await
    }
}

/// Who hears of a connection that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Complaints {
    /// The user, on the terminal.
    Told,
    /// Only the program that connected, whose connection ends.
    Silent,
}

pub(super) async fn listen(
    listener: TcpListener,
    connector: Arc<PodConnector>,
    complaints: Complaints,
) {
    let slots = Slots::new();
    loop {
        let local = match listener.accept().await {
            Ok((local, _)) => local,
            Err(e) => {
                // Most often out of files: waiting lets some close.
                eprintln!("a connection cannot be taken: {e}");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let Some(slot) = slots.take() else {
            eprintln!("a connection is refused: {AT_ONCE} are open");
            continue;
        };
        let connector = connector.clone();
        tokio::spawn(async move {
            let carried = async {
                let (sender, receiver) = connector.open().await?;
                tunnel::carry(local, sender, receiver, slot).await
            };
            if let Err(error) = carried.await
                && complaints == Complaints::Told
            {
                eprintln!("a connection failed: {error}");
            }
        });
    }
}

#[cfg(test)]
mod tests;
