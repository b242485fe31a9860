//! What a peer is called. [`plain`] is for people; [`hashed`] is never the same for two nodes, and is
//! taken where the plain name is somebody else's.

use std::sync::Arc;

use sha2::{Digest, Sha256};

/// Both names of a node's peer. Made once a node: the hash costs more than all else that is asked of
/// one of its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) plain: Arc<str>,
    pub(crate) hashed: Arc<str>,
}

impl Names {
    pub(crate) fn of(namespace: &str, mesh: &str, cluster: &str, node: &str) -> Self {
        Self {
            plain: plain(mesh, cluster, node).into(),
            hashed: hashed(namespace, mesh, cluster, node).into(),
        }
    }
}

const LONGEST: usize = 253;
/// A `-` and sixteen hexadecimal digits.
const SUFFIX: usize = 17;

/// `<mesh>--<cluster>--<node>`.
pub fn plain(mesh: &str, cluster: &str, node: &str) -> String {
    let raw = format!("{mesh}--{cluster}--{node}");
    let name = dns(&raw);
    if name.len() <= LONGEST { name } else { with_hash(&name, &raw) }
}

/// As [`plain`], with a hash of everything that tells two nodes apart.
pub fn hashed(namespace: &str, mesh: &str, cluster: &str, node: &str) -> String {
    let name = dns(&format!("{mesh}--{cluster}--{node}"));
    // No name of Kubernetes has a slash, so no two lists of names read the same.
    with_hash(&name, &format!("{namespace}/{mesh}/{cluster}/{node}"))
}

fn dns(raw: &str) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '-') => c,
        _ => '-',
    };
    let name: String = raw.chars().map(plain).collect();
    name.trim_matches(['-', '.']).to_owned()
}

fn with_hash(name: &str, of: &str) -> String {
    let kept = &name[..name.len().min(LONGEST - SUFFIX)];
    let hash = Sha256::digest(of.as_bytes());
    let hex: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    // `.-` is in no name of Kubernetes.
    format!("{}-{hex}", kept.trim_end_matches(['-', '.']))
}
