//! The sources in an installation in Kubernetes, through its API server.
//!
//! Objects are plain JSON, with what is noise or secret taken out. In each pod of ours the program
//! itself is run to collect what only it can see; its archive goes into this one whole.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::archive::{Archive, LARGEST_FILE};
use super::local::document;
use crate::cli::pod_command::run_in_pod;
use crate::cli::runtime::block_on;
use crate::output::Failure;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a pod may take to collect its own archive, CPU profile included.
const POD_PATIENCE: Duration = Duration::from_secs(60);
/// How many pods are asked at once: each is a connection through the API server.
const AT_ONCE: usize = 6;
/// How many agents are asked unless nodes are named: a thousand archives help nobody.
const MOST_AGENTS: usize = 20;
/// The most objects of one kind.
const MOST_OBJECTS: usize = 500;
/// The most lines of a container's log.
const LOG_LINES: usize = 20_000;
const CONTROLLER: &str = "fairlead-controller";
const AGENT: &str = "fairlead-agent";
/// Kinds of Fairlead's that hold fingerprints of secrets, and nothing that explains a fault.
const NEVER: [&str; 2] = ["users", "accesstokens"];

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Installation {
    /// Collect from an installation in Kubernetes instead of this machine
    #[arg(long)]
    cluster: bool,
    /// Namespace of the installation
    #[arg(short, long, value_name = "NAME", default_value = "fairlead", requires = "cluster")]
    namespace: String,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", requires = "cluster")]
    context: Option<String>,
    /// Kubeconfig [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    kubeconfig: Option<PathBuf>,
    /// Ask the agents of these nodes; may be given again [default: 20 agents, unready ones first]
    #[arg(long, value_name = "NODE", requires = "cluster")]
    node: Vec<String>,
}

impl Installation {
    pub(super) fn is_chosen(&self) -> bool {
        self.cluster
    }
}

pub(super) fn collect(args: &Installation, archive: &mut Archive) -> Result<(), Failure> {
    block_on(async {
        let client = connect(args).await?;
        Cluster { client, namespace: args.namespace.clone() }.collect(&args.node, archive).await
    })
}

async fn connect(args: &Installation) -> Result<kube::Client, Failure> {
    let wrong = |e: install::cluster::Error| {
        let why = stallproof::sentence(&e);
        Failure(format!(
            "the cluster cannot be reached: {why}; choose it with --kubeconfig and --context"
        ))
    };
    let cluster =
        install::cluster::Cluster::connect(args.kubeconfig.clone(), args.context.clone()).await;
    let cluster = cluster.map_err(wrong)?;
    // A cluster that does not answer is named here, once, not by each of thirty sources.
    cluster.version().await.map_err(wrong)?;
    Ok(cluster.client().clone())
}

#[derive(Clone)]
struct Cluster {
    client: kube::Client,
    namespace: String,
}

impl Cluster {
    async fn collect(&self, nodes: &[String], archive: &mut Archive) -> Result<(), Failure> {
        let ns = &self.namespace;
        let version = self.get("/version").await.map(|v| document("the API server's version", &v));
        archive.take("cluster/version.json", version)?;
        let pods = self.list(&format!("/api/v1/namespaces/{ns}/pods"), "pods", archive).await;
        archive.take("cluster/pods.txt", Ok(table(&pods).into_bytes()))?;
        let events = self.list(&format!("/api/v1/namespaces/{ns}/events"), "events", archive).await;
        archive.take("cluster/events.log", Ok(lines(&events).into_bytes()))?;
        // Pods anywhere that got no network, as their kubelets say.
        let failed = "/api/v1/events?fieldSelector=reason%3DFailedCreatePodSandBox";
        let failed = self.list(failed, "sandbox-events", archive).await;
        archive.take("cluster/sandbox-events.log", Ok(lines(&failed).into_bytes()))?;
        for (path, name) in [
            ("/api/v1/nodes".to_owned(), "nodes"),
            (format!("/api/v1/namespaces/{ns}/services"), "services"),
            (format!("/api/v1/namespaces/{ns}/endpoints"), "endpoints"),
            (format!("/api/v1/namespaces/{ns}/configmaps"), "configmaps"),
            (format!("/apis/apps/v1/namespaces/{ns}/deployments"), "deployments"),
            (format!("/apis/apps/v1/namespaces/{ns}/daemonsets"), "daemonsets"),
            (format!("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"), "leases"),
            (
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations".to_owned(),
                "webhooks",
            ),
        ] {
            let mut items = self.list(&path, name, archive).await;
            if matches!(name, "configmaps" | "webhooks") {
                items.retain(|item| text(&item["metadata"]["name"]).starts_with("fairlead"));
            }
            self.write(name, items, archive)?;
        }
        self.write("pods", pods.clone(), archive)?;
        self.objects(archive).await?;
        self.logs(&pods, archive).await?;
        self.archives(&pods, nodes, archive).await
    }

    /// Adds the objects of Fairlead's kinds.
    async fn objects(&self, archive: &mut Archive) -> Result<(), Failure> {
        let group = "/apis/fairlead.dev/v1alpha1";
        let kinds = match self.get(group).await {
            Ok(kinds) => kinds,
            Err(why) => {
                archive
                    .missing("cluster/objects", format!("Fairlead's kinds are not there: {why}"));
                return Ok(());
            }
        };
        let kinds = kinds["resources"].as_array().cloned().unwrap_or_default();
        let names = kinds.iter().map(|kind| text(&kind["name"])).filter(|name| !name.contains('/'));
        for name in names {
            if NEVER.contains(&name) {
                archive.missing(
                    &format!("cluster/{name}.json"),
                    "holds fingerprints of secrets and is never taken",
                );
                continue;
            }
            let items = self.list(&format!("{group}/{name}"), name, archive).await;
            self.write(name, items, archive)?;
        }
        Ok(())
    }

    fn write(&self, name: &str, items: Vec<Value>, archive: &mut Archive) -> Result<(), Failure> {
        let items: Vec<Value> = items.into_iter().map(cleaned).collect();
        let what = format!("{} {name}", items.len());
        archive.add(&format!("cluster/{name}.json"), document(&what, &json!({ "items": items })))
    }

    async fn logs(&self, pods: &[Value], archive: &mut Archive) -> Result<(), Failure> {
        for pod in pods {
            let name = text(&pod["metadata"]["name"]);
            let statuses = pod["status"]["containerStatuses"].as_array();
            for status in statuses.into_iter().flatten() {
                let container = text(&status["name"]);
                let path = format!(
                    "/api/v1/namespaces/{}/pods/{name}/log?container={container}&timestamps=true\
                     &tailLines={LOG_LINES}&limitBytes={LARGEST_FILE}",
                    self.namespace
                );
                let file = format!("pods/{name}/{container}.log");
                archive.take(&file, self.text(&path).await.map(String::into_bytes))?;
                if status["restartCount"].as_u64().unwrap_or_default() > 0 {
                    let before = self.text(&format!("{path}&previous=true")).await;
                    let file = format!("pods/{name}/{container}.previous.log");
                    archive.take(&file, before.map(String::into_bytes))?;
                }
            }
        }
        Ok(())
    }

    /// Adds the archives that Fairlead's pods collect of themselves.
    async fn archives(
        &self,
        pods: &[Value],
        nodes: &[String],
        archive: &mut Archive,
    ) -> Result<(), Failure> {
        let (chosen, left_out) = chosen(pods, nodes);
        if left_out > 0 {
            let why = format!("{left_out} agents were not asked; name their nodes with --node");
            archive.missing("pods", why);
        }
        for some in chosen.chunks(AT_ONCE) {
            let mut asked = JoinSet::new();
            for pod in some {
                let cluster = self.clone();
                let name = text(&pod["metadata"]["name"]).to_owned();
                let args = settings_of(pod);
                let _ = asked.spawn(async move {
                    let answer = timeout(POD_PATIENCE, cluster.support_archive(&name, args)).await;
                    let answer = answer.unwrap_or_else(|_| {
                        Err(format!("it did not answer within {} s", POD_PATIENCE.as_secs()))
                    });
                    (name, answer)
                });
            }
            while let Some(answer) = asked.join_next().await {
                // One that panicked has said so on stderr.
                let Ok((name, answer)) = answer else { continue };
                let file = format!("pods/{name}/support.tar.gz");
                match answer {
                    Ok(packed) => archive.add_masked(&file, &packed)?,
                    Err(why) => archive.missing(&file, why),
                }
            }
        }
        Ok(())
    }

    async fn support_archive(&self, pod: &str, settings: Vec<String>) -> Result<Vec<u8>, String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let command = ["/usr/local/bin/fairlead", "support", "-f", "-"].map(str::to_owned);
        let command = command.into_iter().chain(settings).collect();
        let said = run_in_pod(&pods, pod, command, LARGEST_FILE as u64).await;
        let said = said.map_err(|why| format!("`fairlead support` in it: {why}"))?;
        if said.stdout.starts_with(b"\x1f\x8b") {
            return Ok(said.stdout);
        }
        Err(format!("`fairlead support` in it gave no archive: {}", said.stderr))
    }

    /// The items of a list, as many as are taken; none and a note if it cannot be had.
    async fn list(&self, path: &str, name: &str, archive: &mut Archive) -> Vec<Value> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let file = format!("cluster/{name}.json");
        match self.get(&format!("{path}{joint}limit={MOST_OBJECTS}")).await {
            Ok(mut list) => {
                if !text(&list["metadata"]["continue"]).is_empty() {
                    archive.missing(&file, format!("only the first {MOST_OBJECTS} are taken"));
                }
                match list["items"].take() {
                    Value::Array(items) => items,
                    _ => Vec::new(),
                }
            }
            Err(why) => {
                archive.missing(&file, why);
                Vec::new()
            }
        }
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let text = self.text(path).await?;
        serde_json::from_str(&text).map_err(|e| format!("{path} answers no JSON: {e}"))
    }

    async fn text(&self, path: &str) -> Result<String, String> {
        let request = http::Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
        match timeout(PATIENCE, self.client.request_text(request)).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(stallproof::sentence(&error)),
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        }
    }
}

/// The pods to ask: every controller, and of the agents those of `nodes`, or a few. With how many
/// agents are left out.
fn chosen<'a>(pods: &'a [Value], nodes: &[String]) -> (Vec<&'a Value>, usize) {
    let of = |what: &str| {
        let label = "app.kubernetes.io/name";
        let what = what.to_owned();
        pods.iter().filter(move |pod| pod["metadata"]["labels"][label] == what.as_str())
    };
    let mut agents: Vec<&Value> = of(AGENT).collect();
    let all = agents.len();
    if nodes.is_empty() {
        agents.sort_by_key(|pod| ready(pod).0 == ready(pod).1);
        agents.truncate(MOST_AGENTS);
    } else {
        agents.retain(|pod| nodes.iter().any(|node| pod["spec"]["nodeName"] == node.as_str()));
    }
    let left_out = if nodes.is_empty() { all - agents.len() } else { 0 };
    (of(CONTROLLER).chain(agents).collect(), left_out)
}

/// The flags that the daemon in the pod was started with, but for those that name a variable: the
/// verbs of the program share their flags, so that the same settings are found.
fn settings_of(pod: &Value) -> Vec<String> {
    let container = &pod["spec"]["containers"][0];
    let words = |list: &Value| -> Vec<String> {
        let list = list.as_array().cloned().unwrap_or_default();
        list.iter().map(|word| text(word).to_owned()).collect()
    };
    let all = words(&container["command"]).into_iter().chain(words(&container["args"]));
    all.filter(|word| word.starts_with("--") && word.contains('=') && !word.contains("$("))
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// How many containers of a pod are ready, and of how many.
fn ready(pod: &Value) -> (usize, usize) {
    let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    (statuses.iter().filter(|status| status["ready"] == true).count(), statuses.len())
}

/// The pods as `kubectl get pods -o wide` prints them, which people and the doctor can read.
fn table(pods: &[Value]) -> String {
    let mut table = "NAME READY STATUS RESTARTS AGE NODE\n".to_owned();
    for pod in pods {
        let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        let (ready, all) = ready(pod);
        let waits = statuses.iter().map(|status| text(&status["state"]["waiting"]["reason"]));
        let waits = waits.into_iter().find(|reason| !reason.is_empty());
        let status = waits.unwrap_or_else(|| text(&pod["status"]["phase"]));
        let restarts: u64 = statuses.iter().filter_map(|s| s["restartCount"].as_u64()).sum();
        let name = text(&pod["metadata"]["name"]);
        let since = text(&pod["metadata"]["creationTimestamp"]);
        let node = text(&pod["spec"]["nodeName"]);
        let _ = writeln!(table, "{name} {ready}/{all} {status} {restarts} {since} {node}");
    }
    table
}

/// Events as the lines of a log, oldest first.
fn lines(events: &[Value]) -> String {
    let last = |event: &Value| {
        let times = ["lastTimestamp", "eventTime", "firstTimestamp"].map(|name| text(&event[name]));
        let times = times.into_iter().find(|time| !time.is_empty());
        times.unwrap_or_else(|| text(&event["metadata"]["creationTimestamp"])).to_owned()
    };
    let mut events: Vec<(String, &Value)> = events.iter().map(|e| (last(e), e)).collect();
    events.sort_by(|a, b| a.0.cmp(&b.0));
    let mut lines = String::new();
    for (time, event) in events {
        let object = &event["involvedObject"];
        let line = json!({
            "ts": time,
            "level": if event["type"] == "Warning" { "warn" } else { "info" },
            "msg": event["message"],
            "reason": event["reason"],
            "object": format!("{} {}/{}", text(&object["kind"]), text(&object["namespace"]), text(&object["name"])),
            "count": event["count"],
        });
        let _ = writeln!(lines, "{line}");
    }
    lines
}

/// An object without its noise, and without the values of variables with a secret's name.
fn cleaned(mut value: Value) -> Value {
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    hide(&mut value);
    value
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if is_secret(fields) {
                fields.insert("value".to_owned(), Value::from("[masked]"));
            }
            fields.values_mut().for_each(hide);
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        _ => {}
    }
}

/// `{name: API_TOKEN, value: …}`
fn is_secret(fields: &Map<String, Value>) -> bool {
    let name = fields.get("name").map(text).unwrap_or_default().to_uppercase();
    let named = ["TOKEN", "PASSWORD", "PASSWD", "SECRET", "KEY", "CREDENTIALS"];
    fields.contains_key("value") && named.iter().any(|word| name.ends_with(word))
}

#[cfg(test)]
mod tests;
