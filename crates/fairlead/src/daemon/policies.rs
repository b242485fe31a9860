//! Starts to enforce policies on this node, and has them decide about its pods from their start on.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use net::Attachment;
use net::datapath::PodPolicies;
use node::enforcement::{
    self, DenySettings, Enforcement, EnforcerSettings, NewPods, PodNetwork, Settings,
};
use stallproof::{Deadline, sentence};
use tracing::{info, warn};

use crate::config::Config;
use crate::daemon::process::Process;

/// How long the kernel may take for one change before a pod's start is given up on.
const ADMIT: Duration = Duration::from_secs(5);

/// The node's policies, as its pod network sees them.
#[derive(Debug)]
pub(crate) struct NodePolicies {
    enforcement: Enforcement,
    new_pods: NewPods,
}

/// Begins to enforce what was enforced last, on a node whose pods another plugin connects: they are those
/// that the program names.
pub(crate) fn begin_beside(config: &Config, process: &Process) -> Result<Enforcement, String> {
    start(config, process, PodNetwork::Foreign, Vec::new())
}

/// Begins to enforce what was enforced last. When this returns, it decides about the attachments' pods.
pub(crate) fn begin(
    config: &Config,
    process: &Process,
    attachments: &[Arc<Attachment>],
) -> Result<Arc<NodePolicies>, String> {
    let pods = attachments.iter().flat_map(|attachment| {
        let pod: Arc<str> = name(attachment).into();
        attachment.addresses().map(move |address| (address, Arc::clone(&pod)))
    });
    let enforcement = start(config, process, PodNetwork::Own, pods.collect())?;
    Ok(Arc::new(NodePolicies { enforcement, new_pods: config.policy.new_pods }))
}

/// Takes back what an agent of this node enforced when it was to: rules outlive the agent, and nobody would
/// keep them up to date.
pub(crate) fn end(config: &Config) {
    let file = file(config);
    // Only where this data directory's agent has enforced: the table may be another's.
    if !file.exists() {
        return;
    }
    match enforcement::remove() {
        Ok(_) => {
            info!("policies are not enforced any more: policy.enforce is off");
            if let Err(error) = std::fs::remove_file(&file) {
                warn!(%error, file = %file.display(), "the last policies cannot be removed");
            }
        }
        Err(error) => warn!(%error, "the policies that were enforced last cannot be taken back"),
    }
}

fn file(config: &Config) -> PathBuf {
    config.data.join("policy").join("program")
}

fn start(
    config: &Config,
    process: &Process,
    network: PodNetwork,
    pods: Vec<(IpAddr, Arc<str>)>,
) -> Result<Enforcement, String> {
    let enforcer = EnforcerSettings {
        new_pods: config.policy.new_pods,
        fail_mode: config.policy.fail_mode,
        deny: DenySettings {
            network_policy: config.policy.deny_network_policies,
            cluster_policy: config.policy.deny_cluster_policies,
            guard: config.policy.deny_guard,
        },
    };
    let settings = Settings { enforcer, network, file: file(config), pods };
    let started = enforcement::start(settings, &process.watchdog, &process.tasks);
    started.map_err(|error| sentence(&error))
}

/// Namespace and name; a container that is no pod is in no namespace.
fn name(attachment: &Attachment) -> String {
    match &attachment.pod {
        Some(pod) => pod.to_string(),
        None => format!("/{}", attachment.key.container),
    }
}

fn addresses(attachment: &Attachment) -> Vec<IpAddr> {
    attachment.addresses().collect()
}

impl NodePolicies {
    pub(crate) fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    fn try_admit(&self, attachment: &Attachment) -> Result<bool, String> {
        let (pod, addresses) = (name(attachment), addresses(attachment));
        let admitted = self.enforcement.admit(&pod, &addresses, Deadline::after(ADMIT));
        admitted.map_err(|error| sentence(&error))
    }
}

impl PodPolicies for NodePolicies {
    fn admit(&self, attachment: &Attachment) -> Result<(), String> {
        self.try_admit(attachment).map(|_| ())
    }

    fn settle(&self, attachment: &Attachment) {
        if self.new_pods != NewPods::Wait {
            return;
        }
        self.enforcement.wait_for_policies(&name(attachment), &addresses(attachment));
    }

    fn release(&self, attachment: &Attachment) {
        if let Err(error) = self.enforcement.release(&addresses(attachment)) {
            let (pod, error) = (name(attachment), sentence(&error));
            warn!(
                pod,
                error, "a pod's addresses are still decided about; the next program ends that"
            );
        }
    }
}
