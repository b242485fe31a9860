//! A change as batches, in the order in which they are made, and what is left to remove.

use std::net::IpAddr;
use std::time::Instant;

use kernel::nftables::{Batch, Element, Set, Verdict};
use policy::program::{Delta, Program, SetChange, SetEdit, SetId};

use crate::enforcement::datapath::{Change, Decider, DenySettings, Entry};
use crate::enforcement::ruleset::{self, Family, PENDING, TABLE};

/// Chains and sets that nobody refers to any more.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    pub(super) chains: Vec<String>,
    pub(super) sets: Vec<String>,
    /// When the last of them became so.
    pub(super) since: Option<Instant>,
}

/// The elements that an address has in the maps and sets that every program has.
pub(super) fn elements(address: IpAddr, entry: &Entry) -> Vec<(Set, Element)> {
    let family = Family::of(address);
    let key = ruleset::octets(address);
    let chain = |decider: Decider| match decider {
        Decider::Chain(id) => ruleset::chain_name(id, family),
        Decider::Pending => PENDING.to_owned(),
    };
    let mut elements = Vec::with_capacity(4);
    if let Some(decider) = entry.egress {
        let verdict = Verdict::Jump(chain(decider));
        elements.push((family.out(), Element::with(key.clone(), verdict)));
    }
    if let Some(decider) = entry.ingress {
        let verdict = Verdict::Goto(chain(decider));
        elements.push((family.into(), Element::with(key.clone(), verdict)));
    }
    if !entry.is_empty() {
        elements.push((family.itself(), Element::new([key.clone(), key.clone()].concat())));
    }
    if entry.asks {
        elements.push((family.asking(), Element::new(key)));
    }
    elements
}

/// A change, in steps: see the module's contract.
pub(super) struct Steps {
    /// What is new, and nobody refers to yet.
    pub(super) make: Batch,
    /// What refers to it, and elements that come.
    pub(super) switch: Batch,
    /// Elements that go.
    pub(super) take_away: Batch,
}

impl Default for Steps {
    fn default() -> Self {
        let [make, switch, take_away] = std::array::from_fn(|_| Batch::new(TABLE));
        Self { make, switch, take_away }
    }
}

impl Steps {
    pub(super) fn of(change: &Change<'_>, deny: DenySettings) -> Self {
        let mut steps = Self::default();
        let nothing = Delta::default();
        let delta = change.delta.unwrap_or(&nothing);
        for SetChange { id, change: edit } in &delta.sets {
            match edit {
                SetEdit::New { .. } => {
                    let set = &change.after.sets[id];
                    for (set, elements) in ruleset::sets(*id, set) {
                        steps.make.add_set(&set);
                        steps.make.add_elements(&set, &elements);
                    }
                }
                SetEdit::Changed { added, removed } => {
                    edit_elements(change.after, *id, added, |set, some| {
                        steps.switch.add_elements(set, some);
                    });
                    edit_elements(change.before, *id, removed, |set, some| {
                        steps.take_away.delete_elements(set, some);
                    });
                }
                SetEdit::Gone => {}
            }
        }
        let new = delta.chains.iter().filter(|(id, _)| !change.before.chains.contains_key(id));
        let compiled: Vec<_> =
            new.flat_map(|(id, chain)| ruleset::chains(*id, chain, change.after, deny)).collect();
        for chain in &compiled {
            for (set, elements) in &chain.sets {
                steps.make.add_set(set);
                steps.make.add_elements(set, elements);
            }
            chain.chains.iter().for_each(|(chain, _)| steps.make.add_chain(chain));
        }
        for (chain, rules) in compiled.iter().flat_map(|chain| &chain.chains) {
            rules.iter().for_each(|rule| steps.make.add_rule(&chain.name, rule));
        }
        for (address, old, new) in &change.entries {
            let (old, new) = (elements(*address, old), elements(*address, new));
            for (set, element) in old.iter().filter(|it| !new.contains(it)) {
                // Another verdict for the same key takes its place in the same instant.
                let element = [Element::new(element.key.clone())];
                steps.switch.delete_elements(set, &element);
            }
            for (set, element) in new.iter().filter(|it| !old.contains(it)) {
                steps.switch.add_elements(set, [element]);
            }
        }
        // Elements alone, and only coming or only going: one batch.
        if steps.switch.is_empty() {
            std::mem::swap(&mut steps.switch, &mut steps.take_away);
        }
        steps
    }

    pub(super) fn take(&mut self, set: &Set, elements: &[Element], now: bool) {
        let step = if now { &mut self.switch } else { &mut self.take_away };
        step.delete_elements(set, elements);
    }
}

impl Garbage {
    /// Adds the chains and sets that a change leaves without anybody who refers to them.
    pub(super) fn add(&mut self, change: &Change<'_>) {
        let Some(delta) = change.delta else { return };
        let mut any = false;
        for (id, chain) in
            delta.removed_chains.iter().filter_map(|id| Some((*id, change.before.chains.get(id)?)))
        {
            // How it denies names nothing.
            for compiled in ruleset::chains(id, chain, change.before, DenySettings::default()) {
                self.chains.extend(compiled.chains.into_iter().map(|(chain, _)| chain.name));
                self.sets.extend(compiled.sets.into_iter().map(|(set, _)| set.name));
            }
            any = true;
        }
        for SetChange { id, .. } in delta.sets.iter().filter(|it| it.change == SetEdit::Gone) {
            let set = change.before.sets.get(id);
            self.sets.extend(set.into_iter().flat_map(|set| ruleset::set_names(*id, set)));
            any = true;
        }
        if any {
            self.since = Some(Instant::now());
        }
    }

    pub(super) fn removal(&self) -> Batch {
        let mut batch = Batch::new(TABLE);
        self.chains.iter().for_each(|name| batch.delete_rules(name));
        self.chains.iter().for_each(|name| batch.delete_chain(name));
        self.sets.iter().for_each(|name| batch.delete_set(name));
        batch
    }
}

fn edit_elements(
    program: &Program,
    id: SetId,
    changed: &[policy::program::Element],
    mut edit: impl FnMut(&Set, &[Element]),
) {
    let Some(set) = program.sets.get(&id) else { return };
    for family in Family::BOTH {
        let changed: Vec<_> =
            changed.iter().filter_map(|it| ruleset::element(*it, family)).collect();
        if let Some(set) = ruleset::kernel_set(id, &set.kind, family)
            && !changed.is_empty()
        {
            edit(&set, &changed);
        }
    }
}
