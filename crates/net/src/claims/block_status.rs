//! Writes to the store how this node's blocks are used, for people and for the leader's sums. It is a
//! reconciler of its own, so that a slow store keeps no claim waiting for this.

use std::collections::BTreeMap;
use std::time::Duration;

use objects::kinds::AddressBlockStatus;
use objects::{Attempt, Error, Expected, Next, Objects, Pace, Reconciler};
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use tokio::time::Instant;

use super::{BlockClaims, Blocks};
use crate::Addresses;
use crate::addresses::AddressTable;

/// How often a block's status is written, at most: a thousand nodes are then some tens of writes a
/// second at worst.
const EVERY: Duration = Duration::from_secs(30);
/// How long changes are gathered into one look.
const LOOK: Duration = Duration::from_secs(1);
pub(super) const PACE: Pace = Pace {
    attempt: Duration::from_secs(30),
    resync: Duration::from_secs(60),
    settle: LOOK,
    retry: Curve { first: LOOK, most: Duration::from_secs(30) },
};
/// The longest text that the schema takes.
const LONGEST_TROUBLE: usize = 4096;

pub(super) struct BlockStatusWriter {
    objects: Objects,
    node: String,
    addresses: Addresses,
    claims: BlockClaims,
    /// When each block's status was last written.
    written: BTreeMap<String, Instant>,
    blocks: Changes<Blocks>,
    table: Changes<AddressTable>,
    troubles: Changes<BTreeMap<String, Vec<String>>>,
}

impl BlockStatusWriter {
    pub(super) fn new(
        objects: Objects,
        node: String,
        addresses: Addresses,
        claims: BlockClaims,
    ) -> Self {
        Self {
            written: BTreeMap::new(),
            blocks: claims.blocks.subscribe(),
            table: addresses.changes(),
            troubles: claims.troubles.subscribe(),
            objects,
            node,
            addresses,
            claims,
        }
    }
}

impl Reconciler for BlockStatusWriter {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        let (blocks, table) = (self.claims.blocks.load(), self.addresses.view());
        let troubles = self.claims.troubles.load();
        self.written.retain(|name, _| table.block(name).is_some());
        let mut next = Next::OnChange;
        for (name, here) in table.blocks() {
            let Some(there) = blocks.get(name).filter(|there| there.spec.node == self.node) else {
                continue;
            };
            let trouble = troubles.get(here.pool()).map(|troubles| troubles.join("; "));
            let trouble = trouble.map(|text| text.chars().take(LONGEST_TROUBLE).collect());
            let (used, free) = (here.used(), here.size() - here.used());
            let status = AddressBlockStatus { used, free, trouble };
            let last = there.status.as_ref();
            let urgent = last.and_then(|last| last.trouble.as_ref()) != status.trouble.as_ref();
            if last == Some(&status) {
                continue;
            }
            let rest = self.written.get(name).map(|at| EVERY.saturating_sub(at.elapsed()));
            if let Some(rest) = rest.filter(|rest| !urgent && !rest.is_zero()) {
                next = match next {
                    Next::Within(other) => Next::Within(rest.min(other)),
                    _ => Next::Within(rest),
                };
                continue;
            }
            self.written.insert(name.to_owned(), Instant::now());
            let mut block = (**there).clone();
            block.status = Some(status);
            // A store that is away is not asked for each of them.
            self.objects.apply_status(&block, Expected::Any, attempt.deadline).await?;
        }
        Ok(next)
    }

    async fn changed(&mut self) {
        tokio::select! {
            biased;
            _ = self.blocks.changed() => {}
            _ = self.table.changed() => {}
            _ = self.troubles.changed() => {}
        }
    }
}
