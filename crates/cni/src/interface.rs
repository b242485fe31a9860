//! The name of an attachment's interface at the node's side.
//!
//! The name is a pure function of the attachment's key: whoever knows a container (the agent, the
//! plugin while the agent is away, a person) finds its interface without asking anybody.

use sha2::{Digest, Sha256};

use crate::wire::AttachmentKey;

/// The prefix of every host interface that Fairlead makes.
pub const PREFIX: &str = "fl";

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// The kernel takes names of 15 characters.
const COUNT: usize = 13;

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

/// Says whether an interface of this name was made by Fairlead.
pub fn is_ours(name: &str) -> bool {
    let letters = name.strip_prefix(PREFIX).unwrap_or_default();
    letters.len() == COUNT && letters.bytes().all(|letter| LETTERS.contains(&letter))
}

#[cfg(test)]
mod tests;
