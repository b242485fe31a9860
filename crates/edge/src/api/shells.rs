//! Shells with a container of their own, in the frames of [`super::exec`]: on a node, and beside the
//! containers of a pod.
//!
//! Contract:
//! - A node's shell is a right of its own (`exec` on `nodes/shell`). Its pod goes with its session, however
//!   that ends; what a process that died has left is removed when it is back, and when another one finds it.
//! - While the container is not running, the client is told on stderr what is waited for, at most
//!   [`STARTS_WITHIN`].

use std::time::Duration;

use access::Verb;
use access::audit::recording::RecordedShell;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use fleet::resources::exec::{self, Input, Output};
use fleet::resources::shells::{self, Opener, Progress};
use fleet::{Connection, Error, State as ClusterState};
use jiff::Timestamp;
use stallproof::{Deadline, Tasks};
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::exec::{STDERR, Shell, frame, once};
use super::pods::{PODS, PodRef};
use super::scope::permit;
use super::socket::{self, Session, SessionBackend, SessionEnd, ToClient};
use super::{Api, Caller, ErrorCode, Problem, Rights, Route, Routes, sse};

/// The resource that roles name for shells on nodes.
const NODE_SHELLS: &str = "nodes/shell";
/// For the image to come and the container to start.
const STARTS_WITHIN: Duration = Duration::from_secs(180);
/// How often the container is looked at before it runs.
const LOOK: Duration = Duration::from_millis(500);
/// For the removal of a shell's pod.
const REMOVED_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn routes() -> Routes {
    let recorded = &["image", "command", "target"];
    Routes::default()
        .with(Route::write(Verb::Exec, NODE_SHELLS).recording(recorded), routes!(node_shell))
        .with(Route::write(Verb::Exec, PODS).recording(recorded), routes!(debug))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "tells the API's description what `ShellQuery` reads")]
struct NodeShellParams {
    /// An image with `sh` and `nsenter`; busybox unless said.
    image: Option<String>,
    /// Given once for each word; `sh -l` unless said. It runs in the node's own namespaces.
    command: Vec<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "tells the API's description what `ShellQuery` reads")]
struct DebugParams {
    namespace: String,
    /// busybox unless said.
    image: Option<String>,
    /// The container whose processes it sees; none unless said.
    target: Option<String>,
    /// Given once for each word; the image's own unless said.
    command: Vec<String>,
}

/// A query of a shell. A word that is repeated is more than a query's usual reader takes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ShellQuery {
    pub(super) namespace: Option<String>,
    pub(super) image: Option<String>,
    pub(super) target: Option<String>,
    pub(super) command: Vec<String>,
}

impl ShellQuery {
    pub(super) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut asked = Self::default();
        once(query)?;
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let value = value.into_owned();
            match &*name {
                "timeout" => {}
                name if !known.contains(&name) => {
                    return Err(Problem::invalid(format!("there is no parameter {name:?} here")));
                }
                "namespace" => asked.namespace = Some(value),
                "image" => asked.image = Some(value),
                "target" => asked.target = Some(value),
                _ => asked.command.push(value),
            }
        }
        Ok(asked)
    }

    fn image(&self) -> &str {
        self.image.as_deref().filter(|image| !image.is_empty()).unwrap_or(shells::IMAGE)
    }

    fn command(&self, otherwise: &[&str]) -> Vec<String> {
        if self.command.is_empty() {
            return otherwise.iter().map(|word| (*word).to_owned()).collect();
        }
        self.command.clone()
    }
}

/// A shell on a node
///
/// A WebSocket with the frames of a pod's `exec`, with a terminal. A privileged pod on the node, in its
/// namespaces, is made for it in `kube-system` and removed at its end. Needs `exec` on `nodes/shell`, which
/// no built-in role but `admin` has.
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/nodes/{name}/shell", tag = "pods",
    params(NodeShellParams),
    responses((status = 101, description = "Its pod has been made"))
)]
async fn node_shell(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    upgrade: socket::UpgradeResult,
) -> Result<Response, Problem> {
    let asked = ShellQuery::read(query.as_deref(), &["image", "command"])?;
    permit(&caller, &cluster, (None, NODE_SHELLS, &name), Verb::Exec)?;
    let connection = caller.connection(&api, &cluster)?;
    let upgrade = upgrade?;
    let place = sse::open(&api, &caller, "node-shell", name.clone(), cluster.clone())?;
    let rights = Rights::to(&api, &caller, (&cluster, None), NODE_SHELLS, Verb::Exec);
    let command = asked.command(&["sh", "-l"]);
    let (user, server) = (caller.who.user.to_string(), server_name());
    let opener = Opener { user: &user, server: &server };
    let what = (asked.image(), &*command);
    let pod = shells::open_on_node(&connection, &name, what, opener, caller.deadline).await?;
    let removal = Removal {
        // Who may no longer remove it has it removed in Fairlead's own name.
        connections: vec![connection.clone(), api.fleet.connection(&cluster)?],
        pod: pod.clone(),
        tasks: api.tasks.clone(),
    };
    caller.trail.detail("pod", pod.as_str());
    let container = shells::CONTAINER.to_owned();
    let recorded = RecordedShell {
        user,
        cluster: cluster.clone(),
        namespace: shells::NAMESPACE.to_owned(),
        pod: pod.clone(),
        container: Some(container.clone()),
        command,
    };
    let shell = AttachedShell {
        shell: Shell::new(&api, &caller, Some(recorded)),
        container: Container {
            connection,
            namespace: shells::NAMESPACE.to_owned(),
            pod,
            name: container,
        },
        _removal: Some(removal),
    };
    let task = format!("shell on {name} of {cluster}");
    Ok(socket::open(&api, upgrade, task, (place, rights, caller.deadline), shell))
}

/// A debug container in a pod
///
/// A WebSocket with the frames of a pod's `exec`, with a terminal. An ephemeral container is added to the pod,
/// and ends with the terminal; Kubernetes keeps its name in the pod. Needs `exec` and `update` on pods. A
/// server without ephemeral containers is answered as `not-served`.
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/pods/{name}/debug", tag = "pods", params(DebugParams),
    responses((status = 101, description = "The container has been added"))
)]
async fn debug(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    upgrade: socket::UpgradeResult,
) -> Result<Response, Problem> {
    let known = ["namespace", "image", "target", "command"];
    let asked = ShellQuery::read(query.as_deref(), &known)?;
    let none = || Problem::invalid("pods live in a namespace; say in which");
    let namespace = asked.namespace.clone().filter(|it| !it.is_empty()).ok_or_else(none)?;
    let pod = PodRef { cluster: &cluster, namespace: &namespace, name: &name };
    let connection = pod.connection(&api, &caller, Verb::Exec)?;
    permit(&caller, &cluster, (Some(&namespace), PODS, &name), Verb::Update)?;
    let served = connection.find("pods.v1.", caller.deadline).await?;
    if !served.subresources.iter().any(|it| it == "ephemeralcontainers") {
        let detail = format!(
            "{cluster} has no debug containers: its API server does not serve pods/ephemeralcontainers"
        );
        return Err(Problem::new(ErrorCode::NotServed, detail).of_cluster(&cluster));
    }
    let upgrade = upgrade?;
    let place = sse::open(&api, &caller, "debug", name.clone(), cluster.clone())?;
    let rights = Rights::to(&api, &caller, (&cluster, Some(&namespace)), PODS, Verb::Exec);
    let (what, target) = ((asked.image(), &*asked.command), asked.target.as_deref());
    let of = (&*namespace, &*name);
    let added = shells::add_debug_container(&connection, of, what, target, caller.deadline).await;
    let container = added.map_err(|error| match error {
        Error::NoSuchKind { .. } => {
            Problem::new(ErrorCode::NotServed, stallproof::sentence(&error)).of_cluster(&cluster)
        }
        error => error.into(),
    })?;
    caller.trail.detail("container", container.as_str());
    let recorded = RecordedShell {
        user: caller.who.user.to_string(),
        cluster: cluster.clone(),
        namespace: namespace.clone(),
        pod: name.clone(),
        container: Some(container.clone()),
        command: asked.command.clone(),
    };
    let task = format!("debug of {name} of {cluster}");
    let shell = AttachedShell {
        shell: Shell::new(&api, &caller, Some(recorded)),
        container: Container { connection, namespace, pod: name, name: container },
        _removal: None,
    };
    Ok(socket::open(&api, upgrade, task, (place, rights, caller.deadline), shell))
}

/// Names this server in the pods that it makes.
fn server_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "fairlead".to_owned() } else { name.to_owned() }
}

/// A shell whose container has yet to run.
struct AttachedShell {
    shell: Shell,
    container: Container,
    /// The last to go.
    _removal: Option<Removal>,
}

/// The container that a shell attaches to.
struct Container {
    connection: Connection,
    namespace: String,
    pod: String,
    name: String,
}

impl SessionBackend for AttachedShell {
    async fn converse(&mut self, session: &mut Session) -> SessionEnd {
        let Self { shell, container, .. } = self;
        let attached = tokio::select! {
            attached = container.attach(&mut session.to) => attached,
            // What is typed ahead is lost; that the client is gone is heard.
            () = async { while session.from.next().await.is_some() {} } => return SessionEnd::Gone,
        };
        match attached {
            Ok((input, output)) => shell.starts(input, output),
            Err(why) => return SessionEnd::Broke(why),
        }
        shell.converse(session).await
    }

    fn last(&mut self, ended: &SessionEnd) -> Option<Bytes> {
        self.shell.last(ended)
    }
}

impl Container {
    /// Waits until the container runs, tells the client what is waited for, and attaches.
    async fn attach(&self, to: &mut ToClient) -> Result<(Input, Output), String> {
        let Self { connection, namespace, pod, name: container } = self;
        let deadline = Deadline::after(STARTS_WITHIN);
        let mut told = String::new();
        loop {
            let look = shells::progress(connection, (namespace, pod, container), deadline).await;
            match look.map_err(|error| stallproof::sentence(&error))? {
                Progress::Running => break,
                Progress::Ended(why) => return Err(format!("the container has ended: {why}")),
                Progress::Waiting(why) if why != told => {
                    told = why;
                    let line = format!("waiting for the container of {pod}: {told}\r\n");
                    let told = to.send(frame(STDERR, line.as_bytes())).await;
                    told.map_err(|_| "the client is gone".to_owned())?;
                }
                Progress::Waiting(_) => {}
            }
            if deadline.bound(tokio::time::sleep(LOOK)).await.is_err() {
                return Err(format!("the container did not start in time: {told}"));
            }
        }
        let attached = exec::attach(connection, namespace, pod, container, deadline).await;
        attached.map_err(|error| stallproof::sentence(&error))
    }
}

/// Removes the pod of a node shell when it is dropped.
struct Removal {
    connections: Vec<Connection>,
    pod: String,
    tasks: Tasks,
}

impl Drop for Removal {
    fn drop(&mut self) {
        let (connections, pod) = (std::mem::take(&mut self.connections), self.pod.clone());
        self.tasks.spawn(format!("removal of {pod}"), async move {
            for connection in connections {
                let deadline = Deadline::after(REMOVED_WITHIN);
                match shells::remove(&connection, &pod, deadline).await {
                    Ok(()) => return,
                    Err(error) => {
                        let (cluster, error) = (connection.cluster(), stallproof::sentence(&error));
                        tracing::warn!(cluster, pod, error, "a node shell's pod was not removed");
                    }
                }
            }
        });
    }
}

/// Removes what is left of node shells in each cluster that is, or becomes, ready.
pub(super) async fn remove_leftovers(api: Api) {
    let (stop, since, server) = (api.tasks.stopping(), Timestamp::now(), server_name());
    let mut changes = api.fleet.changes();
    let mut ready = std::collections::BTreeSet::new();
    loop {
        let view = api.fleet.view();
        let now: std::collections::BTreeSet<_> = view
            .clusters
            .iter()
            .filter(|(_, cluster)| cluster.state == ClusterState::Ready)
            .map(|(name, _)| name.to_string())
            .collect();
        for cluster in now.difference(&ready) {
            let Ok(connection) = api.fleet.connection(cluster) else { continue };
            let (server, stop) = (server.clone(), stop.clone());
            api.tasks.spawn(format!("node shells of {cluster}"), async move {
                stop.bound(remove_from(&connection, &server, since)).await;
            });
        }
        ready = now;
        if stop.bound(changes.changed()).await.is_none() {
            return;
        }
    }
}

async fn remove_from(connection: &Connection, server: &str, since: Timestamp) {
    let deadline = Deadline::after(REMOVED_WITHIN);
    let cluster = connection.cluster();
    let left = match shells::leftovers(connection, server, since, deadline).await {
        Ok(left) => left,
        Err(error) => {
            // Who may not list pods there can have made none.
            let error = stallproof::sentence(&error);
            return tracing::debug!(cluster, error, "node shells cannot be looked for");
        }
    };
    for pod in left {
        match shells::remove(connection, &pod, deadline).await {
            Ok(()) => tracing::info!(cluster, pod, "removed what was left of a node shell"),
            Err(error) => {
                let error = stallproof::sentence(&error);
                tracing::warn!(cluster, pod, error, "a node shell's pod was not removed");
            }
        }
    }
}

#[cfg(test)]
mod tests;
