//! `EgressHold`: until it is known which egresses a new pod chose, it sends nothing to destinations of any.
//!
//! ```text
//! ADD         its choice is not in the kernel yet: addresses ─► @held4, @held6, before they are routed
//! prerouting  held, and of no class: mark of the hold ─► rule ─► blackholes for destinations of egresses
//! reconcile   its choice is known, and in the kernel: out of the sets
//! ```
//!
//! Contract:
//! - Nobody is asked and nothing is waited for: an ADD costs one more message to the kernel, and none if the
//!   watch has told already that the pod chose nothing.
//! - What is held ends by itself after [`LONGEST`], whatever becomes of the agent.
//! - Pods, nodes and private networks that no egress names are reached meanwhile, and answers pass.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use k8s_openapi::api::core::v1::Pod as KubePod;
use kernel::nftables::expression::{Expression, Meta, Register, Tracked};
use kernel::nftables::{
    Batch, Chain, CommitError, Element, Field, Hook, Nftables, Rule, Set, Verdict,
};
use objects::{Id, Objects, Watched, Within};
use parking_lot::Mutex;
use stallproof::snapshot::Changes;
use stallproof::{Snapshot, Tasks};
use tokio::time::Instant;

use super::plan::{HOLD, mark_of};
use super::reconciler::chosen;
use super::table::{
    AFTER_MANGLE, FILTER, REPLY, bytes, equal, marked_by, ours, rule, source, unmarked_if,
};
use crate::datapath::PodPolicies;
use crate::node::Node;
use crate::{Attachment, AttachmentKey, Pod};

/// The table's name, of both IP families.
pub const HOLD_TABLE: &str = "fairlead-egress-hold";
/// The longest that a pod is held: the watch tells of a pod before its runtime asks for an address, as a rule,
/// and otherwise within a second of it. A node that hears nothing for longer is cut off from its API server.
const LONGEST: Duration = Duration::from_secs(10);

/// More pods than this that are held in the same moment open sockets of their own, and close them.
const IDLE: usize = 16;

/// Which egresses a pod of this node chose; none of most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodChoice {
    pub uid: String,
    pub egresses: Vec<String>,
}

/// All pods of this node.
pub type Choices = Watched<Id, PodChoice>;

/// Pods whose choice was not in the kernel when they were set up.
pub(super) type Held = OrdMap<AttachmentKey, (Arc<Attachment>, Instant)>;

/// A handle; clones hold the same pods.
#[derive(Clone, Debug)]
pub struct EgressHold {
    node: Node,
    choices: Snapshot<Choices>,
    /// Whether there is an egress at all, and with it the table. The reconciler writes it.
    active: Snapshot<bool>,
    held: Snapshot<Held>,
    longest: Duration,
    /// Sockets of the node's namespace are taken and put back, never used under the lock.
    idle: Arc<Mutex<Vec<Nftables>>>,
}

impl EgressHold {
    /// Follows the pods of the node of this name until `tasks` stops.
    pub fn watch(node: Node, name: &str, objects: &Objects, tasks: &Tasks) -> Self {
        let here = Within { node: Some(name.to_owned()), ..Within::default() };
        let choice = |pod: KubePod| {
            let egresses = chosen(&pod).unwrap_or_default();
            Some(PodChoice { uid: pod.metadata.uid.unwrap_or_default(), egresses })
        };
        let hold = Self::new(node, objects.watched_as(here, tasks, choice));
        // What an earlier agent made holds.
        let there = || Nftables::open()?.table(HOLD_TABLE).map(|it| it.is_some());
        hold.active.publish(matches!(hold.node.namespace().run_in(there), Ok(Ok(true))));
        hold
    }

    /// Follows these choices.
    pub fn new(node: Node, choices: Snapshot<Choices>) -> Self {
        let (active, held) = (Snapshot::default(), Snapshot::default());
        Self { node, choices, active, held, longest: LONGEST, idle: Arc::default() }
    }

    /// Holds pods for no longer than this.
    #[cfg(test)]
    pub(super) fn for_at_most(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    pub(super) fn choices(&self) -> &Snapshot<Choices> {
        &self.choices
    }

    pub(super) fn changes(&self) -> Changes<Held> {
        self.held.subscribe()
    }

    /// The pods that are held now.
    pub(crate) fn held(&self) -> Vec<Arc<Attachment>> {
        let over = |began: Instant| began.elapsed() >= self.longest;
        let held = self.held.load();
        held.values().filter(|(_, began)| !over(*began)).map(|(it, _)| Arc::clone(it)).collect()
    }

    /// Makes the table, or removes it where there is no egress. In the namespace of the node. Blocks.
    pub fn ensure(&self, active: bool) -> Result<(), CommitError> {
        let mut nftables = Nftables::open().map_err(CommitError::Socket)?;
        let there = nftables.table(HOLD_TABLE).map_err(CommitError::Socket)?.is_some();
        match (active, there) {
            (true, false) => nftables.commit(&table(), None)?,
            (false, true) => remove(&mut nftables)?,
            _ => {}
        }
        self.active.publish(active);
        Ok(())
    }

    /// Adds to the sets, with a socket that is open already if there is one.
    fn hold(&self, batch: &Batch) -> Result<(), CommitError> {
        let idle = self.idle.lock().pop();
        let mut nftables = match idle {
            Some(nftables) => nftables,
            None => self.node.namespace().nftables().map_err(CommitError::Socket)?,
        };
        if nftables.commit(batch, None).is_err() {
            // Somebody flushed the table.
            nftables.commit(&table(), None)?;
            nftables.commit(batch, None)?;
        }
        let mut idle = self.idle.lock();
        if idle.len() < IDLE {
            idle.push(nftables);
        }
        Ok(())
    }

    /// Lets go of the pods of which `is_known` says that their choice is in the kernel, and forgets those that
    /// were held for as long as may be; returns these. In the namespace of the node. Blocks.
    pub(super) fn let_go(
        &self,
        is_known: impl Fn(&Attachment) -> bool,
    ) -> io::Result<Vec<Arc<Attachment>>> {
        let held = self.held.load();
        let (mut known, mut over) = (Vec::new(), Vec::new());
        for (attachment, began) in held.values() {
            if is_known(attachment) {
                known.push(Arc::clone(attachment));
            } else if began.elapsed() >= self.longest {
                over.push(Arc::clone(attachment));
            }
        }
        if known.is_empty() && over.is_empty() {
            return Ok(over);
        }
        let mut nftables = Nftables::open()?;
        for address in known.iter().flat_map(|attachment| attachment.addresses()) {
            let mut batch = Batch::new(HOLD_TABLE);
            batch.delete_elements(&set(address.is_ipv4()), [&Element::new(bytes(address))]);
            match nftables.commit(&batch, None).map_err(io::Error::from) {
                // It ended by itself.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.held.update(|held| {
            known.iter().chain(&over).for_each(|it| drop(held.remove(&it.key)));
            true
        });
        Ok(over)
    }
}

/// What a pod chose, if these choices are of this very pod and not of an earlier one of its name.
pub(super) fn choice_of<'a>(choices: &'a Choices, pod: &Pod) -> Option<&'a [String]> {
    let found = choices.get(&Id::namespaced(&pod.namespace, &pod.name))?;
    let same = pod.uid.as_ref().is_none_or(|uid| *uid == found.uid);
    same.then_some(found.egresses.as_slice())
}

impl PodPolicies for EgressHold {
    fn admit(&self, attachment: &Attachment) -> Result<(), String> {
        let Some(pod) = attachment.pod.as_ref().filter(|_| self.active.read(|active| *active))
        else {
            return Ok(());
        };
        let free = |choices: &Choices| choice_of(choices, pod).is_some_and(<[String]>::is_empty);
        if self.choices.read(free) {
            return Ok(());
        }
        let mut batch = Batch::new(HOLD_TABLE);
        for address in attachment.addresses() {
            batch.add_elements(&set(address.is_ipv4()), [&element(address, self.longest)]);
        }
        self.hold(&batch).map_err(|error| {
            let why = stallproof::sentence(&error);
            format!("its egress is not known yet, and it cannot be held: {why}")
        })?;
        let held = (Arc::new(attachment.clone()), Instant::now());
        self.held.update(|all| {
            all.insert(attachment.key.clone(), held);
            true
        });
        Ok(())
    }

    fn settle(&self, _: &Attachment) {}

    fn release(&self, attachment: &Attachment) {
        self.held.update(|held| held.remove(&attachment.key).is_some());
    }
}

fn set(is_ipv4: bool) -> Set {
    let (name, field) = if is_ipv4 { ("held4", Field::Ipv4) } else { ("held6", Field::Ipv6) };
    Set { timeouts: true, ..Set::hash(name, &[field]) }
}

fn element(address: IpAddr, longest: Duration) -> Element {
    let timeout = u64::try_from(longest.as_millis()).ok();
    Element { timeout, ..Element::new(bytes(address)) }
}

/// The table with nobody in it, in place of the one that is there.
fn table() -> Batch {
    let mut batch = Batch::new(HOLD_TABLE);
    // Made first, so that there is one to delete.
    batch.add_table(0);
    batch.delete_table();
    batch.add_table(0);
    let (name, into) = ("prerouting", Register::FIRST);
    // Behind the table that gives connections of clients their class.
    let hook = Some((Hook::Prerouting, AFTER_MANGLE + 1));
    batch.add_chain(&Chain { name: name.to_owned(), hook, drops: false });
    let pass = |mut when: Vec<Expression>| -> Rule {
        when.push(Expression::Verdict(Verdict::Accept));
        rule(when)
    };
    let answers = vec![Expression::Tracked { fact: Tracked::Direction, into }, equal(vec![REPLY])];
    batch.add_rule(name, &pass(answers));
    for is_ipv4 in [true, false] {
        let set = set(is_ipv4);
        batch.add_set(&set);
        let mut held = vec![Expression::Meta { fact: Meta::Mark, into }, ours(), equal(vec![0; 4])];
        held.extend(source(is_ipv4));
        held.push(Expression::Lookup { set: set.name.clone(), key: into, absent: false });
        held.extend(marked_by(HOLD));
        batch.add_rule(name, &rule(held));
    }
    // A tunnel that the packet goes into, to a pod of another node, finds its own way without.
    let (name, hook) = ("postrouting", Some((Hook::Postrouting, FILTER)));
    batch.add_chain(&Chain { name: name.to_owned(), hook, drops: false });
    batch.add_rule(name, &rule(unmarked_if(equal(mark_of(HOLD).to_ne_bytes().to_vec()))));
    batch
}

/// Removes the table, if there is one. In the network namespace of the calling thread.
pub(super) fn remove(nftables: &mut Nftables) -> Result<(), CommitError> {
    if nftables.table(HOLD_TABLE).map_err(CommitError::Socket)?.is_none() {
        return Ok(());
    }
    let mut batch = Batch::new(HOLD_TABLE);
    batch.delete_table();
    nftables.commit(&batch, None)
}
