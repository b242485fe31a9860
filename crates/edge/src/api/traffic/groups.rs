//! Groups: those that somebody made and those that were learned, and who is in them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ::traffic::ingest::Inventory;
use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use objects::kinds::{GroupCriterion, GroupMode, GroupName, GroupSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{NOT_ENFORCED, enforcement, ingest, traffic_of};
use crate::api::{Api, Body, Caller, ErrorCode, Problem, Route, Routes};

/// The resource in the cluster `-`.
const GROUPS: &str = "groups.fairlead.dev";
/// A group has some dozen criteria.
const LARGEST: usize = 256 << 10;

pub(super) fn routes() -> Routes {
    Routes::default()
        .with(Route::read().at_leader(), routes!(groups))
        .with(Route::read().at_leader(), routes!(group))
        .with(
            Route::write(Verb::Update, GROUPS).body(LARGEST).recording(&["spec"]),
            routes!(put_group),
        )
        .with(Route::write(Verb::Delete, GROUPS), routes!(delete_group))
}

#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct GroupLine {
    /// As rules name it: `office`, or `shop/Deployment/web` of a learned one.
    name: String,
    /// made or learned.
    origin: &'static str,
    /// discover, monitor or protect; of a made group none if it has none of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    mode: Option<GroupMode>,
    /// Said of a group that is to be protected.
    #[serde(skip_serializing_if = "Option::is_none")]
    enforcement: Option<&'static str>,
    /// Workloads in it.
    members: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    criteria: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    comment: String,
    /// Why it is in no use.
    #[serde(skip_serializing_if = "Option::is_none")]
    wrong: Option<String>,
}

impl GroupLine {
    fn all(inventory: &Inventory) -> Vec<Self> {
        let groups = &inventory.groups;
        let mut members: HashMap<&str, usize> = HashMap::new();
        // What the strictest workload of an owner is under.
        let mut modes: HashMap<(&str, Arc<str>), GroupMode> = HashMap::new();
        for (pod, membership) in groups.all() {
            for group in &membership.groups {
                *members.entry(group).or_default() += 1;
            }
            let mode = modes.entry((&pod.namespace, pod.owner())).or_insert(membership.mode);
            *mode = membership.mode.max(*mode);
        }
        let mut lines: Vec<_> = groups
            .all_made()
            .iter()
            .map(|made| Self {
                name: made.name.to_string(),
                origin: "made",
                mode: made.mode,
                enforcement: enforcement(made.mode),
                members: members.get(&*made.name).copied().unwrap_or_default(),
                criteria: made.spec.criteria.iter().map(words).collect(),
                comment: made.spec.comment.clone(),
                wrong: None,
            })
            .chain(inventory.wrong_groups().map(|(name, why)| Self {
                name: name.to_string(),
                origin: "made",
                wrong: Some(why.to_string()),
                ..Self::default()
            }))
            .collect();
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        lines.extend(groups.all_learned().into_iter().map(|(namespace, owner, members)| {
            let mode = modes.get(&(&*namespace, Arc::clone(&owner))).copied();
            Self {
                name: format!("{namespace}/{owner}"),
                origin: "learned",
                mode,
                enforcement: enforcement(mode),
                members: members as usize,
                ..Self::default()
            }
        }));
        lines
    }
}

/// As it is written.
fn words(criterion: &GroupCriterion) -> String {
    let written = serde_json::to_value(criterion).unwrap_or_default();
    let word = |name: &str| written[name].as_str().unwrap_or_default();
    match &criterion.label {
        Some(label) => format!("{} {label} {} {}", word("key"), word("op"), word("value")),
        None => format!("{} {} {}", word("key"), word("op"), word("value")),
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct GroupList {
    /// Made ones, then learned ones, by name.
    groups: Vec<GroupLine>,
    /// Said if any group is to be protected.
    #[serde(skip_serializing_if = "Option::is_none")]
    enforcement: Option<&'static str>,
}

/// Every group, made and learned
#[utoipa::path(
    get, path = "/guard/groups", tag = "guard",
    responses((status = 200, description = "Made ones first", body = GroupList))
)]
async fn groups(State(api): State<Api>, caller: Caller) -> Result<Json<GroupList>, Problem> {
    caller.may_in_fleet(GROUPS, Verb::List)?;
    let groups = GroupLine::all(&ingest(&api)?.inventory());
    let protects = groups.iter().any(|group| group.enforcement.is_some());
    Ok(Json(GroupList { groups, enforcement: protects.then_some(NOT_ENFORCED) }))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct GroupShown {
    #[serde(flatten)]
    group: GroupLine,
    workloads: Vec<GroupMember>,
    /// Rules that speak of it, written and learned.
    rules: Vec<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct GroupMember {
    namespace: String,
    name: String,
    owner: String,
    node: String,
    addresses: Vec<String>,
    /// What the strictest of its groups says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    mode: Option<GroupMode>,
}

/// One group, its workloads and the rules about it
#[utoipa::path(
    get, path = "/guard/groups/{name}", tag = "guard",
    params(("name" = String, Path, description = "Of a learned one `namespace/Kind/name`, escaped")),
    responses((status = 200, description = "What is in it", body = GroupShown))
)]
async fn group(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<GroupShown>, Problem> {
    caller.may_in_fleet(GROUPS, Verb::Get)?;
    let ingest = ingest(&api)?;
    let inventory = ingest.inventory();
    let found = GroupLine::all(&inventory).into_iter().find(|line| line.name == name);
    let none = || {
        let detail = format!("there is no group {name}; `fairlead groups` shows those there are");
        Problem::new(ErrorCode::NotFound, detail)
    };
    let group = found.ok_or_else(none)?;
    let in_it: Vec<_> = match GroupName::parse(&name) {
        Ok(GroupName::Learned { namespace, owner }) => {
            inventory.groups.workloads(namespace).filter(|pod| *pod.owner() == *owner).collect()
        }
        _ => inventory.groups.members(&name).collect(),
    };
    let mut workloads: Vec<_> = in_it
        .into_iter()
        .map(|pod| GroupMember {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            owner: pod.owner().to_string(),
            node: pod.node.to_string(),
            addresses: pod.addresses.iter().map(ToString::to_string).collect(),
            mode: inventory.groups.of(&pod.namespace, &pod.name).map(|it| it.mode),
        })
        .collect();
    workloads.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let (rules, learned) = (ingest.rules(), ingest.learned());
    let written = rules.list().into_iter().filter(|it| {
        let spec = &it.rule.spec;
        spec.from == name || spec.to == name
    });
    let mut about: BTreeSet<_> = written.filter_map(|it| it.rule.metadata.name.clone()).collect();
    let lessons = learned.rules.iter().filter(|it| *it.from == *name || *it.to == *name);
    about.extend(lessons.map(::traffic::rules::LearnedRule::name));
    Ok(Json(GroupShown { group, workloads, rules: about.into_iter().collect() }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutGroup {
    /// As in a `Group`.
    #[schema(value_type = Object)]
    spec: GroupSpec,
}

/// Make a group, or make it what is said here
#[utoipa::path(
    put, path = "/guard/groups/{name}", tag = "guard", request_body = PutGroup,
    responses((status = 204, description = "It is written"))
)]
async fn put_group(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    Body(PutGroup { spec }): Body<PutGroup>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(GROUPS, Verb::Update)?;
    let store = &traffic_of(&api)?.policy_store;
    caller.trail.before(&store.group(&name, caller.deadline).await?.map(|group| group.spec));
    let group = store.put_group(&name, spec, caller.deadline).await?;
    caller.trail.after(&group.spec);
    Ok(StatusCode::NO_CONTENT)
}

/// Remove a group that somebody made
#[utoipa::path(
    delete, path = "/guard/groups/{name}", tag = "guard",
    responses((status = 204, description = "It is gone"))
)]
async fn delete_group(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(GROUPS, Verb::Delete)?;
    let store = &traffic_of(&api)?.policy_store;
    caller.trail.before(&store.group(&name, caller.deadline).await?.map(|group| group.spec));
    store.delete_group(&name, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}
