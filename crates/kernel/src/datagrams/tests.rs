#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use super::*;

#[test]
fn one_call_sends_many_datagrams_and_the_last_may_be_smaller() {
    for own in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()] {
        let (from, to) = (UdpSocket::bind(own).unwrap(), UdpSocket::bind(own).unwrap());
        to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sent: Vec<Vec<u8>> = vec![vec![1; 900], vec![2; 900], vec![3; 10]];
        let parts: Vec<_> = sent.iter().map(|part| IoSlice::new(part)).collect();
        send(from.as_fd(), to.local_addr().unwrap(), &parts, 900).unwrap();
        for expected in &sent {
            let mut datagram = [0; 2_000];
            let (length, sender) = to.recv_from(&mut datagram).unwrap();
            assert_eq!((&datagram[..length], sender), (&expected[..], from.local_addr().unwrap()));
        }
    }
}

#[test]
fn datagrams_that_no_path_takes_are_refused() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let many = vec![0; MOST + 1_000];
    let refused = send(socket.as_fd(), socket.local_addr().unwrap(), &[IoSlice::new(&many)], 1);
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EINVAL));
}
