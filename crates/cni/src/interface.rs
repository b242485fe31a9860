//! The name of an attachment's interface at the node's side.
//!
//! A pure function of the attachment, so that whoever knows a container (the daemon, the plugin when
//! the daemon is away, a person) finds its interface without asking anybody.

use crate::wire::Name;

/// What the names of our interfaces begin with.
pub const PREFIX: &str = "fl";

/// `fl` and 13 characters that follow from the attachment's name: 15, the longest the kernel takes.
pub fn host_interface(name: &Name) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let parts = [name.container.as_bytes(), b"/", name.ifname.as_bytes()];
    let mut hash = spread(parts.into_iter().flatten());
    let mut text = PREFIX.to_owned();
    for _ in 0..13 {
        text.push(char::from(DIGITS[(hash % 32) as usize]));
        hash /= 32;
    }
    text
}

/// FNV-1a, then a finisher that lets every bit of the input reach every bit of the name.
fn spread<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325, fold);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests;
