//! The names of peers. [`plain_name`] is readable; [`hashed_name`] is unique to a node and is used
//! where the plain name belongs to another peer.

use std::sync::Arc;

use sha2::{Digest, Sha256};

/// Both names of a node's peer. They are computed once a node, because the hash costs more than
/// everything else that a plan does for one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerNames {
    pub(crate) plain: Arc<str>,
    pub(crate) hashed: Arc<str>,
}

impl PeerNames {
    pub(crate) fn new(namespace: &str, mesh: &str, cluster: &str, node: &str) -> Self {
        Self {
            plain: plain_name(mesh, cluster, node).into(),
            hashed: hashed_name(namespace, mesh, cluster, node).into(),
        }
    }
}

/// The longest name that Kubernetes takes.
const MAX_LENGTH: usize = 253;
/// The length of the hash: a `-` and sixteen hexadecimal digits.
const HASH_LENGTH: usize = 17;

/// `<mesh>--<cluster>--<node>`.
pub fn plain_name(mesh: &str, cluster: &str, node: &str) -> String {
    let raw = format!("{mesh}--{cluster}--{node}");
    let name = dns_name(&raw);
    if name.len() <= MAX_LENGTH { name } else { with_hash(&name, &raw) }
}

/// [`plain_name`] with a hash of namespace, mesh, cluster and node.
pub fn hashed_name(namespace: &str, mesh: &str, cluster: &str, node: &str) -> String {
    let name = dns_name(&format!("{mesh}--{cluster}--{node}"));
    // No name in Kubernetes has a slash, so no two different lists are hashed as the same text.
    with_hash(&name, &format!("{namespace}/{mesh}/{cluster}/{node}"))
}

fn dns_name(raw: &str) -> String {
    let allowed = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '-') => c,
        _ => '-',
    };
    let name: String = raw.chars().map(allowed).collect();
    name.trim_matches(['-', '.']).to_owned()
}

fn with_hash(name: &str, hashed: &str) -> String {
    let kept = &name[..name.len().min(MAX_LENGTH - HASH_LENGTH)];
    let hash = Sha256::digest(hashed.as_bytes());
    let hex: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    // Kubernetes takes no name with `.-` in it.
    format!("{}-{hex}", kept.trim_end_matches(['-', '.']))
}
