//! Takes a node out of service and puts it back: cordon, drain, uncordon.
//!
//! Contract of [`drain`]:
//! - Pods that may not be evicted are found first, by the rules of kubectl ([`plan`]). If there are any,
//!   each is reported with its reasons and nothing is changed. kubectl cordons the node before it
//!   refuses; here a refused drain leaves the node as it was.
//! - Then the node is cordoned and every pod on it evicted, which respects disruption budgets: an
//!   eviction that a budget forbids is repeated until the deadline. A pod that cannot be evicted holds
//!   up no other.
//! - A pod is gone when the API server has it no more, or has another one of its name. Each pod that is
//!   still there at the deadline is reported with the reason. The node stays cordoned.
//! - The drain works while it is polled; dropping it stops it. It can be run again at any time.

use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
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

/// Concurrent requests of one drain. All pods wait concurrently, but take turns with requests.
const ASKING: usize = 8;
/// The interval between two requests about one pod.
const LOOK_AGAIN: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(5) };
/// The limit of one request within the drain's deadline: one that hangs is repeated.
const ONE_REQUEST: Duration = Duration::from_secs(15);

/// What a drain may do. The default is the most careful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Allow {
    /// Leaves pods of DaemonSets on the node.
    pub daemon_sets: bool,
    /// Evicts pods that no controller will replace.
    pub unmanaged: bool,
    /// Evicts pods that lose the data of an `emptyDir`.
    pub empty_dir: bool,
    /// The grace period in place of each pod's own.
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
    /// The pod may not be evicted; the drain ends and has changed nothing.
    Refused {
        namespace: String,
        pod: String,
        reasons: Vec<Reason>,
    },
    /// The API server accepted the eviction; the pod is stopping.
    Evicted {
        namespace: String,
        pod: String,
    },
    /// A disruption budget forbids the eviction for now.
    Blocked {
        namespace: String,
        pod: String,
        why: String,
    },
    Gone {
        namespace: String,
        pod: String,
    },
    /// The pod is still there at the deadline, with the reason.
    Failed {
        namespace: String,
        pod: String,
        why: String,
    },
    /// The last event.
    Finished {
        gone: usize,
        failed: usize,
        refused: usize,
        /// Whether the node is cordoned now.
        cordoned: bool,
    },
    /// The last event of a drain whose node or pods could not be read or cordoned.
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

/// Makes the taints of a node these. An effect that the API server does not know is its refusal.
pub async fn set_taints(
    connection: &Connection,
    node: &str,
    taints: &[Taint],
    deadline: Deadline,
) -> Result<(), Error> {
    check_segment("node", node)?;
    let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
    connection
        .call("setting the taints of a node", deadline, |client| async move {
            Api::<Node>::all(client).patch(node, &params, &patch).await
        })
        .await?;
    Ok(())
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

/// Drains a node, and streams its progress.
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
    // Planned again, because pods could be scheduled until the node was cordoned.
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
    // All pods at once: each is little more than a timer, and one that a budget holds delays no other.
    let all = evict.len().max(1);
    let outcomes: Vec<bool> = stream::iter(evict)
        .map(|pod| async move {
            let eviction = Eviction { connection, asking, allow, deadline, tell, pod: &pod };
            let why = eviction.go().await.err();
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

/// Plans the eviction of the node's pods, and reads whether it is cordoned.
async fn look(
    connection: &Connection,
    node: &str,
    allow: Allow,
    deadline: Deadline,
) -> Result<(Plan, bool), Error> {
    check_segment("node", node)?;
    // A name that does not exist must not pass for a node without pods.
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

/// The eviction of one pod.
struct Eviction<'a> {
    connection: &'a Connection,
    asking: &'a Semaphore,
    allow: Allow,
    deadline: Deadline,
    tell: &'a ProgressSender<Progress>,
    pod: &'a Evict,
}

/// The API server's answer to an eviction.
enum EvictionAnswer {
    Going,
    Gone,
    /// The eviction must be repeated.
    NotNow(String),
}

impl Eviction<'_> {
    /// Returns when the pod is gone; an error has the reason why it is still there at the deadline.
    async fn go(&self) -> Result<(), String> {
        let mut backoff = Backoff::new(LOOK_AGAIN);
        let mut blocked = None;
        loop {
            match self.evict().await? {
                EvictionAnswer::Gone => return Ok(()),
                EvictionAnswer::Going => break,
                // The deadline cut it short; the answer before it says more.
                EvictionAnswer::NotNow(why) if self.deadline.has_passed() => {
                    return Err(blocked.unwrap_or(why));
                }
                EvictionAnswer::NotNow(why) => {
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

    async fn evict(&self) -> Result<EvictionAnswer, String> {
        let Evict { namespace, pod, uid } = self.pod;
        // Without a version the server takes its own: before 1.22 that is policy/v1beta1, and since 1.25
        // policy/v1 alone.
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
            // An eviction that two budgets forbid is answered with 201 and the refusal in the body.
            Ok(status) if status.is_failure() => Err(status.message),
            Ok(_) => Ok(EvictionAnswer::Going),
            Err(Error::Refused { status, .. }) => match status.code {
                // The pod is gone, or evictions are not served: then the pod is still there.
                404 => match self.waits_for().await? {
                    None => Ok(EvictionAnswer::Gone),
                    Some(_) => {
                        Err("the cluster does not serve evictions (pods/eviction)".to_owned())
                    }
                },
                // Another pod has its name now.
                409 if status.is_conflict() => self.is_another().await,
                429 => Ok(EvictionAnswer::NotNow(budget(&status))),
                // The namespace is being deleted, and so is the pod.
                403 if has_cause(&status, "NamespaceTerminating") => Ok(EvictionAnswer::Going),
                _ => Err(status.message),
            },
            Err(error) if passes(&error) => Ok(EvictionAnswer::NotNow(sentence(&error))),
            Err(error) => Err(sentence(&error)),
        }
    }

    async fn is_another(&self) -> Result<EvictionAnswer, String> {
        Ok(match self.waits_for().await? {
            None => EvictionAnswer::Gone,
            Some(_) => {
                EvictionAnswer::NotNow("it was changed while it was being evicted".to_owned())
            }
        })
    }

    /// Returns why the pod is still there; `None` when it is gone.
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

/// Whether a repetition may succeed, because the error is the cluster's and not the pod's.
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

/// Returns the disruption budget that forbids it, if the server names it.
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
