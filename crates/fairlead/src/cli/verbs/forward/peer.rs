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
mod tests {
    use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, theirs)
    }

    fn closed(ours: &TcpStream) -> bool {
        has_closed(ours.local_addr().unwrap(), ours.peer_addr().unwrap())
    }

    #[test]
    fn an_end_that_writes_no_more_is_told_from_one_that_is_closed() {
        let (ours, theirs) = pair();
        assert!(!closed(&ours), "it is open");
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(!closed(&ours), "it still reads");
        let (here, there) = (ours.local_addr().unwrap(), ours.peer_addr().unwrap());
        drop(theirs);
        let patience = Instant::now() + Duration::from_secs(10);
        while !has_closed(here, there) {
            assert!(Instant::now() < patience, "it is closed");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_table_without_the_connection_tells_nothing() {
        let address = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let table = |rows: &[String]| format!("  sl  local_address ...\n{}", rows.join("\n"));
        let row = |from: u16, to: u16, inode: u32| {
            let (from, to) = (hexadecimal(address(from)), hexadecimal(address(to)));
            format!("   0: {from} {to} 01 00000000:00000000 00:00000000 00000000  0  0 {inode} 1 0")
        };
        let closed = |rows: &[String]| closed_in(&table(rows), address(1), address(2));
        assert!(!closed(&[]));
        assert!(!closed(&[row(1, 2, 7), row(2, 1, 8)]), "both are held");
        assert!(closed(&[row(1, 2, 7), row(2, 1, 0)]), "nobody holds the other");
        assert!(closed(&[row(1, 2, 7)]), "the other is not even remembered");
        assert!(!closed(&[row(1, 3, 7)]), "another connection");
    }
}
