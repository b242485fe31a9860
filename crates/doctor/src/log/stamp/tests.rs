use super::*;

fn utc(text: &str) -> Millis {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

#[test]
fn every_form_gives_the_same_instant() {
    let reference = Some(utc("2025-02-03T00:00:00Z"));
    for (form, rest) in [
        ("2025-01-26T13:09:02.525Z [ERROR]", " [ERROR]"),
        ("2025-01-26T13:09:02.525|INFO", "|INFO"),
        ("2025-01-26 13:09:02,525 x", " x"),
        ("2025/01/26 13:09:02.525000 x", " x"),
        ("2025-01-26T14:09:02.525123456+01:00 x", " x"),
        ("2025-01-26 08:09:02.525 -0500", ""),
        ("0126 13:09:02.525999       1 a.go:1]", "       1 a.go:1]"),
        ("Jan 26 13:09:02.525 host", " host"),
    ] {
        let (at, left) = stamp(form.as_bytes(), reference).expect(form);
        assert_eq!(at, utc("2025-01-26T13:09:02.525Z"), "{form}");
        assert_eq!(left, rest.as_bytes(), "{form}");
    }
}

#[test]
fn a_year_is_taken_from_what_is_near() {
    let new_year = Some(utc("2025-01-01T00:10:00Z"));
    let at = |text: &str| stamp(text.as_bytes(), new_year).map(|(at, _)| at);
    assert_eq!(at("1231 23:59:59.000"), Some(utc("2024-12-31T23:59:59Z")));
    assert_eq!(at("0101 00:05:00.000"), Some(utc("2025-01-01T00:05:00Z")));
    assert_eq!(at("Feb  3 00:00:00"), Some(utc("2024-02-03T00:00:00Z")));
    assert_eq!(stamp(b"0101 00:05:00.000", None), None);
}

#[test]
fn what_is_no_time_is_none() {
    for text in [
        "",
        "2025",
        "2025-13-01T00:00:00",
        "2025-01-26T25:00:00",
        "10.42.55.36",
        "12:00:00",
    ] {
        assert_eq!(stamp(text.as_bytes(), Some(0)), None, "{text}");
    }
}

#[test]
fn epochs_tell_their_unit_by_size() {
    for text in [
        "1737896942.525",
        "1737896942525",
        "1737896942525000",
        "1737896942525000000",
    ] {
        assert_eq!(epoch(text.as_bytes()), Some(1_737_896_942_525), "{text}");
    }
    assert_eq!(epoch(b"12"), None);
    assert_eq!(epoch(b"NaN"), None);
}
