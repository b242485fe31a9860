//! Puts a pod apart by the label that policies understand, for a response rule, and writes it in the audit.

use access::audit::Entry;
use access::{Audit, AuthMethod, FLEET, Identity, Verb};
use fleet::{Connection, Fleet};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use notify::{Quarantine, QuarantineFuture, QuarantineOrder};
use policy::spec::QUARANTINE;
use serde_json::{Map, json};
use stallproof::Deadline;

const FIELD_MANAGER: &str = "fairlead-response-rules";

#[derive(Clone)]
pub(super) struct PodQuarantine {
    /// The cluster that the store is in, if it is one.
    pub(super) own: Option<kube::Client>,
    pub(super) fleet: Fleet,
    pub(super) audit: Audit,
}

impl Quarantine for PodQuarantine {
    fn quarantine(&self, order: QuarantineOrder, deadline: Deadline) -> QuarantineFuture {
        let here = self.clone();
        Box::pin(async move { here.put_apart(order, deadline).await })
    }
}

impl PodQuarantine {
    async fn put_apart(self, order: QuarantineOrder, deadline: Deadline) -> Result<bool, String> {
        let connection = self.connection(&order.cluster)?;
        let QuarantineOrder { cluster, namespace, pod, rule, event_id } = order;
        let found = connection
            .call("reading a pod", deadline, |client| {
                let (namespace, pod) = (namespace.clone(), pod.clone());
                async move { Api::<Pod>::namespaced(client, &namespace).get_opt(&pod).await }
            })
            .await
            .map_err(|error| stallproof::sentence(&error))?;
        let Some(found) = found else { return Ok(false) };
        let labels = found.metadata.labels.unwrap_or_default();
        if labels.get(QUARANTINE).is_some_and(|value| value != "false") {
            return Ok(false);
        }
        let details = json!({"label": QUARANTINE, "rule": rule, "event": event_id});
        let entry = Entry {
            who: Identity { user: "fairlead".into(), via: AuthMethod::ResponseRule(rule.into()) },
            from: None,
            verb: Verb::Update,
            cluster: if cluster == FLEET { FLEET.to_owned() } else { cluster },
            namespace: Some(namespace.clone()),
            resource: "pods".to_owned(),
            name: Some(pod.clone()),
            request_id: None,
            dry_run: false,
            details: details.as_object().cloned().unwrap_or_else(Map::new),
        };
        let pending = self.audit.begin(entry, deadline).await;
        let pending = pending.map_err(|error| stallproof::sentence(&error))?;
        // Its uid: a pod of the same name that came meanwhile has done nothing.
        let uid = found.metadata.uid.unwrap_or_default();
        let patch = json!({"metadata": {"uid": uid, "labels": {QUARANTINE: "true"}}});
        let params =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patched = connection
            .call("quarantining a pod", deadline, |client| {
                let (namespace, pod) = (namespace.clone(), pod.clone());
                let (params, patch) = (params.clone(), patch.clone());
                async move {
                    let api = Api::<Pod>::namespaced(client, &namespace);
                    api.patch(&pod, &params, &Patch::Merge(patch)).await
                }
            })
            .await;
        match patched {
            Ok(_) => {
                pending.finish("ok");
                Ok(true)
            }
            Err(error) => {
                pending.finish("failed");
                Err(stallproof::sentence(&error))
            }
        }
    }

    fn connection(&self, cluster: &str) -> Result<Connection, String> {
        if cluster != FLEET {
            return self.fleet.own_connection(cluster).map_err(|e| stallproof::sentence(&e));
        }
        match &self.own {
            Some(client) => Ok(Connection::new(FLEET, client.clone())),
            None => Err("the pod's cluster is not known: name it in guard.cluster".to_owned()),
        }
    }
}
