//! The operators on lists.

use objects::kinds::admission_rule::List;

use crate::glob::Glob;

/// `values` are the object's, `items` the criterion's.
pub(super) fn holds<I, V: Copy>(
    op: List,
    items: &[I],
    mut values: impl Iterator<Item = V> + Clone,
    matches: impl Fn(&I, V) -> bool,
) -> bool {
    match op {
        List::Any => values.any(|value| items.iter().any(|item| matches(item, value))),
        List::NotAny => !values.any(|value| items.iter().any(|item| matches(item, value))),
        List::All => items.iter().all(|item| values.clone().any(|value| matches(item, value))),
        List::OtherThan => values.any(|value| !items.iter().any(|item| matches(item, value))),
    }
}

/// An item of a key-value criterion: the key exactly, the value as a glob if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(super) key: Box<str>,
    pub(super) value: Option<Glob>,
}

impl Pair {
    pub(super) fn matches(&self, (key, value): (&str, &str)) -> bool {
        *self.key == *key && self.value.as_ref().is_none_or(|glob| glob.matches(value))
    }
}
