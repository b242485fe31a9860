//! The sources of clusters. Each source is a task that publishes all of its clusters; [`merge`] makes
//! one fleet of the clusters of all sources.
//!
//! Contract:
//! - A source publishes its whole set in one step, and only when it differs.
//! - A cluster whose definition cannot be read is an offer with a sentence instead of an access.
//! - The first offer of a name keeps it as long as it is made. Of two that come together the first wins,
//!   by the order of [`SourceKind`] and then by the source's own order. The other one is shown as
//!   shadowed, with the source that has its name, and is not used.

mod imported;
mod in_cluster;
pub(crate) mod kubeconfig;
mod kubeconfig_files;
mod offers;
mod proxy;
mod secrets;

pub use offers::{Offers, SecretCluster};

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use objects::Objects;
use objects::kinds::Impersonation;
use stallproof::{Snapshot, Tasks};
use tokio::sync::Notify;

use crate::config::FleetConfig;
use crate::credentials::Access;
use crate::view::{Source, SourceKind};

/// A cluster that a source offers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    pub(crate) name: Arc<str>,
    pub(crate) source: Source,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) enabled: bool,
    /// How to reach the cluster, or the sentence that says why that is unknown.
    pub(crate) access: Result<Arc<Access>, String>,
}

/// The offers of one source; `None` until it has published.
type SourceOffers = Option<Arc<[Offer]>>;

/// Publishes the offers of one source.
#[derive(Clone, Debug)]
struct SourceOutput {
    found: Snapshot<SourceOffers>,
    told: Arc<Notify>,
}

impl SourceOutput {
    fn tell(&self, offers: Vec<Offer>) {
        if self.found.publish(Some(offers.into())) {
            self.told.notify_one();
        }
    }
}

/// The sources of a fleet.
#[derive(Debug)]
pub(crate) struct Sources {
    /// In the order of precedence.
    outlets: Vec<Snapshot<SourceOffers>>,
    pub(crate) told: Arc<Notify>,
    /// The clusters on which users act under their own names, whatever their source says.
    impersonate: Vec<String>,
}

impl Sources {
    /// Has users act under their own names on these clusters.
    pub(crate) fn impersonating(self, clusters: Vec<String>) -> Self {
        Self { impersonate: clusters, ..self }
    }

    pub(crate) fn start(config: FleetConfig, objects: &Objects, tasks: &Tasks) -> Self {
        let mut sources = Self::none();
        let local = config.local_imports;
        let output = sources.output();
        spawn(tasks, "source imported", imported::run(objects.clone(), local, output));
        if let Some(in_cluster) = config.in_cluster {
            let output = sources.output();
            spawn(tasks, "source in-cluster", in_cluster::run(in_cluster, output));
        }
        if !config.kubeconfigs.is_empty() {
            let output = sources.output();
            let run = kubeconfig_files::run(config.kubeconfigs, output, tasks.clone());
            spawn(tasks, "source kubeconfigs", run);
        }
        if let Some(secrets) = config.secrets {
            let output = sources.output();
            let run = secrets::run(secrets, local, objects.clone(), output, tasks.clone());
            spawn(tasks, "source secrets", run);
        }
        sources
    }

    pub(crate) fn none() -> Self {
        Self { outlets: Vec::new(), told: Arc::default(), impersonate: Vec::new() }
    }

    fn output(&mut self) -> SourceOutput {
        let found = Snapshot::new(None);
        self.outlets.push(found.clone());
        SourceOutput { found, told: Arc::clone(&self.told) }
    }

    /// Returns the offers of all sources, and whether each source has published.
    pub(crate) fn found(&self) -> (Vec<Arc<[Offer]>>, bool) {
        let found: Vec<_> = self.outlets.iter().map(|found| found.read(Option::clone)).collect();
        let complete = found.iter().all(Option::is_some);
        let offers = found.into_iter().flatten().map(|offers| self.impersonated(offers));
        (offers.collect(), complete)
    }

    /// The offers, with users who act under their own names where that is configured.
    fn impersonated(&self, offers: Arc<[Offer]>) -> Arc<[Offer]> {
        let is_meant = |offer: &Offer| {
            let has = |access: &Arc<Access>| access.impersonation.is_some();
            self.impersonate.iter().any(|name| **name == *offer.name)
                && !offer.access.as_ref().is_ok_and(has)
        };
        if !offers.iter().any(is_meant) {
            return offers;
        }
        let change = |offer: &Offer| {
            let mut offer = offer.clone();
            if is_meant(&offer) {
                offer.access = offer.access.and_then(|access| {
                    Access::clone(&access).impersonating(Impersonation::default()).map(Arc::new)
                });
            }
            offer
        };
        offers.iter().map(change).collect()
    }
}

fn spawn(tasks: &Tasks, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
    let stop = tasks.stopping();
    tasks.spawn(name, async move {
        stop.bound(run).await;
    });
}

/// The clusters of all sources, each name once.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Merged {
    pub(crate) wanted: BTreeMap<Arc<str>, Arc<Offer>>,
    /// Shadowed offers with the source that has their name, sorted by name.
    pub(crate) shadowed: Vec<(Offer, Source)>,
}

/// `holder` returns the source that has a name so far. `disabled` says whether a name is on the list of
/// disabled clusters; an imported cluster has a field for it instead.
pub(crate) fn merge<'a>(
    found: impl IntoIterator<Item = &'a Offer>,
    holder: impl Fn(&str) -> Option<Source>,
    disabled: impl Fn(&str) -> bool,
) -> Merged {
    let mut merged = Merged::default();
    let (held, others): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|offer| holder(&offer.name).is_some_and(|holder| holder == offer.source));
    for offer in held.into_iter().chain(others) {
        match merged.wanted.entry(Arc::clone(&offer.name)) {
            Entry::Occupied(winner) => {
                merged.shadowed.push((offer.clone(), winner.get().source.clone()));
            }
            Entry::Vacant(place) => {
                let mut offer = offer.clone();
                if offer.source.kind != SourceKind::Imported {
                    offer.enabled &= !disabled(&offer.name);
                }
                place.insert(Arc::new(offer));
            }
        }
    }
    merged.shadowed.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    merged
}

#[cfg(test)]
mod tests;
