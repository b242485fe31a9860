//! `Problem`: what the server said no to, in its words, with what to do next; and `Trouble`, which
//! is that or the reason why it could not be asked.

use std::fmt;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::output::{FAILED, Failure, NO};

/// Why there is no answer. Callers branch on what the server said.
#[derive(Debug)]
pub(crate) enum Trouble {
    Said(Box<Problem>),
    Failed(Failure),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(problem) => problem.fmt(f),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl Trouble {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Said(problem) => problem.exit_code(),
            Self::Failed(_) => FAILED,
        }
    }
}

/// An `application/problem+json` document.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Problem {
    pub(crate) code: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) title: String,
    pub(crate) status: u16,
    pub(crate) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    /// What only the client knows of the way out.
    #[serde(skip)]
    pub(crate) hint: Option<String>,
}

impl Problem {
    /// Reads a refusal; one that is not a problem document comes from something in between, or from
    /// a server that is not ours.
    pub(crate) fn read(status: StatusCode, body: &[u8], from: &str) -> Self {
        if let Ok(problem) = serde_json::from_slice::<Self>(body)
            && !problem.code.is_empty()
        {
            return problem;
        }
        let said = String::from_utf8_lossy(body);
        let said: String =
            said.lines().next().unwrap_or_default().trim().chars().take(200).collect();
        let colon = if said.is_empty() { "" } else { ": " };
        let code = match status {
            StatusCode::UNAUTHORIZED => "unauthenticated",
            StatusCode::TOO_MANY_REQUESTS => "slow-down",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded",
            _ => "",
        };
        Self {
            code: code.to_owned(),
            status: status.as_u16(),
            detail: format!("{from} answers {status}{colon}{said}"),
            hint: code.is_empty().then(|| "is this a Fairlead server? (--server)".to_owned()),
            ..Self::default()
        }
    }

    /// 1: the answer is no. 2: it could not be done, and might be another time or another way.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.code.as_str() {
            "forbidden" | "no-such-cluster" | "no-such-kind" | "not-found" | "exists"
            | "conflict" | "refused" => NO,
            _ => FAILED,
        }
    }

    /// One word for a line that begins with it.
    pub(crate) fn word(&self) -> &str {
        if self.code.is_empty() { "failed" } else { &self.code }
    }

    /// One line: a list of clusters with their reasons has one each.
    pub(crate) fn sentence(&self) -> String {
        let said = if self.detail.is_empty() { &self.title } else { &self.detail };
        let said = if said.is_empty() { &self.code } else { said };
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn next(&self) -> Option<String> {
        if let Some(hint) = &self.hint {
            return Some(hint.clone());
        }
        if let Some(millis) = self.retry_after_ms {
            return Some(format!("try again in {} s", millis.div_ceil(1000)));
        }
        let next = match self.code.as_str() {
            "no-such-cluster" => "`fairlead clusters list` shows the clusters you may see",
            "no-such-kind" => "`fairlead kinds` shows what the cluster has",
            "not-ready" => "`fairlead clusters list` shows its state and when it is tried next",
            "conflict" => "read it again, or take the fields over with --force where there is one",
            "internal" => {
                let id = self.request_id.as_deref().unwrap_or("unknown");
                return Some(format!("this is a fault of the server; its log has request {id}"));
            }
            _ => return None,
        };
        Some(next.to_owned())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = if self.detail.is_empty() { &self.title } else { &self.detail };
        f.write_str(if said.is_empty() { self.word() } else { said.trim_end() })?;
        match self.next() {
            // The server's sentence often has it already: then its words are enough.
            Some(next) if !said.contains(command(&next)) => write!(f, "\n  {next}"),
            _ => Ok(()),
        }
    }
}

/// The command that a hint is about, or all of it.
fn command(hint: &str) -> &str {
    hint.split('`').nth(1).filter(|word| word.starts_with("fairlead ")).unwrap_or(hint)
}

#[cfg(test)]
mod tests;
