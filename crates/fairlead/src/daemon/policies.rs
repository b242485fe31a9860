//! Starts to enforce policies on this node, and has them decide about its pods from their start on.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use net::Attachment;
use net::datapath::PodPolicies;
use node::enforcement::{
    self, Enforcement, EnforcerSettings, NewPods, Settings, WAIT_FOR_POLICIES,
};
use stallproof::{Deadline, sentence};
use tracing::warn;

use crate::config::Config;
use crate::daemon::process::Process;

/// How long the kernel may take for one change before a pod's start is given up on.
const ADMIT: Duration = Duration::from_secs(5);
/// How often a start that waits for policies looks whether they are there.
const LOOK: Duration = Duration::from_millis(20);

/// The node's policies, as its pod network sees them.
#[derive(Debug)]
pub(crate) struct NodePolicies {
    enforcement: Enforcement,
    new_pods: NewPods,
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
    let new_pods = config.policy.new_pods;
    let settings = Settings {
        enforcer: EnforcerSettings { new_pods, fail_mode: config.policy.fail_mode },
        file: config.data.join("policy").join("program"),
        pods: pods.collect(),
    };
    let started = enforcement::start(settings, &process.watchdog, &process.tasks);
    let enforcement = started.map_err(|error| sentence(&error))?;
    Ok(Arc::new(NodePolicies { enforcement, new_pods }))
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
        let end = Deadline::after(WAIT_FOR_POLICIES);
        while self.try_admit(attachment) == Ok(true) && !end.has_passed() {
            thread::sleep(LOOK);
        }
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
