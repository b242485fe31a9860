//! What goes wrong when one works with a cluster. Each variant is a different thing to do next.
//! It can be cloned, because one answer may be awaited by many.

use std::sync::Arc;
use std::time::Duration;

use kube::core::Status;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no cluster {cluster}")]
    NoSuchCluster { cluster: String },
    /// Known, and not usable now: connecting, unreachable, unauthorised, misconfigured, disabled.
    #[error("{cluster} is {state}: {why}")]
    NotReady { cluster: String, state: &'static str, why: String, retry_after: Option<Duration> },
    /// Its share of calls is used up, or its breaker is open.
    #[error("{cluster} is busy: {why}; come back in {retry_after:?}")]
    Busy { cluster: String, why: String, retry_after: Duration },
    #[error("{cluster} did not answer within the deadline while {doing}")]
    TooLate { cluster: String, doing: String },
    #[error("{cluster} cannot be reached while {doing}")]
    Unreachable {
        cluster: String,
        doing: String,
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    #[error("{cluster} has no resource {word:?}{hint}")]
    NoSuchKind { cluster: String, word: String, hint: String },
    /// The API server itself said no; its words are the best ones.
    #[error("{cluster}: {}", .status.message)]
    Refused { cluster: String, status: Box<Status> },
    /// What the fleet keeps for itself could not be read or written.
    #[error(transparent)]
    Store(Arc<objects::Error>),
    /// Another cluster has this name, by whatever source.
    #[error("the name {cluster} is taken: {by} has it; remove that first, or choose another name")]
    Taken { cluster: String, by: String },
    /// It is not known yet which names are taken.
    #[error("it is not known yet which clusters there are; come back in {retry_after:?}")]
    NotToldYet { retry_after: Duration },
    /// What was asked for cannot be; the sentence says what to change.
    #[error("{0}")]
    Invalid(String),
}

impl From<objects::Error> for Error {
    fn from(error: objects::Error) -> Self {
        Self::Store(Arc::new(error))
    }
}
