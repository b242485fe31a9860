//! ADD: an address, then a pair of interfaces that carries it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cni::wire::AddRequest;
use stallproof::Deadline;
use tracing::{info, warn};

use super::{Call, CniService, RequestError, StepTracker};
use crate::addresses::{AssignRequest, Assignment};
use crate::datapath::{Datapath, PodInterfaces};
use crate::wiring::host_interface;
use crate::{Attachment, pool};

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
            let AddRequest { key, network, netns, pod: named, .. } = add;
            let (host_interface, id) = (host_interface(&key), self.0.datapath.id(&namespace));
            let wanted = AssignRequest {
                key,
                network,
                pod: named,
                pool,
                namespace: id,
                netns,
                host_interface,
            };
            call.op.step("assign");
            let assigned = self.assign(wanted, &call).await?;
            let pair = self.set_up(&assigned, namespace, &call).await?;
            info!(container = %call.key.container, pod, "attached");
            Ok((assigned.attachment().clone(), pair))
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

    async fn assign(&self, wanted: AssignRequest, call: &Call) -> Result<Assignment, RequestError> {
        let addresses = &self.0.addresses;
        match addresses.assign(wanted.clone(), call.deadline).await? {
            Assignment::Existing(old) if old.namespace != wanted.namespace => {
                warn!(container = %old.key.container, "added again in another network namespace");
                self.tear_down(&old, call).await?;
                call.op.step("assign");
                Ok(addresses.assign(wanted, call.deadline).await?)
            }
            assigned => Ok(assigned),
        }
    }

    async fn set_up(
        &self,
        assigned: &Assignment,
        namespace: D::Namespace,
        call: &Call,
    ) -> Result<PodInterfaces, RequestError> {
        let is_new = matches!(assigned, Assignment::New(_));
        let attachment = Arc::clone(assigned.attachment());
        let set_up = {
            let attachment = Arc::clone(&attachment);
            move |datapath: &D, steps: &StepTracker| datapath.set_up(&attachment, &namespace, steps)
        };
        let undo = {
            let inner = Arc::clone(&self.0);
            let runtime = tokio::runtime::Handle::current();
            move |datapath: &D, steps: &StepTracker| {
                // The wiring of an earlier success, or of another namespace, is not to be undone.
                if !is_new {
                    return;
                }
                let key = &attachment.key;
                match datapath.tear_down(&attachment, steps) {
                    Ok(()) => runtime.block_on(inner.give_back(key)),
                    Err(error) => {
                        let why = stallproof::sentence(&error);
                        warn!(container = %key.container, why, "kernel work could not be undone");
                    }
                }
            }
        };
        let result = self.work("set_up", call, set_up, undo).await;
        if let Err(RequestError::Wiring(error)) = &result
            && is_new
            && error.left.is_none()
        {
            self.0.give_back(&call.key).await;
        }
        result
    }
}
