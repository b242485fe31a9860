//! The controller's half of enforcement: it follows what policies speak of, keeps every node's program,
//! and hands each node's agent what changes of its own.
//!
//! ```text
//! watches ──► Sources ══ changes ══► compiler (a thread; owns the Publisher) ──► newest program, per node
//!                                                                                     │ (a watch channel)
//! agent ◄── Delta ◄── Follower: one change is under way at a time ◄───────────────────┘
//!   └── what became of it ──► Slot: what the node has ──► status
//! ```
//!
//! One replica compiles: the one that leads, which is the one that agents are connected to. So a node has
//! one program and one who says what it should be; a new leader compiles the same from the same objects and
//! knows by a fingerprint that an agent has it already.
//!
//! Invariants:
//! 1. Nothing is published before every source has told all it has: a program that lacks a policy would
//!    let somebody in.
//! 2. The compiler waits for no agent. What an agent has not taken yet is not queued: it is compared with
//!    the newest program when the agent has acknowledged what it was sent.
//! 3. A node's program is handed to whoever proved to be that node, and to nobody else.

mod active;
mod compiler;
mod counts;
mod follower;
mod metrics;
#[cfg(feature = "simulation")]
pub mod simulation;
mod sources;
pub mod status;

use std::sync::Arc;

use policy::program::Program;
use policy::spec::Settings;
use stallproof::{Deadline, Snapshot};
use tokio::sync::{mpsc, oneshot, watch};

pub use active::ActivePrograms;
pub use compiler::{Facts, PolicyName};
pub use counts::{Enforced, RuleCounts};
pub use follower::{Applied, Ended, Follower, Position};

use compiler::Work;
use follower::Nodes;

/// Questions and batches of changes that wait for the compiler. An agent asks once when it joins, and a
/// thousand may join together; more are told to come back.
const WAITING: usize = 2048;

/// The programs of all nodes, while this replica leads. Clones share them.
#[derive(Clone, Debug)]
pub struct Programs {
    work: mpsc::Sender<Work>,
    nodes: Arc<Nodes>,
    /// The kinds that have not been read yet. Written by the sources' task.
    waiting: Snapshot<Vec<&'static str>>,
    settings: Settings,
}

/// Why the compiler did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnswered {
    #[error("too many ask for programs at the moment; come back")]
    Busy,
    #[error("policies are compiled, which takes longer than you wait; come back")]
    TooLate,
    #[error("policies are not compiled here any more")]
    Ended,
    #[error("policies cannot be told yet: {0} have not been read")]
    NotRead(String),
}

impl Programs {
    /// Begins to follow a node's program for its agent, which has what `has` says. One that followed
    /// before ends.
    pub async fn follow(
        &self,
        node: &str,
        has: Position,
        deadline: Deadline,
    ) -> Result<Follower, NotAnswered> {
        let (answer, newest) = oneshot::channel();
        self.ask(Work::Follow(node.into(), answer))?;
        let newest: watch::Receiver<Option<Arc<Program>>> = answered(newest, deadline).await?;
        Ok(Follower::new(self.nodes.slot(node), newest, has))
    }

    /// Takes in what became of a change that a node was sent.
    pub fn applied(&self, node: &str, applied: Applied) {
        if let Some(slot) = self.nodes.find(node) {
            slot.applied(applied);
        }
    }

    /// Takes in what a node says of how it enforces its program.
    pub fn enforced(&self, node: &str, enforced: &Enforced) {
        self.nodes.slot(node).enforced(enforced);
    }

    /// What rules have counted on all nodes, as far as agents have told. It costs as much as there are
    /// rules on nodes.
    pub fn rule_counts(&self) -> Vec<RuleCounts> {
        counts::of_nodes(&self.nodes.counted())
    }

    /// The objects and policies that programs are made of, at one moment.
    pub async fn facts(&self, deadline: Deadline) -> Result<Arc<Facts>, NotAnswered> {
        let (answer, facts) = oneshot::channel();
        self.ask(Work::Facts(answer))?;
        let facts: Option<Arc<Facts>> = answered(facts, deadline).await?;
        facts.ok_or_else(|| NotAnswered::NotRead(self.waiting.read(|kinds| kinds.join(", "))))
    }

    /// What each node that has or had an agent enforces.
    pub fn nodes(&self) -> Vec<status::NodeStatus> {
        self.nodes.list()
    }

    pub fn settings(&self) -> Settings {
        self.settings
    }

    fn ask(&self, work: Work) -> Result<(), NotAnswered> {
        self.work.try_send(work).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotAnswered::Busy,
            mpsc::error::TrySendError::Closed(_) => NotAnswered::Ended,
        })
    }
}

async fn answered<T>(answer: oneshot::Receiver<T>, deadline: Deadline) -> Result<T, NotAnswered> {
    let answer = deadline.bound(answer).await.map_err(|_| NotAnswered::TooLate)?;
    answer.map_err(|_| NotAnswered::Ended)
}
