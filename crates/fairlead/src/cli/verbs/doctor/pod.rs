//! A process in a pod: the ports that may serve profiles ([`PodPorts`]) are forwarded to loopback for as
//! long as it is asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use doctor::live::Fetch;
use doctor::live::pod::{CUSTOMARY, PROBE, PodPorts, debug_ports};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Args, Process};
use crate::cli::client::{Access, ClientError, ClientResult, Route};
use crate::cli::runtime::block_on;
use crate::cli::verbs::forward::{self, Complaints, PodConnector};
use crate::output::Failure;

/// Whether an argument names an object of a cluster rather than a file.
pub(super) fn is_object(argument: &str) -> bool {
    const KINDS: [&str; 14] = [
        "pod",
        "pods",
        "po",
        "deploy",
        "deployment",
        "deployments",
        "sts",
        "statefulset",
        "ds",
        "daemonset",
        "rs",
        "job",
        "svc",
        "service",
    ];
    argument.split_once('/').is_some_and(|(kind, name)| {
        KINDS.contains(&kind) && !name.is_empty() && !name.contains('/')
    })
}

/// Forwarded ports of a pod. Dropped, nothing listens any more.
#[derive(Debug)]
pub(super) struct ForwardedPod {
    known: PodPorts,
    /// Where each port is reached.
    reached: Vec<(u16, SocketAddr)>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ForwardedPod {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends at once: nothing in it waits but for the stop.
            let _ = thread.join();
        }
    }
}

impl ForwardedPod {
    /// Finds the pod and forwards the ports that may serve profiles.
    pub(super) fn open(args: &Args, object: &str) -> Result<Self, Failure> {
        let (told, hear) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        let (target, object, port) = (args.target(), object.to_owned(), args.port);
        let serve = async move {
            let opened = open(&target, &object, port).await;
            let (found, listeners) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    let _ = told.send(Err(sentence(error)));
                    return Ok(());
                }
            };
            let _ = told.send(Ok(found));
            serve(listeners, stopped).await;
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name("forward".to_owned())
            .spawn(move || drop(block_on(serve)))
            .map_err(|e| Failure(format!("a thread cannot start: {e}")))?;
        let gone = || Failure("the connection to Fairlead ended".to_owned());
        let (pod, reached) = hear.recv().map_err(|_| gone())??;
        let known = PodPorts { pod, ports: reached.iter().map(|(port, _)| *port).collect() };
        Ok(Self { known, reached, stop: Some(stop), thread: Some(thread) })
    }

    /// The address of the first port that serves profiles, else ledgers, else metrics, as
    /// `http://POD:PORT`. `tell` is called with each port before it is asked.
    pub(super) fn search(
        &self,
        process: &Process<'_>,
        tell: &mut dyn FnMut(&str),
    ) -> Option<String> {
        let probe = PodProcess { pod: self, process, timeout: Some(PROBE) };
        self.known.search(&probe, tell)
    }

    /// Why there is nothing to ask, and what to do.
    pub(super) fn nothing(&self) -> Failure {
        Failure(self.known.nothing("with --port"))
    }
}

/// Asks a forwarded pod: `http://POD:PORT` is where the port is reached on loopback.
#[derive(Debug)]
pub(super) struct PodProcess<'a> {
    pub(super) pod: &'a ForwardedPod,
    pub(super) process: &'a Process<'a>,
    pub(super) timeout: Option<Duration>,
}

impl Fetch for PodProcess<'_> {
    fn get(&self, url: &str) -> Result<(u16, Vec<u8>), String> {
        let Some((port, path)) = self.pod.known.page(url) else {
            return self.process.get(url);
        };
        let mut reached = self.pod.reached.iter();
        let (_, address) = reached
            .find(|(known, _)| *known == port)
            .ok_or_else(|| format!("{url} is not forwarded"))?;
        let timeout = self.timeout.unwrap_or(self.process.args.timeout);
        self.process.fetch(&format!("http://{address}{path}"), timeout)
    }
}

type Found = (String, Vec<(u16, SocketAddr)>);
type Listeners = Vec<(TcpListener, PodConnector)>;

async fn open(
    target: &crate::cli::client::Target,
    object: &str,
    port: Option<u16>,
) -> ClientResult<(Found, Listeners)> {
    let server = std::sync::Arc::new(target.open()?);
    let cluster = target.one(&server, Access::Write).await?;
    let (kind, name) = forward::object(object);
    let asked = forward::ForwardTarget {
        cluster: cluster.clone(),
        namespace: target.namespace().to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        port: port.unwrap_or(CUSTOMARY[0]).to_string(),
    };
    let pod = asked.resolve(&server).await?.pod;
    let route = Route::to(["clusters", &cluster, "resources", "pods", &pod]);
    let found: Value = server.get(&route.with("namespace", target.namespace())).await?;
    let ports =
        port.map_or_else(|| debug_ports(found.get("object").unwrap_or(&found)), |p| vec![p]);
    let mut reached = Vec::new();
    let mut listeners = Vec::new();
    for port in ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        reached.push((port, listener.local_addr()?));
        let target = forward::ForwardTarget {
            cluster: cluster.clone(),
            namespace: target.namespace().to_owned(),
            kind: "pods".to_owned(),
            name: pod.clone(),
            port: port.to_string(),
        };
        listeners.push((listener, PodConnector::to_port(server.clone(), target, &pod, port)));
    }
    Ok(((pod, reached), listeners))
}

async fn serve(listeners: Listeners, stopped: oneshot::Receiver<()>) {
    let mut serving = JoinSet::new();
    for (listener, connector) in listeners {
        serving.spawn(forward::listen(listener, connector.into(), Complaints::Silent));
    }
    // Whoever drops the other end wants no more; the listeners end with the set.
    let _ = stopped.await;
}

fn sentence(error: ClientError) -> Failure {
    match error {
        ClientError::Failed(failure) => failure,
        ClientError::Refused(problem) => Failure(problem.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_a_cluster_is_told_from_a_file() {
        for object in ["pod/web-0", "deploy/web", "sts/db", "svc/web"] {
            assert!(is_object(object), "{object}");
        }
        for file in ["web-0", "dumps/one.txt", "pod/", "pod/a/b", "/pod/x", "http://pod/x", "-"] {
            assert!(!is_object(file), "{file}");
        }
    }
}
