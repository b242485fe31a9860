//! `Schedule`: which faults a soak injects, and when.
//!
//! Contract:
//! - A pure function of the seed and the time: the same for both gives the same faults, to the same
//!   victims, at the same moments.
//! - Time is cut into rounds; in each, every fault of a job comes once, in an order of that round.
//!   Faults of one job never overlap (its check can tell which one it sees); jobs know nothing of each
//!   other's.
//! - Nothing begins before the load stands ([`CALM`]) and everything has ended [`TAIL`] before the
//!   end: what is seen then is the recovery.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A soak is at least this long: every fault in it, and room between them.
pub const SHORTEST: Duration = Duration::from_secs(21);
/// Before the first fault.
const CALM: Duration = Duration::from_millis(1500);
/// After the last one.
const TAIL: Duration = Duration::from_millis(2500);
/// About as long as a round is.
const ROUND: Duration = Duration::from_secs(60);
/// A fault that is over sooner is one that nobody would see.
const BRIEF: Duration = Duration::from_millis(1500);
/// Part of its slot that a fault may take: the rest is for its recovery.
const SHARE: f64 = 0.75;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// Pods come and go on a node.
    Net,
    /// Clusters are looked up and called.
    Fleet,
    /// Two candidates for one lease; the leader writes.
    Lease,
    /// Agents report to an ingest.
    Guard,
    /// Nodes of tenants come, change and go; their peers follow.
    Mesh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// One step of one pod's wiring hangs in the kernel.
    NetHang,
    /// The node's daemon is killed, and started again.
    NetKill,
    /// The disk under the journal is full.
    NetDiskFull,
    /// Nothing comes back from a cluster.
    FleetBlackHole,
    /// Nobody listens at a cluster's address.
    FleetRefuse,
    /// Every piece of a cluster's answers, and of its handshake, is late.
    FleetSlow,
    /// A cluster's credentials change.
    FleetRotate,
    /// A cluster is removed while it is in use, and comes back.
    FleetRemove,
    /// A cluster that has just said that it has no such kind serves it.
    FleetKind,
    /// The leader's process stands still.
    LeasePause,
    /// The leader's way to the store is a black hole.
    LeaseBlackHole,
    /// The leader is gone from one moment to the next.
    LeaseAbort,
    /// Connections of agents are cut again and again.
    GuardCut,
    /// Agents send batches twice, and in another order.
    GuardRepeat,
    /// The owner of a shard hangs.
    GuardHold,
    /// The ingest is stopped in order, and begins from its checkpoint.
    GuardRestart,
    /// The ingest is gone with all that was not in its last checkpoint.
    GuardCrash,
    /// The wall clock of the controller, of the agents or of both jumps by days, and back.
    GuardClock,
    /// The controller has too little memory for reports, or also for joins.
    GuardPressure,
    /// The controller's way to a tenant is a black hole.
    MeshBlackHole,
    /// The controller is gone from one moment to the next, and another begins.
    MeshKill,
    /// A tenant's kubeconfig becomes one with other credentials.
    MeshRotate,
}

/// A fault that will come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    pub job: Job,
    pub fault: Fault,
    /// Since the load began.
    pub at_ms: u64,
    pub lasts_ms: u64,
    /// Chooses the victim among those there are.
    pub pick: u64,
}

impl Job {
    pub const ALL: [Self; 5] = [Self::Net, Self::Fleet, Self::Lease, Self::Guard, Self::Mesh];

    pub fn name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Fleet => "fleet",
            Self::Lease => "lease",
            Self::Guard => "guard",
            Self::Mesh => "mesh",
        }
    }

    pub fn faults(self) -> &'static [Fault] {
        use Fault::*;
        match self {
            Self::Net => &[NetHang, NetKill, NetDiskFull],
            Self::Fleet => {
                &[FleetBlackHole, FleetRefuse, FleetSlow, FleetRotate, FleetRemove, FleetKind]
            }
            Self::Lease => &[LeasePause, LeaseBlackHole, LeaseAbort],
            Self::Guard => &[
                GuardCut,
                GuardRepeat,
                GuardHold,
                GuardRestart,
                GuardCrash,
                GuardClock,
                GuardPressure,
            ],
            Self::Mesh => &[MeshBlackHole, MeshKill, MeshRotate],
        }
    }
}

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Self::NetHang => "net-hang",
            Self::NetKill => "net-kill",
            Self::NetDiskFull => "net-disk-full",
            Self::FleetBlackHole => "fleet-black-hole",
            Self::FleetRefuse => "fleet-refuse",
            Self::FleetSlow => "fleet-slow",
            Self::FleetRotate => "fleet-rotate",
            Self::FleetRemove => "fleet-remove",
            Self::FleetKind => "fleet-kind",
            Self::LeasePause => "lease-pause",
            Self::LeaseBlackHole => "lease-black-hole",
            Self::LeaseAbort => "lease-abort",
            Self::GuardCut => "guard-cut",
            Self::GuardRepeat => "guard-repeat",
            Self::GuardHold => "guard-hold",
            Self::GuardRestart => "guard-restart",
            Self::GuardCrash => "guard-crash",
            Self::GuardClock => "guard-clock",
            Self::GuardPressure => "guard-pressure",
            Self::MeshBlackHole => "mesh-black-hole",
            Self::MeshKill => "mesh-kill",
            Self::MeshRotate => "mesh-rotate",
        }
    }

    /// The longest that it lasts: longer shows nothing more.
    fn longest(self) -> Duration {
        Duration::from_secs(match self {
            // Past what a caller waits for a report to be counted.
            Self::GuardHold => 15,
            // Past what a call to it may take.
            Self::MeshBlackHole => 20,
            Self::GuardRestart | Self::GuardCrash | Self::NetKill => 5,
            _ => 10,
        })
    }
}

impl Planned {
    pub fn at(&self) -> Duration {
        Duration::from_millis(self.at_ms)
    }

    pub fn until(&self) -> Duration {
        Duration::from_millis(self.at_ms + self.lasts_ms)
    }
}

/// All faults of a soak of this length, in the order in which they begin. `time` is at least
/// [`SHORTEST`].
pub fn schedule(seed: u64, time: Duration) -> Vec<Planned> {
    let mut all: Vec<Planned> = Job::ALL.iter().flat_map(|job| of(*job, seed, time)).collect();
    all.sort_by_key(|planned| (planned.at_ms, planned.job));
    all
}

fn of(job: Job, seed: u64, time: Duration) -> Vec<Planned> {
    // A job's faults do not depend on which other jobs there are.
    let mut random =
        fastrand::Rng::with_seed(seed ^ (job as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let span = time.max(SHORTEST) - CALM - TAIL;
    let rounds = (span.as_secs_f64() / ROUND.as_secs_f64()).floor().max(1.0);
    let slot = span.div_f64(rounds * job.faults().len() as f64);
    let mut planned = Vec::new();
    let mut begins = CALM;
    for _ in 0..rounds as usize {
        let mut faults = job.faults().to_vec();
        random.shuffle(&mut faults);
        for fault in faults {
            let most = slot.mul_f64(SHARE).min(fault.longest()).max(BRIEF);
            let lasts = BRIEF + (most - BRIEF).mul_f64(random.f64());
            let at = begins + (slot.saturating_sub(most)).mul_f64(random.f64() * SHARE);
            planned.push(Planned {
                job,
                fault,
                at_ms: millis(at),
                lasts_ms: millis(lasts),
                pick: random.u64(..),
            });
            begins += slot;
        }
    }
    planned
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
