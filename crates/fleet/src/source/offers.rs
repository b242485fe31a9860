//! The clusters of a private fleet, which its owner offers one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::kubeconfig::sent;
use super::{Offer, SourceOutput, Sources};
use crate::view::{Source, SourceKind};

/// The clusters that a private fleet has. They stay when this is dropped.
pub struct Offers {
    output: SourceOutput,
    offered: BTreeMap<Arc<str>, Offer>,
}

impl Offers {
    pub(crate) fn source() -> (Self, Sources) {
        let mut sources = Sources { outlets: Vec::new(), told: Arc::default() };
        let offers = Self { output: sources.output(), offered: BTreeMap::new() };
        offers.tell();
        (offers, sources)
    }

    /// Offers a cluster with the kubeconfig from the Secret `place`, or with the reason why there is
    /// none. When only the credentials differ from those offered before, users keep their connections.
    pub fn offer(&mut self, name: &str, place: &str, kubeconfig: Result<&str, String>) {
        let access = kubeconfig.and_then(|text| sent(text, None));
        let offer = Offer {
            name: name.into(),
            source: Source { kind: SourceKind::Secret, place: place.to_owned() },
            labels: BTreeMap::new(),
            enabled: true,
            access: access.map(Arc::new),
        };
        self.offered.insert(Arc::clone(&offer.name), offer);
        self.tell();
    }

    pub fn withdraw(&mut self, name: &str) {
        if self.offered.remove(name).is_some() {
            self.tell();
        }
    }

    fn tell(&self) {
        self.output.tell(self.offered.values().cloned().collect());
    }
}

impl fmt::Debug for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.offered.keys()).finish()
    }
}
