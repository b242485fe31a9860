//! `Publisher`: the newest program of each node that somebody follows.
//!
//! Contract:
//! - A node has a newer program only if its own changed, and it holds only what its own pods need.
//! - A generation is never used for two contents: whoever begins a publisher says from where to count.
//! - Publishing looks at the nodes that a change may concern, however many others are followed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::compile::{Change, Changed, Compiler};
use crate::program::{Delta, Program, SetId};

#[derive(Clone, Debug, Default)]
pub struct Publisher {
    compiler: Compiler,
    /// The newest of each node that is followed.
    newest: BTreeMap<Arc<str>, Arc<Program>>,
    /// The nodes that are followed, by the sets of their programs.
    with_set: HashMap<SetId, BTreeSet<Arc<str>>>,
    generation: u64,
}

impl Publisher {
    /// `first` is later than any generation that was published before, by whomever: a time will do.
    pub fn new(compiler: Compiler, first: u64) -> Self {
        Self { compiler, generation: first, ..Self::default() }
    }

    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    pub fn apply(&mut self, change: Change) {
        self.compiler.apply(change);
    }

    /// The node's program is kept up to date from now on; this is it, as of the last publishing.
    pub fn follow(&mut self, node: &str) -> Arc<Program> {
        if let Some(program) = self.newest.get(node) {
            return Arc::clone(program);
        }
        self.generation += 1;
        let program = Arc::new(self.compiler.program(node, self.generation));
        self.set_newest(&node.into(), Some(&program));
        program
    }

    pub fn forget(&mut self, node: &str) {
        self.set_newest(&node.into(), None);
    }

    /// The nodes whose program is another one after the changes since the last time.
    pub fn publish(&mut self) -> Vec<(Arc<str>, Arc<Program>)> {
        let changed = self.compiler.take_changed();
        self.generation += 1;
        let mut published = Vec::new();
        for node in self.concerned(changed) {
            let Some(before) = self.newest.get(&node) else { continue };
            let program = self.compiler.program(&node, self.generation);
            if !Delta::between(before, &program).is_empty() {
                let program = Arc::new(program);
                self.set_newest(&node, Some(&program));
                published.push((node, program));
            }
        }
        published
    }

    /// The nodes that a change may concern.
    fn concerned(&self, changed: Changed) -> BTreeSet<Arc<str>> {
        let Changed { everything, mut nodes, sets } = changed;
        if everything {
            return self.newest.keys().cloned().collect();
        }
        nodes.extend(sets.iter().filter_map(|set| self.with_set.get(set)).flatten().cloned());
        nodes
    }

    fn set_newest(&mut self, node: &Arc<str>, program: Option<&Arc<Program>>) {
        let before = match program {
            Some(program) => self.newest.insert(Arc::clone(node), Arc::clone(program)),
            None => self.newest.remove(node),
        };
        let before = before.as_ref();
        let has = |program: Option<&Arc<Program>>, set: &SetId| {
            program.is_some_and(|program| program.sets.contains_key(set))
        };
        for set in before.iter().flat_map(|it| it.sets.keys()).filter(|set| !has(program, set)) {
            if let Some(nodes) = self.with_set.get_mut(set) {
                nodes.remove(node);
                if nodes.is_empty() {
                    self.with_set.remove(set);
                }
            }
        }
        for set in program.iter().flat_map(|it| it.sets.keys()).filter(|set| !has(before, set)) {
            self.with_set.entry(*set).or_default().insert(Arc::clone(node));
        }
    }

    /// The newest program of a node that is followed.
    pub fn newest(&self, node: &str) -> Option<&Arc<Program>> {
        self.newest.get(node)
    }

    /// The generation of the last publishing.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

#[cfg(test)]
mod tests;
