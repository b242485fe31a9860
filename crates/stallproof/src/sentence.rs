//! `sentence`: an error and its causes, for a person.

use std::error::Error;

/// The error and its causes in one sentence. Libraries often say their cause themselves; it is said
/// once.
pub fn sentence(error: &dyn Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !sentence.contains(&said) {
            sentence = format!("{sentence}: {said}");
        }
        cause = error.source();
    }
    sentence
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Told(&'static str, #[source] Option<Box<Told>>);

    #[test]
    fn each_cause_is_said_once() {
        let cause = |told| Some(Box::new(told));
        let plain = Told("the store is not available", cause(Told("disk full", None)));
        assert_eq!(sentence(&plain), "the store is not available: disk full");
        let chatty = Told("cannot connect: refused", cause(Told("refused", None)));
        assert_eq!(sentence(&chatty), "cannot connect: refused");
    }
}
