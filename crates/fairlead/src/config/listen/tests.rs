use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

#[test]
fn what_is_read_is_shown_again() {
    for text in ["*:7680", "*:0", "127.0.0.1:7680", "[::1]:7680", "0.0.0.0:7680"] {
        assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
    }
    for wrong in ["*", "*:", "*:port", "*:70000", ":7680", "localhost:7680", "**:1", "*.*:1"] {
        assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
    }
}

#[test]
fn only_loopback_addresses_are_loopback() {
    let is_loopback = |text: &str| text.parse::<ListenAddress>().unwrap().is_loopback();
    assert!(is_loopback("127.0.0.1:1") && is_loopback("[::1]:1"));
    assert!(!is_loopback("*:1") && !is_loopback("0.0.0.0:1") && !is_loopback("10.0.0.1:1"));
}

#[test]
fn every_address_is_of_both_families() {
    let (listener, address) = ListenAddress::Every(0).bind().unwrap();
    let ListenAddress::Every(port) = address else { panic!("{address}") };
    assert_ne!(port, 0);
    assert_eq!(address.to_string(), format!("*:{port}"));
    let mut reached = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    reached.extend(has_ipv6.then(|| SocketAddr::from((Ipv6Addr::LOCALHOST, port))));
    for at in reached {
        let mut asking = TcpStream::connect(at).unwrap_or_else(|error| panic!("{at}: {error}"));
        asking.write_all(b"?").unwrap();
        let (mut asked, _) = listener.accept().unwrap();
        let mut heard = [0];
        asked.read_exact(&mut heard).unwrap();
    }
    let taken = ListenAddress::Every(port).bind().unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
}
