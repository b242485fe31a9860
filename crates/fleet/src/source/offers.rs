//! The clusters of a private fleet, which its owner offers by the Secrets that hold their kubeconfigs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use objects::Id;

use super::kubeconfig::sent;
use super::secrets::text;
use super::{Offer, SourceOutput, Sources};
use crate::view::{Source, SourceKind};

/// The clusters that a private fleet has. They stay when this is dropped.
pub struct Offers {
    output: SourceOutput,
    /// The clusters by name, each with the kubeconfig that it was made from.
    offered: BTreeMap<Arc<str>, (Result<String, String>, Offer)>,
}

/// A cluster whose kubeconfig is under a key of a Secret.
#[derive(Clone, Copy, Debug)]
pub struct SecretCluster<'a> {
    pub secret: &'a Secret,
    pub key: &'a str,
}

impl Offers {
    pub(crate) fn source() -> (Self, Sources) {
        let mut sources = Sources::none();
        let offers = Self { output: sources.output(), offered: BTreeMap::new() };
        offers.tell();
        (offers, sources)
    }

    /// Offers exactly these clusters, by their names. A cluster with the same kubeconfig as before is
    /// left as it is; when only the credentials differ, users keep their connections.
    pub fn replace<'a>(&mut self, clusters: impl IntoIterator<Item = (String, SecretCluster<'a>)>) {
        let mut before = std::mem::take(&mut self.offered);
        let mut changed = false;
        for (name, SecretCluster { secret, key }) in clusters {
            let name: Arc<str> = name.into();
            let kubeconfig = text(secret, &[key]);
            let same = before.remove(&name).filter(|(known, _)| *known == kubeconfig);
            changed |= same.is_none();
            let offered = same.unwrap_or_else(|| {
                let offer = offer(Arc::clone(&name), secret, &kubeconfig);
                (kubeconfig, offer)
            });
            self.offered.insert(name, offered);
        }
        if changed || !before.is_empty() {
            self.tell();
        }
    }

    fn tell(&self) {
        self.output.tell(self.offered.values().map(|(_, offer)| offer.clone()).collect());
    }
}

fn offer(name: Arc<str>, secret: &Secret, kubeconfig: &Result<String, String>) -> Offer {
    let place = Id::of(secret).to_string();
    let access = match kubeconfig {
        Ok(text) => sent(text, None),
        Err(why) => Err(format!("Secret {place}: {why}")),
    };
    Offer {
        name,
        source: Source { kind: SourceKind::Secret, place },
        labels: BTreeMap::new(),
        enabled: true,
        access: access.map(Arc::new),
    }
}

impl fmt::Debug for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.offered.keys()).finish()
    }
}
