use super::*;

#[test]
fn times_need_a_unit_and_are_shown_as_written() {
    for text in ["500ms", "10s", "2m", "1h", "0s"] {
        assert_eq!(show_time(duration(text).unwrap()), text);
    }
    for text in ["", "10", "s", "-1s", "1.5s", "10 s", "1d", "99999999999999999999s"] {
        assert_eq!(duration(text), None, "{text:?}");
    }
    assert_eq!(time("11m", "0s", "10m"), None);
}

#[test]
fn a_mistyped_name_finds_its_neighbour_and_nonsense_finds_none() {
    let names = || ["data", "admin.listen", "log.level"].into_iter();
    assert_eq!(nearest("admin.lisen", names()), Some("admin.listen"));
    assert_eq!(nearest("log.levle", names()), Some("log.level"));
    assert_eq!(nearest("completely.else", names()), None);
}

#[test]
fn a_moment_is_so_long_ago_or_a_time_with_or_without_its_zone() {
    let then = moment("20h").unwrap();
    let ago = jiff::Timestamp::now().duration_since(then).as_secs();
    assert!((20 * 3600..20 * 3600 + 60).contains(&ago), "{ago}");
    let zulu = moment("2026-01-31T15:00:00Z").unwrap();
    assert_eq!(zulu.to_string(), "2026-01-31T15:00:00Z");
    let day = moment("2026-01-31T15:00").unwrap().duration_since(zulu).as_secs().abs();
    assert!(day <= 14 * 3600, "some time zone's three o'clock: {day}");
    for wrong in ["", "yesterday", "15", "20d", "2026-13-31T15:00"] {
        assert!(moment(wrong).is_err(), "{wrong}");
    }
}
