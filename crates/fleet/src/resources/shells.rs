//! Shells that need a container of their own: on a node, and beside the containers of a pod.
//!
//! Contract:
//! - A node's shell is a pod on that node, privileged and in all of its namespaces, with nothing of the
//!   cluster's own in it: no token, no volumes. It is marked ([`LABEL`]), has [`LONGEST`] at most, and ends
//!   with its terminal: what is left of it when its server dies is a pod that has ended, or will.
//! - A debug container is a pod's own: it ends with its terminal, and nobody can remove it but with the pod.
//! - [`leftovers`] finds node shells whose terminal is gone.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use stallproof::Deadline;

use super::{FIELD_MANAGER, check_segment};
use crate::{Connection, Error};

/// The namespace of node shells: clusters that refuse privileged pods elsewhere take them here.
pub const NAMESPACE: &str = "kube-system";
/// The label of node shells.
pub const LABEL: &str = "fairlead.dev/node-shell";
/// The annotation that names the server which made a node shell.
const SERVER: &str = "fairlead.dev/server";
/// The annotation that names who opened it.
const USER: &str = "fairlead.dev/user";
/// The container of a node shell.
pub const CONTAINER: &str = "shell";
/// The longest life of a node shell.
pub const LONGEST: Duration = Duration::from_secs(4 * 60 * 60);
/// Has `sh` and `nsenter`.
pub const IMAGE: &str = "docker.io/library/busybox:1.36";

/// Who opens a node shell, and through which server.
#[derive(Clone, Copy, Debug)]
pub struct Opener<'a> {
    pub user: &'a str,
    pub server: &'a str,
}

/// Makes the pod of a node shell; returns its name. The node must be there.
pub async fn open_on_node(
    connection: &Connection,
    node: &str,
    (image, command): (&str, &[String]),
    opener: Opener<'_>,
    deadline: Deadline,
) -> Result<String, Error> {
    check_segment("node", node)?;
    let pod = &on_node(node, image, command, opener);
    let params =
        PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let made = connection
        .call("making a shell's pod", deadline, |client| async move {
            // A pod for a node that is not there would wait for ever.
            Api::<k8s_openapi::api::core::v1::Node>::all(client.clone()).get(node).await?;
            Api::<Pod>::namespaced(client, NAMESPACE).create(&params, pod).await
        })
        .await?;
    Ok(made.name_any())
}

fn on_node(node: &str, image: &str, command: &[String], opener: Opener<'_>) -> Pod {
    // The node's first process has the namespaces that the node itself is in.
    let mut whole: Vec<Value> =
        ["nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--"].map(Value::from).into();
    whole.extend(command.iter().map(|word| Value::from(word.as_str())));
    let name = format!("fairlead-shell-{:08x}", fastrand::u32(..));
    let pod = json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": { LABEL: "true" },
            "annotations": { USER: opener.user, SERVER: opener.server },
        },
        "spec": {
            "nodeName": node, "hostPID": true, "hostIPC": true, "hostNetwork": true,
            "restartPolicy": "Never", "activeDeadlineSeconds": LONGEST.as_secs(),
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "enableServiceLinks": false, "tolerations": [{ "operator": "Exists" }],
            "containers": [{
                "name": CONTAINER, "image": image, "command": whole,
                "stdin": true, "stdinOnce": true, "tty": true,
                "securityContext": { "privileged": true },
            }],
        },
    });
    serde_json::from_value(pod).expect("a pod as above")
}

/// Removes a node shell's pod. One that is gone already is removed.
pub async fn remove(connection: &Connection, pod: &str, deadline: Deadline) -> Result<(), Error> {
    check_segment("pod", pod)?;
    let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let removed = connection
        .call("removing a shell's pod", deadline, |client| async move {
            Api::<Pod>::namespaced(client, NAMESPACE).delete(pod, &params).await
        })
        .await;
    match removed {
        Ok(_) => Ok(()),
        Err(Error::Refused { status, .. }) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the node shells whose terminal is gone: those that have ended, and those that this server made
/// before `since`, when it started.
pub async fn leftovers(
    connection: &Connection,
    server: &str,
    since: Timestamp,
    deadline: Deadline,
) -> Result<Vec<String>, Error> {
    let params = ListParams::default().labels(LABEL);
    let pods = connection
        .call("looking for shells", deadline, |client| async move {
            Api::<Pod>::namespaced(client, NAMESPACE).list(&params).await
        })
        .await?;
    let is_left = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let made = pod.meta().creation_timestamp.as_ref().map(|time| time.0);
        let ours = pod.annotations().get(SERVER).is_some_and(|by| by == server);
        matches!(phase, Some("Succeeded" | "Failed"))
            || (ours && made.is_some_and(|made| made.as_second() < since.as_second()))
    };
    Ok(pods.items.iter().filter(is_left).map(ResourceExt::name_any).collect())
}

/// Adds a debug container to a pod; returns its name.
pub async fn add_debug_container(
    connection: &Connection,
    (namespace, pod): (&str, &str),
    (image, command): (&str, &[String]),
    target: Option<&str>,
    deadline: Deadline,
) -> Result<String, Error> {
    check_segment("namespace", namespace)?;
    check_segment("pod", pod)?;
    let served = connection.find("pods.v1.", deadline).await?;
    if !served.subresources.iter().any(|has| has == "ephemeralcontainers") {
        let cluster = connection.cluster().to_owned();
        let hint = ": this server has no debug containers (ephemeral containers are there from \
                    Kubernetes 1.23 on)";
        let word = "pods/ephemeralcontainers".to_owned();
        return Err(Error::NoSuchKind { cluster, word, hint: hint.to_owned() });
    }
    let name = format!("debugger-{:06x}", fastrand::u32(..0x0100_0000));
    let container = json!({
        "name": name, "image": image, "stdin": true, "stdinOnce": true, "tty": true,
        "targetContainerName": target, "command": (!command.is_empty()).then_some(command),
    });
    let patch = &json!({ "spec": { "ephemeralContainers": [container] } });
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    connection
        .call("adding a debug container", deadline, |client| async move {
            let pods = Api::<Pod>::namespaced(client, namespace);
            pods.patch_ephemeral_containers(pod, &params, &Patch::Strategic(patch)).await
        })
        .await?;
    Ok(name)
}

/// How far a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Running,
    /// What it waits for.
    Waiting(String),
    /// Why it will never run.
    Ended(String),
}

/// Looks how far a container is that a terminal waits for.
pub async fn progress(
    connection: &Connection,
    (namespace, pod, container): (&str, &str, &str),
    deadline: Deadline,
) -> Result<Progress, Error> {
    let found = connection
        .call("looking at a shell's pod", deadline, |client| async move {
            Api::<Pod>::namespaced(client, namespace).get(pod).await
        })
        .await?;
    Ok(progress_of(&serde_json::to_value(found).unwrap_or_default(), container))
}

fn progress_of(pod: &Value, container: &str) -> Progress {
    let status = &pod["status"];
    let lists = ["containerStatuses", "ephemeralContainerStatuses"];
    let all = lists.iter().filter_map(|list| status[*list].as_array()).flatten();
    let state = all.into_iter().find(|it| it["name"] == container).map(|it| &it["state"]);
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let sentence = |state: &Value| {
        let (reason, message) = (word(&state["reason"]), word(&state["message"]));
        if message.is_empty() { reason } else { format!("{reason}: {message}") }
    };
    match state {
        Some(state) if state["running"].is_object() => Progress::Running,
        Some(state) if state["terminated"].is_object() => {
            Progress::Ended(sentence(&state["terminated"]))
        }
        Some(state) if state["waiting"].is_object() => {
            Progress::Waiting(sentence(&state["waiting"]))
        }
        _ if matches!(status["phase"].as_str(), Some("Failed" | "Succeeded")) => {
            Progress::Ended(sentence(status))
        }
        _ => Progress::Waiting(word(&status["phase"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_of_a_node_shell_has_the_node_s_namespaces_and_nothing_of_the_cluster_s() {
        let opener = Opener { user: "ann", server: "here" };
        let pod = on_node("node-1", IMAGE, &["sh".to_owned()], opener);
        let pod = serde_json::to_value(pod).unwrap();
        let spec = &pod["spec"];
        assert_eq!((&spec["nodeName"], &spec["hostPID"]), (&json!("node-1"), &json!(true)));
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!((&spec["activeDeadlineSeconds"], spec.get("volumes")), (&json!(14_400), None));
        let container = &spec["containers"][0];
        // The end of the terminal is the end of the shell.
        assert_eq!((&container["stdinOnce"], &container["tty"]), (&json!(true), &json!(true)));
        let command = container["command"].as_array().unwrap();
        assert_eq!((&command[0], command.last()), (&json!("nsenter"), Some(&json!("sh"))));
        assert_eq!(pod["metadata"]["annotations"][USER], "ann");
    }

    #[test]
    fn a_container_is_waited_for_until_it_runs_or_cannot() {
        let pod = |state: Value| {
            json!({ "status": { "phase": "Pending",
                "ephemeralContainerStatuses": [{ "name": "d", "state": state }] } })
        };
        assert_eq!(progress_of(&pod(json!({ "running": {} })), "d"), Progress::Running);
        let pull = json!({ "waiting": { "reason": "ErrImagePull", "message": "no such image" } });
        let waiting = Progress::Waiting("ErrImagePull: no such image".to_owned());
        assert_eq!(progress_of(&pod(pull), "d"), waiting);
        let ended = json!({ "terminated": { "reason": "Error" } });
        assert_eq!(progress_of(&pod(ended), "d"), Progress::Ended("Error".to_owned()));
        let other = pod(json!({ "running": {} }));
        assert_eq!(progress_of(&other, "e"), Progress::Waiting("Pending".to_owned()));
        let evicted = json!({ "status": { "phase": "Failed", "reason": "Evicted" } });
        assert_eq!(progress_of(&evicted, "d"), Progress::Ended("Evicted".to_owned()));
    }
}
