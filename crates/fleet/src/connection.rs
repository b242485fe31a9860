//! `Connection`: one cluster as one request uses it. Holding it keeps its client alive, so that a
//! cluster that is removed or gets new credentials stops only after its last user.

use std::sync::Arc;

use flow::Deadline;

use crate::discovery::Discovery;
use crate::error::Error;

/// A usable cluster. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    cluster: Arc<str>,
    client: kube::Client,
    discovery: Discovery,
}

impl Connection {
    pub fn new(cluster: impl Into<Arc<str>>, client: kube::Client) -> Self {
        Self { cluster: cluster.into(), client, discovery: Discovery::new() }
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// What is known of the kinds it serves.
    pub fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// Runs one call of this cluster, within the deadline. `doing` completes "while …".
    pub async fn call<T, F>(
        &self,
        doing: &'static str,
        deadline: Deadline,
        work: impl FnOnce(kube::Client) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        match deadline.bound(work(self.client.clone())).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(kube::Error::Api(status))) => {
                Err(Error::Refused { cluster: self.cluster.to_string(), status })
            }
            Ok(Err(error)) => Err(Error::Unreachable {
                cluster: self.cluster.to_string(),
                doing: doing.to_owned(),
                source: Arc::new(error),
            }),
            Err(_) => {
                Err(Error::TooLate { cluster: self.cluster.to_string(), doing: doing.to_owned() })
            }
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
