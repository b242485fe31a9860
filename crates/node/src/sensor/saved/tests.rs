//! What earlier releases saved.

use super::*;
use crate::sensor::Flow;

const BEGUN: Moment = Moment(1_700_000_000_000);

/// A connection that has carried 1000 bytes, which controller 7 was told as report 3.
fn saved_by_an_earlier(magic: &[u8], place: &str, flow: &Flow) -> Vec<u8> {
    let has_names = magic == WITH_ONE_CONTROLLER;
    let mut out = Writer(magic.to_vec());
    out.number(BEGUN.0);
    out.text("node1");
    out.text(place);
    for moment in [BEGUN, BEGUN, BEGUN] {
        out.number(moment.0);
    }
    out.byte(1);
    // The last report, those that are on the controller's disk, and none under way.
    out.number(3);
    out.number(2);
    out.byte(0);
    // One controller.
    out.byte(1);
    out.fixed(7);
    // Nothing was dropped.
    out.number(0);
    out.number(0);
    out.totals(Totals::ZERO);
    out.count(1);
    let Flow { bytes, packets, .. } = *flow;
    save_flow(&mut out, &flow.id, FlowCounters { bytes, packets, listing: 0 });
    out.count(1);
    save_key(&mut out, &flow.id.conversation());
    let totals = Totals { bytes, packets, sessions: 1 };
    out.totals(totals);
    out.number(BEGUN.0);
    out.number(BEGUN.0);
    out.totals(totals);
    out.number(3);
    out.byte(0);
    if has_names {
        out.text("redis");
    }
    // Nothing that grows no more.
    out.count(0);
    if has_names {
        out.count(1);
        save_key(&mut out, &flow.id.conversation());
        out.text("redis");
        out.number(BEGUN.0);
    }
    out.0
}

#[test]
fn what_earlier_releases_saved_is_read() {
    let id = FlowId {
        number: 1,
        zone: 0,
        protocol: Protocol::TCP,
        client: [10, 0, 0, 1].into(),
        client_port: 40_000,
        server: [10, 0, 0, 2].into(),
        port: 6380,
        begun: Some(BEGUN),
    };
    let flow = Flow { id, bytes: 1000, packets: 10, ended: false };
    let now = Moment(BEGUN.0 + 5000);
    for (magic, name) in [(WITH_ONE_CONTROLLER, Some("redis")), (WITHOUT_APPLICATIONS, None)] {
        let saved = saved_by_an_earlier(magic, "boot", &flow);
        let begin = || Sensor::begin("node1".into(), "boot", Some(&saved), Limits::default(), now);
        let told = |sensor: &mut Sensor| {
            let report = sensor.report(true, now).unwrap();
            assert_eq!(report.sequence, 4);
            let told = report.records.iter().map(|it| {
                assert_eq!(it.application.as_deref(), name);
                it.totals.bytes
            });
            told.collect::<Vec<_>>()
        };
        let mut sensor = begin();
        assert_eq!(sensor.joining(now), BEGUN.0, "the incarnation goes on");
        assert_eq!(told(&mut sensor), [0_u64; 0], "it was told");
        // The controller may have lost what it does not have on disk, and another one knows nothing.
        for epoch in [7, 8] {
            let mut sensor = begin();
            sensor.joined(epoch, now);
            assert_eq!(told(&mut sensor), [1000]);
        }
        // The total goes on.
        let mut sensor = begin();
        sensor.observe(&Flow { bytes: 1400, packets: 14, ..flow }, now);
        assert_eq!(told(&mut sensor), [1400]);
    }
}
