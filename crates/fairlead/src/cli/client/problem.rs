//! `Problem`: what the server refused, in its words, with what to do next; and `ClientError`, which
//! is that or the reason why the server could not be asked.

use std::fmt;

use edge::ErrorCode;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::output::{FAILED, Failure};

/// Why a verb has no answer. Callers branch on what the server refused.
#[derive(Debug)]
pub(crate) enum ClientError {
    Refused(Box<Problem>),
    Failed(Failure),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(problem) => problem.fmt(f),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

impl From<Failure> for ClientError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl ClientError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(problem) => problem.exit_code(),
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
    /// What to do next, where only the client knows it.
    #[serde(skip)]
    pub(crate) hint: Option<String>,
}

impl Problem {
    /// Whether asking again in a while may do.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self.code.as_str(), "slow-down" | "not-ready" | "overloaded" | "too-late")
    }

    /// Reads a refusal. One that is not a problem document comes from a proxy, or from a server that
    /// is not Fairlead.
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
            StatusCode::UNAUTHORIZED => ErrorCode::Unauthenticated.text(),
            StatusCode::TOO_MANY_REQUESTS => ErrorCode::SlowDown.text(),
            StatusCode::SERVICE_UNAVAILABLE => ErrorCode::Overloaded.text(),
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

    /// 1: the answer is no. 2: it could not be done now, or not this way.
    pub(crate) fn exit_code(&self) -> u8 {
        ErrorCode::parse(&self.code).map_or(FAILED, ErrorCode::exit_code)
    }

    /// What the server says, on one line: a list of clusters with their reasons has one each.
    pub(crate) fn sentence(&self) -> String {
        self.text().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn text(&self) -> &str {
        let texts = [&self.detail, &self.title, &self.code].into_iter();
        texts.map(|text| text.trim_end()).find(|text| !text.is_empty()).unwrap_or("failed")
    }

    fn next_step(&self) -> Option<String> {
        if let Some(hint) = &self.hint {
            return Some(hint.clone());
        }
        if let Some(millis) = self.retry_after_ms {
            return Some(format!("try again in {} s", millis.div_ceil(1000)));
        }
        let next = match ErrorCode::parse(&self.code)? {
            ErrorCode::NoSuchCluster => "`fairlead clusters list` shows the clusters you may see",
            ErrorCode::NoSuchKind => "`fairlead kinds` shows what the cluster has",
            ErrorCode::NotReady => {
                "`fairlead clusters list` shows its state and when it is tried next"
            }
            ErrorCode::Conflict => {
                "read it again, or take the fields over with --force where there is one"
            }
            ErrorCode::Internal => {
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
        let text = self.text();
        f.write_str(text)?;
        match self.next_step() {
            // The server's sentence often has it already: then its words are enough.
            Some(next) if !text.contains(command(&next)) => write!(f, "\n  {next}"),
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
