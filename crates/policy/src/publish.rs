//! `Publisher`: what each node's agent has been sent, and what it has to be sent next.
//!
//! Contract: a node is sent a delta only if its own program changed, and only of what its own pods need.
//! A generation is never used for two contents: whoever begins a publisher says from where to count.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compile::{Change, Compiler};
use crate::program::{Delta, Program};

#[derive(Clone, Debug, Default)]
pub struct Publisher {
    compiler: Compiler,
    /// What each node that follows was sent last.
    sent: BTreeMap<Arc<str>, Program>,
    generation: u64,
}

impl Publisher {
    /// `first` is later than any generation that was published before, by whomever: a time will do.
    pub fn new(compiler: Compiler, first: u64) -> Self {
        Self { compiler, sent: BTreeMap::new(), generation: first }
    }

    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    pub fn apply(&mut self, change: Change) {
        self.compiler.apply(change);
    }

    /// A node begins to follow: its whole program.
    pub fn follow(&mut self, node: &str) -> Delta {
        self.generation += 1;
        let program = self.compiler.program(node, self.generation);
        let delta = Delta::whole(&program);
        self.sent.insert(node.into(), program);
        delta
    }

    pub fn forget(&mut self, node: &str) {
        self.sent.remove(node);
    }

    /// What every node that follows has to be sent after the changes since the last time.
    pub fn publish(&mut self) -> Vec<(Arc<str>, Delta)> {
        let has = self.sent.iter().map(|(node, program)| (&**node, program));
        let changed: Vec<Arc<str>> =
            self.compiler.take_changed(has).into_iter().map(Arc::from).collect();
        self.generation += 1;
        let mut deltas = Vec::new();
        for node in changed {
            let program = self.compiler.program(&node, self.generation);
            let Some(before) = self.sent.get_mut(&node) else { continue };
            let delta = Delta::between(before, &program);
            if !delta.is_empty() {
                *before = program;
                deltas.push((node, delta));
            }
        }
        deltas
    }

    /// The generation of a node's program, and what it was sent.
    pub fn sent(&self, node: &str) -> Option<&Program> {
        self.sent.get(node)
    }
}

#[cfg(test)]
mod tests;
