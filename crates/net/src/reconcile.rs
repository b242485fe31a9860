//! The journal and the kernel, brought together: at the start before anything is served, and then
//! gently for ever.
//!
//! ```text
//! links, neighbours, routes (kernel) ─┐
//! attachments (journal, read after) ──┴─► plan (pure) ─► repairs
//! ```
//!
//! The journal is the record; the kernel follows:
//! - an interface of ours that no attachment has goes: it was half made, or half removed;
//! - an attachment whose interface is there gets back what is missing at the node's end;
//! - an attachment without its interface has lost it: if its sandbox is alive and can be seen it is
//!   wired again; if not, its address returns.
//!
//! Nothing here disturbs requests that are served meanwhile. The kernel is read before the journal,
//! and every attachment is recorded before its interface is made and until after it is gone: so what
//! is seen without a record has none. Repairs name interfaces by their number, which is never used
//! again. What touches a record is done in its key's own turn, where it is looked at once more.

mod plan;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use kernel::netlink::{Change, LinkRef};
use kernel::netns::Namespace;
use stallproof::backoff::{Backoff, Curve};
use stallproof::readiness::Component;
use stallproof::{Deadline, Snapshot, Stop, Tasks};
use tracing::{info, warn};

pub use plan::{Repair, Seen, plan};

use crate::attach::{Attach, Health};
use crate::node::NodeError;
use crate::wiring::{Abandoned, Names, Progress, Wiring, host_side};
use crate::{Addresses, Attachment, NamespaceId};

/// The pause between two: a listing of a thousand pods costs the kernel ten milliseconds.
const EVERY: Duration = Duration::from_secs(30);
/// How long one may take to read the kernel, and to mend one thing.
const WITHIN: Duration = Duration::from_secs(30);
/// Records that are mended at once: most of it is waiting, and requests come first.
const AT_ONCE: usize = 8;
/// When the kernel cannot be read.
const AGAIN: Curve = Curve { first: Duration::from_millis(200), most: Duration::from_secs(10) };

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reconcile {
    wiring: Wiring,
    attach: Attach<Wiring>,
    addresses: Addresses,
    tasks: Tasks,
}

/// What was done, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Interfaces and routes that nobody had.
    pub removed: usize,
    /// Attachments that got back what was missing.
    pub restored: usize,
    /// Addresses of dead sandboxes.
    pub released: usize,
    /// One sentence each; they are tried again.
    pub failed: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error("the kernel cannot be read")]
    Read(#[source] NodeError),
    #[error("the kernel does not answer within {} s", WITHIN.as_secs())]
    TooLate,
    #[error("it failed: {0}")]
    Failed(String),
}

/// What became of an attachment without its interface.
enum Mended {
    Rewired,
    Released,
    /// It was so no longer when its turn came.
    Nothing,
}

impl Reconcile {
    pub fn new(wiring: Wiring, attach: Attach<Wiring>, addresses: Addresses, tasks: Tasks) -> Self {
        Self { wiring, attach, addresses, tasks }
    }

    /// Runs until `stop`; says when the first is over, and then goes on.
    pub async fn run(self, health: Snapshot<Health>, ready: Component, stop: Stop) {
        let mut backoff = Backoff::new(AGAIN);
        let mut first = true;
        loop {
            let Some(result) = stop.bound(self.once()).await else {
                return;
            };
            let pause = match result {
                Ok(report) => {
                    report.log();
                    backoff.succeeded();
                    health.publish(Health::Well);
                    if first {
                        first = false;
                        ready.ready();
                        info!("journal and kernel agree; serving");
                    }
                    // Not all nodes at the same moment.
                    EVERY.mul_f64(0.75 + fastrand::f64() / 2.0)
                }
                Err(error) => {
                    let why = stallproof::sentence(&error);
                    warn!(error = why, "cannot reconcile");
                    if first {
                        ready.not_ready(format!("reconciling: {why}"));
                        health.publish(Health::Reconciling(why));
                    } else {
                        health.publish(Health::Limited(why));
                    }
                    backoff.failed().wait
                }
            };
            if stop.bound(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    pub async fn once(&self) -> Result<Report, ReconcileError> {
        let wiring = self.wiring.clone();
        let seen = self.on_a_thread(move || wiring.node().netlink(Seen::fetch)).await?;
        let seen = seen.map_err(ReconcileError::Read)?;
        // After the kernel was read: see the top of this file.
        let recorded: Vec<_> = self.addresses.view().attachments().cloned().collect();
        let (lost, rest): (Vec<_>, Vec<_>) = plan(&seen, &recorded)
            .into_iter()
            .partition(|repair| matches!(repair, Repair::Lost(_)));
        let mut report = Report::default();
        if !rest.is_empty() {
            let wiring = self.wiring.clone();
            report = self.on_a_thread(move || mend(&wiring, &rest)).await?;
        }
        let lost = lost.into_iter().filter_map(|repair| match repair {
            Repair::Lost(attachment) => Some(attachment),
            _ => None,
        });
        let mended: Vec<_> = futures::stream::iter(lost)
            .map(|attachment| self.regain(attachment))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for mended in mended {
            match mended {
                Ok(Mended::Rewired) => report.restored += 1,
                Ok(Mended::Released) => report.released += 1,
                Ok(Mended::Nothing) => {}
                Err(why) => report.failed.push(why),
            }
        }
        Ok(report)
    }

    /// In the turn of its key. One on which a request works is left to that.
    async fn regain(&self, attachment: Arc<Attachment>) -> Result<Mended, String> {
        let deadline = Deadline::after(WITHIN);
        let key = attachment.key.clone();
        let job = async {
            if self.addresses.view().attachment(&key) != Some(&attachment) {
                return Ok(Mended::Nothing);
            }
            let nobody_waits = Arc::new(AtomicBool::new(false));
            let given_up = GivenUp(Arc::clone(&nobody_waits));
            let (wiring, again) = (self.wiring.clone(), Arc::clone(&attachment));
            let rewire = move || rewire(&wiring, &again, &Waited(nobody_waits));
            let rewired = self.on_a_thread(rewire).await.map_err(|error| error.to_string())?;
            drop(given_up);
            if let Some(mended) = rewired? {
                return Ok(mended);
            }
            let released = self.addresses.release(&key, deadline).await;
            released.map(|_| Mended::Released).map_err(|error| error.to_string())
        };
        let mended = self.attach.alone(&key, deadline, job).await.unwrap_or(Ok(Mended::Nothing));
        mended.map_err(|why| format!("{key}: {why}"))
    }

    async fn on_a_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReconcileError> {
        let deadline = Deadline::after(WITHIN);
        let started = self.tasks.spawn_blocking("reconcile", deadline, work).await;
        let running = started.map_err(|_| ReconcileError::TooLate)?;
        let done = deadline.bound(running).await.map_err(|_| ReconcileError::TooLate)?;
        done.map_err(|error| ReconcileError::Failed(error.to_string()))
    }
}

/// Blocks. What concerns the kernel alone.
fn mend(wiring: &Wiring, repairs: &[Repair]) -> Report {
    let mut report = Report::default();
    for repair in repairs {
        let names;
        let (changes, counted) = match repair {
            Repair::Remove(link, name) => {
                warn!(interface = name, "removing an interface that no attachment has");
                (vec![Change::Delete(LinkRef::Index(*link))], &mut report.removed)
            }
            Repair::Unroute(route) => (vec![Change::DeleteRoute(*route)], &mut report.removed),
            Repair::Restore(attachment, link) => {
                names = Names::of(&attachment.key);
                (host_side(attachment, &names, *link), &mut report.restored)
            }
            Repair::Lost(_) => continue,
        };
        match wiring.node().netlink(|netlink| netlink.apply(&changes)) {
            Ok(()) => *counted += 1,
            // A request was faster.
            Err(NodeError::Kernel(error)) if error.is_absent() => {}
            Err(error) => report.failed.push(stallproof::sentence(&error)),
        }
    }
    report
}

/// Blocks. None if the sandbox is dead, or cannot be seen from here: then nobody can wire it.
fn rewire(
    wiring: &Wiring,
    attachment: &Attachment,
    waited: &Waited,
) -> Result<Option<Mended>, String> {
    let link = LinkRef::Name(&attachment.host_interface);
    let there = wiring.node().netlink(|netlink| netlink.link(link));
    if there.map_err(|error| stallproof::sentence(&error))?.is_some() {
        return Ok(Some(Mended::Nothing));
    }
    let Ok(sandbox) = Namespace::open(&attachment.netns) else {
        return Ok(None);
    };
    let id = sandbox.id();
    if attachment.namespace != (NamespaceId { device: id.device, inode: id.inode }) {
        return Ok(None);
    }
    let rewired = wiring.connect(attachment, &sandbox, waited);
    rewired.map(|_| Some(Mended::Rewired)).map_err(|error| stallproof::sentence(&error))
}

/// Nobody waits for the thread once this is dropped.
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Waited(Arc<AtomicBool>);

impl Progress for Waited {
    fn step(&self, _: &'static str) -> Result<(), Abandoned> {
        if self.0.load(Ordering::Relaxed) { Err(Abandoned) } else { Ok(()) }
    }
}

impl Report {
    fn log(&self) {
        let Self { removed, restored, released, failed } = self;
        if removed + restored + released > 0 {
            info!(removed, restored, released, "reconciled");
        }
        for why in failed.iter().take(10) {
            warn!(why, "could not be reconciled; it is tried again");
        }
    }
}

#[cfg(test)]
mod tests;
