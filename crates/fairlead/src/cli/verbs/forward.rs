use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use crate::cli::client::{Answer, Change, Route, Server, Socket, Target, Trouble};
use crate::output::{self, Failure};
use tunnel::{AT_ONCE, Place, Places};

mod peer;
mod tunnel;

/// Reach ports of a pod, a Service or a workload on this machine's loopback
///
/// Of a Service or a workload a ready pod is taken, as kubectl does; when that pod is gone, the next
/// connection goes to another one. A Service's port becomes the pod's.
///
/// Examples:
///   fairlead forward web-0 8080:80 -n shop     http://127.0.0.1:8080 is port 80 of the pod
///   fairlead forward db-0 5432                 the same port on both sides
///   fairlead forward db-0 :5432 9090           any free port; several at once
///   fairlead forward svc/web 8080:80           port 80 of the Service, which may be another of the pod
///   fairlead forward svc/web 8443:https        a port by its name
///   fairlead forward deploy/web 8080           a ready pod of a Deployment; sts, rs, ds, job as well
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

/// The object as people name it: its kind and its name.
fn object(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        None | Some(("pod" | "pods" | "po", _)) => {
            ("pods", text.rsplit('/').next().unwrap_or(text))
        }
        Some(found) => found,
    }
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    let server = args.target.open()?;
    let cluster = args.target.one(&server, Change::Yes)?;
    let server = Arc::new(server);
    let mut waiting = Vec::new();
    for ports in &args.ports {
        let (kind, name) = object(&args.object);
        let meant = Meant {
            cluster: cluster.clone(),
            namespace: args.target.namespace().to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            port: ports.remote.clone(),
        };
        // What is not there is told now, not to the first browser that connects.
        let found = meant.find(&server)?;
        let local = ports.local.unwrap_or(found.asked_port);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).map_err(|e| {
            Failure(format!(
                "port {local} of 127.0.0.1 cannot be taken: {e}; give another one, such as \
                 :{} for any that is free",
                ports.remote
            ))
        })?;
        let address = listener.local_addr()?;
        output::line(&format!("{address} is port {} of {}", ports.remote, meant.shown(&found)))?;
        let way = Arc::new(Way { server: Arc::clone(&server), meant, found: Mutex::new(found) });
        waiting.push(std::thread::spawn(move || listen(&listener, &way)));
    }
    for thread in waiting {
        // They end only when their listener breaks.
        let _ = thread.join();
    }
    Err(Failure("nothing listens any more".to_owned()).into())
}

/// What is to be reached.
struct Meant {
    cluster: String,
    namespace: String,
    kind: String,
    name: String,
    port: String,
}

/// The pod that is connected to.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Found {
    pod: String,
    port: u16,
    asked_port: u16,
}

impl Meant {
    fn is_pod(&self) -> bool {
        self.kind == "pods"
    }

    fn find(&self, server: &Server) -> Answer<Found> {
        let object = Route::to(["clusters", &self.cluster, "resources", &self.kind, &self.name]);
        match self.port.parse() {
            // Nothing is to be found out, only that it is there.
            Ok(port) if self.is_pod() => {
                server.get::<Value>(&object.with("namespace", &self.namespace))?;
                Ok(Found { pod: self.name.clone(), port, asked_port: port })
            }
            _ => {
                let route = object.and("forward-target").with("namespace", &self.namespace);
                server.get(&route.with("port", &self.port))
            }
        }
    }

    fn shown(&self, found: &Found) -> String {
        let Found { pod, port, .. } = found;
        if self.is_pod() && port.to_string() == self.port {
            pod.clone()
        } else if self.is_pod() {
            format!("{pod} ({port})")
        } else {
            format!("{}/{} (port {port} of the pod {pod})", self.kind, self.name)
        }
    }
}

/// The way to a pod, which may become another pod.
struct Way {
    server: Arc<Server>,
    meant: Meant,
    /// Written by whoever finds that the pod is gone; read by every connection.
    found: Mutex<Found>,
}

impl Way {
    fn open(&self) -> Answer<Socket> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let refused = match self.connect(&found) {
            Err(Trouble::Said(problem)) if !self.meant.is_pod() => problem,
            answer => return answer,
        };
        // The pod may be gone; then there may be another one.
        let other = self.meant.find(&self.server)?;
        if other.pod == found.pod {
            return Err(Trouble::Said(refused));
        }
        eprintln!("the pod {} is no more; from now on it is {}", found.pod, other.pod);
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&other);
        self.connect(&other)
    }

    fn connect(&self, found: &Found) -> Answer<Socket> {
        let Meant { cluster, namespace, .. } = &self.meant;
        let route = Route::to(["clusters", cluster, "resources", "pods", &found.pod, "forward"])
            .with("namespace", namespace)
            .with("port", found.port);
        Socket::open(&self.server, &route)
    }
}

fn listen(listener: &TcpListener, way: &Arc<Way>) {
    let places = Arc::<Places>::default();
    for connection in listener.incoming() {
        let local = match connection {
            Ok(local) => local,
            Err(e) => {
                // Most often out of files: waiting lets some close.
                eprintln!("a connection cannot be taken: {e}");
                std::thread::sleep(std::time::Duration::from_millis(200));
                continue;
            }
        };
        let Some(place) = places.take() else {
            eprintln!("a connection is refused: {AT_ONCE} are open");
            continue;
        };
        let way = Arc::clone(way);
        std::thread::spawn(move || {
            if let Err(trouble) = carry(local, &way, place) {
                eprintln!("a connection failed: {trouble}");
            }
        });
    }
}

fn carry(local: TcpStream, way: &Way, place: Place) -> Answer<()> {
    let socket = way.open()?;
    tunnel::carry(local, socket, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_for_kubectl() {
        let both = |local, remote: &str| Ok(Ports { local, remote: remote.to_owned() });
        assert_eq!(ports("8080:80"), both(Some(8080), "80"));
        assert_eq!(ports("80"), both(None, "80"));
        assert_eq!(ports(":80"), both(Some(0), "80"));
        assert_eq!(ports("8443:https"), both(Some(8443), "https"));
        assert_eq!(ports(":web-80"), both(Some(0), "web-80"));
        assert_eq!(ports("http"), both(None, "http"));
        for wrong in ["", ":", "80:", "x:80", "80:0", "80:70000", "1:2:3", "80:-", "80:HTTP"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pod_needs_no_kind() {
        for pod in ["web-0", "pod/web-0", "po/web-0", "pods/web-0"] {
            assert_eq!(object(pod), ("pods", "web-0"));
        }
        assert_eq!(object("svc/web"), ("svc", "web"));
        assert_eq!(object("deployments.apps/web"), ("deployments.apps", "web"));
    }
}
