//! `Publisher`: the newest program of each node that somebody follows.
//!
//! Contract: a node has a newer program only if its own changed, and it holds only what its own pods need.
//! A generation is never used for two contents: whoever begins a publisher says from where to count.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compile::{Change, Compiler};
use crate::program::{Delta, Program};

#[derive(Clone, Debug, Default)]
pub struct Publisher {
    compiler: Compiler,
    /// The newest of each node that is followed.
    newest: BTreeMap<Arc<str>, Arc<Program>>,
    generation: u64,
}

impl Publisher {
    /// `first` is later than any generation that was published before, by whomever: a time will do.
    pub fn new(compiler: Compiler, first: u64) -> Self {
        Self { compiler, newest: BTreeMap::new(), generation: first }
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
        self.newest.insert(node.into(), Arc::clone(&program));
        program
    }

    pub fn forget(&mut self, node: &str) {
        self.newest.remove(node);
    }

    /// The nodes whose program is another one after the changes since the last time.
    pub fn publish(&mut self) -> Vec<(Arc<str>, Arc<Program>)> {
        let has = self.newest.iter().map(|(node, program)| (&**node, &**program));
        let changed: Vec<Arc<str>> =
            self.compiler.take_changed(has).into_iter().map(Arc::from).collect();
        self.generation += 1;
        let mut published = Vec::new();
        for node in changed {
            let program = self.compiler.program(&node, self.generation);
            let Some(before) = self.newest.get_mut(&node) else { continue };
            if !Delta::between(before, &program).is_empty() {
                *before = Arc::new(program);
                published.push((node, Arc::clone(before)));
            }
        }
        published
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
