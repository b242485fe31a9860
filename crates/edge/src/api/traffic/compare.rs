//! What other groups and rules would say of the conversations that are recorded.

use ::traffic::ingest::{Difference, Proposal, VerdictFilter};
use access::Verb;
use axum::Json;
use axum::extract::State;
use objects::kinds::{Group, GroupSpec, NetworkRule, NetworkRuleSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::conversations::{CONVERSATIONS, ConversationTotals, MOST, off_the_workers};
use super::{ConversationEnd, ingest};
use crate::api::{Api, Body, Caller, Problem, Route, Routes};

/// Ten thousand rules and their groups.
const LARGEST: usize = 16 << 20;
/// Unless said.
const LINES: usize = 100;

pub(super) fn routes() -> Routes {
    Routes::default().with(Route::list().at_leader().question().body(LARGEST), routes!(compare))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ProposedRules {
    #[serde(default)]
    groups: Vec<ProposedGroup>,
    #[serde(default)]
    rules: Vec<ProposedRule>,
    /// Only these rules, in place of all that are written and learned; else beside them, in place of those with
    /// the same names.
    #[serde(default)]
    alone: bool,
    /// The most differences to show; 100 unless said, and 10000 at most.
    limit: Option<usize>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ProposedGroup {
    name: String,
    /// The spec of a `Group`.
    #[schema(value_type = Object)]
    spec: GroupSpec,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ProposedRule {
    name: String,
    /// The spec of a `NetworkRule`.
    #[schema(value_type = Object)]
    spec: NetworkRuleSpec,
}

/// What would differ.
#[derive(Serialize, ToSchema)]
struct RuleComparison {
    /// Conversations that were judged by both.
    compared: usize,
    /// How many go from one verdict to another.
    changes: Vec<VerdictChange>,
    /// Those with most bytes first.
    differences: Vec<RuleDifference>,
}

#[derive(Serialize, ToSchema)]
struct VerdictChange {
    /// unjudged, allowed, discovered or violates: by the rules in force.
    now: &'static str,
    /// By the proposed ones.
    proposed: &'static str,
    conversations: usize,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RuleDifference {
    client: ConversationEnd,
    server: ConversationEnd,
    protocol: String,
    port: u16,
    /// The verdict of the rules in force, and the rule that decides.
    now: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// The verdict of the proposed rules, and the rule that would decide.
    proposed: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    proposed_rule: Option<String>,
    #[serde(flatten)]
    totals: ConversationTotals,
}

impl From<&Difference> for RuleDifference {
    fn from(Difference { conversation: line, proposed }: &Difference) -> Self {
        Self {
            client: (&line.client).into(),
            server: (&line.server).into(),
            protocol: line.protocol.to_string(),
            port: line.port,
            now: VerdictFilter::of(line.verdict).word(),
            rule: line.rule.as_deref().map(Into::into),
            proposed: VerdictFilter::of(proposed.verdict).word(),
            proposed_rule: proposed.rule.as_deref().map(Into::into),
            totals: line.totals.into(),
        }
    }
}

/// What other groups and rules would say of the conversations that are recorded
///
/// Every conversation that is kept is judged by the rules in force and by the proposed ones; those with another
/// verdict are listed. Nothing is written.
#[utoipa::path(
    post, path = "/guard/rules/compare", tag = "guard", request_body = ProposedRules,
    responses((status = 200, description = "What would differ", body = RuleComparison))
)]
async fn compare(
    State(api): State<Api>,
    caller: Caller,
    Body(asked): Body<ProposedRules>,
) -> Result<Json<RuleComparison>, Problem> {
    caller.may_in_fleet(CONVERSATIONS, Verb::List)?;
    let ProposedRules { groups, rules, alone, limit } = asked;
    let limit = limit.unwrap_or(LINES).clamp(1, MOST);
    let ingest = ingest(&api)?;
    let compared = off_the_workers(&api, &caller, move || {
        let groups = groups.into_iter().map(|it| Group::new(&it.name, it.spec)).collect();
        let rules = rules.into_iter().map(|it| NetworkRule::new(&it.name, it.spec)).collect();
        ingest.compare(&Proposal { groups, rules, alone }, limit)
    });
    let compared = compared.await?.map_err(|problems| Problem::invalid(problems.to_string()))?;
    let changes = compared
        .changes
        .into_iter()
        .map(|((now, proposed), conversations)| VerdictChange { now, proposed, conversations });
    Ok(Json(RuleComparison {
        compared: compared.compared,
        changes: changes.collect(),
        differences: compared.differences.iter().map(RuleDifference::from).collect(),
    }))
}
