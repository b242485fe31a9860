//! Readiness of applied objects: definitions, controllers, agents. Pure functions of the server's objects.

use serde::Serialize;
use serde_json::Value;

/// The readiness of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    pub ready: bool,
    pub done: u64,
    pub wanted: u64,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Readiness {
    fn of(done: u64, wanted: u64, why: Option<&str>) -> Self {
        Self { ready: why.is_none(), done, wanted, why: why.map(str::to_owned) }
    }
}

/// Returns the readiness of a Deployment, StatefulSet or DaemonSet as `kubectl rollout status` shows it, and of a
/// definition by whether it is served. Any other object is ready once it exists.
pub fn readiness(object: &Value) -> Readiness {
    match object["kind"].as_str() {
        // Both count replicas by the same names.
        Some("Deployment" | "StatefulSet") => replicas(object),
        Some("DaemonSet") => daemon_set(object),
        Some("CustomResourceDefinition") => definition(object),
        _ => Readiness::of(1, 1, None),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Whether the status is of the present spec.
fn observed(object: &Value) -> bool {
    number(&object["status"]["observedGeneration"]) >= number(&object["metadata"]["generation"])
}

fn replicas(object: &Value) -> Readiness {
    let status = &object["status"];
    let wanted = object["spec"]["replicas"].as_u64().unwrap_or(1);
    // Of a StatefulSet, servers before 1.22 say only how many are ready.
    let available = status["availableReplicas"].as_u64();
    let available = available.unwrap_or_else(|| match object["kind"].as_str() {
        Some("StatefulSet") => number(&status["readyReplicas"]),
        _ => 0,
    });
    let updated = number(&status["updatedReplicas"]);
    let all = number(&status["replicas"]);
    let done = available.min(updated);
    let why = if !observed(object) {
        Some("its controller has not seen it yet")
    } else if updated < wanted {
        Some("replicas are being created")
    } else if all > updated {
        Some("replicas of the version before are still there")
    } else if available < updated {
        Some("replicas are not ready")
    } else {
        None
    };
    Readiness::of(done, wanted, why)
}

fn daemon_set(object: &Value) -> Readiness {
    let status = &object["status"];
    let wanted = number(&status["desiredNumberScheduled"]);
    let available = number(&status["numberAvailable"]);
    let updated = number(&status["updatedNumberScheduled"]);
    let why = if !observed(object) {
        Some("its controller has not seen it yet")
    } else if updated < wanted {
        Some("agents of the version before are still there")
    } else if available < wanted {
        Some("agents are not ready")
    } else {
        None
    };
    Readiness::of(available.min(updated), wanted, why)
}

fn definition(object: &Value) -> Readiness {
    let condition = |name: &str| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().find(|condition| condition["type"] == name)
    };
    if let Some(refused) = condition("NamesAccepted")
        && refused["status"] == "False"
    {
        let why = refused["message"].as_str().unwrap_or("its names are taken");
        return Readiness::of(0, 1, Some(why));
    }
    match condition("Established") {
        Some(established) if established["status"] == "True" => Readiness::of(1, 1, None),
        _ => Readiness::of(0, 1, Some("the server does not serve it yet")),
    }
}

/// Whether a node or a pod is Ready.
pub(crate) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice);
    let ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
    conditions.unwrap_or_default().iter().any(ready)
}

/// Returns why a pod is not ready, in the words of the component that reported it; `None` if it is ready.
pub fn trouble(pod: &Value) -> Option<String> {
    let status = &pod["status"];
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if is_ready(pod) {
        return None;
    }
    if let Some(unscheduled) =
        conditions.iter().find(|c| c["type"] == "PodScheduled" && c["status"] == "False")
    {
        return Some(said(unscheduled, "no node takes it"));
    }
    let containers = ["initContainerStatuses", "containerStatuses"];
    let statuses = containers.iter().filter_map(|list| status[list].as_array()).flatten();
    for container in statuses {
        let waiting = &container["state"]["waiting"];
        let reason = waiting["reason"].as_str().unwrap_or_default();
        if !reason.is_empty() && reason != "ContainerCreating" && reason != "PodInitializing" {
            let last = &container["lastState"]["terminated"];
            let before = match (last["exitCode"].as_i64(), last["message"].as_str()) {
                (Some(code), Some(message)) => format!("; it ended with {code}: {message}"),
                (Some(code), None) => format!("; it ended with {code}"),
                _ => String::new(),
            };
            return Some(format!("{}{before}", said(waiting, "it waits")));
        }
        let ended = &container["state"]["terminated"];
        if ended["exitCode"].as_i64().is_some_and(|code| code != 0) {
            return Some(said(ended, "it ended"));
        }
    }
    let last = conditions.iter().find(|c| c["type"] == "Ready" && c["message"].is_string());
    Some(last.map_or_else(|| "it is starting".to_owned(), |c| said(c, "it is not ready")))
}

fn said(what: &Value, otherwise: &str) -> String {
    match (what["reason"].as_str(), what["message"].as_str()) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) => otherwise.to_owned(),
    }
}

#[cfg(test)]
mod tests;
