//! `KernelReconciler`: brings the journal and the kernel together: at the start before anything is
//! served, and then gently for ever.
//!
//! ```text
//! links, neighbours, routes (kernel) ─┐
//! attachments (journal, read after) ──┴─► plan (pure) ─► repairs
//! ```
//!
//! The journal is the record; the kernel follows:
//! - an interface of ours that no attachment has is removed: it was half made, or half removed;
//! - an attachment whose interface is there gets back what is missing at the node's end;
//! - an attachment without its interface has lost it: if its network namespace is alive and can be seen it
//!   is wired again; if not, its address is released.
//!
//! Nothing here disturbs requests that are served meanwhile. The kernel is read first, then which requests
//! are at work, then the journal. Every interface is made by a request that is at work until its attachment
//! is recorded, and a record stays, if only as leaving, until its interface is gone: so what is seen with
//! neither has none. Repairs name interfaces by their number, which is never used
//! again. A repair that touches a record runs in its key's own turn, where it looks once more.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kernel::netlink::{self, Change, LinkRef, Netlink};
use kernel::netns::Namespace;
use objects::{Attempt, Next, Pace, Reconciler};
use stallproof::backoff::Curve;
use stallproof::readiness::Component;
use stallproof::{Deadline, Tasks, sentence};
use tracing::{info, warn};

pub use plan::{KernelState, Repair, UnderWay, plan};

use crate::foreign;
use crate::node::{KernelCallError, NodeError, kernel_call};
use crate::service::{CniService, Health, Regained};
use crate::wiring::{InterfaceNames, Wiring, host_side};
use crate::{Addresses, Attachment};

/// A listing of a thousand pods costs the kernel ten milliseconds; not all nodes list at the same moment.
/// Each kernel call of an attempt has a deadline of its own.
pub(crate) const PACE: Pace = Pace {
    attempt: Duration::from_secs(600),
    resync: Duration::from_secs(30),
    settle: Duration::ZERO,
    retry: Curve { first: Duration::from_millis(200), most: Duration::from_secs(10) },
};
/// How long it may take to read the kernel, and to repair what concerns the kernel alone.
const WITHIN: Duration = Duration::from_secs(30);
/// How many records are repaired at once: most of it is waiting, and requests come first.
const AT_ONCE: usize = 8;

#[derive(Debug)]
pub struct KernelReconciler {
    wiring: Wiring,
    service: CniService<Wiring>,
    addresses: Addresses,
    tasks: Tasks,
    ready: Component,
    /// Whether the first attempt is over.
    serving: bool,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReconcileReport {
    /// Interfaces and routes that no attachment had.
    pub removed: usize,
    /// Attachments that got back what was missing.
    pub restored: usize,
    /// Addresses of network namespaces that are gone.
    pub released: usize,
    /// What could not be repaired, one sentence each; the next attempt tries again.
    pub failed: Vec<String>,
}

impl KernelReconciler {
    pub fn new(
        wiring: Wiring,
        service: CniService<Wiring>,
        addresses: Addresses,
        tasks: Tasks,
        ready: Component,
    ) -> Self {
        Self { wiring, service, addresses, tasks, ready, serving: false }
    }

    /// Makes one attempt.
    pub async fn once(&self) -> Result<ReconcileReport, KernelCallError> {
        self.attempt(KernelState::fetch).await
    }

    /// Makes one attempt, with what `fetch` reads of the kernel.
    async fn attempt(
        &self,
        fetch: impl FnOnce(&mut Netlink) -> Result<KernelState, netlink::Error> + Send + 'static,
    ) -> Result<ReconcileReport, KernelCallError> {
        let wiring = self.wiring.clone();
        let look = move || {
            let foreign = wiring.node().netlink(foreign::read)?;
            let addresses = foreign.keys().copied().collect();
            wiring.note_foreign(foreign);
            Ok((addresses, wiring.node().netlink(fetch)?))
        };
        let (foreign, seen) = self.on_a_thread(look).await?.map_err(KernelCallError::Node)?;
        // Before a request is served that could be given one of them.
        self.addresses.set_foreign(foreign).await;
        // The journal is read last, and the kernel first: see the top of this file.
        let interfaces = self.service.interfaces_under_way();
        let view = self.addresses.view();
        let under_way = UnderWay { interfaces, leaving: view.leaving().cloned().collect() };
        let recorded: Vec<_> = view.attachments().cloned().collect();
        let (mut lost, mut rest) = (Vec::new(), Vec::new());
        for repair in plan(&seen, &under_way, &recorded) {
            match repair {
                Repair::Regain(attachment) => lost.push(attachment),
                other => rest.push(other),
            }
        }
        let mut report = ReconcileReport::default();
        if !rest.is_empty() {
            let wiring = self.wiring.clone();
            report = self.on_a_thread(move || repair(&wiring, &rest)).await?;
        }
        let regain = |lost: Arc<Attachment>| async move {
            let regained = self.service.regain(&lost).await;
            regained.map_err(|error| format!("{}: {}", lost.key, sentence(&error)))
        };
        let regained: Vec<_> =
            futures::stream::iter(lost).map(regain).buffer_unordered(AT_ONCE).collect().await;
        for regained in regained {
            match regained {
                Ok(Regained::Rewired) => report.restored += 1,
                Ok(Regained::Released) => report.released += 1,
                Ok(Regained::Nothing) => {}
                Err(why) => report.failed.push(why),
            }
        }
        Ok(report)
    }

    async fn on_a_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, KernelCallError> {
        kernel_call(&self.tasks, "reconcile", Deadline::after(WITHIN), work).await
    }
}

impl Reconciler for KernelReconciler {
    type Error = KernelCallError;

    async fn reconcile(&mut self, _: &Attempt) -> Result<Next, KernelCallError> {
        let result = self.once().await;
        let health = self.service.health();
        match &result {
            Ok(report) => {
                report.log();
                health.publish(Health::Well);
                if !std::mem::replace(&mut self.serving, true) {
                    self.ready.ready();
                    info!("journal and kernel agree; serving");
                }
            }
            Err(error) if self.serving => {
                health.publish(Health::Limited(sentence(error)));
            }
            Err(error) => {
                let why = sentence(error);
                self.ready.not_ready(format!("reconciling: {why}"));
                health.publish(Health::Reconciling(why));
            }
        }
        result.map(|_| Next::OnChange)
    }
}

/// Makes the repairs that concern the kernel alone. Blocks.
fn repair(wiring: &Wiring, repairs: &[Repair]) -> ReconcileReport {
    let mut report = ReconcileReport::default();
    for repair in repairs {
        let names;
        let (changes, counted) = match repair {
            Repair::RemoveInterface(link, name) => {
                warn!(interface = name, "removing an interface that no attachment has");
                (vec![Change::Delete(LinkRef::Index(*link))], &mut report.removed)
            }
            Repair::RemoveRoute(route) => (vec![Change::DeleteRoute(*route)], &mut report.removed),
            Repair::RestoreHostSide(attachment, link) => {
                names = InterfaceNames::of_attachment(attachment);
                (host_side(attachment, &names, *link), &mut report.restored)
            }
            Repair::Regain(_) => continue,
        };
        match wiring.node().netlink(|netlink| netlink.apply(&changes)) {
            Ok(()) => *counted += 1,
            // A request was faster.
            Err(NodeError::Kernel(error)) if error.not_found() => {}
            Err(error) => report.failed.push(sentence(&error)),
        }
    }
    report
}

/// Opens the attachment's network namespace, if it is still the same and can be seen from here.
pub(crate) fn namespace_of(attachment: &Attachment) -> Option<Namespace> {
    Namespace::open(&attachment.netns).ok().filter(|found| found.id() == attachment.namespace)
}

impl ReconcileReport {
    fn log(&self) {
        let Self { removed, restored, released, failed } = self;
        if removed + restored + released > 0 {
            info!(removed, restored, released, "reconciled");
        }
        for why in failed.iter().take(10) {
            warn!(why, "an attachment cannot be repaired; the next attempt tries again");
        }
    }
}

#[cfg(test)]
mod tests;
