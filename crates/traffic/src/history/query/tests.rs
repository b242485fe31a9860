use super::super::files::HistoryWriter;
use super::super::frame::tests::{end, line, outside};
use super::*;
use crate::history::{Frame, HistorySettings};
use objects::kinds::GroupMode;

const HOUR: u64 = 3_600_000;

fn everything(from: u64, until: u64) -> HistoryQuery {
    HistoryQuery {
        from: Moment(from),
        until: Moment(until),
        group: None,
        end: None,
        namespace: None,
        external: false,
        port: None,
        verdict: None,
    }
}

fn run(files: &HistoryFiles, query: &HistoryQuery) -> Vec<(String, String, u64)> {
    let found = query.run(files, &Groups::new(GroupMode::Discover), || false).unwrap();
    assert!(!found.too_many);
    let shown = |line: &HistoryLine| {
        let ends = (line.client.endpoint.to_string(), line.server.endpoint.to_string());
        (ends.0, ends.1, line.totals.bytes)
    };
    found.lines.iter().map(shown).collect()
}

#[test]
fn who_talked_to_it_yesterday_at_three() {
    let dir = tempfile::tempdir().unwrap();
    let files = HistoryFiles::new(HistorySettings::new(dir.path().join("history")));
    let mut writer = HistoryWriter::new(files.clone());
    for hour in 1..30 {
        let from = hour * HOUR;
        let mut lines = vec![line(end("web1", 1), end("db", 2), 5432, 100, from)];
        if hour == 3 {
            lines.push(line(outside(7), end("db", 2), 5432, 7, from));
        }
        let frame = |from, lines| Frame { from: Moment(from), until: Moment(from + 60_000), lines };
        writer.append(&[frame(from, lines)]).unwrap();
        let again = line(end("web1", 1), end("db", 2), 5432, 11, from + 60_000);
        writer.append(&[frame(from + 60_000, vec![again])]).unwrap();
    }
    let at_three = everything(3 * HOUR, 3 * HOUR + 120_000);
    let web = |bytes| ("shop/web1".to_owned(), "shop/db".to_owned(), bytes);
    let stranger = ("external".to_owned(), "shop/db".to_owned(), 7);
    assert_eq!(run(&files, &at_three), [web(111), stranger.clone()], "added up, the latest first");
    let all = run(&files, &everything(0, u64::MAX));
    assert_eq!(all, [web(29 * 111), stranger.clone()]);

    let with = |end: &str| HistoryQuery { end: Some(end.parse().unwrap()), ..at_three.clone() };
    for (asked, found) in [
        ("192.0.2.7", vec![stranger.clone()]),
        ("192.0.2.0/24", vec![stranger.clone()]),
        ("shop/web1", vec![web(111)]),
        ("shop/Deployment/web", vec![web(111)]),
        ("shop/db", vec![web(111), stranger.clone()]),
        ("web1", vec![]),
        ("other/web1", vec![]),
    ] {
        assert_eq!(run(&files, &with(asked)), found, "{asked}");
    }
    let group = Some(GroupMatcher::new("shop/Deployment/web").unwrap());
    assert_eq!(run(&files, &HistoryQuery { group, ..at_three.clone() }), [web(111)]);
    assert_eq!(run(&files, &HistoryQuery { external: true, ..at_three.clone() }), [stranger]);
    for nothing in [
        HistoryQuery { port: Some(80), ..at_three.clone() },
        HistoryQuery { namespace: Some("other".into()), ..at_three.clone() },
        HistoryQuery { verdict: Some(VerdictFilter::Violates), ..at_three.clone() },
        everything(40 * HOUR, 41 * HOUR),
    ] {
        assert_eq!(run(&files, &nothing), []);
    }
    let late = at_three.run(&files, &Groups::new(GroupMode::Discover), || true).unwrap();
    assert!(late.too_many, "what was not read in time is said");
}
