//! Network rules: written and learned, promoted and exported.

use ::traffic::ingest::WrittenRule;
use ::traffic::rules::{LearnedRule, export};
use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use kube::ResourceExt;
use objects::kinds::{NetworkRuleSpec, RuleAction};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{NOT_ENFORCED, ingest, traffic_of};
use crate::api::{Api, Body, Caller, ErrorCode, Problem, Query, Route, Routes};

/// The resource in the cluster `-`.
const RULES: &str = "networkrules.fairlead.dev";
/// A rule has some dozen lines; a list of names to promote has thousands.
const LARGEST: usize = 1 << 20;

pub(super) fn routes() -> Routes {
    Routes::default()
        .with(Route::read().at_leader(), routes!(rules))
        .with(
            Route::write(Verb::Update, RULES)
                .at_leader()
                .body(LARGEST)
                .recording(&["names", "all"]),
            routes!(promote),
        )
        .with(Route::list().at_leader(), routes!(exported))
        .with(
            Route::write(Verb::Update, RULES).body(LARGEST).recording(&["spec"]),
            routes!(put_rule),
        )
        .with(Route::write(Verb::Delete, RULES).at_leader(), routes!(delete_rule))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NetworkRuleLine {
    name: String,
    /// written or learned.
    origin: &'static str,
    /// The lowest is looked at first; learned ones after all that are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    from: String,
    to: String,
    /// allow or deny.
    #[schema(value_type = String)]
    action: RuleAction,
    /// None is all.
    ports: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    applications: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    comment: String,
    /// active, disabled, or invalid: then it decides nothing.
    state: &'static str,
    /// What is wrong with it, or missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl NetworkRuleLine {
    fn written(written: &WrittenRule, groups: &::traffic::groups::Groups) -> Self {
        let spec = &written.rule.spec;
        let state = match (&written.wrong, spec.disabled) {
            (Some(_), _) => "invalid",
            (None, true) => "disabled",
            (None, false) => "active",
        };
        Self {
            name: written.rule.name_any(),
            origin: "written",
            priority: Some(spec.priority),
            from: spec.from.clone(),
            to: spec.to.clone(),
            action: spec.action,
            ports: spec.ports.clone(),
            applications: spec.applications.clone(),
            comment: spec.comment.clone(),
            state,
            why: written.wrong.clone().or_else(|| written.missing(groups)),
        }
    }

    fn learned(rule: &LearnedRule) -> Self {
        Self {
            name: rule.name(),
            origin: "learned",
            priority: None,
            from: rule.from.to_string(),
            to: rule.to.to_string(),
            action: RuleAction::Allow,
            ports: rule.ports.iter().map(ToString::to_string).collect(),
            applications: Vec::new(),
            comment: String::new(),
            state: "active",
            why: None,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NetworkRules {
    /// In the order in which they are looked at; the first that speaks of a conversation decides.
    rules: Vec<NetworkRuleLine>,
    /// Conversations from which nothing was learned for want of room.
    let_go: u64,
    /// Where rules stop what is against them, in words.
    enforcement: &'static str,
}

/// Network rules, written and learned, in the order in which they are looked at
#[utoipa::path(
    get, path = "/guard/rules", tag = "guard",
    responses((status = 200, description = "Written ones first", body = NetworkRules))
)]
async fn rules(State(api): State<Api>, caller: Caller) -> Result<Json<NetworkRules>, Problem> {
    caller.may_in_fleet(RULES, Verb::List)?;
    let ingest = ingest(&api)?;
    let (written, learned, inventory) = (ingest.rules(), ingest.learned(), ingest.inventory());
    if !written.synced {
        let problem = Problem::new(ErrorCode::NotReady, "the rules have not been read yet");
        return Err(problem.come_back(std::time::Duration::from_secs(1)));
    }
    let listed = written.list();
    let lines = listed.iter().map(|it| NetworkRuleLine::written(it, &inventory.groups));
    // One that was promoted may be learned still: until the next checkpoint a restart brings it back.
    let lessons = learned.rules.iter().filter(|rule| written.get(&rule.name()).is_none());
    let lines = lines.chain(lessons.map(NetworkRuleLine::learned));
    let let_go = learned.let_go;
    Ok(Json(NetworkRules { rules: lines.collect(), let_go, enforcement: NOT_ENFORCED }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Promote {
    /// Of learned rules; or all of them.
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    all: bool,
}

#[derive(Serialize, ToSchema)]
struct Promoted {
    /// Written now.
    promoted: Vec<String>,
}

/// Write learned rules down, so that they may be edited and outlive what was seen
#[utoipa::path(
    post, path = "/guard/rules/promote", tag = "guard", request_body = Promote,
    responses((status = 200, description = "Those that are written now", body = Promoted))
)]
async fn promote(
    State(api): State<Api>,
    caller: Caller,
    Body(Promote { names, all }): Body<Promote>,
) -> Result<Json<Promoted>, Problem> {
    caller.may_in_fleet(RULES, Verb::Update)?;
    let ingest = ingest(&api)?;
    let learned = ingest.learned();
    if names.is_empty() != all {
        return Err(Problem::invalid("say which: names, or all"));
    }
    let known: Vec<_> = learned.rules.iter().map(|rule| (rule.name(), rule)).collect();
    let unknown = names.iter().find(|name| known.iter().all(|(known, _)| known != *name));
    if let Some(name) = unknown {
        let detail = format!("no learned rule is called {name}; `fairlead rules list` shows them");
        return Err(Problem::new(ErrorCode::NotFound, detail));
    }
    let mut promoted = Vec::new();
    for (name, rule) in known {
        if !all && !names.contains(&name) {
            continue;
        }
        traffic_of(&api)?.policy_store.promote(&rule.promote(), caller.deadline).await?;
        // If nobody can say so in time it is learned still, and says the same.
        ingest.forget_learned(&rule.from, &rule.to, caller.deadline).await;
        promoted.push(name);
    }
    caller.trail.after(&promoted);
    Ok(Json(Promoted { promoted }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Exporting {
    /// Without what was only learned.
    #[serde(default)]
    written: bool,
}

#[derive(Serialize, ToSchema)]
struct ExportedRules {
    /// Kubernetes' `NetworkPolicy` objects.
    #[schema(value_type = Vec<Object>)]
    policies: Vec<serde_json::Value>,
    /// What a policy does not say as its rule does.
    notes: Vec<ExportNote>,
}

#[derive(Serialize, ToSchema)]
struct ExportNote {
    rule: String,
    why: String,
}

/// The rules as Kubernetes' own network policies
#[utoipa::path(
    get, path = "/guard/rules/export", tag = "guard", params(Exporting),
    responses((status = 200, description = "To be looked at, then applied", body = ExportedRules))
)]
async fn exported(
    State(api): State<Api>,
    caller: Caller,
    Query(Exporting { written }): Query<Exporting>,
) -> Result<Json<ExportedRules>, Problem> {
    caller.may_in_fleet(RULES, Verb::List)?;
    let ingest = ingest(&api)?;
    let (rules, learned, inventory) = (ingest.rules(), ingest.learned(), ingest.inventory());
    let mut all = rules.valid();
    if !written {
        all.extend(learned.rules.iter().map(LearnedRule::promote));
    }
    let exported = export(&all, &inventory.groups);
    let policies = exported.policies.iter().map(serde_json::to_value).collect::<Result<_, _>>();
    let policies =
        policies.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    let notes = exported.notes.into_iter();
    let notes = notes.map(|note| ExportNote { rule: note.rule, why: note.why }).collect();
    Ok(Json(ExportedRules { policies, notes }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutNetworkRule {
    /// As in a `NetworkRule`.
    #[schema(value_type = Object)]
    spec: NetworkRuleSpec,
}

/// Make a rule, or make it what is said here
#[utoipa::path(
    put, path = "/guard/rules/{name}", tag = "guard", request_body = PutNetworkRule,
    responses((status = 204, description = "It is written"))
)]
async fn put_rule(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    Body(PutNetworkRule { spec }): Body<PutNetworkRule>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(RULES, Verb::Update)?;
    let store = &traffic_of(&api)?.policy_store;
    caller.trail.before(&store.rule(&name, caller.deadline).await?.map(|rule| rule.spec));
    let rule = store.put_rule(&name, spec, caller.deadline).await?;
    caller.trail.after(&rule.spec);
    Ok(StatusCode::NO_CONTENT)
}

/// Remove a rule; a learned one is learned again if it is seen again
#[utoipa::path(
    delete, path = "/guard/rules/{name}", tag = "guard",
    responses((status = 204, description = "It is gone"))
)]
async fn delete_rule(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(RULES, Verb::Delete)?;
    let traffic = traffic_of(&api)?;
    let written = traffic.policy_store.rule(&name, caller.deadline).await?;
    caller.trail.before(&written.map(|rule| rule.spec));
    let missing = match traffic.policy_store.delete_rule(&name, caller.deadline).await {
        Ok(()) => return Ok(StatusCode::NO_CONTENT),
        Err(error @ objects::Error::NotFound { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    let ingest = ingest(&api)?;
    let learned = ingest.learned();
    let Some(rule) = learned.rules.iter().find(|rule| rule.name() == name) else {
        return Err(missing.into());
    };
    if !ingest.forget_learned(&rule.from, &rule.to, caller.deadline).await {
        return Err(Problem::new(
            ErrorCode::TooLate,
            "the learner of rules did not answer in time; try again",
        ));
    }
    Ok(StatusCode::NO_CONTENT)
}
