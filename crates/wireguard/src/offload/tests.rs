#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A packet of TCP whose sums are right.
fn tcp(v4: bool, port: u16, number: u32, flags: u8, options: usize, payload: &[u8]) -> Vec<u8> {
    let ip = if v4 { IPV4 } else { IPV6 };
    let headers = ip + TCP + options;
    let mut packet = vec![0; headers + payload.len()];
    if v4 {
        packet[0] = 0x45;
        put(&mut packet, 4, (number / 7) as u16);
        put(&mut packet, 6, 0x4000);
        (packet[8], packet[9]) = (64, PROTOCOL_TCP);
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    } else {
        packet[0] = 0x60;
        (packet[6], packet[7]) = (PROTOCOL_TCP, 64);
        packet[8..40].copy_from_slice(&[[0xfd; 16], [0xfe; 16]].concat());
    }
    put(&mut packet, ip, port);
    put(&mut packet, ip + 2, 80);
    packet[ip + 4..ip + 8].copy_from_slice(&number.to_be_bytes());
    packet[ip + 8..ip + 12].copy_from_slice(&[1, 2, 3, 4]);
    packet[ip + 12] = (((TCP + options) / 4) << 4) as u8;
    packet[ip + 13] = flags;
    put(&mut packet, ip + 14, 500);
    packet[ip + TCP..headers].fill(1);
    packet[headers..].copy_from_slice(payload);
    let length = packet.len();
    set_length(&mut packet, ip, length);
    let sum = !folded(sum(&packet[ip..], pseudo_header(&packet, length - ip)));
    packet[ip + TCP_SUM..ip + TCP_SUM + 2].copy_from_slice(&sum.to_ne_bytes());
    packet
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

/// What a kernel makes of what it is given: whole packets.
fn delivered(packets: Vec<Vec<u8>>) -> (usize, Vec<Vec<u8>>) {
    let mut joined = Vec::new();
    join(packets.into_iter().map(Box::<[u8]>::from), &mut joined);
    let mut out = Vec::new();
    for group in &mut joined {
        group.write(|offload, parts| {
            let packet = parts.concat();
            let Some((kind, size)) = offload.segments else { return out.push(packet) };
            let (mut room, mut cut) = (vec![0; 4_096], Cut::new(kind, size, &packet).unwrap());
            let ip = if is_ipv4(&packet) { IPV4 } else { IPV6 };
            assert_eq!(offload.checksum, Some((ip as u16, TCP_SUM as u16)));
            // The kernel that takes it adds the rest to the sum of the pseudo header.
            let mut whole = packet.clone();
            assert!(finish(offload, &mut whole));
            assert!(Plain::of(&whole).is_some(), "the whole is a packet of TCP");
            while let Some(length) = cut.next_into(&mut room) {
                out.push(room[..length].to_vec());
            }
        });
    }
    (joined.len(), out)
}

/// The packets without the number that IPv4 gives each, which nobody reads where nothing is fragmented.
fn unnumbered(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for packet in packets.iter_mut().filter(|it| it.len() >= IPV4 && it[0] == 0x45) {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packets
}

#[test]
fn a_stream_is_joined_to_few_packets_and_comes_out_as_it_went_in() {
    for v4 in [true, false] {
        let packets: Vec<_> = (0..100u32)
            .map(|at| {
                tcp(v4, 1, at * 1_000, if at == 99 { ACK | PUSH } else { ACK }, 12, &bytes(1_000))
            })
            .collect();
        let (count, out) = delivered(packets.clone());
        assert_eq!(count, 2, "65 and 35");
        assert_eq!(unnumbered(out), unnumbered(packets));
    }
}

#[test]
fn what_is_not_plain_data_in_its_order_is_passed_on_alone() {
    let data = |number| tcp(true, 1, number, ACK, 0, &bytes(500));
    let mut broken = data(500);
    broken[300] ^= 1;
    let mut fragment = data(500);
    put(&mut fragment, 6, 0x2000);
    for (other, why) in [
        (broken, "its sum is wrong"),
        (fragment, "it is a fragment"),
        (tcp(true, 1, 500, ACK | FIN, 0, &bytes(500)), "it ends the connection"),
        (tcp(true, 1, 500, ACK, 0, &[]), "it has no data"),
        (tcp(true, 1, 500, ACK, 4, &bytes(500)), "it has other options"),
        (tcp(true, 1, 400, ACK, 0, &bytes(500)), "it does not follow"),
        (tcp(true, 1, 500, ACK, 0, &bytes(501)), "it is longer"),
        (tcp(true, 2, 500, ACK, 0, &bytes(500)), "it is of another connection"),
        (vec![], "it is empty"),
        (vec![0x45], "it is none"),
    ] {
        let packets = vec![data(0), other];
        let (count, out) = delivered(packets.clone());
        assert_eq!((count, out), (2, packets), "{why}");
    }
}

#[test]
fn nothing_of_a_connection_passes_what_came_before_it() {
    let packets = vec![
        tcp(true, 1, 0, ACK, 0, &bytes(500)),
        tcp(true, 1, 500, ACK, 0, &[]),
        tcp(true, 1, 500, ACK, 0, &bytes(500)),
    ];
    assert_eq!(delivered(packets.clone()), (3, packets));
}

#[test]
fn two_connections_at_once_are_joined_each_for_itself() {
    let packet = |at: u32| tcp(true, (at % 2) as u16, at / 2 * 900, ACK, 12, &bytes(900));
    let (count, out) = delivered((0..40).map(packet).collect());
    assert_eq!(count, 2);
    let each: Vec<_> = [0, 2, 4].map(packet).to_vec();
    assert_eq!(unnumbered(out)[..3], unnumbered(each)[..]);
}

#[test]
fn a_cut_packet_ends_and_pushes_with_its_last_segment_alone() {
    let whole =
        tcp(false, 1, u32::MAX - 100, ACK | PUSH | FIN | CONGESTION_REDUCED, 0, &bytes(2_500));
    let mut cut = Cut::new(Segments::Tcp6, 1_000, &whole).unwrap();
    let mut room = vec![0; 4_096];
    let mut flags = Vec::new();
    while let Some(length) = cut.next_into(&mut room) {
        let part = &room[..length];
        assert_eq!(folded(sum(&part[IPV6..], pseudo_header(part, length - IPV6))), 0xffff);
        flags.push(part[IPV6 + 13]);
    }
    assert_eq!(flags, [ACK | CONGESTION_REDUCED, ACK, ACK | PUSH | FIN]);
    assert!(Cut::new(Segments::Other(5), 1_000, &whole).is_none());
    assert!(Cut::new(Segments::Tcp4, 1_000, &whole).is_none(), "of another family");
}

proptest! {
    #[test]
    fn any_stream_comes_out_as_it_went_in(
        v4 in any::<bool>(),
        start in any::<u32>(),
        sizes in vec((1usize..1_400, any::<bool>(), 0u16..2), 1..80),
    ) {
        let mut next = [start; 2];
        let mut packets = Vec::new();
        for (size, push, port) in sizes {
            let number = &mut next[usize::from(port)];
            let flags = if push { ACK | PUSH } else { ACK };
            packets.push(tcp(v4, port, *number, flags, 12, &bytes(size)));
            *number = number.wrapping_add(size as u32);
        }
        let ip = if v4 { IPV4 } else { IPV6 };
        let (_, out) = delivered(packets.clone());
        for port in 0..2 {
            let of = |packets: &[Vec<u8>]| -> Vec<Vec<u8>> {
                unnumbered(packets.iter().filter(|it| get(it, ip) == port).cloned().collect())
            };
            prop_assert_eq!(of(&out), of(&packets));
        }
    }

    #[test]
    fn no_bytes_at_all_make_it_fail(
        packet in vec(any::<u8>(), 0..200),
        (kind, size) in (0u8..3, any::<u16>()),
        (start, offset) in any::<(u16, u16)>(),
    ) {
        let kind = [Segments::Tcp4, Segments::Tcp6, Segments::Other(9)][usize::from(kind)];
        if let Some(mut cut) = Cut::new(kind, size, &packet) {
            let mut room = [0; 300];
            while cut.next_into(&mut room).is_some() {}
        }
        let offload = Offload { checksum: Some((start, offset)), ..Offload::default() };
        let _ = finish(&offload, &mut packet.clone());
        let (_, out) = delivered(vec![packet.clone()]);
        prop_assert_eq!(out, vec![packet]);
    }
}
