use proptest::prelude::*;

use super::*;

fn glob(pattern: &str) -> Glob {
    Glob::new(pattern).unwrap()
}

/// The definition, word for word: a table of which prefixes match which.
fn reference(pattern: &str, word: &str) -> bool {
    let (p, w): (Vec<char>, Vec<char>) = (pattern.chars().collect(), word.chars().collect());
    let mut table = vec![vec![false; w.len() + 1]; p.len() + 1];
    table[0][0] = true;
    for i in 1..=p.len() {
        for j in 0..=w.len() {
            table[i][j] = match p[i - 1] {
                '*' => table[i - 1][j] || (j > 0 && table[i][j - 1]),
                '?' => j > 0 && table[i - 1][j - 1],
                c => j > 0 && c == w[j - 1] && table[i - 1][j - 1],
            };
        }
    }
    table[p.len()][w.len()]
}

#[test]
fn the_whole_word_matches_and_all_but_two_characters_are_literal() {
    for (pattern, yes, no) in [
        ("prod", "prod", "prod-1"),
        ("prod-*", "prod-", "a-prod-1"),
        ("*.apps", "deployments.apps", "deploymentsxapps"),
        ("team-?", "team-ä", "team-"),
        ("[a-z]+", "[a-z]+", "abc"),
        ("a|b", "a|b", "a"),
        ("", "", "a"),
        ("a*b*c", "a-b-b-c", "a-c-b"),
        ("PROD", "PROD", "prod"),
    ] {
        assert!(glob(pattern).matches(yes), "{pattern} {yes}");
        assert!(!glob(pattern).matches(no), "{pattern} {no}");
    }
}

#[test]
fn a_pattern_made_to_explode_takes_no_more_than_the_product() {
    // With one retry per `*` this would take 2^60 steps: the test would not end.
    let pattern = glob(&"*a".repeat(60));
    assert!(!pattern.matches(&format!("{}b", "a".repeat(5000))));
}

#[test]
fn a_pattern_without_end_is_refused() {
    assert!(Glob::new(&"a".repeat(LONGEST)).is_ok());
    assert_eq!(Glob::new(&"a".repeat(LONGEST + 1)), Err(TooLong));
}

proptest! {
    #[test]
    fn matching_is_what_the_definition_says(pattern in "[ab*?ä]{0,9}", word in "[abä]{0,12}") {
        prop_assert_eq!(glob(&pattern).matches(&word), reference(&pattern, &word));
    }

    #[test]
    fn who_covers_a_glob_matches_its_words(
        wide in "[ab*?]{0,6}", narrow in "[ab*?]{0,6}", word in "[ab]{0,8}",
    ) {
        if glob(&wide).covers(&glob(&narrow)) && glob(&narrow).matches(&word) {
            prop_assert!(glob(&wide).matches(&word), "{} {} {}", wide, narrow, word);
        }
    }

    #[test]
    fn all_cover_themselves_and_are_covered_by_any(pattern in "[ab*?]{0,8}") {
        prop_assert!(glob(&pattern).covers(&glob(&pattern)));
        prop_assert!(Glob::any().covers(&glob(&pattern)));
    }
}
