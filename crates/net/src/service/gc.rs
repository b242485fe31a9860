//! GC: removes the attachments of a network that the runtime does not name as valid.

use std::collections::HashSet;

use futures::StreamExt;
use stallproof::Deadline;

use super::{CniService, RequestError};
use crate::AttachmentKey;
use crate::datapath::Datapath;

/// How many attachments one GC removes at once: it leaves room for ADDs of other networks.
const AT_ONCE: usize = 16;

impl<D: Datapath> CniService<D> {
    /// The runtime holds ADD and DEL back meanwhile, so every attachment there is was there when the
    /// runtime made its list.
    pub(super) async fn gc(
        &self,
        network: &str,
        valid: Vec<AttachmentKey>,
        deadline: Deadline,
    ) -> Result<(), RequestError> {
        let valid: HashSet<AttachmentKey> = valid.into_iter().collect();
        let view = self.0.addresses.view();
        let stale = view.attachments().filter(|a| a.network == network && !valid.contains(&a.key));
        let stale: Vec<AttachmentKey> = stale.map(|a| a.key.clone()).collect();
        let del = |key: AttachmentKey| async move {
            let error = self.del(key.clone(), deadline).await.err()?;
            Some((key, error))
        };
        let left: Vec<_> = futures::stream::iter(stale)
            .map(del)
            .buffer_unordered(AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        if left.is_empty() { Ok(()) } else { Err(RequestError::StaleLeft(left)) }
    }
}
