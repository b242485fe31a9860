//! What is known of a cluster's nodes and peers, or why it is not known.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::peer_index::PeerIndex;

/// Objects by name. A clone is cheap, and the difference between two indexes is found without comparing
/// what they share.
pub type Index<T> = OrdMap<Arc<str>, Arc<T>>;

/// Indexes objects by their names; those of a namespace as `namespace/name`.
pub fn index<T: ResourceExt>(objects: impl IntoIterator<Item = T>) -> Index<T> {
    let named = |object: T| (Arc::from(index_key(&object)), Arc::new(object));
    objects.into_iter().map(named).collect()
}

/// An object's place in an index.
pub(crate) fn index_key(object: &impl ResourceExt) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// The nodes or the peers of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed<T> {
    /// All of them. An empty cluster is known too.
    Known(T),
    /// They cannot be read yet. The text names what is missing: `the Peer CRD`, `Secret prod-eu`.
    Waiting(String),
    /// The cluster cannot be asked. The text says why.
    Away(String),
}

impl<T> Observed<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(all) => Some(all),
            Self::Waiting(_) | Self::Away(_) => None,
        }
    }

    /// Whether they are known, or why not.
    pub(crate) fn state(&self) -> Observed<()> {
        match self {
            Self::Known(_) => Observed::Known(()),
            Self::Waiting(what) => Observed::Waiting(what.clone()),
            Self::Away(why) => Observed::Away(why.clone()),
        }
    }
}

pub(crate) type IndexChange<T> = (Arc<str>, Option<Arc<T>>, Option<Arc<T>>);

/// The names at which two indexes differ, with the object before and after. An unknown index is empty.
pub(crate) fn changes<T: PartialEq>(
    before: Option<&Index<T>>,
    after: Option<&Index<T>>,
) -> Vec<IndexChange<T>> {
    let none = Index::default();
    let change = |item: DiffItem<'_, '_, Arc<str>, Arc<T>>| match item {
        DiffItem::Add(name, new) => (Arc::clone(name), None, Some(Arc::clone(new))),
        DiffItem::Update { old: (name, old), new: (_, new) } => {
            (Arc::clone(name), Some(Arc::clone(old)), Some(Arc::clone(new)))
        }
        DiffItem::Remove(name, old) => (Arc::clone(name), Some(Arc::clone(old)), None),
    };
    before.unwrap_or(&none).diff(after.unwrap_or(&none)).map(change).collect()
}

impl<T: PartialEq> Observed<T> {
    /// Replaces what is observed, and returns whether it changed.
    pub(crate) fn replace(&mut self, now: Self) -> bool {
        let changed = *self != now;
        *self = now;
        changed
    }
}

/// What is known of one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    pub nodes: Observed<Index<Node>>,
    pub peers: Observed<PeerIndex>,
}

/// Says why a cluster is away that nobody has observed.
pub(crate) const NOT_OBSERVED: &str = "nothing is known of it";

impl Default for Observation {
    fn default() -> Self {
        Self::away(NOT_OBSERVED)
    }
}

impl Observation {
    /// A cluster of which neither nodes nor peers are known.
    pub(crate) fn away(why: &str) -> Self {
        Self { nodes: Observed::Away(why.to_owned()), peers: Observed::Away(why.to_owned()) }
    }
}
