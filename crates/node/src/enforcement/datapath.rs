//! `PolicyDatapath`: what a kernel does with a program, as a trait, so that programs can be enforced by
//! something else than nf_tables.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;

use kernel::nftables::Counted;
use policy::program::{ChainId, CounterId, Delta, Denial, Packet, Program, SetId, TierKind};

use super::learned::LearnedAddress;

/// What decides about a local address. Without a decider nothing is denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub egress: Option<Decider>,
    pub ingress: Option<Decider>,
    /// Whether a rule by domain name decides about it: its DNS goes through the agent.
    pub asks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    Chain(ChainId),
    /// Denies everything: the pod is new, and its policies have not arrived.
    Pending,
}

impl Entry {
    pub const PENDING: Self =
        Self { egress: Some(Decider::Pending), ingress: Some(Decider::Pending), asks: false };

    pub fn is_empty(&self) -> bool {
        self.egress.is_none() && self.ingress.is_none()
    }
}

/// How this node denies, by the class of the policy: where it says so, or where the program does, by a
/// rejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenySettings {
    pub network_policy: Denial,
    /// ClusterNetworkPolicy, and the kinds before it.
    pub cluster_policy: Denial,
    /// Guard's rules, and the label for quarantine.
    pub guard: Denial,
}

impl DenySettings {
    /// How a rule of this tier denies that the program has deny like this.
    pub(super) fn of(&self, tier: TierKind, program: Denial) -> Denial {
        let own = match tier {
            TierKind::NetworkPolicy => self.network_policy,
            TierKind::Admin | TierKind::Baseline => self.cluster_policy,
            TierKind::Guard | TierKind::Quarantine => self.guard,
        };
        own.max(program)
    }
}

/// The entries of the node's addresses; one without a decider is left out.
pub type Entries = BTreeMap<IpAddr, Entry>;

/// A step from one state of the node to the next.
#[derive(Debug)]
pub struct Change<'a> {
    /// None if only entries change.
    pub delta: Option<&'a Delta>,
    /// The programs before and after the delta.
    pub before: &'a Program,
    pub after: &'a Program,
    /// The addresses whose entry changes, with what it was and what it becomes.
    pub entries: Vec<(IpAddr, Entry, Entry)>,
    /// All entries, after the change.
    pub all: &'a Entries,
}

/// What became of the connections that are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Connections that were allowed and no longer are.
    pub ended: usize,
    /// Connections that had been ended and are allowed again.
    pub restored: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    #[error("another process enforces policies here: it owns the table {0}; stop that one")]
    Owned(&'static str),
    #[error("the kernel's rules cannot be changed")]
    Commit(#[from] kernel::nftables::CommitError),
    #[error("the kernel's rules cannot be read")]
    Read(#[from] io::Error),
}

/// Makes packets be judged. Calls block, each with a time limit.
pub trait PolicyDatapath: Send {
    /// Sets how packets are denied, before anything is enforced.
    fn deny_by(&mut self, deny: DenySettings);

    /// Compares what is there with the program and the entries and makes it exactly that.
    fn adopt(&mut self, program: &Program, entries: &Entries) -> Result<(), DatapathError>;

    /// Makes one change: each packet is judged as before it or as after it. Falls back on
    /// [`Self::adopt`] if what is there is not what it was thought to be.
    fn apply(&mut self, change: &Change<'_>) -> Result<(), DatapathError>;

    /// Does what is left to do of earlier changes; called now and then.
    fn look_after(&mut self) -> Result<(), DatapathError>;

    /// Says whether somebody else changed what is there since this was last asked.
    fn was_disturbed(&mut self) -> io::Result<bool>;

    /// Asks about each connection that is under way whether it is denied, and ends those that are.
    fn revoke(&mut self, is_denied: &mut dyn FnMut(&Packet) -> bool) -> io::Result<Revoked>;

    /// Puts addresses into sets of names, each for its time; one that is there stays for at least that.
    fn learn(&mut self, learned: &[LearnedAddress]) -> Result<(), DatapathError>;

    /// Returns what the sets of names hold, as far as it has time left.
    fn learned(&mut self, program: &Program) -> io::Result<Vec<LearnedAddress>>;

    /// Says which of these addresses connections go to.
    fn in_use(&mut self, addresses: &[(SetId, IpAddr)]) -> io::Result<Vec<(SetId, IpAddr)>>;

    /// Returns what each rule has counted since the table was made.
    fn counters(&mut self) -> io::Result<HashMap<CounterId, Counted>>;
}
