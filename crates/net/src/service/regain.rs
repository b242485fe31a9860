//! Regains the interface of an attachment that has lost it: for reconciling.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use stallproof::{Deadline, Work};

use super::{CniService, RequestError, StepTracker};
use crate::datapath::Datapath;
use crate::reconcile::namespace_of;
use crate::wiring::{Wiring, WiringError, own_link, step};
use crate::{Attachment, AttachmentKey};

/// How long it may take, its turn included.
const WITHIN: Duration = Duration::from_secs(30);

/// The outcome for an attachment without its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Regained {
    /// It was wired again.
    Rewired,
    /// Its network namespace is gone, or cannot be seen from here: its address was released.
    Released,
    /// Its interface was there, or its record gone, when its turn came; or a request is at work on it.
    Nothing,
}

impl<D: Datapath> CniService<D> {
    /// Runs `job` while no request about `key` is served. Returns none if kernel work on the key is under
    /// way, or the key's turn does not come by `deadline`.
    pub(crate) async fn alone<T>(
        &self,
        key: &AttachmentKey,
        deadline: Deadline,
        job: impl Future<Output = T>,
    ) -> Option<T> {
        let job = async { if self.is_busy(key) { None } else { Some(job.await) } };
        self.0.lanes.run(Work::new(key.clone(), "reconcile", deadline), job).await.ok().flatten()
    }
}

impl CniService<Wiring> {
    pub(crate) async fn regain(
        &self,
        attachment: &Arc<Attachment>,
    ) -> Result<Regained, RequestError> {
        let key = &attachment.key;
        let deadline = Deadline::after(WITHIN);
        let call = self.begin("cni_regain", key.clone(), attachment.pod.as_ref(), deadline);
        let job = async {
            if self.0.addresses.view().attachment(key) != Some(attachment) {
                return Ok(Regained::Nothing);
            }
            let lost = Arc::clone(attachment);
            let rewire = move |wiring: &Wiring, steps: &StepTracker| rewire(wiring, &lost, steps);
            let interface = &attachment.host_interface;
            let regained = self.work("regain", &call, interface, rewire, |_, _| ()).await?;
            if let Some(regained) = regained {
                return Ok(regained);
            }
            self.0.addresses.release(key, deadline).await?;
            Ok(Regained::Released)
        };
        let result = self.alone(key, deadline, job).await.unwrap_or(Ok(Regained::Nothing));
        call.finish(&result);
        result
    }
}

/// Wires an attachment again. Returns none if its network namespace is gone, or cannot be seen from here.
/// Blocks.
fn rewire(
    wiring: &Wiring,
    attachment: &Attachment,
    steps: &StepTracker,
) -> Result<Option<Regained>, WiringError> {
    let there = wiring.node().netlink(|netlink| match own_link(netlink, attachment)? {
        Some(link) => netlink.link(link),
        None => Ok(None),
    });
    let failed = |error| WiringError { step: step::CREATE, cause: error, left: None };
    if there.map_err(|error| failed(error.into()))?.is_some() {
        return Ok(Some(Regained::Nothing));
    }
    let Some(namespace) = namespace_of(attachment) else { return Ok(None) };
    wiring.set_up(attachment, &namespace, steps)?;
    Ok(Some(Regained::Rewired))
}
