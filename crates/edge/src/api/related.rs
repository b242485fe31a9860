//! What an object has to do with others: who owns it and what it owns, who selects it, what it uses, what
//! leads to it. Each part as far as it may be seen.

use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use fleet::resources::related::{self, Lists, Relation};
use fleet::resources::{self, ListQuery};
use fleet::{Connection, Error};
use kube::core::DynamicObject;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::describe::{Around, each};
use super::listing::exact;
use super::resources::{Chosen, Within, choose};
use super::scope::{Scope, resource};
use super::{Api, Caller, Problem, Query, Route, Routes};

/// The most objects of a kind that are looked at.
const MOST: u32 = 5_000;

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::list(), routes!(related_objects))
}

/// An object that is related to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RelatedObject {
    /// owner, owned, selected-by, selects, uses, used-by, routed-by, routes-to, scaled-by or scales: what the
    /// object named here is to the one that was asked for.
    relation: &'static str,
    api_version: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// In a word, as kubectl's STATUS has it; of owners and what is owned.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    /// What relates them: `volume data`, `env of main`, `Service web`.
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<String>,
}

impl RelatedObject {
    fn of_node(relation: &'static str, node: &resources::Node) -> Self {
        Self {
            relation,
            api_version: node.api_version.clone(),
            kind: node.kind.clone(),
            namespace: node.namespace.clone(),
            name: node.name.clone(),
            status: Some(node.state.clone()),
            via: None,
        }
    }
}

impl From<Relation> for RelatedObject {
    fn from(relation: Relation) -> Self {
        Self {
            relation: relation.how.text(),
            api_version: relation.api_version,
            kind: relation.kind,
            namespace: relation.namespace,
            name: relation.name,
            status: None,
            via: Some(relation.via).filter(|via| !via.is_empty()),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RelatedObjects {
    related: Vec<RelatedObject>,
    /// Resources that one may not list there: what is related among them is not told.
    left_out: Vec<String>,
    /// What could not be found out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

/// What an object is related to
///
/// Owners and what it owns; Services, NetworkPolicies and PodDisruptionBudgets that select it; the ConfigMaps,
/// Secrets, claims and ServiceAccount that it uses; Ingresses that lead to it; what scales it; and the same the
/// other way round. It needs `get` on the object; each part is told as far as it may be listed.
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/{kind}/{name}/related", tag = "resources",
    params(Within),
    responses((status = 200, description = "As far as each may be seen", body = RelatedObjects))
)]
async fn related_objects(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Within>,
) -> Result<Json<RelatedObjects>, Problem> {
    let object = (&*cluster, &*kind, &*name);
    let Chosen { connection, found, target } =
        choose(&api, &caller, object, asked.namespace.as_deref(), Verb::Get).await?;
    let within = (&*cluster, target.namespace());
    caller.note_secret(&api, Verb::Get, within, (&resource(&found.resource), Some(&name)))?;
    let deadline = caller.deadline;
    let object =
        resources::get(&connection, &exact(&found), target.namespace(), &name, deadline).await?;
    let (tree, (lists, left_out, mut problems)) = futures::join!(
        resources::tree(&connection, &object, deadline),
        lists(&connection, &caller, &cluster, &object)
    );
    if !tree.incomplete.is_empty() {
        problems.push("not everything that owns it or that it owns could be read".to_owned());
    }
    let around = Around::of(&connection, &tree.owners, &tree.owned, deadline).await;
    let seen = |node: &&resources::Node| around.shows(&caller.permissions, &cluster, node);
    let owners = tree.owners.iter().filter(seen);
    let mut related: Vec<_> = owners.map(|node| RelatedObject::of_node("owner", node)).collect();
    each(&tree.owned, &mut |node| {
        related.extend(Some(node).filter(seen).map(|node| RelatedObject::of_node("owned", node)));
    });
    related.extend(related::relations(&object, &lists).into_iter().map(RelatedObject::from));
    Ok(Json(RelatedObjects { related, left_out, problems }))
}

/// The lists that are needed, as far as they may be seen; what is left out; what failed.
async fn lists(
    connection: &Connection,
    caller: &Caller,
    cluster: &str,
    object: &DynamicObject,
) -> (Lists, Vec<String>, Vec<String>) {
    let (mut lists, mut left_out, mut problems) = (Lists::new(), Vec::new(), Vec::new());
    let namespace = object.metadata.namespace.as_deref();
    for word in related::needed(object) {
        let found = match connection.find(word, caller.deadline).await {
            Ok(found) => found,
            // A server that does not have it has nothing of it.
            Err(Error::NoSuchKind { .. }) => continue,
            Err(error) => {
                problems.push(format!("{word}: {}", stallproof::sentence(&error)));
                continue;
            }
        };
        let Ok(scope) = Scope::list(caller, cluster, &found, namespace, Verb::List) else {
            left_out.push(resource(&found.resource));
            continue;
        };
        let query = ListQuery { limit: Some(MOST), ..ListQuery::of(exact(&found)) };
        match resources::list(connection, &query.within(namespace), caller.deadline).await {
            Ok(page) => {
                if page.continue_token.is_some() {
                    problems.push(format!("{word}: only the first {MOST} were looked at"));
                }
                let items = page.items.into_iter().filter(|item| scope.has_object(item));
                lists.insert(*word, items.collect());
            }
            Err(error) => problems.push(format!("{word}: {}", stallproof::sentence(&error))),
        }
    }
    (lists, left_out, problems)
}

#[cfg(test)]
mod tests;
