//! Globs: `*` is any run of characters, `?` exactly one, everything else is itself; the whole text
//! must match. Linear in the text, whatever the pattern.

use memchr::memmem::Finder;
use objects::kinds::admission_rule::{Regex, regex};

#[derive(Clone, Debug)]
pub(super) enum Glob {
    Exact(Box<str>),
    /// Only `*`: what stands before the first, between each two, and after the last.
    Stars {
        head: Box<str>,
        middle: Vec<Finder<'static>>,
        tail: Box<str>,
    },
    /// With `?`: a regular expression finds where it can stand.
    Marks(Box<Regex>),
}

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        if pattern.contains('?') {
            let mut text = String::from(r"(?s)\A");
            for c in pattern.chars() {
                match c {
                    '*' => text.push_str(".*"),
                    '?' => text.push('.'),
                    c => text.push_str(&format!(r"\x{{{:X}}}", u32::from(c))),
                }
            }
            text.push_str(r"\z");
            // A pattern too large to compile is compared as text: it is longer than what it could
            // stand for.
            return match regex(&text) {
                Ok(regex) => Self::Marks(Box::new(regex)),
                Err(_) => Self::Exact(pattern.into()),
            };
        }
        let Some((head, rest)) = pattern.split_once('*') else {
            return Self::Exact(pattern.into());
        };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        let pieces = middle.split('*').filter(|piece| !piece.is_empty());
        let middle = pieces.map(|piece| Finder::new(piece).into_owned()).collect();
        Self::Stars { head: head.into(), middle, tail: tail.into() }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *text,
            Self::Marks(regex) => regex.is_match(text.as_bytes()),
            Self::Stars { head, middle, tail } => {
                let Some(rest) = text.strip_prefix(&**head) else { return false };
                let Some(rest) = rest.strip_suffix(&**tail) else { return false };
                // The leftmost place for each leaves the most for those behind it.
                let mut rest = rest.as_bytes();
                for piece in middle {
                    let Some(at) = piece.find(rest) else { return false };
                    rest = &rest[at + piece.needle().len()..];
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Glob;

    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|i| naive(rest, &text[i..])),
            Some(('?', rest)) => !text.is_empty() && naive(rest, &text[1..]),
            Some((c, rest)) => text.first() == Some(c) && naive(rest, &text[1..]),
        }
    }

    #[test]
    fn everything_but_star_and_mark_is_itself() {
        let cases = [
            ("a.c", "abc", false),
            ("a+", "aa", false),
            ("(x", "(x", true),
            ("*", "", true),
            ("a*c", "a/b:\nc", true),
            ("?", "é", true),
            ("?", "\n", true),
            ("??", "é", false),
            ("A", "a", false),
            ("ab*ba", "aba", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(Glob::new(pattern).matches(text), expected, "{pattern} on {text:?}");
        }
    }

    proptest! {
        #[test]
        fn globs_agree_with_a_naive_matcher(pattern in "[ab*?.é\n]{0,8}", text in "[ab.é\n]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = naive(&chars(&pattern), &chars(&text));
            prop_assert_eq!(Glob::new(&pattern).matches(&text), expected);
        }
    }
}
