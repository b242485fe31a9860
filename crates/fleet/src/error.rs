//! The errors of working with a cluster. Callers react differently to each variant. An error can be
//! cloned, because many callers may wait for one lookup.

use std::sync::Arc;
use std::time::Duration;

use kube::core::Status;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no cluster {cluster}")]
    NoSuchCluster { cluster: String },
    /// The cluster cannot be used now: it is connecting, unreachable, unauthorised, misconfigured or
    /// disabled.
    #[error("{cluster} is {state}: {why}")]
    NotReady { cluster: String, state: &'static str, why: String, retry_after: Option<Duration> },
    /// The cluster's queue of calls is full, or its breaker is open.
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
    /// The API server refused the call; the message is its own.
    #[error("{cluster}: {}", .status.message)]
    Refused { cluster: String, status: Box<Status> },
    /// Users act under their own names there, and this one cannot.
    #[error(
        "{cluster} is set to be used under the users' own names, and that cannot be done: {why}; nothing \
         was done in Fairlead's own name instead"
    )]
    Impersonation { cluster: String, why: String },
    /// An object of the fleet's own store could not be read or written.
    #[error(transparent)]
    Store(Arc<objects::Error>),
    /// Another cluster has this name.
    #[error(
        "there is a cluster {cluster} already, from {by}; remove that first, or choose another name"
    )]
    NameTaken { cluster: String, by: String },
    /// Not every source has told its clusters yet.
    #[error("the clusters are still being read; come back in {retry_after:?}")]
    NotSynced { retry_after: Duration },
    /// The request cannot be carried out; the sentence says what to change.
    #[error("{0}")]
    Invalid(String),
}

impl From<objects::Error> for Error {
    fn from(error: objects::Error) -> Self {
        Self::Store(Arc::new(error))
    }
}
