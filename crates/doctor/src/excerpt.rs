//! Go source that a report quotes: which function takes which lock.
//!
//! Only a hint: it says what the reporter suspects, not what the process did. It gives a queue that
//! the metrics prove a name to look for.

use crate::log::At;
use crate::report::Evidence;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QuotedLock {
    /// `podNetwork.mu`, `cacheMutex`.
    pub(crate) name: String,
    pub(crate) type_name: Option<String>,
    pub(crate) field: Option<String>,
    /// The function that takes it.
    pub(crate) function: String,
    /// Whether it is given back only when the function returns.
    pub(crate) deferred: bool,
    pub(crate) evidence: Evidence,
}

#[derive(Debug, Default)]
pub(crate) struct Excerpts {
    function: Option<Function>,
    pub(crate) locks: Vec<QuotedLock>,
}

#[derive(Debug)]
struct Function {
    name: String,
    receiver: Option<(String, String)>,
}

impl Excerpts {
    pub(crate) fn line(&mut self, at: At<'_>) {
        const MOST: usize = 64;
        let Ok(text) = std::str::from_utf8(at.bytes.get(..400).unwrap_or(at.bytes)) else {
            return;
        };
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("func ") {
            self.function = signature(rest);
        } else if text == "}" {
            self.function = None;
        } else if let Some(function) = &self.function {
            let call = text.split_whitespace().next().unwrap_or_default();
            if let Some(taken) = call.strip_suffix("Lock()").filter(|t| !t.ends_with("Un"))
                && self.locks.len() < MOST
            {
                let taken = taken
                    .strip_suffix('R')
                    .unwrap_or(taken)
                    .trim_end_matches('.');
                self.locks.extend(quoted(taken, function, at.evidence()));
            } else if text.starts_with("defer ")
                && text.contains("Unlock()")
                && let Some(last) = self.locks.last_mut()
            {
                last.deferred = true;
            }
        }
    }

    /// The lock that the report quotes, where it is one and the same throughout.
    pub(crate) fn only(&self) -> Option<&QuotedLock> {
        let first = self.locks.first()?;
        self.locks
            .iter()
            .all(|l| l.name == first.name)
            .then_some(first)
    }
}

/// `(pn *podNetwork) SetupIPAM(…`, `AgentAdmissionRequest(…`.
fn signature(rest: &str) -> Option<Function> {
    let (receiver, rest) = match rest.strip_prefix('(') {
        Some(rest) => {
            let (inside, rest) = rest.split_once(')')?;
            let (variable, kind) = inside.split_once(' ')?;
            (
                Some((variable.to_owned(), kind.trim_start_matches('*').to_owned())),
                rest.trim_start(),
            )
        }
        None => (None, rest),
    };
    let (name, _) = rest.split_once('(')?;
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    plain.then(|| Function {
        name: name.to_owned(),
        receiver,
    })
}

fn quoted(taken: &str, function: &Function, evidence: Evidence) -> Option<QuotedLock> {
    if taken.is_empty()
        || !taken
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '.')
    {
        return None;
    }
    let field = function.receiver.as_ref().and_then(|(variable, kind)| {
        Some((
            kind.clone(),
            taken
                .strip_prefix(variable.as_str())?
                .strip_prefix('.')?
                .to_owned(),
        ))
    });
    let (name, type_name, field) = match field {
        Some((kind, field)) => (format!("{kind}.{field}"), Some(kind), Some(field)),
        None => (taken.to_owned(), None, None),
    };
    let function = function.name.clone();
    Some(QuotedLock {
        name,
        type_name,
        field,
        function,
        deferred: false,
        evidence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Excerpts {
        let mut excerpts = Excerpts::default();
        for (line, text) in (1..).zip(text.lines()) {
            excerpts.line(At {
                input: "x",
                line,
                bytes: text.as_bytes(),
            });
        }
        excerpts
    }

    #[test]
    fn a_field_and_a_wrapped_variable_are_named() {
        let field = read(
            "func (pn *podNetwork) SetupIPAM(a, b string) error {\n    pn.mu.Lock()\n    defer pn.mu.Unlock()\n}",
        );
        let lock = field.only().unwrap();
        assert_eq!(
            (lock.name.as_str(), lock.function.as_str(), lock.deferred),
            ("podNetwork.mu", "SetupIPAM", true)
        );
        let wrapper = read(
            "func AgentAdmissionRequest(req *X) *Y {\n\tcacheMutexLock()      !!\n\tcacheMutexUnlock()\n}",
        );
        assert_eq!(wrapper.only().unwrap().name, "cacheMutex");
    }

    #[test]
    fn two_locks_name_none_and_prose_names_nothing() {
        assert_eq!(
            read("func A() {\n a.mu.Lock()\n b.mu.Lock()\n}").only(),
            None
        );
        assert_eq!(
            read("only syncClusters takes an exclusive Lock\nx.Lock()").only(),
            None
        );
    }
}
