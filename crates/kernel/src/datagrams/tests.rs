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
fn datagrams_of_one_call_are_received_by_one_call_and_say_their_size() {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    for (own, at) in [
        (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), None),
        ((Ipv6Addr::LOCALHOST, 0).into(), None),
        (any, Some(Ipv4Addr::LOCALHOST)),
    ] {
        let to = UdpSocket::bind(own).unwrap();
        coalesce(to.as_fd()).unwrap();
        let mut room = vec![0; LARGEST];
        let nothing = receive(to.as_fd(), &mut room).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let mut at_address = to.local_addr().unwrap();
        if let Some(at) = at {
            at_address.set_ip(at.into());
        }
        let from = UdpSocket::bind((at_address.ip(), 0)).unwrap();
        let sent: Vec<Vec<u8>> = vec![vec![1; 900], vec![2; 900], vec![3; 10]];
        let parts: Vec<_> = sent.iter().map(|part| IoSlice::new(part)).collect();
        send(from.as_fd(), at_address, &parts, 900).unwrap();
        from.send_to(&[4; 77], at_address).unwrap();
        let (mut heard, mut sizes) = (Vec::new(), Vec::new());
        while heard.len() < 1_887 {
            match receive(to.as_fd(), &mut room) {
                Ok(received) => {
                    assert_eq!(received.from, from.local_addr().unwrap());
                    heard.extend_from_slice(&room[..received.length]);
                    sizes.push(received.size);
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert_eq!(heard, [&sent.concat()[..], &[4; 77]].concat());
        assert_eq!(sizes, [900, 77]);
    }
}

#[test]
fn datagrams_that_no_path_takes_are_refused() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let many = vec![0; MOST + 1_000];
    let refused = send(socket.as_fd(), socket.local_addr().unwrap(), &[IoSlice::new(&many)], 1);
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EINVAL));
}
