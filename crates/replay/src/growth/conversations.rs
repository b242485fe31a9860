//! Conversations that a controller knows: a report of ten records, and the memory.

use std::net::IpAddr;
use std::sync::Arc;

use traffic::conversations::{
    Directory, Labels, Limits, Moment, PodFacts, Protocol, Record, Report, Router, Shard, Totals,
    shards,
};

use super::meter::{Grows, Meter};
use crate::incident::Cannot;

const PODS: usize = 1000;
const SHARDS: usize = 4;
const RECORDS: usize = 10;
const AGENT: &str = "node-0";

pub(super) fn measure(conversations: usize, meter: &mut Meter) -> Result<(), Cannot> {
    let directory = directory()?;
    let router = Router::new([0x5eed, 0xfeed], SHARDS);
    let (mut parts, readers) = shards(router, Limits::default());
    let mut sequence = 0;
    let mut count = |parts: &mut [Shard], records: Vec<Record>| {
        sequence += 1;
        let agent: Arc<str> = AGENT.into();
        let report = Report { agent, incarnation: 1, sequence, records, ..Report::default() };
        let routed = router.route(&report, &directory, |_| true);
        for (shard, part) in parts.iter_mut().zip(&routed.parts) {
            shard.apply(part, Moment(100_000));
            shard.publish();
        }
    };
    meter.standing("traffic: memory", || {
        let all: Vec<usize> = (0..conversations).collect();
        for some in all.chunks(1000) {
            count(&mut parts, some.iter().map(|number| record(*number, 0)).collect());
        }
    });
    let rows: usize = parts.iter().map(Shard::rows).sum();
    if rows != conversations {
        return Err(format!("{rows} conversations are known, not {conversations}").into());
    }
    // Others each time, all over the table.
    let step = conversations / RECORDS;
    meter.change("traffic: a report of ten records is counted and published", Grows::Not, |i| {
        let number = |place: usize| (place * step + i * 7) % conversations;
        count(&mut parts, (0..RECORDS).map(|place| record(number(place), i as u64 + 1)).collect());
    });
    drop(readers);
    Ok(())
}

fn address(pod: usize) -> IpAddr {
    let [.., high, low] = (pod as u32).to_be_bytes();
    IpAddr::from([10, 0, high, low])
}

fn directory() -> Result<Directory, Cannot> {
    let mut directory = Directory::new();
    directory.set_ranges(&["10.0.0.0/8".parse()?]);
    for pod in 0..PODS {
        let facts = PodFacts {
            uid: pod.to_string().into(),
            namespace: format!("namespace-{}", pod / 200).into(),
            name: format!("workload-{}-{pod}", pod / 10).into(),
            owner: Some(format!("Deployment/workload-{}", pod / 10).into()),
            node: AGENT.into(),
            addresses: vec![address(pod)],
            images: Vec::new(),
            labels: Labels::new(),
            from: Moment(0),
            until: None,
        };
        directory.apply_pod(&facts, Moment(0));
    }
    Ok(directory)
}

/// Each number is another pair of pods; `grown` times larger than at first.
fn record(number: usize, grown: u64) -> Record {
    let (client, server) = (number % PODS, (number / PODS + number % PODS + 1) % PODS);
    Record {
        client: address(client),
        server: address(server),
        port: 8000,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes: 1000 * (grown + 1), packets: 10 * (grown + 1), sessions: 1 },
        first: Moment(1000),
        last: Moment(100_000),
    }
}
