use super::*;

#[test]
fn every_byte_is_read_as_it_was_written() {
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(unescape(&all.escape_ascii().to_string()), Some(all));
}

#[test]
fn what_was_not_escaped_so_is_refused() {
    for line in ["\\", "\\q", "\\x", "\\x0", "\\xzz"] {
        assert_eq!(unescape(line), None, "{line}");
    }
}
