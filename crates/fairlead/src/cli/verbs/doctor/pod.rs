//! A process in a pod: its debug port is found and forwarded to loopback for as long as it is asked.
//!
//! The ports that may serve profiles come from the pod (annotations, names and numbers of its
//! containers' ports) and from custom. Each is asked once for a small page, within a few seconds.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use doctor::live::Fetch;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Args, Process};
use crate::cli::client::{Access, ClientError, ClientResult, Route};
use crate::cli::runtime::block_on;
use crate::cli::verbs::forward::{self, Complaints, PodConnector};
use crate::output::Failure;

/// Ports that are asked at most: each costs a connection through the cluster.
const MOST_PORTS: usize = 16;
/// How long the search for the port may take altogether.
const SEARCH: Duration = Duration::from_secs(30);
/// How long one port may take to answer the small page.
const PROBE: Duration = Duration::from_secs(4);
/// The ports that daemons of this field listen on for profiles and metrics; 7682 is Fairlead's.
const CUSTOMARY: [u16; 8] = [6060, 6061, 8080, 8081, 9090, 7682, 10249, 9153];
/// The pages that tell a debug port, best first.
const PAGES: [&str; 3] = ["/debug/pprof/", "/debug/inflight?format=json", "/metrics"];

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
    /// The pod's name.
    pub(super) pod: String,
    /// The pod's ports and where they are reached.
    ports: Vec<(u16, SocketAddr)>,
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
        let (pod, ports) = hear.recv().map_err(|_| gone())??;
        Ok(Self { pod, ports, stop: Some(stop), thread: Some(thread) })
    }

    /// The address of the first port that serves profiles, else ledgers, else metrics, as
    /// `http://POD:PORT`. `tell` is called with each port before it is asked.
    pub(super) fn search(
        &self,
        process: &Process<'_>,
        tell: &mut dyn FnMut(&str),
    ) -> Option<String> {
        let until = Instant::now() + SEARCH;
        let mut silent: Vec<u16> = Vec::new();
        for page in PAGES {
            for (port, _) in &self.ports {
                if silent.contains(port) || Instant::now() >= until {
                    continue;
                }
                let address = format!("http://{}:{port}", self.pod);
                tell(&format!("{address}{page}"));
                let probe = PodProcess { pod: self, process, timeout: Some(PROBE) };
                match probe.get(&format!("{address}{page}")) {
                    Ok((200..300, _)) => return Some(address),
                    Ok(_) => {}
                    Err(_) => silent.push(*port),
                }
            }
        }
        None
    }

    /// Why there is nothing to ask, and what to do.
    pub(super) fn nothing(&self) -> Failure {
        let ports: Vec<String> = self.ports.iter().map(|(port, _)| port.to_string()).collect();
        Failure(format!(
            "no port of the pod {0} serves profiles or metrics (asked: {1}). Name it with --port, or in \
             the pod's annotation fairlead.dev/debug-port. To enable one: Go, import \
             _ \"net/http/pprof\" and serve http.DefaultServeMux on 127.0.0.1:6060 (a forwarded port \
             reaches loopback). Without one: Java, `kubectl exec {0} -- jcmd 1 Thread.print -l > dump.txt`; \
             Python, `py-spy dump --native --pid 1`; any other, `gdb -batch -ex 'thread apply all bt' -p 1`; \
             then `fairlead doctor dump.txt`",
            self.pod,
            ports.join(", ")
        ))
    }

    fn reached(&self, port: u16) -> Option<SocketAddr> {
        self.ports.iter().find(|(known, _)| *known == port).map(|(_, address)| *address)
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
        let prefix = format!("http://{}:", self.pod.pod);
        let Some(rest) = url.strip_prefix(&prefix) else {
            return self.process.get(url);
        };
        let digits = rest.find('/').unwrap_or(rest.len());
        let address = rest[..digits].parse().ok().and_then(|port| self.pod.reached(port));
        let address = address.ok_or_else(|| format!("{url} is not forwarded"))?;
        let timeout = self.timeout.unwrap_or(self.process.args.timeout);
        self.process.fetch(&format!("http://{address}{}", &rest[digits..]), timeout)
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

/// The ports of a pod that may serve profiles, the most likely first.
fn debug_ports(pod: &Value) -> Vec<u16> {
    let mut ports: Vec<u16> = Vec::new();
    let mut add = |port: Option<u64>| {
        if let Some(port) = port.and_then(|p| u16::try_from(p).ok()).filter(|p| *p > 0)
            && !ports.contains(&port)
            && ports.len() < MOST_PORTS
        {
            ports.push(port);
        }
    };
    let annotations = pod["metadata"]["annotations"].as_object();
    let annotated = |wanted: &dyn Fn(&str) -> bool| -> Vec<u64> {
        let found = annotations.into_iter().flatten().filter(|(name, _)| wanted(name));
        found.filter_map(|(_, value)| value.as_str()?.trim().parse().ok()).collect()
    };
    let is_ours = |name: &str| name == "fairlead.dev/debug-port";
    // Such as profiles.grafana.com/goroutine.port and pprof.example.org/port.
    let profiles =
        |name: &str| name.ends_with("port") && (name.contains("profile") || name.contains("pprof"));
    annotated(&is_ours).into_iter().for_each(|port| add(Some(port)));
    annotated(&profiles).into_iter().for_each(|port| add(Some(port)));
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let declared: Vec<(&str, Option<u64>)> = containers
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .filter(|port| port["protocol"].as_str().is_none_or(|protocol| protocol == "TCP"))
        .map(|port| (port["name"].as_str().unwrap_or(""), port["containerPort"].as_u64()))
        .collect();
    for word in ["pprof", "prof", "debug", "admin"] {
        declared.iter().filter(|(name, _)| name.contains(word)).for_each(|(_, port)| add(*port));
    }
    add(Some(u64::from(CUSTOMARY[0])));
    for word in ["metrics", "http"] {
        declared.iter().filter(|(name, _)| name.contains(word)).for_each(|(_, port)| add(*port));
    }
    annotated(&|name| name == "prometheus.io/port").into_iter().for_each(|port| add(Some(port)));
    declared.iter().for_each(|(_, port)| add(*port));
    CUSTOMARY.iter().for_each(|port| add(Some(u64::from(*port))));
    ports
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_pod_says_comes_before_custom() {
        let pod = json!({
            "metadata": { "annotations": {
                "fairlead.dev/debug-port": "7000",
                "profiles.grafana.com/goroutine.port": "7001",
                "prometheus.io/port": "9100",
                "other/port": "1",
            } },
            "spec": { "containers": [
                { "ports": [{ "containerPort": 53, "protocol": "UDP" }, { "containerPort": 443 }] },
                { "ports": [{ "name": "metrics", "containerPort": 9102 },
                            { "name": "debug", "containerPort": 7002 }] },
            ] },
        });
        let ports = debug_ports(&pod);
        assert_eq!(ports[..7], [7000, 7001, 7002, 6060, 9102, 9100, 443]);
        assert!(!ports.contains(&53) && !ports.contains(&1));
        assert!(ports.len() <= MOST_PORTS);
        assert_eq!(debug_ports(&json!({})), CUSTOMARY);
    }

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
