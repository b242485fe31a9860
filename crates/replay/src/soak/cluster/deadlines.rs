//! Checks that nothing stays unanswered past its deadline: a refusal is an answer, silence is none.

use super::scope::{Ms, Part, Scope};

/// On the way there and back, on a busy machine.
const SLACK: Ms = 3000;

/// One request of a client.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) what: String,
    pub(super) from: Ms,
    /// How long the client said that an answer is worth having.
    pub(super) within: Ms,
    pub(super) answered: Option<Ms>,
    pub(super) parts: Vec<Part>,
}

/// Why it is broken, if it is.
pub(super) fn unanswered(asked: &Asked, scope: &Scope) -> Option<String> {
    let until = asked.from + asked.within + SLACK;
    let is_late = asked.answered.is_none_or(|at| at > until);
    let Asked { what, from, within, answered, parts } = asked;
    (is_late && !scope.excuses(parts, *from, until)).then(|| match answered {
        Some(at) => {
            format!("{what} of {from} was answered after {} ms, not within {within} ms", at - from)
        }
        None => format!("{what} of {from} was not answered within {within} ms"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_found_unless_a_fault_explains_it() {
        let mut scope = Scope::default();
        let mut asked = Asked {
            what: "a read".to_owned(),
            from: 1000,
            within: 10_000,
            answered: Some(5000),
            parts: vec![Part::Controller(1)],
        };
        assert_eq!(unanswered(&asked, &scope), None);
        asked.answered = Some(20_000);
        assert!(unanswered(&asked, &scope).is_some());
        asked.answered = None;
        assert!(unanswered(&asked, &scope).is_some());
        scope.open(&[Part::Controller(2)], 0);
        assert!(unanswered(&asked, &scope).is_some(), "another one's");
        scope.open(&[Part::Controller(1)], 0);
        assert_eq!(unanswered(&asked, &scope), None);
    }
}
