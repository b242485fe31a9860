//! `Selector`: which labels, as kubectl writes it: `a=b,c==d,e!=f,g in (h,i),j notin (k),l,!m`.
//!
//! Contract: what parses means the same here and at an API server, and prints in a form that parses
//! to the same. What an API server would refuse does not parse, with a sentence that says where.
//! `!=` and `notin` select what has no such label as well. The empty selector selects everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::name;

/// A label selector: all of its requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
}

/// Says why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("label selector {selector:?}: {problem}")]
pub struct BadSelector {
    selector: String,
    problem: String,
}

impl Selector {
    /// Selects the objects that have the label `key` with this value.
    pub fn label(key: &str, value: &str) -> Result<Self, BadSelector> {
        format!("{key}={value}").parse()
    }

    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.0.iter().all(|Requirement { key, test }| {
            let value = labels.and_then(|labels| labels.get(key));
            match test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            }
        })
    }
}

impl FromStr for Selector {
    type Err = BadSelector;

    fn from_str(text: &str) -> Result<Self, BadSelector> {
        let parse = || {
            let mut rest = Rest(text.trim());
            if rest.0.is_empty() {
                return Ok(Self::default());
            }
            let mut requirements = vec![rest.requirement()?];
            while !rest.0.is_empty() {
                rest.expect(",")?;
                requirements.push(rest.requirement()?);
            }
            Ok(Self(requirements))
        };
        parse().map_err(|problem| BadSelector { selector: text.to_owned(), problem })
    }
}

/// The rest of the text; white space before it is skipped.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.take("!");
        let key = self.word();
        if let Some(problem) = name::key(key) {
            return Err(format!("the key {key:?} {}: it {problem}", self.before()));
        }
        let test = if absent {
            Test::Absent
        } else if self.take("!=") {
            Test::NotIn(BTreeSet::from([self.value()?]))
        } else if self.take("==") || self.take("=") {
            Test::In(BTreeSet::from([self.value()?]))
        } else {
            match self.word() {
                "" => Test::Exists,
                "in" => Test::In(self.values()?),
                "notin" => Test::NotIn(self.values()?),
                other => {
                    return Err(format!("after {key:?} comes {other:?}; expected an operator"));
                }
            }
        };
        Ok(Requirement { key: key.to_owned(), test })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        self.expect("(")?;
        let mut values = BTreeSet::from([self.value()?]);
        while !self.take(")") {
            self.expect(",")?;
            values.insert(self.value()?);
        }
        Ok(values)
    }

    fn value(&mut self) -> Result<String, String> {
        let value = self.word();
        match name::label_value(value) {
            Some(problem) => Err(format!("the value {value:?} {}: it {problem}", self.before())),
            None => Ok(value.to_owned()),
        }
    }

    /// Takes everything up to white space or a character that has a meaning of its own.
    fn word(&mut self) -> &'a str {
        let ends = |c: char| c.is_whitespace() || "=!(),".contains(c);
        let (word, rest) = self.0.split_at(self.0.find(ends).unwrap_or(self.0.len()));
        self.0 = rest.trim_start();
        word
    }

    fn take(&mut self, token: &str) -> bool {
        match self.0.strip_prefix(token) {
            Some(rest) => {
                self.0 = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("expected {token:?} {}", self.before())) }
    }

    fn before(&self) -> String {
        if self.0.is_empty() { "at the end".to_owned() } else { format!("before {:?}", self.0) }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Requirement { key, test }) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            match test {
                Test::Exists => f.write_str(key)?,
                Test::Absent => write!(f, "!{key}")?,
                Test::In(values) => write!(f, "{key} in ({})", Values(values))?,
                Test::NotIn(values) => write!(f, "{key} notin ({})", Values(values))?,
            }
        }
        Ok(())
    }
}

struct Values<'a>(&'a BTreeSet<String>);

impl fmt::Display for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, value) in self.0.iter().enumerate() {
            write!(f, "{}{value}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
