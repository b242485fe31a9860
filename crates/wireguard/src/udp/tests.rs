#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use gotatun::packet::PacketBufPool;

use super::*;

fn packets(of: &[(usize, SocketAddr)]) -> Vec<Addressed> {
    let pool: PacketBufPool = PacketBufPool::new(1);
    let packet = |(number, (length, to)): (usize, &(usize, SocketAddr))| {
        let mut packet = pool.get();
        packet.truncate(*length);
        packet.fill(number as u8);
        (packet, *to)
    };
    of.iter().enumerate().map(packet).collect()
}

#[test]
fn what_goes_together_is_of_one_size_and_for_one_peer() {
    let (a, b) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:1".parse().unwrap());
    let run = |of: &[(usize, SocketAddr)]| run(&packets(of));
    assert_eq!(run(&[]), 0);
    assert_eq!(run(&[(100, a), (100, a), (100, b)]), 2);
    assert_eq!(run(&[(100, a), (100, a), (60, a), (100, a)]), 2);
    assert_eq!(run(&[(100, a), (101, a)]), 1);
    assert_eq!(run(&[(100, a); 100]), datagrams::MOST);
    assert_eq!(run(&[(1_452, a); 60]), 45, "what one packet of IP holds");
}

#[test]
fn packets_arrive_in_their_order_together_or_one_by_one() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let to = receiver.local_addr().unwrap();
    let sender = Socket::bind(0).unwrap();
    let sizes = [900, 900, 200, 900, 300, 300, 300, 1, 40];
    for one_by_one in [false, true] {
        sender.one_by_one.store(one_by_one, Ordering::Relaxed);
        let mut sent = packets(&sizes.map(|size| (size, to)));
        sender.send_all(&mut sent, || false);
        assert!(sent.is_empty());
        for (number, size) in sizes.into_iter().enumerate() {
            let mut datagram = [0; 2_000];
            let (length, from) = receiver.recv_from(&mut datagram).unwrap();
            assert_eq!((length, datagram[0]), (size, number as u8));
            assert_eq!(from.port(), sender.port());
        }
    }
}

#[test]
fn what_is_for_nowhere_takes_nothing_else_with_it() {
    let receiver = UdpSocket::bind("[::1]:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (to, nowhere) = (receiver.local_addr().unwrap(), "[ff02::1]:0".parse().unwrap());
    let sender = Socket::bind(0).unwrap();
    let mut sent = packets(&[(100, nowhere), (100, nowhere), (50, to)]);
    sender.send_all(&mut sent, || false);
    assert_eq!(receiver.recv(&mut [0; 100]).unwrap(), 50);
}
