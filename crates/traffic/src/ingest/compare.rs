//! What other groups and rules would say of the conversations that are recorded, beside what those in force say.
//! Nothing is written, and nobody is told.

use std::collections::{BTreeMap, HashSet};

use kube::ResourceExt;
use objects::Invalid;
use objects::kinds::{Group, NetworkRule};

use super::{Ingest, VerdictFilter};
use crate::conversations::{Conversation, ConversationRef, Judge, Judgement, Moment, Service};
use crate::groups::Groups;
use crate::names::Names;
use crate::rules::{LearnedRule, Policy, Program};

/// Groups and rules that are not in force.
#[derive(Clone, Debug, Default)]
pub struct Proposal {
    pub groups: Vec<Group>,
    pub rules: Vec<NetworkRule>,
    /// Only these rules, in place of all that are written and learned; else these beside them, in place of
    /// those with the same names.
    pub alone: bool,
}

/// A conversation that the proposal says something else of.
#[derive(Clone, Debug)]
pub struct Difference {
    /// With the verdict and the rule of those in force.
    pub conversation: Conversation,
    pub proposed: Judgement,
}

/// What would differ.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Conversations that were judged twice.
    pub compared: usize,
    /// How many go from one verdict to another.
    pub changes: BTreeMap<(&'static str, &'static str), usize>,
    /// Those with most bytes first.
    pub differences: Vec<Difference>,
}

impl Ingest {
    /// Judges every conversation that is kept by the rules in force and by the proposed ones. Takes some
    /// hundred milliseconds for each hundred thousand.
    pub fn compare(&self, proposal: &Proposal, limit: usize) -> Result<Comparison, Invalid> {
        let (inventory, written, learned) = (self.inventory(), self.rules(), self.learned());
        let (rules, groups) = (written.valid(), &inventory.groups);
        let (mut now, mut proposed) = policies(groups, &rules, &learned.rules, proposal)?;
        (now.names, proposed.names) = (self.names().clone(), self.names().clone());
        Ok(compared(&now, &proposed, self.view().conversations(|_| true, Moment(0)), limit))
    }
}

/// Those in force, and those that are proposed; what names resolve to is none of theirs.
fn policies(
    groups: &Groups,
    rules: &[NetworkRule],
    learned: &[LearnedRule],
    proposal: &Proposal,
) -> Result<(Policy, Policy), Invalid> {
    let names = Names::default();
    let program = Program::compile(rules, learned)?;
    let now = Policy { program, groups: groups.clone(), names: names.clone() };
    let mut groups = groups.clone();
    for group in &proposal.groups {
        groups.apply_group(group)?;
    }
    let program = if proposal.alone {
        Program::compile(&proposal.rules, &[])?
    } else {
        let names: HashSet<_> = proposal.rules.iter().map(ResourceExt::name_any).collect();
        let is_other = |rule: &&NetworkRule| !names.contains(&rule.name_any());
        let mut all: Vec<_> = rules.iter().filter(is_other).cloned().collect();
        all.extend(proposal.rules.iter().cloned());
        Program::compile(&all, learned)?
    };
    Ok((now, Policy { program, groups, names }))
}

fn compared<'a>(
    now: &Policy,
    proposed: &Policy,
    conversations: impl Iterator<Item = ConversationRef<'a>>,
    limit: usize,
) -> Comparison {
    let mut comparison = Comparison::default();
    for seen in conversations {
        let Some((protocol, port)) = seen.service() else { continue };
        let about = Service { protocol, port, application: seen.application().map(|it| &**it) };
        let judged = |policy: &Policy| policy.judge(seen.client(), seen.server(), about);
        let (before, after) = (judged(now), judged(proposed));
        comparison.compared += 1;
        let word = |judgement: &Judgement| VerdictFilter::of(judgement.verdict).word();
        if word(&before) == word(&after) {
            continue;
        }
        *comparison.changes.entry((word(&before), word(&after))).or_default() += 1;
        if let Some(conversation) = seen.to_conversation() {
            let Judgement { verdict, rule } = before;
            let conversation = Conversation { verdict, rule, ..conversation };
            comparison.differences.push(Difference { conversation, proposed: after });
            // Seldom enough to cost a comparison or two for each.
            if comparison.differences.len() >= 2 * limit + 1024 {
                largest(&mut comparison.differences, limit);
            }
        }
    }
    largest(&mut comparison.differences, limit);
    comparison
}

fn largest(differences: &mut Vec<Difference>, limit: usize) {
    differences.sort_by_key(|it| std::cmp::Reverse(it.conversation.totals.bytes));
    differences.truncate(limit);
}

#[cfg(test)]
mod tests;
