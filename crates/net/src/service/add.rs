//! ADD: an address, and a pair of interfaces that carries it when it is in the journal.
//!
//! ```text
//! journal  choose ─┬─► write ───────────────┬─► published, answered ──► flushed, behind it
//! thread   pair ───┴─► the pod's end ───────┴─► policies, the node's end, routes
//! ```

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use cni::wire::AddRequest;
use stallproof::Deadline;
use tracing::{info, warn};

use super::{Call, CniService, Inner, RequestError, StepTracker};
use crate::addresses::{AssignRequest, Assignment};
use crate::datapath::{Coming, Datapath, PodInterfaces};
use crate::wiring::{host_interface, step};
use crate::{Attachment, AttachmentKey, Pod, pool};

impl<D: Datapath> CniService<D> {
    pub(super) async fn add(
        &self,
        add: AddRequest,
        descriptor: Option<OwnedFd>,
        deadline: Deadline,
    ) -> Result<(Arc<Attachment>, PodInterfaces), RequestError> {
        let call = self.begin("cni_add", add.key.clone(), add.pod.as_ref(), deadline);
        let job = async {
            let namespace = self.hold(descriptor)?;
            let pod = add.pod.as_ref().map(ToString::to_string);
            let pool = self.pool(&add, deadline).await?;
            let AddRequest { key, network, netns, pod: named, fixed, .. } = add;
            let host_interface = self.name_interface(&call, named.as_ref()).await?;
            let id = self.0.datapath.id(&namespace);
            let wanted = AssignRequest {
                key,
                network,
                pod: named,
                pool,
                namespace: id,
                netns,
                host_interface,
                fixed,
            };
            let attached = Box::pin(self.attach(wanted, namespace, &call));
            let (attachment, pair) = attached.await?;
            info!(container = %call.key.container, pod, "attached");
            Ok((attachment, pair))
        };
        let result = self.turn(&call, job).await;
        call.finish(&result);
        result
    }

    async fn pool(&self, add: &AddRequest, deadline: Deadline) -> Result<String, RequestError> {
        match (&add.pool, &add.pod) {
            (Some(pool), _) => Ok(pool.clone()),
            (None, Some(pod)) => Ok(self.0.pools.pool_of(&pod.namespace, deadline).await?),
            (None, None) => Ok(pool::DEFAULT.to_owned()),
        }
    }

    /// Names the interface at the node's side. Nobody has that name any more: the interface of the same
    /// container's or pod's last attachment, which had it, is gone.
    async fn name_interface(&self, call: &Call, pod: Option<&Pod>) -> Result<String, RequestError> {
        let own = host_interface(&call.key);
        let name = self.0.datapath.host_interface(&call.key, pod);
        let addresses = &self.0.addresses;
        let mut changes = addresses.changes();
        let gone = async {
            let is_leaving = || {
                let view = addresses.view();
                view.is_leaving(&call.key)
                    || (name != own && view.leaving().any(|it| it.host_interface == name))
            };
            while is_leaving() {
                self.0.hurry.notify_one();
                changes.changed().await;
            }
        };
        let in_time = call.deadline.within(self.0.limits.step).bound(gone).await;
        in_time.map_err(|_| RequestError::Stuck { key: call.key.clone(), step: step::DELETE })?;
        // A pod's last container may not have been deleted yet, and has the name that follows from the pod.
        let is_taken = |it: &Arc<Attachment>| it.host_interface == name && it.key != call.key;
        if name != own && addresses.view().attachments().any(is_taken) {
            let container = &call.key.container;
            warn!(%container, name, instead = own, "another container of the pod has this interface");
            return Ok(own);
        }
        Ok(name)
    }

    /// Makes the interfaces, and the pod's end of them, while the addresses are written down; packets
    /// come by them when they are.
    async fn attach(
        &self,
        wanted: AssignRequest,
        namespace: D::Namespace,
        call: &Call,
    ) -> Result<(Arc<Attachment>, PodInterfaces), RequestError> {
        if self.0.addresses.view().attachment(&call.key).is_some() {
            return Box::pin(self.attach_again(wanted, namespace, call)).await;
        }
        // Two words for the thread, which waits for each for as long as this request lives; the second is
        // kept for whoever undoes the work.
        let (choose, chosen) = std::sync::mpsc::sync_channel(1);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let answer = Arc::new(OnceLock::new());
        let set_up = {
            let (pool, answer) = (wanted.pool.clone(), Arc::clone(&answer));
            let (host_interface, mac) = (wanted.host_interface.clone(), wanted.fixed.mac);
            move |key: &AttachmentKey, datapath: &D, steps: &StepTracker| {
                let chosen = || chosen.recv().ok();
                let recorded = || {
                    let _ = told.recv();
                    answer.get().is_some()
                };
                let (pool, host_interface) = (pool.as_str(), host_interface.as_str());
                let (chosen, recorded) = (&chosen, &recorded);
                let coming = Coming { key, host_interface, pool, mac, chosen, recorded };
                datapath.set_up_when(&coming, &namespace, steps)
            }
        };
        let undo = {
            let (inner, key, answer) = (Arc::clone(&self.0), call.key.clone(), Arc::clone(&answer));
            let runtime = tokio::runtime::Handle::current();
            move |datapath: &D, steps: &StepTracker| {
                undo(datapath, steps, &inner, &runtime, &key, answer.get());
            }
        };
        let key = call.key.clone();
        let set_up = move |datapath: &D, steps: &StepTracker| set_up(&key, datapath, steps);
        let interface = wanted.host_interface.clone();
        let wiring = self.work("set_up", call, &interface, set_up, undo);
        let assigning = async {
            let choose = move |attachment: &Arc<Attachment>| {
                // An error: the work has failed already.
                let _ = choose.try_send(Arc::clone(attachment));
            };
            // The thread hears of it from the journal's own: by way of this task it would be later. If this
            // request is no more, neither is `tell`.
            let tell = Arc::new(tell);
            let record = {
                let tell = Arc::downgrade(&tell);
                move |attachment: &Arc<Attachment>| {
                    let _ = answer.set(Arc::clone(attachment));
                    let _ = tell.upgrade().map(|tell| tell.try_send(()));
                }
            };
            let addresses = &self.0.addresses;
            let assigned = addresses.assign_telling(wanted, call.deadline, choose, record).await;
            // If it has not been told yet, there is no address for it.
            let _ = tell.try_send(());
            assigned
        };
        let (assigned, wired) = tokio::join!(assigning, wiring);
        match (assigned?, wired) {
            (Assignment::New(attachment), Ok(pair)) => Ok((attachment, pair)),
            (Assignment::New(_), Err(error)) => {
                if let RequestError::Wiring(failed) = &error
                    && failed.left.is_none()
                {
                    self.0.give_back(&call.key).await;
                }
                Err(error)
            }
            // An earlier request's assignment came late. The next one finds its record.
            (Assignment::Existing(_), _) => {
                Err(RequestError::Stuck { key: call.key.clone(), step: step::ADDRESS })
            }
        }
    }

    /// Attaches a container that has a record: of an earlier success, or of another namespace.
    async fn attach_again(
        &self,
        wanted: AssignRequest,
        namespace: D::Namespace,
        call: &Call,
    ) -> Result<(Arc<Attachment>, PodInterfaces), RequestError> {
        call.op.step(step::ADDRESS);
        let addresses = &self.0.addresses;
        let mut assigned = addresses.assign(wanted.clone(), call.deadline).await?;
        if let Assignment::Existing(old) = &assigned
            && old.namespace != wanted.namespace
        {
            warn!(container = %old.key.container, "added again in another network namespace");
            self.tear_down(old, call).await?;
            call.op.step(step::ADDRESS);
            assigned = addresses.assign(wanted, call.deadline).await?;
        }
        let is_new = matches!(assigned, Assignment::New(_));
        let attachment = Arc::clone(assigned.attachment());
        let set_up = {
            let attachment = Arc::clone(&attachment);
            move |datapath: &D, steps: &StepTracker| datapath.set_up(&attachment, &namespace, steps)
        };
        let undo = {
            let (inner, attachment) = (Arc::clone(&self.0), Arc::clone(&attachment));
            let runtime = tokio::runtime::Handle::current();
            move |datapath: &D, steps: &StepTracker| {
                // The wiring of an earlier success, or of another namespace, is not to be undone.
                if is_new {
                    let key = &attachment.key;
                    undo(datapath, steps, &inner, &runtime, key, Some(&attachment));
                }
            }
        };
        let interface = &attachment.host_interface;
        let result = self.work("set_up", call, interface, set_up, undo).await;
        if let Err(RequestError::Wiring(error)) = &result
            && is_new
            && error.left.is_none()
        {
            self.0.give_back(&call.key).await;
        }
        Ok((attachment, result?))
    }
}

/// Undoes work that was given up on and has come back: what it made it has removed itself, unless it got
/// to its end.
fn undo<D: Datapath>(
    datapath: &D,
    steps: &StepTracker,
    inner: &Inner<D>,
    runtime: &tokio::runtime::Handle,
    key: &AttachmentKey,
    attachment: Option<&Arc<Attachment>>,
) {
    let torn_down = attachment.map_or(Ok(()), |it| datapath.tear_down(it, steps));
    match torn_down {
        Ok(()) => runtime.block_on(inner.give_back(key)),
        Err(error) => {
            let why = stallproof::sentence(&error);
            warn!(container = %key.container, why, "kernel work could not be undone");
        }
    }
}
