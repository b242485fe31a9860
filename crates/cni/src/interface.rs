//! The name of an attachment's interface at the node's side.
//!
//! The name is a pure function of the attachment's key, or, where names are to be Calico's, of its pod:
//! whoever knows a container (the agent, the plugin while the agent is away, a person) finds its interface
//! without asking anybody.

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::wire::{AttachmentKey, Pod};

/// The prefix of names that follow from a key.
pub const PREFIX: &str = "fl";
/// The prefix of names that follow from a pod, as Calico has it unless told otherwise.
pub const CALICO_PREFIX: &str = "cali";

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// The kernel takes names of 15 characters.
const COUNT: usize = 13;
const CALICO_COUNT: usize = 11;
/// The interface by which Kubernetes knows a pod. Others of the same pod would have the same name at Calico's.
const MAIN: &str = "eth0";

/// Returns `fl` and 13 letters that follow from the key.
pub fn host_interface(key: &AttachmentKey) -> String {
    let digest = Sha256::new()
        .chain_update(key.container.as_bytes())
        .chain_update([0])
        .chain_update(key.ifname.as_bytes())
        .finalize();
    let bits = digest.iter().take(9).fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
    let letters = (0..COUNT).map(|at| char::from(LETTERS[(bits >> (at * 5)) as usize % 32]));
    PREFIX.chars().chain(letters).collect()
}

/// Returns the name by which Calico knows the interface of a pod: `cali` and the first digits of a SHA-1. There
/// is none for a container that is no pod, and for a pod's further interfaces.
pub fn calico_interface(key: &AttachmentKey, pod: Option<&Pod>) -> Option<String> {
    let Pod { namespace, name, .. } = pod.filter(|_| key.ifname == MAIN)?;
    let digest = Sha1::digest(format!("{namespace}.{name}"));
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(CALICO_COUNT);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    Some(CALICO_PREFIX.chars().chain(digits).collect())
}

/// Says whether a name is one that follows from a key: nobody but Fairlead makes an interface of that name.
pub fn is_ours(name: &str) -> bool {
    let letters = name.strip_prefix(PREFIX).unwrap_or_default();
    letters.len() == COUNT && letters.bytes().all(|letter| LETTERS.contains(&letter))
}

#[cfg(test)]
mod tests;
