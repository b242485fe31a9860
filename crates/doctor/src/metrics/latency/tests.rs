use super::*;

fn at(line: &str) -> At<'_> {
    At {
        input: "x",
        line: 1,
        bytes: line.as_bytes(),
    }
}

#[test]
fn a_table_is_read_as_people_paste_it() {
    for (head, row) in [
        (
            "n min p50 p95 max mean",
            "Add OK 492 114 s 122 s 123 s 124 s 122 s",
        ),
        (
            "| call | n | min | p50 | p95 | max | mean |",
            "| Add OK | 492 | 114s | 122s | 123s | 124s | 2m2s |",
        ),
        (
            "n min p50 p95 max mean",
            "Add OK 492 114000ms 122 s 123 124 122",
        ),
    ] {
        let row = Table::head(head.as_bytes())
            .unwrap()
            .row(at(row))
            .expect(row);
        assert_eq!(row.what, "Add OK");
        assert_eq!((row.count, row.min, row.p50), (492.0, Some(114.0), 122.0));
        assert_eq!((row.p95, row.max), (Some(123.0), Some(124.0)));
        assert_eq!(row.pinned(), Some(120.0));
    }
    for no in [
        "From the most recent 5 000 log lines",
        "min max",
        "the p50 and p95 of it",
        "",
    ] {
        assert_eq!(Table::head(no.as_bytes()), None, "{no}");
    }
}

#[test]
fn only_a_narrow_band_at_a_deadline_is_pinned() {
    let row = |min, p50, p95, count| LatencyRow {
        what: String::new(),
        count,
        min: Some(min),
        p50,
        p95: Some(p95),
        max: None,
        evidence: Evidence::default(),
    };
    assert_eq!(row(29.0, 30.1, 30.3, 100.0).pinned(), Some(30.0));
    for (why, other) in [
        ("spread", row(0.1, 30.0, 30.3, 100.0)),
        ("tail", row(29.0, 30.0, 60.0, 100.0)),
        ("no deadline", row(49.0, 50.0, 51.0, 100.0)),
        ("few", row(29.0, 30.0, 30.0, 5.0)),
        ("fast", row(0.9, 1.0, 1.0, 100.0)),
    ] {
        assert_eq!(other.pinned(), None, "{why}");
    }
}

#[test]
fn durations_have_many_spellings() {
    for (text, ms) in [
        ("121142.97", 121_142.97),
        ("1m2.5s", 62_500.0),
        ("5ms", 5.0),
        ("250µs", 0.25),
        ("2 s", 2000.0),
    ] {
        assert_eq!(duration_ms(text, 1.0), Some(ms), "{text}");
    }
    for text in ["", "x", "5 apples", "-3", "NaN", "s"] {
        assert_eq!(duration_ms(text, 1.0), None, "{text}");
    }
}

#[test]
fn a_sketch_keeps_its_quantiles() {
    let mut latency = Latency::default();
    for i in 0..1000 {
        latency.add(f64::from(i) / 100.0);
    }
    let row = latency.row("x", &Evidence::default());
    assert!((row.p50 - 5.0).abs() < 0.15, "{row:?}");
    assert!((row.p95.unwrap() - 9.5).abs() < 0.3, "{row:?}");
    assert_eq!((row.min, row.max), (Some(0.0), Some(9.99)));
}
