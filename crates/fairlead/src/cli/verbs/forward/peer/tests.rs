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
