//! `GuardHold`: where encryption is required, a pod's addresses are routed when the routes that refuse its
//! packets in clear text are there.
//!
//! Contract: after a node's agent has started, a pod is held for as long as it takes to make these routes, some
//! milliseconds, and for [`LONGEST`] at most; after that its ADD fails, and the runtime comes back. The agent
//! makes them before the interface, so a node on which there can be no interface still gets its pods.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use stallproof::Snapshot;

use crate::Attachment;
use crate::datapath::PodPolicies;

/// A runtime waits for longer.
const LONGEST: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct GuardHold {
    guarded: Snapshot<BTreeSet<IpNet>>,
    longest: Duration,
}

impl GuardHold {
    /// Lets pods of these networks pass.
    pub(crate) fn new(guarded: Snapshot<BTreeSet<IpNet>>) -> Self {
        Self { guarded, longest: LONGEST }
    }

    fn unguarded(&self, attachment: &Attachment) -> Option<std::net::IpAddr> {
        let guarded = self.guarded.load();
        attachment.addresses().find(|address| !guarded.iter().any(|net| net.contains(address)))
    }
}

impl PodPolicies for GuardHold {
    fn admit(&self, attachment: &Attachment) -> Result<(), String> {
        let until = Instant::now() + self.longest;
        while let Some(address) = self.unguarded(attachment) {
            if Instant::now() >= until {
                return Err(format!(
                    "encryption is required, and packets of {address} could leave without: the routes that \
                     refuse them are not made yet; see the agent's log"
                ));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn settle(&self, _: &Attachment) {}

    fn release(&self, _: &Attachment) {}
}

#[cfg(test)]
mod tests;
