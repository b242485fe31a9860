//! Checks that the store has the definitions (CRDs) of pools and blocks: without them a node can serve
//! no pod that needs a block. `/readyz` and the errors of ADDs say so until they are there.
//!
//! The watches of pools and blocks go on trying and notice the definitions by themselves; this looks
//! only while the store has listed nothing, and now and then while there is no pool at all.

use std::sync::Arc;
use std::time::Duration;

use objects::kinds::{AddressBlock, AddressPool};
use objects::{Attempt, Error, Id, Next, Objects, Pace, Reconciler, Within};
use stallproof::backoff::Curve;
use stallproof::readiness::Component;
use stallproof::snapshot::Changes;
use stallproof::{Deadline, sentence};

use super::{BlockClaims, Blocks};
use crate::Addresses;
use crate::pool::Pools;

/// Somebody may delete a definition, and every pool with it: hence the look while there is no pool.
pub(super) const PACE: Pace = Pace {
    attempt: Duration::from_secs(10),
    resync: Duration::from_secs(60),
    settle: Duration::ZERO,
    retry: Curve { first: Duration::from_millis(500), most: Duration::from_secs(10) },
};

pub(super) struct DefinitionsCheck {
    objects: Objects,
    claims: BlockClaims,
    addresses: Addresses,
    ready: Component,
    pools: Changes<Pools>,
    blocks: Changes<Blocks>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DefinitionsError {
    #[error(
        "the definitions of {} are not there: run `fairlead install`, or `fairlead crds | kubectl \
         apply -f -`",
        .0.join(" and ")
    )]
    Missing(Vec<&'static str>),
    #[error("the address pools are not known yet")]
    Unreachable(#[source] Error),
}

impl DefinitionsCheck {
    pub(super) fn new(
        objects: Objects,
        claims: &BlockClaims,
        addresses: Addresses,
        ready: Component,
    ) -> Self {
        let (pools, blocks) = (claims.pools.subscribe(), claims.blocks.subscribe());
        Self { objects, claims: claims.clone(), addresses, ready, pools, blocks }
    }

    /// Says whether the store has listed pools and blocks: then their definitions are there.
    fn are_listed(&self) -> bool {
        self.claims.blocks.read(|blocks| blocks.synced)
            && self.claims.pools.read(|pools| pools.synced() && !pools.is_empty())
    }

    async fn look(&self, deadline: Deadline) -> Result<(), DefinitionsError> {
        let pools = self.objects.list::<AddressPool>(&Within::default(), deadline).await.map(drop);
        // There are many blocks: to ask for one that need not be there tells as much as a list.
        let id = Id::cluster("default-0");
        let blocks = self.objects.get::<AddressBlock>(&id, deadline).await.map(drop);
        let answers = [pools, blocks];
        let missing = |answer: &Result<(), Error>| answer.as_ref().err()?.missing_definition();
        let kinds: Vec<_> = answers.iter().filter_map(missing).collect();
        if !kinds.is_empty() {
            return Err(DefinitionsError::Missing(kinds));
        }
        let failed = answers.into_iter().find_map(Result::err);
        failed.map_or(Ok(()), |error| Err(DefinitionsError::Unreachable(error)))
    }
}

impl Reconciler for DefinitionsCheck {
    type Error = DefinitionsError;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, DefinitionsError> {
        let found = if self.are_listed() { Ok(()) } else { self.look(attempt.deadline).await };
        let mut unavailable = None;
        match &found {
            Ok(()) => self.ready.ready(),
            Err(error @ DefinitionsError::Missing(_)) => {
                let why = error.to_string();
                self.ready.not_ready(why.as_str());
                unavailable = Some(Arc::from(why));
            }
            // A node serves from the blocks it has.
            Err(_) if self.addresses.view().blocks().next().is_some() => self.ready.ready(),
            Err(error) => self.ready.not_ready(sentence(error)),
        }
        if self.addresses.view().pools_unavailable != unavailable {
            self.addresses.set_pools_unavailable(unavailable).await;
        }
        found.map(|()| Next::OnChange)
    }

    async fn changed(&mut self) {
        // Claims and returns of the whole cluster are of no interest once everything is listed.
        let listed = self.are_listed();
        tokio::select! {
            _ = self.pools.changed() => {}
            _ = self.blocks.changed(), if !listed => {}
        }
    }
}

#[cfg(test)]
mod tests;
