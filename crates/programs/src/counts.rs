//! What rules have counted: each node's totals as its agent tells them, and those of all nodes together.
//!
//! Totals are running ones, so that what comes twice is counted once and what is lost comes with the next.
//! They are soft state: a new leader has them when agents have told it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use policy::program::{
    ChainId, CounterId, Direction, Program, RuleTotal, Source, TierKind, Verdict,
};

/// The most rules that are kept of one node.
const MOST: usize = 50_000;

/// What an agent says of how its node enforces its program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforced {
    /// Why packets of some pods are not judged, a sentence for each reason.
    pub uncovered: Vec<String>,
    /// Rules whose totals changed.
    pub totals: Vec<RuleTotal>,
    /// Whether what was told before is void.
    pub anew: bool,
}

/// Packets and bytes, by rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals(HashMap<CounterId, (u64, u64)>);

/// What a rule has counted on all nodes.
///
/// Rules of policies whose order does not matter are merged by ports into one: `sources` then lists several,
/// and the count is that of all of them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCounts {
    pub direction: Direction,
    pub tier: TierKind,
    pub verdict: Verdict,
    pub sources: Vec<Source>,
    pub packets: u64,
    pub bytes: u64,
    /// On how many nodes the rule is.
    pub nodes: usize,
}

impl Totals {
    pub(crate) fn take(&mut self, totals: &[RuleTotal], anew: bool) {
        if anew {
            self.0.clear();
        }
        for total in totals {
            if self.0.len() < MOST || self.0.contains_key(&total.counter) {
                self.0.insert(total.counter, (total.packets, total.bytes));
            }
        }
    }
}

/// The rules of all nodes' programs, with what they counted together: in the order of tiers and names.
pub(crate) fn of_nodes(nodes: &[(Arc<Program>, Totals)]) -> Vec<RuleCounts> {
    // Nodes share chains, and a counter's id is a hash of all that its rule stands for.
    let mut known: HashMap<ChainId, Vec<CounterId>> = HashMap::new();
    let mut rules: BTreeMap<CounterId, RuleCounts> = BTreeMap::new();
    for (program, totals) in nodes {
        let mut of_node: HashMap<CounterId, (ChainId, usize)> = HashMap::new();
        for (id, chain) in &program.chains {
            let counters = known.entry(*id).or_insert_with(|| chain.counters().collect());
            of_node.extend(counters.iter().enumerate().map(|(at, it)| (*it, (*id, at))));
        }
        for (counter, (chain, at)) in of_node {
            let Some(chain) = program.chains.get(&chain) else { continue };
            let Some((tier, rule)) = chain.rules().nth(at) else { continue };
            let counts = rules.entry(counter).or_insert_with(|| RuleCounts {
                direction: chain.direction,
                tier,
                verdict: rule.verdict,
                sources: rule.sources.clone(),
                packets: 0,
                bytes: 0,
                nodes: 0,
            });
            let (packets, bytes) = totals.0.get(&counter).copied().unwrap_or_default();
            counts.packets = counts.packets.saturating_add(packets);
            counts.bytes = counts.bytes.saturating_add(bytes);
            counts.nodes += 1;
        }
    }
    let mut rules: Vec<_> = rules.into_values().collect();
    let place = |it: &RuleCounts| {
        (it.tier, it.sources.first().cloned(), it.direction == Direction::Ingress, it.verdict)
    };
    rules.sort_by_cached_key(place);
    rules
}

#[cfg(test)]
mod tests;
