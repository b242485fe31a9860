//! The state of an object in a word, as kubectl shows it where it does.

use kube::core::DynamicObject;
use serde_json::Value;

/// Returns the state: `Running`, `CrashLoopBackOff`, `Ready`, `Progressing`, `Complete`, `Terminating`
/// and so on; empty for kinds without a state.
pub fn state(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    if kind == "Pod" {
        return pod(object);
    }
    if object.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    match kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController" => {
            let wanted = spec["replicas"].as_i64().unwrap_or(1);
            replicas(object, wanted, status["readyReplicas"].as_i64().unwrap_or(0))
        }
        "DaemonSet" => {
            let wanted = status["desiredNumberScheduled"].as_i64().unwrap_or(0);
            replicas(object, wanted, status["numberReady"].as_i64().unwrap_or(0))
        }
        "Job" => job(spec, status).to_owned(),
        "CronJob" => if spec["suspend"] == true { "Suspended" } else { "Scheduled" }.to_owned(),
        "Node" => node(spec, status),
        _ => generic(status),
    }
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = status["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

fn replicas(object: &DynamicObject, wanted: i64, ready: i64) -> String {
    let seen = object.data["status"]["observedGeneration"].as_i64();
    let word = if condition(&object.data["status"], "Progressing") == Some("False") {
        "Failed"
    } else if seen < object.metadata.generation {
        "Progressing"
    } else if wanted == 0 {
        "ScaledToZero"
    } else if ready >= wanted {
        "Ready"
    } else {
        "Progressing"
    };
    word.to_owned()
}

fn job(spec: &Value, status: &Value) -> &'static str {
    if condition(status, "Failed") == Some("True") {
        "Failed"
    } else if condition(status, "Complete") == Some("True") {
        "Complete"
    } else if spec["suspend"] == true {
        "Suspended"
    } else {
        "Running"
    }
}

fn node(spec: &Value, status: &Value) -> String {
    let ready = match condition(status, "Ready") {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    };
    let cordoned = if spec["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{ready}{cordoned}")
}

fn generic(status: &Value) -> String {
    let word = match condition(status, "Ready").or_else(|| condition(status, "Available")) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        Some(_) => "Unknown",
        None => status["phase"].as_str().unwrap_or_default(),
    };
    word.to_owned()
}

/// Returns the column STATUS of `kubectl get pods`.
fn pod(object: &DynamicObject) -> String {
    let status = &object.data["status"];
    let phase = status["phase"].as_str().unwrap_or("Unknown");
    let whole = status["reason"].as_str().unwrap_or(phase);
    let containers = |field: &str| status[field].as_array().cloned().unwrap_or_default();

    let init = containers("initContainerStatuses");
    let total = object.data["spec"]["initContainers"].as_array().map_or(init.len(), Vec::len);
    let starting = init.iter().enumerate().find_map(|(index, container)| {
        let state = &container["state"];
        // A sidecar is an init container that keeps running.
        if state["terminated"]["exitCode"] == 0 || container["started"] == true {
            return None;
        }
        Some(match reason(state) {
            Some(reason) if reason != "PodInitializing" => format!("Init:{reason}"),
            _ => format!("Init:{index}/{total}"),
        })
    });
    let mut word = starting.unwrap_or_else(|| {
        let containers = containers("containerStatuses");
        let running = containers.iter().any(|container| container["ready"] == true);
        match containers.iter().find_map(|container| reason(&container["state"])) {
            Some(reason) if reason == "Completed" && running => "Running".to_owned(),
            Some(reason) => reason,
            None => whole.to_owned(),
        }
    });
    if object.metadata.deletion_timestamp.is_some() {
        word = if whole == "NodeLost" { "Unknown" } else { "Terminating" }.to_owned();
    }
    word
}

/// Returns why a container does not run.
fn reason(state: &Value) -> Option<String> {
    let terminated = &state["terminated"];
    let reason = state["waiting"]["reason"].as_str().or_else(|| terminated["reason"].as_str());
    let reason = reason.filter(|reason| !reason.is_empty()).map(ToOwned::to_owned);
    reason.or_else(|| match (terminated["signal"].as_i64(), terminated["exitCode"].as_i64()) {
        (Some(signal), _) if signal != 0 => Some(format!("Signal:{signal}")),
        (_, Some(code)) => Some(format!("ExitCode:{code}")),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
