//! What the kernel knows of the program at the other end of a loopback connection.
//!
//! A program that has closed its end and one that only writes no more look the same from here: both
//! have sent a FIN, and the difference would show when bytes sent to it come back as a reset. The
//! protocol towards a pod has no word for "no more will be written", so the first should end the
//! connection at once and the second should still get its answer. On loopback both ends of the
//! connection are in the same kernel, whose table tells them apart: an end that no program holds
//! any more has no inode.

use std::net::{SocketAddr, SocketAddrV4};

/// Every TCP connection of this network namespace over IPv4.
const TABLE: &str = "/proc/self/net/tcp";

/// Whether no program holds the other end of the connection `here` to `there` any more. False where
/// that cannot be told.
pub(super) fn has_closed(here: SocketAddr, there: SocketAddr) -> bool {
    let (SocketAddr::V4(here), SocketAddr::V4(there)) = (here, there) else { return false };
    std::fs::read_to_string(TABLE).is_ok_and(|table| closed_in(&table, here, there))
}

fn closed_in(table: &str, here: SocketAddrV4, there: SocketAddrV4) -> bool {
    let (here, there) = (hexadecimal(here), hexadecimal(there));
    // A table that does not have our own end is not the one that would have the other.
    let mut ours_is_there = false;
    for line in table.lines().skip(1) {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (Some(local), Some(remote)) = (fields.next(), fields.next()) else { continue };
        // state, queues, timer, retransmissions, user, timeout, inode
        if local == there && remote == here {
            return fields.nth(6) == Some("0");
        }
        ours_is_there |= local == here && remote == there;
    }
    ours_is_there
}

/// As the table has it: the address in the machine's byte order, the port as a number.
fn hexadecimal(address: SocketAddrV4) -> String {
    format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
}

#[cfg(test)]
mod tests;
