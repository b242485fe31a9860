//! What a schema's pattern takes is what the check beside it takes.

use proptest::prelude::*;
use regex::Regex;

use super::*;

fn is_match(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).unwrap().is_match(text)
}

fn is_text(text: &str) -> bool {
    let mut problems = Invalid::default();
    super::text(&mut problems, "it", text, 0, usize::MAX);
    problems.0.is_empty()
}

fn is_secret_key(key: &str) -> bool {
    let mut problems = Invalid::default();
    secret_key(&mut problems, "it", key);
    problems.0.is_empty()
}

proptest! {
    /// Of a few letters, so that many of them are right.
    #[test]
    fn patterns_say_what_checks_say(word in "[a0Z._-]{0,6}(/?[a0Z._-]{0,4})?") {
        prop_assert_eq!(is_match(NAME, &word), name::subdomain(&word).is_none());
        prop_assert_eq!(is_match(LABEL, &word), name::dns_label(&word).is_none());
        prop_assert_eq!(is_match(LABEL_KEY, &word), name::key(&word).is_none());
        prop_assert_eq!(is_match(SECRET_KEY, &word), is_secret_key(&word));
    }

    #[test]
    fn a_text_has_no_control_characters(text in any::<String>()) {
        prop_assert_eq!(is_match(TEXT, &text), is_text(&text));
    }
}

#[test]
fn control_characters_are_found_in_both_ways() {
    for text in ["", "a b", "ä\u{a0}€", "😀"] {
        assert!(is_match(TEXT, text) && is_text(text), "{text:?}");
    }
    for text in ["\n", "a\tb", "\u{1b}[2J", "\u{7f}", "\u{85}", "\u{9f}", "a\n"] {
        assert!(!is_match(TEXT, text) && !is_text(text), "{text:?}");
    }
}
