//! `Report`: what an agent sends: running totals, never differences.
//!
//! Contract of an agent:
//! - A total belongs to one (client, server, server port, protocol, application) and to one
//!   *beginning*, `Record::first`. From there it only grows. One that was idle for
//!   [`Limits::idle`](super::Limits::idle) grows no more: what comes on its key begins again at
//!   zero, with a later `first`.
//! - A change is sent until it is acknowledged, and sent again to a controller that has lost it: a
//!   total may be forgotten once its last change is durable.
//! - Reports are numbered as they are sent, and a number stands for one content. An acknowledgement
//!   through `n` says that `n` was counted and that nothing before it is still being counted; what a
//!   report held that was refused, or that no answer came for before its connection ended, is sent
//!   again: under the same number, or within a later report.
//! - An agent that has several reports under way sends again what a report held if that is called durable
//!   by the time its answer comes: a later report may be meant. (A sensor has one under way at a time.)
//! - An agent that has lost what it knew begins a greater `incarnation`, in which all its totals begin at
//!   zero. So does one that reached no controller for [`AWAY`](super::AWAY).
//! - It reports at least once in [`SILENCE`](super::SILENCE), if only an empty report.
//!
//! So a total that arrives twice is the same total, and a report may be sent again at any time, in
//! any order, to any controller.

use std::net::IpAddr;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

pub use objects::kinds::Protocol;

use super::LocalWorkload;

/// Milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        #[cfg(any(test, feature = "faults"))]
        let now = crate::faults::jumped(now);
        Self(now)
    }

    pub fn from_seconds(seconds: u32) -> Self {
        Self(u64::from(seconds) * 1000)
    }

    /// Whole seconds; enough until 2106.
    pub fn seconds(self) -> u32 {
        u32::try_from(self.0 / 1000).unwrap_or(u32::MAX)
    }

    /// Zero if `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    pub(super) fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl From<jiff::Timestamp> for Moment {
    fn from(at: jiff::Timestamp) -> Self {
        Self(u64::try_from(at.as_millisecond()).unwrap_or(0))
    }
}

/// What was carried, both ways together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub bytes: u64,
    pub packets: u64,
    pub sessions: u64,
}

impl Totals {
    pub const ZERO: Self = Self { bytes: 0, packets: 0, sessions: 0 };

    /// What came on top of `seen`; nothing where it is behind.
    pub fn growth(self, seen: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(seen.bytes),
            packets: self.packets.saturating_sub(seen.packets),
            sessions: self.sessions.saturating_sub(seen.sessions),
        }
    }

    /// The smaller of each.
    pub(super) fn at_most(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.min(other.bytes),
            packets: self.packets.min(other.packets),
            sessions: self.sessions.min(other.sessions),
        }
    }

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

/// Saturates: an agent may send nonsense, and must not be able to stop anybody with it.
impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.packets = self.packets.saturating_add(other.packets);
        self.sessions = self.sessions.saturating_add(other.sessions);
    }
}

/// One running total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub client: IpAddr,
    pub server: IpAddr,
    /// The server's port; zero where the protocol has none.
    pub port: u16,
    pub protocol: Protocol,
    /// The application, if first bytes told it; decoding bounds its length.
    pub application: Option<Arc<str>>,
    pub totals: Totals,
    /// When this total began at zero. Two beginnings of one key lie in different seconds.
    pub first: Moment,
    /// When this total changed last.
    pub last: Moment,
}

/// Packets of one client to one server that a rule stopped, as a running total: as a [`Record`] it belongs
/// to one beginning and only grows. The kernel tells of some packets of a rule in a second and not of all,
/// so that it counts what was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedRecord {
    pub client: IpAddr,
    pub server: IpAddr,
    /// The server's port; zero where the protocol has none.
    pub port: u16,
    pub protocol: Protocol,
    /// The policy and its rule, in words; empty if it was for want of a rule of guard.
    pub rule: Arc<str>,
    pub packets: u64,
    pub first: Moment,
    pub last: Moment,
}

/// What an agent sends at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The node's name: a node has one agent. It is not sent: the agent's certificate says it.
    pub agent: Arc<str>,
    pub incarnation: u64,
    /// Counts up from 1 in each incarnation: by one, and further over reports that may have been sent and not
    /// saved.
    pub sequence: u64,
    pub records: Vec<Record>,
    pub denied: Vec<DeniedRecord>,
    pub dropped: Dropped,
    /// All pods of the node, when they have changed: where no Kubernetes tells of them.
    pub workloads: Option<Vec<LocalWorkload>>,
    /// What names of rules resolved to, as far as the controller was not told; none where the node enforces no
    /// rules by name.
    pub names: Option<Vec<ResolvedName>>,
}

/// An address that a name resolved to, for a pod of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResolvedName {
    /// Lowercase, without a dot at the end.
    pub name: Arc<str>,
    pub address: IpAddr,
}

/// What an agent had to drop since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Changes of totals that no controller will hear of.
    pub totals: u64,
    /// Those of them that are against the rules.
    pub violations: u64,
    /// Times at which the kernel had told more than was read.
    pub overruns: u64,
}
