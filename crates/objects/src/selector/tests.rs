use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::Selector;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn selectors_mean_what_they_mean_to_an_api_server() {
    let labels = labels(&[("app", "web"), ("tier", "front"), ("empty", "")]);
    for (selector, matches) in [
        ("", true),
        ("  ", true),
        ("app=web", true),
        ("app==web", true),
        (" app = web , tier = front ", true),
        ("app!=web", false),
        ("other!=web", true),
        ("app in (api,web)", true),
        ("app in(api)", false),
        ("app notin (api)", true),
        ("app notin ( web , api )", false),
        ("other notin (web)", true),
        ("app", true),
        ("!app", false),
        ("!other", true),
        ("! other", true),
        ("empty=", true),
        ("app=", false),
        ("other=", false),
        ("empty in (,x)", true),
        ("app=web,!tier", false),
        ("in=x", false),
        ("in in (in)", false),
    ] {
        let parsed: Selector = selector.parse().unwrap();
        assert_eq!(parsed.matches(Some(&labels)), matches, "{selector}");
    }
    assert!("!a,b!=c".parse::<Selector>().unwrap().matches(None));
    assert!(!"a".parse::<Selector>().unwrap().matches(None));
}

#[test]
fn what_is_no_selector_says_where() {
    for (selector, says) in [
        (",", "key"),
        ("a,", "at the end"),
        ("a=b,,c", "key"),
        ("a b", "expected an operator"),
        ("a in b", "expected \"(\" before \"b\""),
        ("a in (b", "expected \",\" at the end"),
        ("a in (b c)", "expected \",\" before \"c)\""),
        ("a=b=c", "expected \",\" before \"=c\""),
        ("a>1", "key \"a>1\""),
        ("!a=b", "expected \",\""),
        ("a=b c", "expected \",\" before \"c\""),
        ("-a", "letter or a digit"),
        ("a=-b", "letter or a digit"),
        ("a in (b))", "expected \",\" before \")\""),
    ] {
        let error = selector.parse::<Selector>().unwrap_err().to_string();
        assert!(error.contains(says), "{selector}: {error}");
    }
}

/// One requirement, as text and as what it asks.
#[derive(Clone, Debug)]
enum Naive {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Equals(String, String),
    Differs(String, String),
}

impl Naive {
    fn text(&self) -> String {
        match self {
            Self::Exists(key) => key.clone(),
            Self::Absent(key) => format!("!{key}"),
            Self::In(key, values) => format!("{key} in ({})", values.join(", ")),
            Self::NotIn(key, values) => format!("{key} notin ({})", values.join(",")),
            Self::Equals(key, value) => format!("{key}={value}"),
            Self::Differs(key, value) => format!("{key} != {value}"),
        }
    }

    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let is = |key, wanted: &String| labels.get(key) == Some(wanted);
        match self {
            Self::Exists(key) => labels.contains_key(key),
            Self::Absent(key) => !labels.contains_key(key),
            Self::In(key, values) => values.iter().any(|value| is(key, value)),
            Self::NotIn(key, values) => !values.iter().any(|value| is(key, value)),
            Self::Equals(key, value) => is(key, value),
            Self::Differs(key, value) => !is(key, value),
        }
    }
}

fn requirement() -> impl Strategy<Value = Naive> {
    let key = || r"[ab]|in|notin|x\.io/a";
    let value = || "[uv]?|in";
    prop_oneof![
        key().prop_map(Naive::Exists),
        key().prop_map(Naive::Absent),
        (key(), vec(value(), 1..4)).prop_map(|(key, values)| Naive::In(key, values)),
        (key(), vec(value(), 1..4)).prop_map(|(key, values)| Naive::NotIn(key, values)),
        (key(), value()).prop_map(|(key, value)| Naive::Equals(key, value)),
        (key(), value()).prop_map(|(key, value)| Naive::Differs(key, value)),
    ]
}

proptest! {
    #[test]
    fn no_text_is_too_strange(text in r"[ab!=(),\s<>/.\-inoté]{0,30}|.*") {
        if let Ok(selector) = text.parse::<Selector>() {
            prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
        }
    }

    #[test]
    fn selectors_agree_with_a_naive_reading(
        requirements in vec(requirement(), 0..5),
        labels in btree_map(r"[ab]|in|notin|x\.io/a", "[uv]?|in", 0..4),
    ) {
        let text = requirements.iter().map(Naive::text).collect::<Vec<_>>().join(",");
        let selector: Selector = text.parse().unwrap();
        let naive = requirements.iter().all(|requirement| requirement.holds(&labels));
        prop_assert_eq!(selector.matches(Some(&labels)), naive, "{}", text);
        prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
    }
}
