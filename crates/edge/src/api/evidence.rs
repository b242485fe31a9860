//! What is known of an object elsewhere: its conversations, violations of network rules, admission
//! decisions, the audit's entries and calls in flight.
//!
//! Contract: each part is decided by its own right, and answered in the words of its own route. A part that
//! may not be seen, or that is not known of this cluster, is left out and named: a pod of the same name in
//! another cluster is another pod.

use std::collections::BTreeSet;

use ::traffic::conversations::Endpoint;
use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use fleet::resources::{self, Tree};
use fleet::{Connection, ServedKind};
use serde::{Deserialize, Serialize};
use stallproof::ledger::{Filter, OpView};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::admission::AdmissionLine;
use super::audit::AuditEntry;
use super::inflight::INFLIGHT;
use super::listing::exact;
use super::resources::{Chosen, choose};
use super::traffic::conversations::{self, ConversationLine};
use super::traffic::is_own;
use super::traffic::violations::{self, ViolationLine};
use super::{Api, Caller, ErrorCode, Problem, Query, Route, Routes, admission, audit};

/// The most entries of a part, and how many unless said.
const MOST: usize = 500;
const LINES: usize = 50;
/// Entries of the audit that are looked at: names are not unique.
const LOOKED_AT: usize = 1000;
/// The audit's resource for what was applied, whose names are in what it says of before and after.
const APPLIED: &str = "*";

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::list().at_leader(), routes!(evidence))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct EvidenceParams {
    /// Of objects that live in one.
    namespace: Option<String>,
    /// The most entries of each part; 50 unless said, 500 at most.
    limit: Option<usize>,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Evidence {
    /// As `/guard/conversations` has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    conversations: Option<Vec<ConversationLine>>,
    /// As `/guard/violations` has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    violations: Option<Vec<ViolationLine>>,
    /// As `/admission/audit` has them, of the replica that leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<Vec<AdmissionLine>>,
    /// As `/audit` has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<Vec<AuditEntry>>,
    /// As `/inflight` has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    in_flight: Option<Vec<OpView>>,
    left_out: Vec<LeftOut>,
}

/// A part that is not told.
#[derive(Debug, Serialize, ToSchema)]
struct LeftOut {
    /// conversations, violations, admission, audit or inFlight.
    part: &'static str,
    why: String,
}

/// The object, in the words of each part.
struct Subject<'a> {
    cluster: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
    found: &'a ServedKind,
    /// `Kind/name` of itself and of its owners.
    owners: Vec<String>,
}

/// What is known of an object
///
/// Its conversations and violations, if its cluster is the one that the agents observe; what was decided
/// about its admission; what was done with it; and calls that are about it now. The latest first. It needs
/// `get` on the object, and for each part what its own route needs: `leftOut` names the others.
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/{kind}/{name}/evidence", tag = "resources",
    params(EvidenceParams),
    responses((status = 200, description = "As far as each may be seen", body = Evidence))
)]
async fn evidence(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<EvidenceParams>,
) -> Result<Json<Evidence>, Problem> {
    let object = (&*cluster, &*kind, &*name);
    let Chosen { connection, found, target } =
        choose(&api, &caller, object, asked.namespace.as_deref(), Verb::Get).await?;
    let deadline = caller.deadline;
    let object =
        resources::get(&connection, &exact(&found), target.namespace(), &name, deadline).await?;
    let tree = resources::tree(&connection, &object, deadline).await;
    let namespace = target.namespace();
    let subject = Subject::of(&cluster, namespace, &name, &found, &tree);
    let limit = asked.limit.unwrap_or(LINES).clamp(1, MOST);
    let mut left_out = Vec::new();
    let mut part = |part: &'static str, why: Problem| {
        left_out.push(LeftOut { part, why: why.detail().to_owned() });
    };
    let conversations = match subject.endpoint(&api) {
        Ok(end) => conversations::with_end(&api, &caller, namespace, end, limit).await,
        Err(why) => Err(why),
    };
    let conversations = conversations.map_err(|why| part("conversations", why)).ok();
    let violations = subject.endpoint(&api);
    let violations = violations.and_then(|end| violations::with_end(&api, &caller, end, limit));
    let violations = violations.map_err(|why| part("violations", why)).ok();
    let admission = subject.admission(&api, &caller, limit);
    let admission = admission.map_err(|why| part("admission", why)).ok();
    let audit = subject.audit(&api, &caller, &connection, limit).await;
    let audit = audit.map_err(|why| part("audit", why)).ok();
    let in_flight = subject.in_flight(&api, &caller, limit);
    let in_flight = in_flight.map_err(|why| part("inFlight", why)).ok();
    Ok(Json(Evidence { conversations, violations, admission, audit, in_flight, left_out }))
}

impl<'a> Subject<'a> {
    fn of(
        cluster: &'a str,
        namespace: Option<&'a str>,
        name: &'a str,
        found: &'a ServedKind,
        tree: &Tree,
    ) -> Self {
        let mut owners = vec![format!("{}/{name}", found.resource.kind)];
        owners.extend(tree.owners.iter().map(|node| format!("{}/{}", node.kind, node.name)));
        Self { cluster, namespace, name, found, owners }
    }

    /// Whether an end of a conversation is this object.
    fn endpoint(
        &self,
        api: &Api,
    ) -> Result<impl Fn(&Endpoint) -> bool + Send + Sync + 'static + use<>, Problem> {
        let observed = api.traffic.as_ref().map(|traffic| &traffic.observed);
        if !observed.is_some_and(|observed| observed.is(api, self.cluster)) {
            return Err(Problem::new(
                ErrorCode::NotFound,
                format!(
                    "no agents are known to observe {}: conversations are of the cluster that Fairlead \
                     runs in, or of the one that guard.cluster names",
                    self.cluster
                ),
            ));
        }
        let kind = self.found.resource.kind.clone();
        let (namespace, name) = (self.namespace.map(ToOwned::to_owned), self.name.to_owned());
        let owner = self.owners[0].clone();
        Ok(move |end: &Endpoint| {
            if kind == "Namespace" {
                return end.namespace().is_some_and(|within| **within == *name);
            }
            if kind == "Node" {
                return matches!(end, Endpoint::Host { name: node } if **node == *name);
            }
            if end.namespace().map(|within| &**within) != namespace.as_deref() {
                return false;
            }
            match end {
                Endpoint::Workload { name: pod, .. } if kind == "Pod" => **pod == *name,
                Endpoint::Workload { owner: of, .. } => **of == *owner,
                Endpoint::Service { name: service, .. }
                | Endpoint::Ingress { name: service, .. } => {
                    kind == "Service" && **service == *name
                }
                _ => false,
            }
        })
    }

    fn admission(
        &self,
        api: &Api,
        caller: &Caller,
        limit: usize,
    ) -> Result<Vec<AdmissionLine>, Problem> {
        // The webhook of the cluster that this process runs in needs no name.
        let mut clusters = vec![self.cluster];
        if is_own(api, self.cluster) {
            clusters.push(::admission::LOCAL_CLUSTER);
        }
        let about = (self.namespace.unwrap_or_default(), &*self.owners);
        admission::about(api, caller, &clusters, about, limit)
    }

    async fn audit(
        &self,
        api: &Api,
        caller: &Caller,
        connection: &Connection,
        limit: usize,
    ) -> Result<Vec<AuditEntry>, Problem> {
        let (cluster, name) = (self.cluster, Some(self.name));
        caller.may_in_fleet(access::AUDIT, Verb::List)?;
        let named = audit::latest(api, caller, cluster, (name, None), LOOKED_AT).await?;
        let applied = (None, Some(APPLIED));
        let applied = audit::latest(api, caller, cluster, applied, LOOKED_AT).await?;
        // The audit has the kind in the word that was asked with.
        let words: BTreeSet<_> = named.iter().map(|entry| entry.resource.clone()).collect();
        let mut ours = BTreeSet::new();
        for word in words {
            let found = connection.find(&word, caller.deadline).await;
            if found.is_ok_and(|found| found.resource == self.found.resource) {
                ours.insert(word);
            }
        }
        let mut entries: Vec<_> = named
            .into_iter()
            .filter(|entry| {
                ours.contains(&entry.resource) && entry.namespace.as_deref() == self.namespace
            })
            .collect();
        let key = self.applied_as();
        let has =
            |entry: &AuditEntry| entry.after.as_ref().is_some_and(|it| it.get(&key).is_some());
        entries.extend(applied.into_iter().filter(has));
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.at));
        entries.truncate(limit);
        Ok(entries)
    }

    /// As the audit of what was applied names it.
    fn applied_as(&self) -> String {
        let within = self.namespace.map(|within| format!(" in {within}")).unwrap_or_default();
        format!("{}/{}{within}", self.found.resource.kind.to_lowercase(), self.name)
    }

    fn in_flight(&self, api: &Api, caller: &Caller, limit: usize) -> Result<Vec<OpView>, Problem> {
        caller.may_in_fleet(INFLIGHT, Verb::List)?;
        let tenant = Some(self.cluster.to_owned());
        let all = api.ledger.in_flight(&Filter { tenant, ..Filter::default() });
        let about =
            |op: &OpView| op.key == self.name || op.key.ends_with(&format!("/{}", self.name));
        Ok(all.into_iter().filter(about).take(limit).collect())
    }
}

#[cfg(test)]
mod tests;
