//! The faults of a cluster: which come when (a pure function of the seed and the time), what each may disturb,
//! and for how long after its end.
//!
//! Contract: one at a time; every kind comes once before one comes again; nothing begins before the load
//! stands ([`CALM`]), and what is begun ends before the time is up.

use std::time::Duration;

use serde::Serialize;

use super::scope::{Ms, Part};

const CALM: Ms = 10_000;
/// Between the end of one and the beginning of the next.
const PAUSE: Ms = 30_000;
const BRIEF: Ms = 4000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    KillController,
    KillAgent,
    KillKubelet,
    KillContainerd,
    KillApiServer,
    KillEtcd,
    FreezeController,
    FreezeAgent,
    FreezeKubelet,
    FreezeContainerd,
    FreezeApiServer,
    FreezeEtcd,
    BlackHole,
    Loss,
    SlowLink,
    FullDisk,
    SlowDisk,
    HungDisk,
    ControllerMemory,
    AgentMemory,
    Reboot,
    Strangers,
    DarkCluster,
    LyingAgent,
}

/// What cannot be done to a real cluster on one machine, and who does it instead.
pub(super) const ELSEWHERE: [(&str, &str); 2] = [
    (
        "clock jumps",
        "the wall clock is the whole machine's, and time namespaces move only the monotonic ones; the soak on \
         parts moves it (guard-clock)",
    ),
    (
        "delay of single packets",
        "this needs the kernel's netem; slow-link queues packets behind a narrow link instead",
    ),
];

impl Kind {
    pub const ALL: [Self; 24] = [
        Self::KillController,
        Self::KillAgent,
        Self::KillKubelet,
        Self::KillContainerd,
        Self::KillApiServer,
        Self::KillEtcd,
        Self::FreezeController,
        Self::FreezeAgent,
        Self::FreezeKubelet,
        Self::FreezeContainerd,
        Self::FreezeApiServer,
        Self::FreezeEtcd,
        Self::BlackHole,
        Self::Loss,
        Self::SlowLink,
        Self::FullDisk,
        Self::SlowDisk,
        Self::HungDisk,
        Self::ControllerMemory,
        Self::AgentMemory,
        Self::Reboot,
        Self::Strangers,
        Self::DarkCluster,
        Self::LyingAgent,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::KillController => "kill-controller",
            Self::KillAgent => "kill-agent",
            Self::KillKubelet => "kill-kubelet",
            Self::KillContainerd => "kill-containerd",
            Self::KillApiServer => "kill-api-server",
            Self::KillEtcd => "kill-etcd",
            Self::FreezeController => "freeze-controller",
            Self::FreezeAgent => "freeze-agent",
            Self::FreezeKubelet => "freeze-kubelet",
            Self::FreezeContainerd => "freeze-containerd",
            Self::FreezeApiServer => "freeze-api-server",
            Self::FreezeEtcd => "freeze-etcd",
            Self::BlackHole => "black-hole",
            Self::Loss => "loss",
            Self::SlowLink => "slow-link",
            Self::FullDisk => "full-disk",
            Self::SlowDisk => "slow-disk",
            Self::HungDisk => "hung-disk",
            Self::ControllerMemory => "controller-memory",
            Self::AgentMemory => "agent-memory",
            Self::Reboot => "reboot",
            Self::Strangers => "strangers",
            Self::DarkCluster => "dark-cluster",
            Self::LyingAgent => "lying-agent",
        }
    }

    /// What is done, for people.
    pub fn about(self) -> &'static str {
        match self {
            Self::KillController => "a controller is killed (SIGKILL); the kubelet starts it again",
            Self::KillAgent => "a node's agent is killed (SIGKILL); the kubelet starts it again",
            Self::KillKubelet => "a kubelet is killed, and started at the end",
            Self::KillContainerd => {
                "containerd is killed, and started at the end; containers live on"
            }
            Self::KillApiServer => "the API server is killed, and started at the end",
            Self::KillEtcd => "etcd is killed, and started at the end",
            Self::FreezeController => "a controller is stopped (SIGSTOP) and goes on",
            Self::FreezeAgent => "a node's agent is stopped and goes on",
            Self::FreezeKubelet => "a kubelet is stopped and goes on",
            Self::FreezeContainerd => "containerd is stopped and goes on",
            Self::FreezeApiServer => "the API server is stopped and goes on",
            Self::FreezeEtcd => "etcd is stopped and goes on",
            Self::BlackHole => "no packet passes between two nodes",
            Self::Loss => "every fifth packet that comes to a node is lost",
            Self::SlowLink => "a node sends at 2 Mbit/s, behind a queue of 400 ms",
            Self::FullDisk => "the disk of a node's agent is full",
            Self::SlowDisk => "a node's agent writes 16 KiB/s at most",
            Self::HungDisk => "every write to the disk of a node's agent hangs",
            Self::ControllerMemory => "a controller's control group has less memory than it uses",
            Self::AgentMemory => "an agent's control group has less memory than it uses",
            Self::Reboot => "a node loses its power, and starts again",
            Self::Strangers => {
                "hundreds of connections without credentials at every port of the controllers"
            }
            Self::DarkCluster => "no byte comes from the second cluster; its connections stand",
            Self::LyingAgent => {
                "somebody says with a node's certificate what other nodes' pods never did"
            }
        }
    }

    fn longest(self) -> Ms {
        match self {
            // It must be late to be named.
            Self::HungDisk => 22_000,
            Self::KillController | Self::KillAgent => BRIEF,
            Self::Reboot => 10_000,
            Self::KillApiServer | Self::KillEtcd => 12_000,
            _ => 20_000,
        }
    }

    fn shortest(self) -> Ms {
        if self == Self::HungDisk { 18_000 } else { BRIEF }
    }

    /// Whether the process that it holds up must say so.
    pub(super) fn must_be_named(self) -> bool {
        self == Self::HungDisk
    }

    /// How long after its end all is well again.
    pub(super) fn recovery(self) -> Ms {
        match self {
            Self::Strangers => 0,
            Self::Reboot => 90_000,
            Self::KillController | Self::ControllerMemory => 40_000,
            Self::KillApiServer | Self::KillEtcd | Self::FreezeApiServer | Self::FreezeEtcd => {
                40_000
            }
            _ => 30_000,
        }
    }
}

/// A fault that will come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    pub kind: Kind,
    pub at_ms: Ms,
    pub lasts_ms: Ms,
    pub node: u32,
    /// The other end of what is between two nodes.
    pub other: u32,
}

impl Planned {
    pub fn named(&self) -> String {
        match self.kind {
            Kind::BlackHole => {
                format!("{} between nodes {} and {}", self.kind.name(), self.node, self.other)
            }
            Kind::KillApiServer
            | Kind::KillEtcd
            | Kind::FreezeApiServer
            | Kind::FreezeEtcd
            | Kind::Strangers
            | Kind::DarkCluster => self.kind.name().to_owned(),
            _ => format!("{} on node {}", self.kind.name(), self.node),
        }
    }

    /// What it may disturb. All else must not notice.
    pub(super) fn disturbs(&self) -> Vec<Part> {
        let (node, other) = (self.node, self.other);
        let mut parts = match self.kind {
            Kind::KillController | Kind::FreezeController | Kind::ControllerMemory => {
                vec![Part::Controller(node), Part::Reviews, Part::Leading]
            }
            Kind::KillAgent | Kind::FreezeAgent | Kind::AgentMemory => {
                vec![Part::Agent(node), Part::Pods(node)]
            }
            Kind::FullDisk | Kind::SlowDisk | Kind::HungDisk => {
                vec![Part::Agent(node), Part::Pods(node)]
            }
            Kind::KillKubelet
            | Kind::KillContainerd
            | Kind::FreezeKubelet
            | Kind::FreezeContainerd => {
                vec![Part::Pods(node)]
            }
            Kind::KillApiServer | Kind::KillEtcd | Kind::FreezeApiServer | Kind::FreezeEtcd => {
                let mut parts = vec![Part::Api, Part::Reviews, Part::Leading];
                parts.extend((1..=super::NODES).map(Part::Pods));
                parts
            }
            Kind::BlackHole => {
                let mut parts = vec![
                    Part::Between(node.min(other), node.max(other)),
                    Part::Reviews,
                    Part::Leading,
                ];
                parts.extend(
                    [node, other].into_iter().flat_map(|it| [Part::Agent(it), Part::Pods(it)]),
                );
                parts
            }
            Kind::Loss | Kind::SlowLink | Kind::Reboot => vec![
                Part::Packets(node),
                Part::Agent(node),
                Part::Pods(node),
                Part::Controller(node),
                Part::Reviews,
                Part::Leading,
            ],
            Kind::Strangers => Vec::new(),
            Kind::DarkCluster => vec![Part::Second],
            Kind::LyingAgent => vec![Part::Agent(node)],
        };
        // The control plane is on node 1.
        let of_packets = [Kind::BlackHole, Kind::Loss, Kind::SlowLink, Kind::Reboot];
        if of_packets.contains(&self.kind)
            && (node == 1 || (self.kind == Kind::BlackHole && other == 1))
        {
            parts.push(Part::Api);
            parts.extend((1..=super::NODES).map(Part::Pods));
        }
        parts
    }
}

/// All faults of a soak of this length. `only` are those that are wanted; none is all.
pub fn schedule(seed: u64, time: Duration, only: &[Kind]) -> Vec<Planned> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x636c_7573_7465_7221);
    let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let wanted: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| only.is_empty() || only.contains(kind)).collect();
    let (mut planned, mut at) = (Vec::new(), CALM);
    loop {
        let mut round = wanted.clone();
        random.shuffle(&mut round);
        for kind in round {
            let lasts = random.u64(kind.shortest()..=kind.longest());
            let node = random.u32(1..=super::NODES);
            let other = (node + random.u32(0..super::NODES - 1)) % super::NODES + 1;
            if at + lasts > time {
                return planned;
            }
            planned.push(Planned { kind, at_ms: at, lasts_ms: lasts, node, other });
            at += lasts + PAUSE + random.u64(0..8000);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const HOURS: Duration = Duration::from_secs(7200);

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_gives_others() {
        assert_eq!(schedule(7, HOURS, &[]), schedule(7, HOURS, &[]));
        assert_ne!(schedule(7, HOURS, &[]), schedule(8, HOURS, &[]));
    }

    #[test]
    fn there_is_at_least_one_a_minute_one_at_a_time_and_every_kind_comes() {
        let planned = schedule(1, HOURS, &[]);
        assert!(planned.len() > 120, "{}", planned.len());
        for (one, next) in planned.iter().zip(&planned[1..]) {
            assert!(one.at_ms + one.lasts_ms + PAUSE <= next.at_ms);
        }
        let first: BTreeSet<_> = planned[..Kind::ALL.len()].iter().map(|it| it.kind).collect();
        assert_eq!(first.len(), Kind::ALL.len(), "each once before one comes again");
        assert!(
            planned
                .iter()
                .all(|it| it.node != it.other && (1..=super::super::NODES).contains(&it.other))
        );
        assert!(planned.iter().all(|it| it.at_ms + it.lasts_ms <= 7_200_000));
    }

    #[test]
    fn only_those_that_are_wanted_come() {
        let planned = schedule(1, HOURS, &[Kind::Reboot]);
        assert!(!planned.is_empty() && planned.iter().all(|it| it.kind == Kind::Reboot));
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let names: BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
