//! What the leading controller does for egresses: it makes and keeps their Deployments and disruption
//! budgets, and writes in their statuses which replicas carry connections.
//!
//! Contract:
//! - A Deployment has the egress' name and belongs to it: Kubernetes deletes it with the egress. One of that
//!   name that somebody else made is left alone, and the condition `Ready` says so.
//! - A replica is in the status while its pod is ready, and while it ends (`draining`): nodes follow that.
//! - An edit of a Deployment by hand is undone.

mod deployment;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use objects::kinds::{
    BetaPodDisruptionBudget, Condition, Egress, EgressReplica, EgressStatus, MOST_REPLICAS,
};
use objects::{
    Attempt, Error, Expected, Id, Leader, Next, Objects, Pace, Reconciler, Selector, Watched,
    Within,
};
use stallproof::Snapshot;
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;

use super::LABEL;
use super::reconciler::chosen;

pub(super) const PACE: Pace = Pace {
    attempt: Duration::from_secs(30),
    resync: Duration::from_secs(60),
    settle: Duration::from_millis(20),
    retry: Curve { first: Duration::from_millis(500), most: Duration::from_secs(15) },
};

/// What egress pods run.
#[derive(Clone, Debug)]
pub struct EgressControllerConfig {
    pub image: String,
    pub port: u16,
}

/// What is kept of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DeploymentState {
    generation: i64,
    replicas: i32,
    ready: i32,
}

/// A pod of an egress, ready or about to end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EgressPod {
    egress: String,
    replica: EgressReplica,
}

type Egresses = Watched<Id, std::sync::Arc<Egress>>;
type Deployments = Watched<Id, DeploymentState>;
type Pods = Watched<Id, EgressPod>;
type Clients = Watched<Id, Vec<String>>;

struct EgressController {
    objects: Objects,
    config: EgressControllerConfig,
    egresses: Snapshot<Egresses>,
    deployments: Snapshot<Deployments>,
    pods: Snapshot<Pods>,
    clients: Snapshot<Clients>,
    changes: (Changes<Egresses>, Changes<Deployments>, Changes<Pods>, Changes<Clients>),
    /// The generations of egress and Deployment when the Deployment was made last.
    made: BTreeMap<Id, (Option<i64>, i64)>,
}

/// Begins the work of a leader's term.
pub fn start(leader: &Leader, config: EgressControllerConfig) {
    let Leader { tasks, objects, .. } = leader;
    let Ok(ours) = LABEL.parse::<Selector>() else { return };
    let ours = Within { labels: Some(ours), ..Within::default() };
    let egresses =
        objects.watched_as(Within::default(), tasks, |it: Egress| Some(std::sync::Arc::new(it)));
    let deployments = objects.watched_as(ours.clone(), tasks, |it: Deployment| Some(state(&it)));
    let pods = objects.watched_as(ours, tasks, |pod: Pod| replica(&pod));
    let clients = objects.watched_as(Within::default(), tasks, |pod: Pod| chosen(&pod));
    let changes =
        (egresses.subscribe(), deployments.subscribe(), pods.subscribe(), clients.subscribe());
    let controller = EgressController {
        objects: objects.clone(),
        config,
        egresses,
        deployments,
        pods,
        clients,
        changes,
        made: BTreeMap::new(),
    };
    leader.reconcile("egresses", "", PACE, controller);
}

fn state(deployment: &Deployment) -> DeploymentState {
    let status = deployment.status.as_ref();
    DeploymentState {
        generation: deployment.metadata.generation.unwrap_or(0),
        replicas: status.and_then(|it| it.replicas).unwrap_or(0),
        ready: status.and_then(|it| it.ready_replicas).unwrap_or(0),
    }
}

/// A pod that carries connections: it is ready, or it ends and still has its addresses.
fn replica(pod: &Pod) -> Option<EgressPod> {
    let egress = pod.metadata.labels.as_ref()?.get(LABEL)?.clone();
    let status = pod.status.as_ref()?;
    let draining = pod.metadata.deletion_timestamp.is_some();
    let conditions = status.conditions.iter().flatten();
    let ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
    if status.phase.as_deref() != Some("Running") || !(ready || draining) {
        return None;
    }
    let several = status.pod_ips.iter().flatten().map(|it| &it.ip);
    let mut addresses: Vec<_> = several.filter_map(|ip| ip.parse().ok()).collect();
    if addresses.is_empty() {
        addresses.extend(status.pod_ip.as_ref().and_then(|ip| ip.parse::<std::net::IpAddr>().ok()));
    }
    if addresses.is_empty() {
        return None;
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let name = pod.metadata.name.clone()?;
    Some(EgressPod { egress, replica: EgressReplica { pod: name, node, addresses, draining } })
}

impl EgressController {
    /// Makes the Deployment what it should be, if it may not be that; says why it is not.
    async fn make(&mut self, egress: &Egress, attempt: &Attempt) -> Result<Option<String>, Error> {
        let id = Id::of(egress);
        let generation = egress.metadata.generation;
        let there = self.deployments.load().get(&id).map(|it| it.generation);
        let made = self.made.get(&id);
        if made.is_some_and(|made| made.0 == generation && Some(made.1) == there) {
            return Ok(None);
        }
        if there.is_none() {
            let other = self.objects.get::<Deployment>(&id, attempt.deadline).await?;
            let is_ours = |it: &Deployment| {
                it.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(LABEL))
            };
            if other.is_some_and(|it| !is_ours(&it)) {
                return Ok(Some(format!(
                    "there is a Deployment {id} that is not the egress' own; give one of them \
                     another name"
                )));
            }
        }
        let wanted = match deployment::deployment(egress, &self.config) {
            Ok(wanted) => wanted,
            Err(why) => return Ok(Some(format!("its template makes no pod: {why}"))),
        };
        let applied = match self.objects.apply(&wanted, Expected::Any, attempt.deadline).await {
            Err(Error::Invalid { problems, .. }) => {
                return Ok(Some(format!("its Deployment is refused: {problems}")));
            }
            other => other?,
        };
        if let Some(budget) = deployment::budget(egress)
            && let Err(error) = self.budget(budget, attempt).await
        {
            if error.is_not_served() {
                let why =
                    "the server has neither policy/v1 nor policy/v1beta1 for its disruption budget";
                return Ok(Some(why.to_owned()));
            }
            return Err(error);
        }
        self.made.insert(id, (generation, applied.metadata.generation.unwrap_or(0)));
        Ok(None)
    }

    /// Makes a disruption budget, in the version that the server has: `policy/v1` from 1.21 on, and in older
    /// ones `policy/v1beta1`. The server may be upgraded at any time, so it is asked each time.
    async fn budget(&self, budget: PodDisruptionBudget, attempt: &Attempt) -> Result<(), Error> {
        match self.objects.apply(&budget, Expected::Any, attempt.deadline).await {
            Err(error) if error.is_not_served() => {
                let spec = budget.spec.unwrap_or_default();
                let budget = BetaPodDisruptionBudget { metadata: budget.metadata, spec };
                self.objects.apply(&budget, Expected::Any, attempt.deadline).await.map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }

    fn status(&self, egress: &Egress, trouble: Option<String>) -> EgressStatus {
        let id = Id::of(egress);
        let key = id.to_string();
        let (pods, clients) = (self.pods.load(), self.clients.load());
        let mut endpoints: Vec<_> = pods
            .iter()
            .filter(|(pod, it)| pod.namespace == id.namespace && it.egress == id.name)
            .map(|(_, it)| it.replica.clone())
            .collect();
        endpoints.sort_by(|a, b| a.pod.cmp(&b.pod));
        endpoints.truncate(MOST_REPLICAS);
        let clients = clients.values().filter(|chosen| chosen.contains(&key)).count();
        let serving = endpoints.iter().filter(|replica| !replica.draining).count();
        let ready = match (trouble, serving) {
            (Some(why), _) => ("False", "Refused", why),
            (None, 0) => ("False", "NoReplica", "no replica is ready".to_owned()),
            (None, some) => ("True", "Serving", format!("{some} replicas carry connections")),
        };
        let state = self.deployments.load().get(&id).cloned().unwrap_or_default();
        let before = egress.status.iter().flat_map(|status| &status.conditions).next();
        let (status, reason, message) = ready;
        let since = before.filter(|it| it.status == status);
        let since = since.and_then(|it| it.last_transition_time.clone());
        let now = || Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        EgressStatus {
            replicas: state.replicas,
            ready_replicas: state.ready,
            selector: format!("{LABEL}={}", id.name),
            clients: u32::try_from(clients).unwrap_or(u32::MAX),
            endpoints,
            conditions: vec![Condition {
                r#type: "Ready".to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                last_transition_time: Some(since.unwrap_or_else(|| now().to_string())),
            }],
        }
    }
}

impl Reconciler for EgressController {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        let told = self.egresses.read(|it| it.synced)
            && self.deployments.read(|it| it.synced)
            && self.pods.read(|it| it.synced)
            && self.clients.read(|it| it.synced);
        if !told {
            return Ok(Next::OnChange);
        }
        let egresses = self.egresses.load();
        self.made.retain(|id, _| egresses.contains_key(id));
        let mut failed = None;
        for egress in egresses.values().filter(|it| it.metadata.deletion_timestamp.is_none()) {
            let trouble = match self.make(egress, attempt).await {
                Ok(trouble) => trouble,
                Err(error) => {
                    let why = stallproof::sentence(&error);
                    failed = Some(error);
                    Some(why)
                }
            };
            let status = self.status(egress, trouble);
            if egress.status.as_ref() == Some(&status) {
                continue;
            }
            let mut object = (**egress).clone();
            object.status = Some(status);
            match self.objects.apply_status(&object, Expected::Any, attempt.deadline).await {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(Next::OnChange), Err)
    }

    async fn changed(&mut self) {
        let (egresses, deployments, pods, clients) = &mut self.changes;
        tokio::select! {
            _ = egresses.changed() => {}
            _ = deployments.changed() => {}
            _ = pods.changed() => {}
            _ = clients.changed() => {}
        }
    }
}
