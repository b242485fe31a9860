//! Plans a drain: which pods of a node are evicted, which stay, and which forbid it. The rules are those
//! of `kubectl drain`.

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

use super::Allow;

/// The annotation of a mirror pod: the kubelet's copy of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub evict: Vec<Evict>,
    pub skip: Vec<(String, String, Skip)>,
    /// Pods that forbid the drain.
    pub refused: Vec<Refusal>,
}

/// A pod to evict, identified by its uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
}

impl Evict {
    pub(super) fn name(&self) -> (String, String) {
        (self.namespace.clone(), self.pod.clone())
    }
}

/// Why a pod stays on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Skip {
    /// A DaemonSet would replace it at once, also on a cordoned node.
    DaemonSet,
    /// It is a static pod.
    Mirror,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub namespace: String,
    pub pod: String,
    /// At least one reason.
    pub reasons: Vec<Reason>,
}

/// Why a pod may not be evicted, in the order of kubectl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// A DaemonSet would replace it at once.
    DaemonSet,
    /// It would lose the data of an `emptyDir`.
    EmptyDir,
    /// No controller would replace it.
    Unmanaged,
}

impl Reason {
    /// Returns the reason as a sentence.
    pub fn why(self) -> &'static str {
        match self {
            Self::DaemonSet => "its DaemonSet would make it anew at once",
            Self::EmptyDir => "its emptyDir would be lost",
            Self::Unmanaged => "nothing would make it anew elsewhere",
        }
    }
}

impl Refusal {
    pub fn why(&self) -> String {
        self.reasons.iter().map(|reason| reason.why()).collect::<Vec<_>>().join("; ")
    }
}

pub fn plan(pods: impl IntoIterator<Item = Pod>, allow: Allow) -> Plan {
    let mut plan = Plan::default();
    for pod in pods {
        let verdict = verdict(&pod, allow);
        let metadata = pod.metadata;
        let (namespace, pod) =
            (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
        match verdict {
            Transition::Evict => {
                let uid = metadata.uid.unwrap_or_default();
                plan.evict.push(Evict { namespace, pod, uid });
            }
            Transition::Skip(why) => plan.skip.push((namespace, pod, why)),
            Transition::Refuse(reasons) => plan.refused.push(Refusal { namespace, pod, reasons }),
        }
    }
    plan
}

enum Transition {
    Evict,
    Skip(Skip),
    Refuse(Vec<Reason>),
}

fn verdict(pod: &Pod, allow: Allow) -> Transition {
    let metadata = &pod.metadata;
    if metadata.annotations.iter().flatten().any(|(key, _)| key == MIRROR) {
        return Transition::Skip(Skip::Mirror);
    }
    // A pod that has ended has nothing to lose.
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return Transition::Evict;
    }
    let owners = metadata.owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    if controller.is_some_and(|owner| owner.kind == "DaemonSet") {
        return if allow.daemon_sets {
            Transition::Skip(Skip::DaemonSet)
        } else {
            Transition::Refuse(vec![Reason::DaemonSet])
        };
    }
    let mut reasons = Vec::new();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    if volumes.into_iter().any(|volume| volume.empty_dir.is_some()) && !allow.empty_dir {
        reasons.push(Reason::EmptyDir);
    }
    if controller.is_none() && !allow.unmanaged {
        reasons.push(Reason::Unmanaged);
    }
    if reasons.is_empty() { Transition::Evict } else { Transition::Refuse(reasons) }
}

#[cfg(test)]
mod tests;
