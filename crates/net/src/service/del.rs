//! DEL: the interfaces, then the address.

use std::sync::Arc;

use stallproof::Deadline;
use tracing::info;

use super::{Call, CniService, RequestError, StepTracker};
use crate::datapath::Datapath;
use crate::{Attachment, AttachmentKey};

impl<D: Datapath> CniService<D> {
    pub(super) async fn del(
        &self,
        key: AttachmentKey,
        deadline: Deadline,
    ) -> Result<(), RequestError> {
        let record = || self.0.addresses.view().attachment(&key).cloned();
        let pod = record().and_then(|record| record.pod.clone());
        let call = self.begin("cni_del", key.clone(), pod.as_ref(), deadline);
        let job = async {
            // Read again in the key's turn: an ADD before this DEL may have made the record.
            let Some(record) = record() else { return Ok(()) };
            self.tear_down(&record, &call).await?;
            info!(container = %key.container, "detached");
            Ok(())
        };
        let result = self.turn(&call, job).await;
        call.finish(&result);
        result
    }

    /// Clears the kernel first: an address is free when nothing carries it any more.
    pub(super) async fn tear_down(
        &self,
        record: &Arc<Attachment>,
        call: &Call,
    ) -> Result<(), RequestError> {
        let tear_down = {
            let record = Arc::clone(record);
            move |datapath: &D, steps: &StepTracker| datapath.tear_down(&record, steps)
        };
        // The record stays, so the next DEL finds what is left.
        self.work("tear_down", call, tear_down, |_, _| ()).await?;
        call.op.step("release");
        self.0.addresses.release(&record.key, call.deadline).await?;
        Ok(())
    }
}
