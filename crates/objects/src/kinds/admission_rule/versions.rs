//! The order of versions of packages that NeuVector uses: dpkg's, with changes for release candidates
//! and for packages of Enterprise Linux.

use std::cmp::Ordering;

/// A version that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version<'v> {
    Lowest,
    Highest,
    Of(Parts<'v>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts<'v> {
    epoch: u64,
    version: &'v str,
    revision: &'v str,
    /// What follows the last `.el`, with these two letters.
    el: &'v str,
}

/// Whether a version can be compared at all.
pub fn is_readable(version: &str) -> bool {
    read(version).is_some()
}

/// How two versions stand to each other; none if one of them cannot be read.
pub fn compare(one: &str, other: &str) -> Option<Ordering> {
    let (one, other) = (read(one)?, read(other)?);
    Some(match (one, other) {
        (Version::Of(one), Version::Of(other)) => one
            .epoch
            .cmp(&other.epoch)
            .then_with(|| compare_part(one.version, other.version))
            .then_with(|| compare_part(one.revision, other.revision))
            .then_with(|| compare_part(one.el, other.el)),
        (one, other) => rank(one).cmp(&rank(other)),
    })
}

fn rank(version: Version<'_>) -> u8 {
    match version {
        Version::Lowest => 0,
        Version::Of(_) => 1,
        Version::Highest => 2,
    }
}

fn read(text: &str) -> Option<Version<'_>> {
    let text = text.trim();
    match text {
        "" => return None,
        "#MAXV#" => return Some(Version::Highest),
        "#MINV#" => return Some(Version::Lowest),
        _ => {}
    }
    let (epoch, rest) = match text.split_once(':') {
        Some((epoch, rest)) => {
            let digits = !epoch.is_empty() && epoch.bytes().all(|b| b.is_ascii_digit());
            (digits.then(|| epoch.parse().ok()).flatten()?, rest)
        }
        None => (0, text),
    };
    let (version, revision) = match rest.rsplit_once('-') {
        Some((version, revision)) => (version, revision),
        None => (rest, ""),
    };
    let with_el = |part| match str::rfind(part, ".el") {
        Some(at) => (&part[..at], &part[at + 1..]),
        None => (part, ""),
    };
    let (version, revision, el) = if revision.is_empty() {
        let (version, el) = with_el(version);
        (version, "", el)
    } else {
        let (revision, el) = with_el(revision);
        (version, revision, el)
    };
    let made_of = |part: &str, others: &str| {
        part.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
    };
    let readable = !version.is_empty()
        && made_of(version, ".-+~:_")
        && made_of(revision, ".+~_")
        && made_of(el, ".+~_");
    readable.then_some(Version::Of(Parts { epoch, version, revision, el }))
}

fn weight(next: Option<u8>) -> i32 {
    match next {
        None => 0,
        Some(b) if b.is_ascii_digit() => 0,
        Some(b'~') => -1,
        Some(b) if b.is_ascii_alphabetic() => i32::from(b),
        Some(b) => i32::from(b) + 256,
    }
}

/// Whether what follows the first character of a rest names a release candidate: `rc` or `pre`, and a
/// digit.
fn is_candidate(rest: &[u8]) -> bool {
    let rest = rest.get(1..).unwrap_or_default();
    let has = |word: &[u8]| rest.windows(word.len()).any(|window| window == word);
    (has(b"rc") || has(b"pre")) && rest.iter().any(u8::is_ascii_digit)
}

fn compare_part(one: &str, other: &str) -> Ordering {
    let (mut a, mut b) = (one.as_bytes(), other.as_bytes());
    let is_digit = |part: &[u8]| part.first().is_some_and(u8::is_ascii_digit);
    while !a.is_empty() || !b.is_empty() {
        while (!a.is_empty() && !is_digit(a)) || (!b.is_empty() && !is_digit(b)) {
            let (next_a, next_b) = (a.first().copied(), b.first().copied());
            let (of_a, of_b) = (weight(next_a), weight(next_b));
            if of_a != of_b {
                return match (next_a, next_b) {
                    (Some(b'.'), Some(b'_')) => Ordering::Greater,
                    (Some(b'_'), Some(b'.')) => Ordering::Less,
                    _ if of_b == 0 && is_candidate(a) => Ordering::Less,
                    _ if of_a == 0 && is_candidate(b) => Ordering::Greater,
                    _ => of_a.cmp(&of_b),
                };
            }
            a = a.get(1..).unwrap_or_default();
            b = b.get(1..).unwrap_or_default();
        }
        let number = |part: &mut &[u8]| {
            let zeros = part.iter().take_while(|b| **b == b'0').count();
            let rest = &part[zeros..];
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            let (number, rest) = rest.split_at(digits);
            *part = rest;
            number.to_vec()
        };
        let (of_a, of_b) = (number(&mut a), number(&mut b));
        let order = of_a.len().cmp(&of_b.len()).then_with(|| of_a.cmp(&of_b));
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::{compare, is_readable};

    #[test]
    fn versions_stand_in_the_order_of_dpkg_with_its_exceptions() {
        use Ordering::{Equal, Greater, Less};
        let cases = [
            ("1.2", "1.10", Less),
            ("1.02", "1.2", Equal),
            ("1:0.1", "9.9", Greater),
            ("2.17.1", "2.17.1-1", Less),
            ("1.0~rc1", "1.0", Less),
            ("1.0.rc1", "1.0", Less),
            ("1.0_pre2", "1.0", Less),
            // The letters of the word itself are no candidate's.
            ("1.0rc1", "1.0", Greater),
            ("3.0.7-18.el9_2", "3.0.7-18.el9", Greater),
            ("3.0.7-18.el8", "3.0.7-18.el9", Less),
            ("1.1.1k", "1.1.1", Greater),
            ("1.2.3", "1.2_3", Greater),
            ("#MAXV#", "99999", Greater),
            ("#MINV#", "0", Less),
            ("00001", "1", Equal),
        ];
        for (one, other, expected) in cases {
            assert_eq!(compare(one, other), Some(expected), "{one} and {other}");
            assert_eq!(compare(other, one), Some(expected.reverse()), "{other} and {one}");
        }
    }

    #[test]
    fn what_is_no_version_is_not_compared() {
        for text in ["", "  ", "a b", "x:1", ":1", "1.0/2", "-1", "1.0-a b"] {
            assert!(!is_readable(text), "{text:?}");
            assert_eq!(compare(text, "1"), None);
        }
    }

    proptest! {
        #[test]
        fn order_is_the_same_from_both_sides(a in "[0-9a-z.+~:_-]{1,12}", b in "[0-9a-z.+~:_-]{1,12}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).map(Ordering::reverse));
        }
    }
}
