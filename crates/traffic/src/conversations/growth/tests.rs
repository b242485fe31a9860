use std::collections::HashMap;
use std::net::IpAddr;

use proptest::prelude::*;

use crate::conversations::{
    Directory, Growth, Limits, Moment, Protocol, Readers, Record, Report, Router, Shard, Totals,
    View, shards,
};

const SEED: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

struct Counted {
    router: Router,
    shards: Vec<Shard>,
    readers: Readers,
    sequence: u64,
}

impl Counted {
    fn new(limits: Limits) -> Self {
        let router = Router::new(SEED, 2);
        let (shards, readers) = shards(router, limits);
        Self { router, shards, readers, sequence: 0 }
    }

    /// Counts running totals of one agent, and publishes.
    fn count(&mut self, records: Vec<Record>) -> View {
        self.sequence += 1;
        let (agent, sequence) = ("node-1".into(), self.sequence);
        let report = Report { agent, incarnation: 1, sequence, records, ..Report::default() };
        let routed = self.router.route(&report, &Directory::new(), |_| true);
        for (shard, part) in self.shards.iter_mut().zip(&routed.parts) {
            shard.apply(part, Moment(50_000));
            shard.publish();
        }
        self.readers.view()
    }
}

fn record(client: u8, server: u8, port: u16, bytes: u64, last: u64) -> Record {
    Record {
        client: IpAddr::from([198, 51, 100, client]),
        server: IpAddr::from([203, 0, 113, server]),
        port,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes, packets: bytes / 2, sessions: 1 },
        first: Moment(1000),
        last: Moment(last * 1000),
    }
}

fn sum(grown: &[Growth]) -> Totals {
    let mut sum = Totals::ZERO;
    grown.iter().for_each(|it| sum += it.totals);
    sum
}

#[test]
fn growth_is_what_came_since_and_names_what_is_new() {
    let mut counted = Counted::new(Limits::default());
    let nothing = counted.readers.view();
    let first = counted.count(vec![record(1, 1, 443, 100, 10), record(2, 1, 443, 7, 10)]);
    let mut grown = first.growth_since(&nothing);
    grown.sort_by_key(|it| it.client.address);
    assert_eq!(grown.iter().map(|it| it.totals.bytes).collect::<Vec<_>>(), [100, 7]);
    assert!(grown.iter().all(|it| it.first == Some(Moment(1000))));

    let second = counted.count(vec![record(1, 1, 443, 130, 20), record(1, 1, 80, 5, 20)]);
    let mut grown = second.growth_since(&first);
    grown.sort_by_key(|it| it.service.unwrap().1);
    let seen: Vec<_> = grown.iter().map(|it| (it.service.unwrap().1, it.totals.bytes)).collect();
    assert_eq!(seen, [(80, 5), (443, 30)], "who did not talk is not told of");
    assert_eq!(grown[0].first, Some(Moment(1000)));
    assert_eq!((grown[1].first, grown[1].last), (None, Moment(20_000)));
    assert_eq!(second.growth_since(&second), []);
}

/// A conversation that is named meanwhile has grown by what came since, under its name.
#[test]
fn what_is_named_meanwhile_is_not_told_again() {
    let mut counted = Counted::new(Limits::default());
    let first = counted.count(vec![record(1, 1, 443, 100, 10)]);
    let named = Record { application: Some("tls".into()), ..record(1, 1, 443, 30, 20) };
    let second = counted.count(vec![named]);
    let grown = second.growth_since(&first);
    assert_eq!(grown.len(), 1);
    assert_eq!((grown[0].application.as_deref(), grown[0].totals.bytes), (Some("tls"), 30));
    assert_eq!(grown[0].first, None);
}

/// Of two applications of one port only the first goes on with what was not known before.
#[test]
fn a_second_application_of_a_port_is_told_whole() {
    let mut counted = Counted::new(Limits::default());
    let first = counted.count(vec![record(1, 1, 443, 100, 10)]);
    let named = |name: &str, bytes| Record {
        application: Some(name.into()),
        ..record(1, 1, 443, bytes, 20)
    };
    let second = counted.count(vec![named("tls", 30), named("http", 50)]);
    let grown = second.growth_since(&first);
    let of = |name| grown.iter().find(|it| it.application.as_deref() == Some(name)).unwrap();
    assert_eq!((of("tls").totals.bytes, of("tls").first), (30, None));
    assert_eq!((of("http").totals.bytes, of("http").first), (50, Some(Moment(1000))));

    let unnamed = counted.count(vec![record(1, 1, 443, 120, 30)]);
    let grown = unnamed.growth_since(&first);
    assert_eq!(sum(&grown).bytes, 100, "30 and 50 with a name, 20 without");
    let without = grown.iter().find(|it| it.application.is_none()).unwrap();
    assert_eq!(without.totals.bytes, 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However conversations are folded for want of room, growth adds up to what pairs grew by.
    #[test]
    fn growth_adds_up_whatever_is_folded_within_a_pair(
        steps in prop::collection::vec(
            prop::collection::vec((0_u8..3, 0_u8..3, (0_u16..6, 0_usize..3), 1_u64..1000), 1..20), 1..12
        )
    ) {
        // Few rows for each pair, so that folding is the rule; room enough for all pairs.
        let mut counted = Counted::new(Limits { rows_per_pair: 3, ..Limits::default() });
        let mut running: HashMap<(u8, u8, (u16, usize)), u64> = HashMap::new();
        let mut before = counted.readers.view();
        for (at, step) in steps.into_iter().enumerate() {
            for (client, server, port, bytes) in &step {
                *running.entry((*client, *server, *port)).or_default() += bytes;
            }
            let records = step.iter().map(|(client, server, service, _)| {
                let bytes = running[&(*client, *server, *service)];
                let record = record(*client, *server, service.0, bytes, 2 + at as u64);
                let application = [None, Some("tls"), Some("http")][service.1].map(Into::into);
                Record { application, ..record }
            });
            let after = counted.count(records.collect());
            let grown = after.growth_since(&before);
            let mut expected = before.totals();
            expected += sum(&grown);
            prop_assert_eq!(expected, after.totals());
            let all: u64 = running.values().sum();
            prop_assert_eq!(after.totals().bytes, all, "nothing is lost from the sums");
            before = after;
        }
    }
}
