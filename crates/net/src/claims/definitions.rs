//! Whether the store has what pools and blocks are kept as: without their definitions a node can serve
//! no pod that needs a block. That is said by `/readyz` and in the errors of ADDs, until they are there.
//!
//! The watches of pools and blocks go on trying and notice the definitions by themselves; this looks
//! only while nothing has been told, and now and then while there is no pool at all.

use std::sync::Arc;
use std::time::Duration;

use objects::kinds::{AddressBlock, AddressPool};
use objects::{Error, Id, Objects, Within};
use stallproof::backoff::Curve;
use stallproof::readiness::Component;
use stallproof::{Backoff, Deadline, Stop, sentence};
use tracing::{info, warn};

use super::Claims;
use crate::Addresses;

/// For one call of the store.
const CALL: Duration = Duration::from_secs(5);
/// Between two looks while something is missing.
const AGAIN: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(10) };
/// Between two looks while there is no pool: somebody may have deleted the definition, and all with it.
const NO_POOL: Duration = Duration::from_secs(60);

/// How it stands with the store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// It has told the pools and the blocks, or is about to.
    There,
    /// Not before a person does something.
    Missing(Vec<&'static str>),
    Away(String),
}

pub(super) async fn run(
    objects: Objects,
    claims: Claims,
    addresses: Addresses,
    ready: Component,
    stop: Stop,
) {
    let mut pools = claims.pools.subscribe();
    let mut blocks = claims.blocks.subscribe();
    let mut backoff = Backoff::new(AGAIN);
    let mut before = Found::There;
    loop {
        let told = claims.blocks.read(|blocks| blocks.synced)
            && claims.pools.read(|pools| pools.as_ref().is_some_and(|all| !all.is_empty()));
        let found = if told {
            Found::There
        } else {
            let Some(found) = stop.bound(look(&objects)).await else { return };
            found
        };
        if found != before {
            tell(&found, &before, &addresses, &ready).await;
        } else if found == Found::There {
            ready.ready();
        }
        let wait = match (&found, told) {
            (Found::There, true) => None,
            (Found::There, false) => {
                backoff.succeeded();
                Some(NO_POOL)
            }
            _ => Some(backoff.failed().wait),
        };
        before = found;
        let pause = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.stopped() => return,
            _ = pools.changed() => {}
            // Claims and releases of the whole cluster: of no interest once they are told.
            _ = blocks.changed(), if !told => {}
            () = pause => {}
        }
    }
}

async fn tell(found: &Found, before: &Found, addresses: &Addresses, ready: &Component) {
    let obstacle = match found {
        Found::There => {
            if matches!(before, Found::Missing(_)) {
                info!("the definitions of address pools and blocks are there");
            }
            ready.ready();
            None
        }
        Found::Missing(kinds) => {
            let why = format!(
                "the definitions of {} are not there: run `fairlead install`, or `fairlead crds | \
                 kubectl apply -f -`",
                kinds.join(" and ")
            );
            if !matches!(before, Found::Missing(_)) {
                warn!(why, "no block can be claimed");
            }
            ready.not_ready(why.as_str());
            Some(Arc::from(why))
        }
        Found::Away(why) => {
            // A node serves from the blocks it has.
            match addresses.view().blocks().next() {
                Some(_) => ready.ready(),
                None => ready.not_ready(format!("the pools are not known yet: {why}")),
            }
            None
        }
    };
    if addresses.view().obstacle != obstacle {
        addresses.obstruct(obstacle).await;
    }
}

async fn look(objects: &Objects) -> Found {
    let deadline = Deadline::after(CALL);
    let pools = objects.list::<AddressPool>(&Within::default(), deadline).await.map(drop);
    // Of blocks there are many: one that need not be there tells as much.
    let id = Id::cluster("default-0");
    let blocks = objects.get::<AddressBlock>(&id, deadline).await.map(drop);
    let answers = [pools, blocks];
    let missing = |answer: &Result<(), Error>| answer.as_ref().err()?.missing_definition();
    let kinds: Vec<_> = answers.iter().filter_map(missing).collect();
    if !kinds.is_empty() {
        return Found::Missing(kinds);
    }
    let failed = answers.into_iter().find_map(Result::err);
    failed.map_or(Found::There, |error| Found::Away(sentence(&error)))
}

#[cfg(test)]
mod tests;
