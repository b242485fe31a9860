//! What a role, or a user with all of their roles, may do when it is added up.

use std::sync::Arc;

use access::{Permissions, Reach, Verb};
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{Api, Caller, ErrorCode, Problem, Route, Routes};

/// What people ask about: the kinds that they work with, and those that are dangerous.
const RESOURCES: [&str; 16] = [
    "pods",
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "jobs.batch",
    "cronjobs.batch",
    "services",
    "ingresses.networking.k8s.io",
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "namespaces",
    "nodes",
    "events",
    "roles.rbac.authorization.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
];
const FLEET_RESOURCES: [&str; 18] = [
    access::CLUSTERS,
    access::USERS,
    access::ROLES,
    access::TOKENS,
    access::AUDIT,
    super::meshes::MESHES,
    super::inflight::INFLIGHT,
    super::traffic::violations::VIOLATIONS,
    "conversations.fairlead.dev",
    "networkrules.fairlead.dev",
    super::policies::POLICIES,
    "admissionrules.fairlead.dev",
    "imagereports.fairlead.dev",
    "imagetrustroots.fairlead.dev",
    "vulnerabilityexceptions.fairlead.dev",
    super::receivers::RECEIVERS,
    super::responses::RESPONSES,
    "doctor.fairlead.dev",
];

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::read(), routes!(role_effective))
        .with(Route::read(), routes!(user_effective))
}

/// What may be done to one resource.
#[derive(Serialize, ToSchema)]
struct EffectiveRight {
    /// `-` is the fleet itself.
    cluster: String,
    resource: String,
    /// In every namespace, or to what has none.
    everywhere: Vec<&'static str>,
    /// In some namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    somewhere: Vec<&'static str>,
}

#[derive(Serialize, ToSchema)]
struct EffectiveRights {
    /// What is refused everywhere is left out.
    rights: Vec<EffectiveRight>,
}

/// What a role adds up to
#[utoipa::path(
    get, path = "/roles/{name}/effective", tag = "access",
    responses((status = 200, description = "By cluster and resource", body = EffectiveRights))
)]
async fn role_effective(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<EffectiveRights>, Problem> {
    let roles = api.access.administer(&caller.who).roles()?;
    let role = roles.into_iter().find(|role| role.name == name);
    let role = role.ok_or_else(|| absent("role", &name))?;
    let permissions =
        Permissions::new(vec![Arc::new(access::Role::compile(&role.name, &role.rules))]);
    Ok(Json(added_up(&api, &caller, &permissions)))
}

/// What a user's roles add up to
#[utoipa::path(
    get, path = "/users/{name}/effective", tag = "access",
    responses((status = 200, description = "By cluster and resource", body = EffectiveRights))
)]
async fn user_effective(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<EffectiveRights>, Problem> {
    let administration = api.access.administer(&caller.who);
    let user = administration.users()?.into_iter().find(|user| user.name == name);
    let user = user.ok_or_else(|| absent("user", &name))?;
    let roles = administration.roles()?;
    let has = |role: &&access::RoleView| user.roles.contains(&role.name) && !user.disabled;
    let roles = roles.iter().filter(has);
    let roles = roles.map(|role| Arc::new(access::Role::compile(&role.name, &role.rules)));
    Ok(Json(added_up(&api, &caller, &Permissions::new(roles.collect()))))
}

fn absent(what: &str, name: &str) -> Problem {
    Problem::new(ErrorCode::NotFound, format!("there is no {what} {name}"))
}

fn added_up(api: &Api, caller: &Caller, permissions: &Permissions) -> EffectiveRights {
    let view = api.fleet.view();
    let mut clusters: Vec<_> = view.clusters.keys().map(ToString::to_string).collect();
    clusters.retain(|cluster| caller.permissions.may_see_cluster(cluster));
    clusters.sort();
    let fleet = FLEET_RESOURCES.iter().map(|resource| (access::FLEET, *resource));
    let others = clusters
        .iter()
        .flat_map(|cluster| RESOURCES.iter().map(move |resource| (cluster.as_str(), *resource)));
    let rights =
        fleet.chain(others).map(|(cluster, resource)| right(permissions, cluster, resource));
    let some = |right: &EffectiveRight| !right.everywhere.is_empty() || !right.somewhere.is_empty();
    EffectiveRights { rights: rights.filter(some).collect() }
}

fn right(permissions: &Permissions, cluster: &str, resource: &str) -> EffectiveRight {
    let (mut everywhere, mut somewhere) = (Vec::new(), Vec::new());
    for verb in Verb::ALL {
        match permissions.reach(cluster, resource, *verb) {
            Reach::Everywhere => everywhere.push(verb.as_str()),
            Reach::Somewhere => somewhere.push(verb.as_str()),
            Reach::Nowhere => {}
        }
    }
    let (cluster, resource) = (cluster.to_owned(), resource.to_owned());
    EffectiveRight { cluster, resource, everywhere, somewhere }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use crate::api::tests::test_api::TestApi;

    #[tokio::test]
    async fn what_roles_add_up_to_is_what_is_decided() {
        let world = TestApi::with(&["eu"], |_| {}).ready().await;
        world.somebody("ann", &[["eu", "shop", "pods", "*"], ["eu", "*", "pods", "list"]]).await;
        let told = world.ask(Method::GET, "/users/ann/effective", Value::Null).await.json();
        let rights = told["rights"].as_array().unwrap();
        assert_eq!(rights.len(), 1, "{told}");
        assert_eq!(
            (&rights[0]["cluster"], &rights[0]["everywhere"]),
            (&json!("eu"), &json!(["list"]))
        );
        assert!(rights[0]["somewhere"].as_array().unwrap().contains(&json!("exec")), "{told}");
        let viewer = world.ask(Method::GET, "/roles/viewer/effective", Value::Null).await.json();
        let rights = viewer["rights"].as_array().unwrap();
        assert!(rights.iter().all(|right| right["resource"] != "secrets"), "{viewer}");
        let absent = world.ask(Method::GET, "/roles/absent/effective", Value::Null).await;
        assert_eq!(absent.status, 404);
    }
}
