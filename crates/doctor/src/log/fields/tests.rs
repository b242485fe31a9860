use super::*;

fn all(fields: Fields<'_>) -> Vec<(String, String)> {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    fields.map(|(k, v)| (text(k), text(v))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

#[test]
fn pairs_stand_anywhere_in_the_text() {
    let text = br#"Retry join - JoinAddr=[10.1 10.2] error="no \"leader\"" newLead= memLimit=6442450944, x"#;
    assert_eq!(
        all(Fields::pairs(text)),
        pairs(&[
            ("JoinAddr", "[10.1 10.2]"),
            ("error", r#"no \"leader\""#),
            ("newLead", ""),
            ("memLimit", "6442450944"),
        ])
    );
}

#[test]
fn members_are_read_from_whole_and_from_broken_objects() {
    let whole = br#"{"a":"x","b":1.5,"c":{"d":[1,"}"]},"e":null}"#;
    assert_eq!(
        all(Fields::json(whole)),
        pairs(&[
            ("a", "x"),
            ("b", "1.5"),
            ("c", r#"{"d":[1,"}"]}"#),
            ("e", "null")
        ])
    );
    let broken = b"{\"level\":\"info\",\n \"grpc.time_ms\":121142.97, ...}";
    assert_eq!(
        all(Fields::json(broken)),
        pairs(&[("level", "info"), ("grpc.time_ms", "121142.97")])
    );
    assert_eq!(all(Fields::json(b"{\"a")), vec![]);
}

#[test]
fn escapes_are_undone() {
    let mut out = Vec::new();
    unescape(br#"a\n\t\"\u00e9\\"#, &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "a\n\t\"é\\");
}
