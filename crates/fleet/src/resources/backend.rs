//! Finds the pod and the port behind a Service or a workload.
//!
//! Contract, as that of `kubectl port-forward`:
//! - A Service's port, by number or name, leads to its `targetPort`, which may be the name of a port of
//!   the pod's containers. For a headless Service it is the port itself.
//! - Of the selected pods the one that has been ready longest is chosen, of those the one with the
//!   fewest restarts. When none is ready, the error names the pods.
//! - The error for a port that does not exist names the ports. Only TCP can be forwarded.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::ListParams;
use kube::core::{DynamicObject, Selector};
use serde_json::Value;
use stallproof::Deadline;

use super::Target;
use crate::{Connection, Error};

/// How many pods are considered: the first page of a workload is as good as all of it.
const LOOKED_AT: u32 = 500;
/// How many pods an error names.
const NAMED: usize = 5;

/// The pod and port that a connection to a Service, a workload or a pod leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    pub pod: String,
    pub port: u16,
    /// The requested port as a number; for a Service, its own port.
    pub asked: u16,
}

/// Finds the pod and the port. `port` is a number or a name.
pub async fn backend(
    connection: &Connection,
    target: &Target,
    port: &str,
    deadline: Deadline,
) -> Result<Backend, Error> {
    let Some(namespace) = target.namespace() else {
        return Err(Error::Invalid(format!("{target} is in no namespace and has no pods")));
    };
    let object = connection
        .call("reading what to connect to", deadline, |client| async move {
            target.api(client).get(target.name()).await
        })
        .await?;
    let source = PodSource::new(target, object)?;
    let pods = match &source {
        PodSource::Pod(_) => Vec::new(),
        PodSource::Service(_, labels) | PodSource::Workload(labels) => {
            let params = ListParams::default().labels(labels).limit(LOOKED_AT);
            connection
                .call("listing its pods", deadline, |client| async move {
                    Api::<Pod>::namespaced(client, namespace).list(&params).await
                })
                .await?
                .items
        }
    };
    choose(target, &source, &pods, port)
}

/// An object that leads to pods.
enum PodSource {
    Pod(Box<Pod>),
    /// A Service, with the selector of its pods.
    Service(Box<Service>, String),
    /// The selector of a workload's pods.
    Workload(String),
}

impl PodSource {
    fn new(target: &Target, object: DynamicObject) -> Result<Self, Error> {
        let strange =
            |error| Error::Invalid(format!("{target} is not as its kind should be: {error}"));
        let kind = (target.resource().group.as_str(), target.resource().plural.as_str());
        match kind {
            ("", "pods") => Ok(Self::Pod(Box::new(object.try_parse().map_err(strange)?))),
            ("", "services") => {
                let service: Service = object.try_parse().map_err(strange)?;
                let labels = service.spec.as_ref().and_then(|spec| spec.selector.clone());
                let labels = labels.filter(|labels| !labels.is_empty()).ok_or_else(|| {
                    Error::Invalid(format!(
                        "{target} selects no pods (it has no selector): connect to \
                         its backend"
                    ))
                })?;
                let labels: Selector = labels.into_iter().collect();
                Ok(Self::Service(Box::new(service), labels.to_string()))
            }
            _ => {
                let labels = workload_selector(&object.data["spec"]["selector"]);
                labels.filter(|labels| !labels.is_empty()).map(Self::Workload).ok_or_else(|| {
                    Error::Invalid(format!(
                        "{target} selects no pods; pods, services, deployments, statefulsets, \
                         replicasets, daemonsets and jobs can be forwarded to"
                    ))
                })
            }
        }
    }
}

/// Reads the selector of a workload; a ReplicationController has plain labels.
fn workload_selector(selector: &Value) -> Option<String> {
    if selector.get("matchLabels").or(selector.get("matchExpressions")).is_some() {
        let selector: LabelSelector = serde_json::from_value(selector.clone()).ok()?;
        return Selector::try_from(selector).ok().map(|selector| selector.to_string());
    }
    let labels: BTreeMap<String, String> = serde_json::from_value(selector.clone()).ok()?;
    Some(labels.into_iter().collect::<Selector>().to_string())
}

fn choose(target: &Target, source: &PodSource, pods: &[Pod], port: &str) -> Result<Backend, Error> {
    // A missing port is reported before a pod that is not ready.
    let service_port = match source {
        PodSource::Service(service, _) => Some(service_port(target, service, port)?),
        _ => None,
    };
    let pod = match source {
        PodSource::Pod(pod) => pod,
        _ => best(target, pods)?,
    };
    let name = pod.metadata.name.clone().unwrap_or_default();
    let (asked, number) = match (source, service_port) {
        (PodSource::Service(service, _), Some(found)) => {
            (number(found.port)?, target_port(service, found, pod)?)
        }
        _ => {
            let number = pod_port(pod, port)?;
            (number, number)
        }
    };
    Ok(Backend { pod: name, port: number, asked })
}

/// Chooses the ready pod to connect to.
fn best<'a>(target: &Target, pods: &'a [Pod]) -> Result<&'a Pod, Error> {
    if pods.is_empty() {
        return Err(Error::Invalid(format!("{target} has no pods: its selector matches none")));
    }
    let ready = pods.iter().filter_map(|pod| Some((ready_since(pod)?, pod)));
    let best = ready.min_by_key(|(since, pod)| (*since, restarts(pod), pod.metadata.name.clone()));
    if let Some((_, pod)) = best {
        return Ok(pod);
    }
    let mut there: Vec<_> = pods.iter().collect();
    // The caller may name a pod that runs.
    there.sort_by_key(|pod| (Reverse(phase(pod) == "Running"), pod.metadata.name.clone()));
    let mut why = format!("{target} has no ready pod: ");
    for (at, pod) in there.iter().take(NAMED).enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let _ = write!(why, "{comma}{name} is {}", condition(pod));
    }
    if let Some(more) = there.len().checked_sub(NAMED).filter(|more| *more > 0) {
        let _ = write!(why, ", and {more} more");
    }
    why.push_str("; one that runs can be forwarded to by its own name");
    Err(Error::Invalid(why))
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown")
}

fn condition(pod: &Pod) -> &str {
    match phase(pod) {
        _ if pod.metadata.deletion_timestamp.is_some() => "stopping",
        "Running" => "running and not ready",
        "Pending" => "pending",
        "Succeeded" => "done",
        "Failed" => "failed",
        _ => "in an unknown state",
    }
}

/// Returns since when a pod is ready, if it is.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    if pod.metadata.deletion_timestamp.is_some() || phase(pod) != "Running" {
        return None;
    }
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|it| it.type_ == "Ready" && it.status == "True");
    let ready = ready.next()?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::MAX, |time| time.0))
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}

/// Finds the Service's port with this number or name.
fn service_port<'a>(
    target: &Target,
    service: &'a Service,
    port: &str,
) -> Result<&'a ServicePort, Error> {
    let all = || service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let wanted = |it: &&ServicePort| match port.parse::<i32>() {
        Ok(number) => it.port == number,
        Err(_) => it.name.as_deref() == Some(port),
    };
    let is_tcp = |it: &&ServicePort| it.protocol.as_deref().unwrap_or("TCP") == "TCP";
    if let Some(found) = all().find(|it| wanted(it) && is_tcp(it)) {
        return Ok(found);
    }
    let there = all().map(|it| {
        let protocol = it.protocol.as_deref().filter(|protocol| *protocol != "TCP");
        described(it.port, it.name.as_deref(), protocol)
    });
    Err(no_such_port(
        &target.to_string(),
        port,
        &there.collect::<Vec<_>>(),
        all().any(|it| wanted(&it)),
    ))
}

/// Finds the pod's port that a Service's port leads to.
fn target_port(service: &Service, found: &ServicePort, pod: &Pod) -> Result<u16, Error> {
    let headless =
        service.spec.as_ref().is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None"));
    match &found.target_port {
        _ if headless => number(found.port),
        None | Some(IntOrString::Int(0)) => number(found.port),
        Some(IntOrString::Int(port)) => number(*port),
        Some(IntOrString::String(name)) => pod_port(pod, name),
    }
}

/// Finds the pod's port with this number or name. A number need not be declared.
fn pod_port(pod: &Pod, port: &str) -> Result<u16, Error> {
    if let Ok(port) = port.parse::<i32>() {
        return number(port);
    }
    let containers = pod.spec.iter().flat_map(|spec| {
        // A sidecar is an init container and may have ports, too.
        let stays = |it: &&Container| it.restart_policy.as_deref() == Some("Always");
        spec.containers.iter().chain(spec.init_containers.iter().flatten().filter(stays))
    });
    let ports: Vec<&ContainerPort> =
        containers.flat_map(|container| container.ports.iter().flatten()).collect();
    let is_tcp = |it: &ContainerPort| it.protocol.as_deref().unwrap_or("TCP") == "TCP";
    let named = |it: &&&ContainerPort| it.name.as_deref() == Some(port);
    if let Some(found) = ports.iter().filter(|it| is_tcp(it)).find(named) {
        return number(found.container_port);
    }
    let there = ports.iter().map(|it| {
        let protocol = it.protocol.as_deref().filter(|protocol| *protocol != "TCP");
        described(it.container_port, it.name.as_deref(), protocol)
    });
    let pod = format!("the pod {}", pod.metadata.name.as_deref().unwrap_or_default());
    Err(no_such_port(&pod, port, &there.collect::<Vec<_>>(), ports.iter().any(|it| named(&it))))
}

fn number(port: i32) -> Result<u16, Error> {
    u16::try_from(port)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| Error::Invalid(format!("{port} is no port; ports are 1 to 65535")))
}

/// Shows a port, such as `80 (http)` or `53 (dns, UDP)`.
fn described(port: i32, name: Option<&str>, protocol: Option<&str>) -> String {
    let more: Vec<_> = name.into_iter().chain(protocol).collect();
    if more.is_empty() { port.to_string() } else { format!("{port} ({})", more.join(", ")) }
}

fn no_such_port(of: &str, port: &str, there: &[String], not_tcp: bool) -> Error {
    if not_tcp {
        return Error::Invalid(format!("port {port} of {of} is not TCP, which alone is forwarded"));
    }
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    Error::Invalid(format!("{of} has no port {port}; it has {there}"))
}

#[cfg(test)]
mod tests;
