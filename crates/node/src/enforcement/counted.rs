//! What rules have counted, with the rules of policies that they stand for.

use std::collections::{BTreeSet, HashMap};

use kernel::nftables::Counted;
use policy::program::{CounterId, Direction, Program, Source, TierKind, Verdict};

/// What the packets of one rule of the program came to since its table was made.
///
/// Policies whose order does not matter are merged by ports into one rule: `sources` then lists several, and
/// the count is of all of them together. A rule counts each packet that it decided about, not only the
/// first of a connection; replies are not judged and not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCount {
    pub direction: Direction,
    pub tier: TierKind,
    pub verdict: Verdict,
    pub sources: Vec<Source>,
    pub packets: u64,
    pub bytes: u64,
}

/// The counts of a program's rules. Rules of several chains that stand for the same have one count.
pub(super) fn rules(program: &Program, counters: &HashMap<CounterId, Counted>) -> Vec<RuleCount> {
    let (mut seen, mut counts) = (BTreeSet::new(), Vec::new());
    for chain in program.chains.values() {
        for (tier, rule) in chain.rules() {
            let id = rule.counter(chain.direction, tier);
            if !seen.insert(id) {
                continue;
            }
            let Counted { packets, bytes } = counters.get(&id).copied().unwrap_or_default();
            counts.push(RuleCount {
                direction: chain.direction,
                tier,
                verdict: rule.verdict,
                sources: rule.sources.clone(),
                packets,
                bytes,
            });
        }
    }
    counts
}
