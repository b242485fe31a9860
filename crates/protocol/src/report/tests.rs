use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn decode(batch: &proto::Batch) -> Result<Report, Malformed> {
    decode_bytes(batch.encode_to_vec())
}

fn decode_bytes(bytes: Vec<u8>) -> Result<Report, Malformed> {
    decode_report(&"node".into(), bytes.into(), Limits::default())
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        // The same ones again and again.
        (0u8..4).prop_map(|n| IpAddr::from([10, 0, 0, n])),
    ]
}

prop_compose! {
    fn a_record()(
        client in address(),
        server in address(),
        port: u16,
        protocol: u8,
        application in proptest::option::of("[a-z]{1,64}"),
        totals in any::<(u64, u64, u64)>(),
        first in 0u64..1 << 48,
        lasted in 0u64..1 << 40,
    ) -> Record {
        let (bytes, packets, sessions) = totals;
        Record {
            client, server, port,
            protocol: Protocol(protocol),
            application: application.map(Arc::from),
            totals: Totals { bytes, packets, sessions },
            first: Moment(first),
            last: Moment(first + lasted),
        }
    }
}

prop_compose! {
    fn a_workload()(
        namespace in "[a-z]{0,10}", name in "[a-z]{1,10}",
        addresses in vec(address(), 0..4), from: u64,
    ) -> LocalWorkload {
        LocalWorkload { namespace: namespace.into(), name: name.into(), addresses, from: Moment(from) }
    }
}

prop_compose! {
    fn a_report()(
        incarnation in 1u64.., sequence in 1u64..,
        records in vec(a_record(), 0..40),
        dropped in any::<(u64, u64, u64)>(),
        workloads in proptest::option::of(vec(a_workload(), 0..5)),
    ) -> Report {
        let (totals, violations, overruns) = dropped;
        let dropped = Dropped { totals, violations, overruns };
        let agent = "node".into();
        let denied = records.iter().take(3).map(|it: &Record| DeniedRecord {
            client: it.server,
            server: it.client,
            port: it.port,
            protocol: it.protocol,
            rule: "NetworkPolicy shop/db isolation".into(),
            packets: it.totals.packets,
            first: it.first,
            last: it.last,
        });
        let denied = denied.collect();
        let names = workloads.is_some().then(|| {
            let names = records.iter().take(3);
            let named = |it: &Record| ResolvedName { name: "api.example.com".into(), address: it.server };
            names.map(named).collect()
        });
        Report { agent, incarnation, sequence, records, denied, dropped, workloads, names }
    }
}

proptest! {
    #[test]
    fn what_is_sent_is_what_comes(report in a_report()) {
        prop_assert_eq!(decode(&encode_report(&report)), Ok(report));
    }

    #[test]
    fn any_bytes_are_a_report_or_malformed(bytes in vec(any::<u8>(), 0..2000)) {
        let _ = decode_bytes(bytes);
    }

    #[test]
    fn a_report_with_changed_bytes_is_one_within_bounds_or_malformed(
        report in a_report(),
        changes in vec((any::<usize>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode_report(&report).encode_to_vec();
        for (at, to) in changes {
            let at = at % bytes.len();
            bytes[at] = to;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(report) = decode_bytes(bytes) {
            prop_assert!(report.records.len() <= Limits::default().records);
            for record in &report.records {
                prop_assert!(record.application.as_ref().is_none_or(|name| name.len() <= 64));
                prop_assert!(record.last >= record.first);
            }
        }
    }

    #[test]
    fn the_scan_counts_what_is_at_the_top(numbers in vec(any::<u64>(), 0..100)) {
        let records = numbers.iter().map(|n| proto::Record { bytes: *n, ..Default::default() });
        let batch = proto::Batch { records: records.collect(), ..Default::default() };
        prop_assert_eq!(fields(&batch.encode_to_vec()), Some(numbers.len()));
    }
}

fn valid() -> proto::Batch {
    proto::Batch {
        incarnation: 1,
        sequence: 1,
        addresses4: vec![10, 0, 0, 1],
        addresses6: vec![9; 16],
        applications: vec!["http".to_owned()],
        ..Default::default()
    }
}

#[test]
fn bounds_hold_before_and_after_decoding() {
    let limits = Limits::default();
    let empty = |n| proto::Batch { records: vec![Default::default(); n], ..valid() };
    assert_eq!(decode(&empty(limits.records)).unwrap().records.len(), limits.records);
    assert!(decode(&empty(limits.records + 1)).is_err());
    // Two bytes each on the wire, and hundreds of thousands of them: refused without decoding.
    let many = empty(500_000).encode_to_vec();
    assert!(many.len() <= limits.batch);
    let refused = decode_bytes(many);
    assert_eq!(refused, Err(Malformed("it is cut off, or has too many fields")));
    let large = vec![0; limits.batch + 1];
    assert_eq!(decode_bytes(large), Err(Malformed("it has too many bytes")));
}

#[test]
fn nonsense_is_refused() {
    let with = |edit: fn(&mut proto::Batch)| {
        let mut batch = valid();
        edit(&mut batch);
        decode(&batch)
    };
    let record = proto::Record::default();
    assert!(with(|_| {}).is_ok());
    assert!(with(|b| b.incarnation = 0).is_err());
    assert!(with(|b| b.sequence = 0).is_err());
    assert!(with(|b| b.addresses4.truncate(3)).is_err());
    assert!(with(|b| b.addresses6.push(0)).is_err());
    assert!(with(|b| b.addresses4 = vec![0; 4 * 16_385]).is_err());
    assert!(with(|b| b.applications.push("x".repeat(65))).is_err());
    assert!(with(|b| b.applications.push(String::new())).is_err());
    let one = |record: proto::Record| decode(&proto::Batch { records: vec![record], ..valid() });
    assert!(one(proto::Record { client: 1, server: 0, application: 1, ..record }).is_ok());
    assert!(one(proto::Record { client: 2, ..record }).is_err());
    assert!(one(proto::Record { server: u32::MAX, ..record }).is_err());
    assert!(one(proto::Record { application: 2, ..record }).is_err());
    assert!(one(proto::Record { port: 65_536, ..record }).is_err());
    assert!(one(proto::Record { protocol: 256, ..record }).is_err());
    let last = one(proto::Record { first: u64::MAX, lasted: 5, ..record }).unwrap().records[0].last;
    assert_eq!(last, Moment(u64::MAX));
}

#[test]
fn fields_of_a_later_version_are_ignored() {
    let mut bytes = valid().encode_to_vec();
    // Field 200, a text.
    bytes.extend([0xc2, 0x0c, 2, b'h', b'i']);
    assert!(decode_bytes(bytes).is_ok());
}
