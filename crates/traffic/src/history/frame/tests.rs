use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::conversations::Endpoint;

pub(in crate::history) fn end(name: &str, number: u8) -> End {
    let endpoint = Endpoint::Workload {
        namespace: "shop".into(),
        name: name.into(),
        owner: format!("Deployment/{}", name.trim_end_matches(char::is_numeric)).into(),
        node: "node-1".into(),
    };
    End { endpoint: Arc::new(endpoint), address: IpAddr::from([10, 0, 0, number]) }
}

pub(in crate::history) fn outside(number: u8) -> End {
    let endpoint = Arc::new(Endpoint::External { name: None });
    End { endpoint, address: IpAddr::from([192, 0, 2, number]) }
}

pub(in crate::history) fn line(
    client: End,
    server: End,
    port: u16,
    bytes: u64,
    at: u64,
) -> HistoryLine {
    HistoryLine {
        client,
        server,
        service: Some((Protocol::TCP, port)),
        application: None,
        verdict: Some(Verdict::Allowed),
        rule: Some("web".into()),
        totals: Totals { bytes, packets: 1, sessions: 1 },
        first: Moment(at),
        last: Moment(at + 10_000),
    }
}

fn growth(line: HistoryLine, is_new: bool) -> Growth {
    let HistoryLine { client, server, service, application, verdict, rule, totals, first, last } =
        line;
    let first = is_new.then_some(first);
    Growth { client, server, service, application, verdict, rule, totals, first, last }
}

#[test]
fn a_frame_is_read_as_it_was_written() {
    let mut folded = line(end("web1", 1), end("db", 2), 0, 9, 120_000);
    (folded.service, folded.verdict, folded.rule) = (None, None, None);
    let mut named = line(outside(7), end("web1", 1), 443, u64::MAX, 60_000);
    named.application = Some("http".into());
    named.verdict = Some(Verdict::Stopped);
    let lines = vec![line(end("web1", 1), end("db", 2), 5432, 4000, 61_000), folded, named];
    let frame = Frame { from: Moment(60_000), until: Moment(120_000), lines };
    let bytes = frame.encode().unwrap();
    assert_eq!(Frame::decode(&bytes), Ok(frame));
}

#[test]
fn what_was_there_before_begins_with_its_frame_and_much_is_split() {
    let (from, until) = (Moment(60_000), Moment(120_000));
    let old = growth(line(end("web1", 1), end("db", 2), 5432, 1, 30_000), true);
    let grown = growth(line(end("web2", 3), end("db", 2), 5432, 1, 95_000), false);
    let [frame] = &Frame::split(from, until, vec![old, grown])[..] else { panic!() };
    let begun: Vec<_> = frame.lines.iter().map(|line| line.first).collect();
    assert_eq!(begun, [Moment(30_000), from]);
    let many =
        vec![growth(line(end("web1", 1), end("db", 2), 1, 1, 61_000), false); MOST_LINES + 1];
    let frames = Frame::split(from, until, many);
    assert_eq!(frames.iter().map(|it| it.lines.len()).collect::<Vec<_>>(), [MOST_LINES, 1]);
    assert_eq!(Frame::split(from, until, Vec::new()), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn bytes_that_are_no_frame_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&[VERSION]).unwrap();
        packed.write_all(&bytes).unwrap();
        // Whatever they are: an answer, and no panic.
        let _ = Frame::decode(&packed.finish().unwrap());
        let _ = Frame::decode(&bytes);
    }
}
