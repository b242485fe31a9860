//! The name of an attachment's interface at the node's side.
//!
//! A pure function of the attachment, so that whoever knows a container (the daemon, the plugin when
//! the daemon is away, a person) finds its interface without asking anybody.

use sha2::{Digest, Sha256};

use crate::wire::Name;

/// What the names of our interfaces begin with.
pub const PREFIX: &str = "fl";

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// 15 characters is what the kernel takes.
const COUNT: usize = 13;

/// `fl` and 13 letters that follow from the attachment's name.
pub fn host_interface(name: &Name) -> String {
    let digest = Sha256::new()
        .chain_update(name.container.as_bytes())
        .chain_update([0])
        .chain_update(name.ifname.as_bytes())
        .finalize();
    let bits = digest.iter().take(9).fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
    let letters = (0..COUNT).map(|at| char::from(LETTERS[(bits >> (at * 5)) as usize % 32]));
    PREFIX.chars().chain(letters).collect()
}

/// Whether an interface of this name is one of ours.
pub fn is_ours(name: &str) -> bool {
    let letters = name.strip_prefix(PREFIX).unwrap_or_default();
    letters.len() == COUNT && letters.bytes().all(|letter| LETTERS.contains(&letter))
}

#[cfg(test)]
mod tests;
