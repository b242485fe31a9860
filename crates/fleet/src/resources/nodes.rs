//! Taking a node out of service, and putting it back.
//!
//! Contract of [`drain`]:
//! - What may not be evicted is found out first, by the rules of kubectl ([`plan`]); then nothing is
//!   changed, and each such pod is told with the reasons against it. kubectl cordons the node before
//!   it refuses; here a refused drain leaves the node as it was.
//! - Then the node is cordoned, and every pod that is on it goes by eviction, which keeps to the
//!   disruption budgets: a budget that forbids it now is asked again until the deadline. A pod that
//!   is not let go holds up no other.
//! - A pod is gone when the API server has it no more, or has another of its name. At the deadline
//!   each pod that is still there is told, with what it waits for. The node stays cordoned.
//! - It works while it is polled; dropped, it stops where it is. A drain can be run again at any time.

use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stallproof::backoff::{Backoff, Curve};
use stallproof::{Deadline, sentence};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::progress::{ProgressSender, ProgressStream};
use super::{FIELD_MANAGER, check_segment};
use crate::{Connection, Error};

mod plan;

pub use plan::{Evict, Plan, Reason, Refusal, Skip, plan};

/// Requests of one drain at once: pods wait side by side, however many, but ask in turn.
const ASKING: usize = 8;
/// Between two questions about one pod.
const LOOK_AGAIN: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(5) };
/// The budget of one request within the drain's deadline: one that hangs is asked again.
const ONE_REQUEST: Duration = Duration::from_secs(15);

/// What a drain may do. The default is the careful one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Allow {
    /// Leave pods of DaemonSets where they are.
    pub daemon_sets: bool,
    /// Evict pods that nobody will make anew.
    pub unmanaged: bool,
    /// Evict pods whose `emptyDir` is lost with them.
    pub empty_dir: bool,
    /// Instead of each pod's own.
    pub grace_seconds: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "progress", rename_all = "camelCase")]
pub enum Progress {
    Cordoned,
    Skipped {
        namespace: String,
        pod: String,
        why: Skip,
    },
    /// May not be evicted; the drain ends, and has changed nothing.
    Refused {
        namespace: String,
        pod: String,
        reasons: Vec<Reason>,
    },
    /// The API server took the eviction; the pod is stopping.
    Evicted {
        namespace: String,
        pod: String,
    },
    /// A disruption budget forbids it for now.
    Blocked {
        namespace: String,
        pod: String,
        why: String,
    },
    Gone {
        namespace: String,
        pod: String,
    },
    /// Still there; what it waits for.
    Failed {
        namespace: String,
        pod: String,
        why: String,
    },
    /// The last one.
    Finished {
        gone: usize,
        failed: usize,
        refused: usize,
        /// Whether new pods are kept off the node now.
        cordoned: bool,
    },
    /// The last one, in place of the other: the node or its pods could not be read or cordoned.
    Stopped {
        why: String,
    },
}

pub async fn cordon(connection: &Connection, node: &str, deadline: Deadline) -> Result<(), Error> {
    set_unschedulable(connection, node, true, deadline).await
}

pub async fn uncordon(
    connection: &Connection,
    node: &str,
    deadline: Deadline,
) -> Result<(), Error> {
    set_unschedulable(connection, node, false, deadline).await
}

async fn set_unschedulable(
    connection: &Connection,
    node: &str,
    unschedulable: bool,
    deadline: Deadline,
) -> Result<(), Error> {
    check_segment("node", node)?;
    let doing = if unschedulable { "cordoning a node" } else { "uncordoning a node" };
    let patch = Patch::Merge(json!({ "spec": { "unschedulable": unschedulable } }));
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
    connection
        .call(doing, deadline, |client| async move {
            Api::<Node>::all(client).patch(node, &params, &patch).await
        })
        .await?;
    Ok(())
}

/// Empties a node, and tells how it goes.
pub fn drain(
    connection: &Connection,
    node: &str,
    allow: Allow,
    deadline: Deadline,
) -> impl Stream<Item = Progress> + Send + use<> {
    let (connection, node) = (connection.clone(), node.to_owned());
    ProgressStream::new(move |tell| async move {
        if let Err(error) = run(&connection, &node, allow, deadline, &tell).await {
            tell.tell(Progress::Stopped { why: sentence(&error) }).await;
        }
    })
}

async fn run(
    connection: &Connection,
    node: &str,
    allow: Allow,
    deadline: Deadline,
    tell: &ProgressSender<Progress>,
) -> Result<(), Error> {
    let (first_look, cordoned) = look(connection, node, allow, deadline).await?;
    if !first_look.refused.is_empty() {
        let refused = first_look.refused.len();
        for Refusal { namespace, pod, reasons } in first_look.refused {
            tell.tell(Progress::Refused { namespace, pod, reasons }).await;
        }
        tell.tell(Progress::Finished { gone: 0, failed: 0, refused, cordoned }).await;
        return Ok(());
    }
    cordon(connection, node, deadline).await?;
    tell.tell(Progress::Cordoned).await;
    // Again: until just now, pods could still come.
    let (Plan { evict, skip, refused }, _) = look(connection, node, allow, deadline).await?;
    for (namespace, pod, why) in skip {
        tell.tell(Progress::Skipped { namespace, pod, why }).await;
    }
    let mut failed = refused.len();
    for refusal in refused {
        let why = refusal.why();
        let Refusal { namespace, pod, .. } = refusal;
        tell.tell(Progress::Failed { namespace, pod, why }).await;
    }
    let asking = &Semaphore::new(ASKING);
    // All at once: each is little more than a timer, and one that a budget holds is in no one's way.
    let all = evict.len().max(1);
    let outcomes: Vec<bool> = stream::iter(evict)
        .map(|pod| async move {
            let leaving = Leaving { connection, asking, allow, deadline, tell, pod: &pod };
            let why = leaving.go().await.err();
            let Evict { namespace, pod, .. } = pod;
            let gone = why.is_none();
            tell.tell(match why {
                None => Progress::Gone { namespace, pod },
                Some(why) => Progress::Failed { namespace, pod, why },
            })
            .await;
            gone
        })
        .buffer_unordered(all)
        .collect()
        .await;
    let gone = outcomes.iter().filter(|&&gone| gone).count();
    failed += outcomes.len() - gone;
    tell.tell(Progress::Finished { gone, failed, refused: 0, cordoned: true }).await;
    Ok(())
}

/// What would become of the node's pods, and whether it is cordoned.
async fn look(
    connection: &Connection,
    node: &str,
    allow: Allow,
    deadline: Deadline,
) -> Result<(Plan, bool), Error> {
    check_segment("node", node)?;
    // Not to mistake a name that is not there for a node without pods.
    let found = connection
        .call("reading the node", deadline, |client| async move {
            Api::<Node>::all(client).get(node).await
        })
        .await?;
    let cordoned = found.spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = connection
        .call("listing the node's pods", deadline, |client| async move {
            Api::<Pod>::all(client).list(&params).await
        })
        .await?;
    Ok((plan(pods.items, allow), cordoned))
}

/// One pod on its way out.
struct Leaving<'a> {
    connection: &'a Connection,
    asking: &'a Semaphore,
    allow: Allow,
    deadline: Deadline,
    tell: &'a ProgressSender<Progress>,
    pod: &'a Evict,
}

/// What an API server said to an eviction.
enum Said {
    Going,
    Gone,
    /// Ask again.
    NotNow(String),
}

impl Leaving<'_> {
    /// Returns when the pod is gone; else what it waits for at the deadline, or why it will not go.
    async fn go(&self) -> Result<(), String> {
        let mut backoff = Backoff::new(LOOK_AGAIN);
        let mut blocked = None;
        loop {
            match self.evict().await? {
                Said::Gone => return Ok(()),
                Said::Going => break,
                // Cut short by the deadline, it knows less than the answer before it.
                Said::NotNow(why) if self.deadline.has_passed() => {
                    return Err(blocked.unwrap_or(why));
                }
                Said::NotNow(why) => {
                    if blocked.as_ref() != Some(&why) {
                        let (namespace, pod) = self.pod.name();
                        let progress = Progress::Blocked { namespace, pod, why: why.clone() };
                        self.tell.tell(progress).await;
                    }
                    self.wait(&mut backoff).await.map_err(|()| why.clone())?;
                    blocked = Some(why);
                }
            }
        }
        let (namespace, pod) = self.pod.name();
        self.tell.tell(Progress::Evicted { namespace, pod }).await;
        let mut backoff = Backoff::new(LOOK_AGAIN);
        let mut held = None;
        while let Some(why) = self.waits_for().await? {
            if self.deadline.has_passed() {
                return Err(held.unwrap_or(why));
            }
            self.wait(&mut backoff).await.map_err(|()| why.clone())?;
            held = Some(why);
        }
        Ok(())
    }

    /// Fails at the deadline.
    async fn wait(&self, backoff: &mut Backoff) -> Result<(), ()> {
        self.deadline.bound(sleep(backoff.failed().wait)).await.map_err(|_| ())
    }

    async fn evict(&self) -> Result<Said, String> {
        let Evict { namespace, pod, uid } = self.pod;
        // Without a version of its own the server takes it for the one it knows: before 1.22 that is
        // policy/v1beta1, and since 1.25 it is policy/v1 alone.
        let eviction = json!({
            "metadata": { "name": pod, "namespace": namespace },
            "deleteOptions": {
                "gracePeriodSeconds": self.allow.grace_seconds,
                "preconditions": { "uid": uid },
            },
        });
        let answer = self
            .ask("evicting a pod", |pods| async move {
                let params = PostParams::default();
                pods.create_subresource::<_, Status>("eviction", pod, &params, &eviction).await
            })
            .await;
        match answer {
            // A pod under two budgets is refused with a "created" and the refusal in it.
            Ok(status) if status.is_failure() => Err(status.message),
            Ok(_) => Ok(Said::Going),
            Err(Error::Refused { status, .. }) => match status.code {
                404 => Ok(Said::Gone),
                // Another pod has its name by now.
                409 if status.is_conflict() => self.is_another().await,
                429 => Ok(Said::NotNow(budget(&status))),
                // Its namespace is being deleted, and so is it.
                403 if has_cause(&status, "NamespaceTerminating") => Ok(Said::Going),
                _ => Err(status.message),
            },
            Err(error) if passes(&error) => Ok(Said::NotNow(sentence(&error))),
            Err(error) => Err(sentence(&error)),
        }
    }

    async fn is_another(&self) -> Result<Said, String> {
        Ok(match self.waits_for().await? {
            None => Said::Gone,
            Some(_) => Said::NotNow("it was changed while it was being evicted".to_owned()),
        })
    }

    /// What keeps the pod; `None` when it is gone.
    async fn waits_for(&self) -> Result<Option<String>, String> {
        let Evict { pod, uid, .. } = self.pod;
        let there =
            self.ask("waiting for a pod to be gone", |pods| async move {
                pods.get_metadata_opt(pod).await
            })
            .await;
        let metadata = match there {
            Ok(Some(there)) if there.metadata.uid.as_deref() == Some(uid) => there.metadata,
            Ok(_) => return Ok(None),
            Err(error) if passes(&error) => return Ok(Some(sentence(&error))),
            Err(error) => return Err(sentence(&error)),
        };
        let finalizers = metadata.finalizers.unwrap_or_default();
        Ok(Some(if finalizers.is_empty() {
            "its containers have not stopped".to_owned()
        } else {
            format!("it waits for the finalizers {}", finalizers.join(", "))
        }))
    }

    async fn ask<T, F>(
        &self,
        doing: &'static str,
        work: impl FnOnce(Api<Pod>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let turn = self.deadline.bound(self.asking.acquire()).await;
        let _turn = turn.map_err(|_| Error::TooLate {
            cluster: self.connection.cluster().to_owned(),
            doing: doing.to_owned(),
        })?;
        let namespace = &self.pod.namespace;
        self.connection
            .call(doing, self.deadline.within(ONE_REQUEST), |client| {
                work(Api::namespaced(client, namespace))
            })
            .await
    }
}

/// Whether it may be another time: the cluster, not the pod, is in the way.
fn passes(error: &Error) -> bool {
    match error {
        Error::Busy { .. }
        | Error::TooLate { .. }
        | Error::Unreachable { .. }
        | Error::NotReady { .. } => true,
        Error::Refused { status, .. } => status.code == 429 || status.code >= 500,
        _ => false,
    }
}

/// The budget in the way, where the server names it.
fn budget(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let cause =
        causes.filter(|cause| cause.reason == "DisruptionBudget").map(|cause| &cause.message);
    let named: Vec<_> = cause.map(String::as_str).collect();
    if named.is_empty() { status.message.clone() } else { named.join("; ") }
}

fn has_cause(status: &Status, reason: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
}

#[cfg(test)]
mod tests;
