//! `Delta`: what leads from one generation of a program to the next.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{
    Chain, ChainId, Class, ClassId, Element, LocalPod, Note, Program, Set, SetId, SetKind,
    Unsettled,
};

/// What leads from one generation of a program to a later one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// 0: what was before is void, this is everything.
    pub from: u64,
    pub to: u64,
    pub sets: Vec<SetChange>,
    /// With their ids: who made them says how they are named.
    pub chains: Vec<(ChainId, Arc<Chain>)>,
    pub removed_chains: Vec<ChainId>,
    pub classes: Vec<(ClassId, Class)>,
    pub removed_classes: Vec<ClassId>,
    /// None: the address is no pod's any more.
    pub pods: Vec<(IpAddr, Option<LocalPod>)>,
    /// None: as before.
    pub unsettled: Option<Arc<Unsettled>>,
    pub notes: Vec<Note>,
    pub removed_notes: Vec<Note>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetChange {
    pub id: SetId,
    pub change: SetEdit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetEdit {
    New { kind: SetKind, elements: Vec<Element> },
    Changed { added: Vec<Element>, removed: Vec<Element> },
    Gone,
}

/// A delta that does not fit: what is here is of another generation, or not what it was made from. Ask
/// for the whole program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the change from generation {from} does not fit to generation {here}: {why}")]
pub struct Gap {
    pub here: u64,
    pub from: u64,
    pub why: &'static str,
}

impl Delta {
    /// The whole program.
    pub fn whole(program: &Program) -> Self {
        Self::between(&Program::default(), program)
    }

    pub fn between(old: &Program, new: &Program) -> Self {
        let mut delta = Self { from: old.generation, to: new.generation, ..Self::default() };
        for (id, set) in &new.sets {
            let change = match old.sets.get(id) {
                None => Some(SetEdit::New {
                    kind: set.kind.clone(),
                    elements: set.elements.iter().copied().collect(),
                }),
                Some(before) => edit(before, set),
            };
            delta.sets.extend(change.map(|change| SetChange { id: *id, change }));
        }
        let gone = old.sets.keys().filter(|id| !new.sets.contains_key(id));
        delta.sets.extend(gone.map(|id| SetChange { id: *id, change: SetEdit::Gone }));
        delta.chains = only_in(&new.chains, &old.chains);
        delta.removed_chains = keys_only_in(&old.chains, &new.chains);
        delta.classes = only_in(&new.classes, &old.classes);
        delta.removed_classes = keys_only_in(&old.classes, &new.classes);
        for (address, pod) in &new.pods {
            if old.pods.get(address) != Some(pod) {
                delta.pods.push((*address, Some(pod.clone())));
            }
        }
        delta.pods.extend(keys_only_in(&old.pods, &new.pods).into_iter().map(|it| (it, None)));
        delta.unsettled = (old.unsettled != new.unsettled).then(|| Arc::clone(&new.unsettled));
        delta.notes = new.notes.difference(&old.notes).cloned().collect();
        delta.removed_notes = old.notes.difference(&new.notes).cloned().collect();
        delta
    }

    /// Whether it changes nothing but the generation.
    pub fn is_empty(&self) -> bool {
        *self == Self { from: self.from, to: self.to, ..Self::default() }
    }

    /// How many elements, rules and entries it touches.
    pub fn size(&self) -> usize {
        let elements = self.sets.iter().map(|set| match &set.change {
            SetEdit::New { elements, .. } => elements.len() + 1,
            SetEdit::Changed { added, removed } => added.len() + removed.len(),
            SetEdit::Gone => 1,
        });
        elements.sum::<usize>()
            + self.chains.iter().map(|(_, chain)| chain.rules().count() + 1).sum::<usize>()
            + self.removed_chains.len()
            + self.classes.len()
            + self.removed_classes.len()
            + self.pods.len()
    }
}

fn edit(before: &Set, after: &Set) -> Option<SetEdit> {
    if before.elements.ptr_eq(&after.elements) || before.elements == after.elements {
        return None;
    }
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for item in before.elements.diff(&after.elements) {
        match item {
            imbl::ordset::DiffItem::Add(element) => added.push(*element),
            imbl::ordset::DiffItem::Remove(element) => removed.push(*element),
        }
    }
    Some(SetEdit::Changed { added, removed })
}

fn only_in<K: Ord + Copy, V: Clone>(map: &BTreeMap<K, V>, other: &BTreeMap<K, V>) -> Vec<(K, V)> {
    let only = map.iter().filter(|(key, _)| !other.contains_key(key));
    only.map(|(key, value)| (*key, value.clone())).collect()
}

fn keys_only_in<K: Ord + Copy, V>(map: &BTreeMap<K, V>, other: &BTreeMap<K, V>) -> Vec<K> {
    map.keys().filter(|key| !other.contains_key(key)).copied().collect()
}

impl Program {
    /// Makes it the next generation, whole or not at all.
    pub fn apply(&mut self, delta: &Delta) -> Result<(), Gap> {
        let gap = |why| Gap { here: self.generation, from: delta.from, why };
        if delta.from != 0 && delta.from != self.generation {
            return Err(gap("it was made from another generation"));
        }
        let mut next = if delta.from == 0 { Self::default() } else { self.clone() };
        next.generation = delta.to;
        for SetChange { id, change } in &delta.sets {
            match change {
                SetEdit::New { kind, elements } => {
                    let elements = elements.iter().copied().collect();
                    next.sets.insert(*id, Set { kind: kind.clone(), elements });
                }
                SetEdit::Changed { added, removed } => {
                    let set = next.sets.get_mut(id).ok_or_else(|| gap("a set is missing"))?;
                    for element in removed {
                        set.elements.remove(element).ok_or_else(|| gap("an element is missing"))?;
                    }
                    for element in added {
                        if set.elements.insert(*element).is_some() {
                            return Err(gap("an element is there already"));
                        }
                    }
                }
                SetEdit::Gone => {
                    next.sets.remove(id).ok_or_else(|| gap("a set is missing"))?;
                }
            }
        }
        next.chains.extend(delta.chains.iter().cloned());
        for id in &delta.removed_chains {
            next.chains.remove(id).ok_or_else(|| gap("a chain is missing"))?;
        }
        next.classes.extend(delta.classes.iter().copied());
        for id in &delta.removed_classes {
            next.classes.remove(id).ok_or_else(|| gap("a class is missing"))?;
        }
        for (address, pod) in &delta.pods {
            match pod {
                Some(pod) => _ = next.pods.insert(*address, pod.clone()),
                None => _ = next.pods.remove(address).ok_or_else(|| gap("a pod is missing"))?,
            }
        }
        if let Some(unsettled) = &delta.unsettled {
            next.unsettled = Arc::clone(unsettled);
        }
        next.notes.extend(delta.notes.iter().cloned());
        next.notes.retain(|note| !delta.removed_notes.contains(note));
        next.check().map_err(gap)?;
        *self = next;
        Ok(())
    }

    /// Whether everything that it refers to is in it, and nothing else.
    pub fn check(&self) -> Result<(), &'static str> {
        let whole = |all: bool, why| if all { Ok(()) } else { Err(why) };
        let pods = self.pods.values().all(|pod| self.classes.contains_key(&pod.class));
        whole(pods, "a pod's class is missing")?;
        let mut chains = self.classes.values().flat_map(Class::chains);
        whole(chains.all(|id| self.chains.contains_key(&id)), "a class's chain is missing")?;
        let mut sets = self.chains.values().flat_map(|chain| chain.sets());
        whole(sets.all(|id| self.sets.contains_key(&id)), "a rule's set is missing")
    }
}
