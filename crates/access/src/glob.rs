//! `Glob`: `*` matches any text, `?` one character, everything else itself. The whole word must match.
//!
//! Contract: matching allocates nothing and takes at most the product of both lengths. When a match
//! fails, only the last `*` takes one more character: it can take whatever an earlier one could.

/// Longer than any name of Kubernetes. A longer pattern would only slow every request down.
pub(crate) const LONGEST: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob(Vec<Token>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    One,
    Many,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pattern has at most {LONGEST} bytes")]
pub(crate) struct TooLong;

impl Glob {
    pub(crate) fn new(pattern: &str) -> Result<Self, TooLong> {
        if pattern.len() > LONGEST {
            return Err(TooLong);
        }
        let mut tokens: Vec<_> = pattern
            .chars()
            .map(|c| match c {
                '*' => Token::Many,
                '?' => Token::One,
                c => Token::Char(c),
            })
            .collect();
        tokens.dedup_by(|a, b| (*a, *b) == (Token::Many, Token::Many));
        Ok(Self(tokens))
    }

    /// `*`.
    pub(crate) fn any() -> Self {
        Self(vec![Token::Many])
    }

    pub(crate) fn is_any(&self) -> bool {
        self.0 == [Token::Many]
    }

    pub(crate) fn matches(&self, word: &str) -> bool {
        matches(&self.0, word.chars().map(Token::Char))
    }

    /// Whether it matches every word that `other` matches. It may say no although it does (`*?` and `?*`),
    /// never the other way round.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        matches(&self.0, other.0.iter().copied())
    }
}

fn matches(pattern: &[Token], mut word: impl Iterator<Item = Token> + Clone) -> bool {
    let mut at = 0;
    // The pattern after the last `*`, and the rest of the word that it has not taken.
    let mut retry = None;
    loop {
        if pattern.get(at) == Some(&Token::Many) {
            at += 1;
            retry = Some((at, word.clone()));
            continue;
        }
        let next = word.next();
        let fits = match (pattern.get(at), next) {
            (None, None) => return true,
            (Some(Token::Char(a)), Some(Token::Char(b))) => *a == b,
            (Some(Token::One), Some(Token::Char(_) | Token::One)) => true,
            _ => false,
        };
        if fits {
            at += 1;
            continue;
        }
        let Some((behind, rest)) = &mut retry else {
            return false;
        };
        if rest.next().is_none() {
            return false;
        }
        at = *behind;
        word = rest.clone();
    }
}

#[cfg(test)]
mod tests;
