use proptest::prelude::*;

use super::super::attributes::{nested, write};
use super::*;

/// As the kernel writes it, with attributes that are not read in between.
fn encode(entry: &Entry, ways: [Option<Carried>; 2]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0];
    tuple_into(&mut out, TUPLE_ORIGINAL, &entry.original);
    tuple_into(&mut out, TUPLE_REPLY, &entry.reply);
    write(&mut out, STATUS, &entry.status.to_be_bytes());
    // Established, or waiting for what may still be under way.
    let state = if entry.is_over { 7 } else { 3 };
    nested(&mut out, PROTOCOL, |out| nested(out, 1, |out| write(out, 1, &[state])));
    write(&mut out, MARK, &entry.mark.to_be_bytes());
    write(&mut out, 7, &30u32.to_be_bytes());
    for (kind, way) in [COUNTERS_ORIGINAL, COUNTERS_REPLY].into_iter().zip(ways) {
        let Some(Carried { bytes, packets }) = way else { continue };
        nested(&mut out, kind, |out| {
            write(out, 1, &packets.to_be_bytes());
            write(out, 2, &bytes.to_be_bytes());
        });
    }
    nested(&mut out, TIMESTAMP, |out| {
        for (kind, at) in [(1, entry.begun), (2, entry.ended)] {
            at.into_iter().for_each(|at| write(out, kind, &at.to_be_bytes()));
        }
    });
    write(&mut out, ZONE, &entry.zone.to_be_bytes());
    write(&mut out, ID, &entry.id.to_be_bytes());
    out
}

fn tuple_into(out: &mut Vec<u8>, kind: u16, tuple: &Tuple) {
    nested(out, kind, |out| {
        nested(out, 1, |out| match (tuple.source, tuple.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                write(out, 1, &source.octets());
                write(out, 2, &destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                write(out, 3, &source.octets());
                write(out, 4, &destination.octets());
            }
            _ => {}
        });
        nested(out, 2, |out| {
            write(out, 1, &[tuple.protocol]);
            write(out, 2, &tuple.source_port.to_be_bytes());
            write(out, 3, &tuple.destination_port.to_be_bytes());
        });
    });
}

fn tuples() -> impl Strategy<Value = Tuple> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    (prop_oneof![v4, v6], any::<(u8, u16, u16)>()).prop_map(|(addresses, above)| {
        let ((source, destination), (protocol, source_port, destination_port)) = (addresses, above);
        Tuple { source, destination, protocol, source_port, destination_port }
    })
}

fn ways() -> impl Strategy<Value = [Option<Carried>; 2]> {
    let way = any::<Option<(u64, u64)>>();
    let carried = |(bytes, packets)| Carried { bytes, packets };
    (way.clone(), way).prop_map(move |(a, b)| [a.map(carried), b.map(carried)])
}

fn both(ways: [Option<Carried>; 2]) -> Option<Carried> {
    let [a, b] = ways;
    let add = |a: Carried, b: Carried| Carried {
        bytes: a.bytes.saturating_add(b.bytes),
        packets: a.packets.saturating_add(b.packets),
    };
    match (a, b) {
        (Some(a), Some(b)) => Some(add(a, b)),
        (a, b) => a.or(b),
    }
}

proptest! {
    #[test]
    fn what_the_kernel_writes_is_read(
        (original, reply) in (tuples(), tuples()),
        (id, zone, status, mark) in any::<(u32, u16, u32, u32)>(),
        (begun, ended, is_over) in any::<(Option<u64>, Option<u64>, bool)>(),
        ways in ways(),
    ) {
        let carried = both(ways);
        let written =
            Entry { id, zone, original, reply, carried, begun, ended, is_over, mark, status };
        prop_assert_eq!(entry(&encode(&written, ways)), Some(written));
    }

    #[test]
    fn no_bytes_can_stop_it(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = entry(&bytes);
    }

    #[test]
    fn what_is_damaged_or_cut_short_stops_nothing(
        tuple in tuples(),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let (carried, status) = (None, 0);
        let written = Entry {
            id: 7, zone: 0, original: tuple, reply: tuple, carried, begun: Some(1), ended: None,
            is_over: false, mark: 0, status,
        };
        let mut bytes = encode(&written, [None; 2]);
        let at = at.index(bytes.len());
        bytes[at] = to;
        bytes.truncate(cut.index(bytes.len()));
        let _ = entry(&bytes);
    }
}
