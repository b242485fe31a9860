use super::*;

const PLAIN: fn() -> Paint = || Paint::always(false);

#[test]
fn columns_line_up_whatever_is_in_them() {
    let mut table = Table::new(["NAME", "STATE", "WHY"]);
    table.row(["prod-日本", "ready", ""]);
    table.row(["é", "", "no answer"]);
    assert_eq!(
        table.render(PLAIN()),
        "NAME        STATE   WHY\nprod-日本   ready\né                   no answer"
    );
}

#[test]
fn a_colour_takes_no_room() {
    let mut table = Table::new(["STATE", "SINCE"]);
    table.row([Cell::coloured("ok", Colour::Green), "5m".into()]);
    assert_eq!(table.render(PLAIN()), "STATE   SINCE\nok      5m");
    assert_eq!(table.render(Paint::always(true)), "STATE   SINCE\n\x1b[32mok\x1b[0m      5m");
}

#[test]
fn nothing_in_a_cell_drives_the_terminal() {
    let mut table = Table::new(["NAME"]);
    table.row(["a\x1b[2Jb\nc\u{202e}d\n"]);
    assert_eq!(table.render(PLAIN()), "NAME\na\u{fffd}[2Jb c\u{fffd}d");
}

#[test]
fn rows_that_come_later_keep_to_the_columns() {
    let mut table = Table::new(["NAME", "READY"]);
    table.row(["a-long-name", "1/1"]);
    assert_eq!(table.render(PLAIN()).lines().count(), 2);
    assert_eq!(table.unprinted(PLAIN()), "NAME          READY\na-long-name   1/1\n");
    table.row(["b", "0/1"]);
    assert_eq!(table.unprinted(PLAIN()), "b             0/1\n");
    assert_eq!(table.unprinted(PLAIN()), "");
}

#[test]
fn a_row_with_too_few_or_too_many_cells_is_still_a_row() {
    let mut table = Table::new(["A", "B"]);
    table.row(["1"]);
    table.row(["1", "2", "3"]);
    assert_eq!(table.render(PLAIN()), "A   B\n1\n1   2   3");
}

#[test]
fn ages_are_as_kubectl_says_them() {
    for (seconds, text) in [
        (-5, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 120, "3h2m"),
        (8 * 3600 + 120, "8h"),
        (49 * 3600, "2d1h"),
        (8 * 86_400, "8d"),
        (731 * 86_400, "2y1d"),
        (10 * 365 * 86_400, "10y"),
    ] {
        assert_eq!(human(seconds), text);
    }
    let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    assert_eq!(age(Some("2026-01-01T00:00:00Z"), now), "60s");
    assert_eq!(age(Some("yesterday"), now), "-");
    assert_eq!(age(None, now), "-");
    assert_eq!(moment("2026-01-01T00:00:00.123456789Z"), "2026-01-01T00:00:00Z");
    assert_eq!(moment("-"), "-");
}
