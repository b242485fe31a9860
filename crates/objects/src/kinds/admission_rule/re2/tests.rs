use proptest::prelude::*;

use super::compile;

#[test]
fn expressions_mean_what_re2_means() {
    let cases: &[(&str, &str, bool)] = &[
        // ASCII only, inside a class and outside.
        (r"^\d$", "٣", false),
        (r"^\D$", "٣", true),
        (r"^\w$", "é", false),
        (r"^[\w.]+$", "a.b_9", true),
        (r"^[^\W]$", "a", true),
        (r"^[\W]$", "é", true),
        (r"^\s$", "\u{a0}", false),
        (r"\bab\b", "éabé", true),
        (r"a\Bb", "ab", true),
        // Plain characters in a class.
        (r"^[[a]$", "[", true),
        (r"^[a&&b]$", "&", true),
        (r"^[]a]$", "]", true),
        (r"^[a-c-]+$", "b-", true),
        (r"^[+--]$", ",", true),
        (r"^[[:alpha:]\d]+$", "a1", true),
        (r"^[\x41\pN]+$", "A1", true),
        // Braces, escapes, quotes.
        (r"^a{2}$", "aa", true),
        (r"^a{,2}$", "a{,2}", true),
        (r"^a{,2}$", "aa", false),
        (r"^x{y}$", "x{y}", true),
        (r"^\<a\>$", "<a>", true),
        (r"^\Qa.b*\E+$", "a.b**", true),
        (r"\x{41}\x42", "AB", true),
        (r"^.$", "é", true),
        (r"^.$", "\n", false),
        (r"(?i)ADMIN", "an-admin", true),
        (r"(?P<n>a)(?:b)(?i:C)", "abc", true),
        (r"^system:serviceaccount:(dev|qa)-[a-z]+:", "system:serviceaccount:qa-x:y", true),
    ];
    for (pattern, text, expected) in cases {
        let regex = compile(pattern).unwrap_or_else(|problem| panic!("{pattern}: {problem}"));
        assert_eq!(regex.is_match(text.as_bytes()), *expected, "{pattern} on {text:?}");
    }
}

#[test]
fn what_does_not_compile_or_is_too_large_is_refused() {
    for pattern in ["(", "[a", "a\\", r"\1", r"(?x)a b", r"\u0041", "(?=a)", "*", "[b-a]"] {
        assert!(compile(pattern).is_err(), "{pattern}");
    }
    assert!(compile(&"(a{1000}){1000}".repeat(2)).unwrap_err().contains("too large"));
}

proptest! {
    #[test]
    fn no_pattern_panics(pattern in r#"([\\\[\](){}^$.*+?|:a-c0-9QExpbdwW,<>&-]|é){0,24}"#) {
        let _ = compile(&pattern);
    }
}
