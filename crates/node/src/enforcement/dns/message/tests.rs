#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in text.split('.').filter(|it| !it.is_empty()) {
        out.push(label.len() as u8);
        out.extend(label.as_bytes());
    }
    out.push(0);
    out
}

/// A message about `asked` with these records: owner, kind, seconds, data.
fn message(flags: u16, asked: &str, records: &[(&[u8], u16, u32, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![0x12, 0x34];
    for number in [flags, 1, records.len() as u16, 0, 0] {
        out.extend(number.to_be_bytes());
    }
    out.extend(name(asked));
    out.extend([0, 1, 0, 1]);
    for (owner, kind, lives, data) in records {
        out.extend(*owner);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out.extend(lives.to_be_bytes());
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
    }
    out
}

/// A pointer to the question's name.
const ASKED: &[u8] = &[0xc0, 12];

#[test]
fn the_addresses_of_the_name_are_read_through_aliases_and_no_others() {
    let (cdn, other) = (name("edge.cdn.net"), name("other.org"));
    let v6: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let bytes = message(
        0x8180,
        "API.Example.com",
        &[
            (ASKED, CNAME, 30, cdn.clone()),
            (&cdn, A, 300, vec![192, 0, 2, 1]),
            (&cdn, AAAA, 10, v6.octets().to_vec()),
            (&other, A, 300, vec![192, 0, 2, 66]),
        ],
    );
    let answer = answer(&bytes).unwrap();
    assert_eq!(answer.question.name, "api.example.com");
    let first: IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(answer.addresses, [(first, 30), (v6.into(), 10)]);
}

#[test]
fn a_refusal_an_alias_of_itself_and_a_query_have_no_addresses() {
    let to = vec![192, 0, 2, 1];
    let refused = message(0x8183, "a.b", &[(ASKED, A, 1, to.clone())]);
    assert_eq!(answer(&refused).unwrap().addresses, []);
    let circle = message(0x8180, "a.b", &[(ASKED, CNAME, 1, name("a.b"))]);
    assert_eq!(answer(&circle).unwrap().addresses, []);
    let query = message(0x0100, "a.b", &[]);
    assert_eq!(answer(&query), None);
    assert_eq!(question(&query).unwrap().name, "a.b");
    assert_eq!(question(&refused), None);
}

/// A name, and pointers behind it each of which goes to the one before.
fn chained(pointers: u16) -> Vec<u8> {
    let mut bytes = name("a");
    let mut to = 0;
    for _ in 0..pointers {
        let at = bytes.len() as u16;
        bytes.extend((0xc000_u16 | to).to_be_bytes());
        to = at;
    }
    bytes
}

#[test]
fn a_name_has_no_more_pointers_than_it_can_have_labels() {
    let read = |pointers: u16| {
        let whole = chained(pointers);
        Reader { whole: &whole, at: whole.len() - 2 }.name()
    };
    assert_eq!(read(MOST_POINTERS as u16).as_deref(), Some("a"));
    assert_eq!(read(MOST_POINTERS as u16 + 1), None);
    assert_eq!(read(8000), None);
}

#[test]
fn pointers_that_do_not_go_backwards_are_no_name() {
    for pointer in [[0xc0, 12], [0xc0, 13], [0xff, 0xff]] {
        let mut bytes = vec![0; 12];
        bytes[5] = 1;
        bytes.extend(pointer);
        bytes.extend([0, 1, 0, 1]);
        assert_eq!(question(&bytes), None, "{pointer:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = (question(&bytes), answer(&bytes));
    }

    #[test]
    fn a_damaged_answer_is_read_to_an_end(
        at in 0usize..90, byte in any::<u8>(), cut in 0usize..120,
    ) {
        let cdn = name("edge.cdn.net");
        let mut bytes = message(
            0x8180,
            "api.example.com",
            &[(ASKED, CNAME, 30, cdn.clone()), (&cdn, A, 300, vec![192, 0, 2, 1])],
        );
        let at = at.min(bytes.len() - 1);
        bytes[at] = byte;
        bytes.truncate(cut);
        let _ = (question(&bytes), answer(&bytes));
    }
}
