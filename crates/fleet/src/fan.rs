//! `fan`: one request to many clusters at once.
//!
//! Contract: every cluster has a reply of its own, as soon as it is there, with the time that it took.
//! The whole takes as long as the slowest cluster and never longer than the deadline: a cluster that has
//! not answered by then has an error. A cluster that cannot be reached holds up no other.

use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use serde::Serialize;
use stallproof::{Deadline, sentence};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::error::Error;

/// Concurrent calls. One that waits costs some kilobytes, and with a bound below the size of the fleet
/// healthy clusters would wait for dead ones.
const AT_ONCE: usize = 1024;

/// How much earlier than the whole a single call must end, so that a partial result still arrives.
const RETURN: Duration = Duration::from_millis(50);

/// A cluster to call: its name, and its connection or why there is none.
pub type ClusterTarget = (String, Result<Connection, Error>);

#[derive(Debug)]
pub struct Reply<T> {
    pub cluster: String,
    pub took: Duration,
    pub result: Result<T, Error>,
}

/// A cluster that did not answer.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    pub cluster: String,
    pub took_ms: u64,
    pub why: String,
    #[serde(skip)]
    pub error: Box<Error>,
}

/// Calls all of them. `ask` is given a connection and its deadline; replies come as they arrive.
pub fn fan<T, F>(
    chosen: impl IntoIterator<Item = ClusterTarget>,
    deadline: Deadline,
    ask: impl Fn(Connection, Deadline) -> F,
) -> impl Stream<Item = Reply<T>>
where
    F: Future<Output = Result<T, Error>>,
{
    let own = Deadline::at(deadline.instant() - RETURN.min(deadline.remaining() / 10));
    let one = move |(cluster, connection): ClusterTarget| {
        let work = connection.map(|connection| ask(connection, own));
        async move {
            let began = Instant::now();
            let result = match work {
                Err(error) => Err(error),
                Ok(work) => deadline.bound(work).await.unwrap_or_else(|_| {
                    let doing = "answering one of many clusters' calls".to_owned();
                    Err(Error::TooLate { cluster: cluster.clone(), doing })
                }),
            };
            Reply { cluster, took: began.elapsed(), result }
        }
    };
    let chosen: Vec<_> = chosen.into_iter().collect();
    stream::iter(chosen).map(one).buffer_unordered(AT_ONCE)
}

impl<T> Reply<T> {
    /// Returns the cluster's name with its value, or why it is missing.
    pub fn into_result(self) -> Result<(String, T), Missing> {
        let took_ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        match self.result {
            Ok(value) => Ok((self.cluster, value)),
            Err(error) => {
                let (cluster, why) = (self.cluster, sentence(&error));
                Err(Missing { cluster, took_ms, why, error: Box::new(error) })
            }
        }
    }
}

#[cfg(test)]
mod tests;
