//! One gate for each cluster, one for requests that need no cluster, one for requests that ask many.
//!
//! Requests that wait for a cluster that does not answer fill that cluster's gate and are refused
//! with a time to come back; they take no place from anybody else. At each gate users share: one who
//! fills it with slow requests keeps nobody else out. So they do of the streams that may be open. Who has
//! not said who they are shares by address.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use stallproof::gate::{
    GateConfig, GateStatus, InFlightLimits, Overloaded, Permit, Priority, Shedding,
};
use stallproof::{Gate, MemoryGuard, Pressure, Snapshot};

/// Which gate a request waits at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteGate<'a> {
    /// For those who have not said who they are: they take no place from those who have.
    Anonymous,
    /// As `Anonymous`, for what waits for an identity provider: one that hangs fills this gate alone.
    Provider,
    /// Answered from what this process has.
    Local,
    /// Asks many clusters at once; waits for the slowest.
    FanOut,
    /// Asks one.
    Cluster(&'a str),
}

impl RouteGate<'_> {
    /// Whether callers need no login.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Anonymous | Self::Provider)
    }
}

#[derive(Clone, Debug)]
pub struct Gates(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    anonymous: Gate,
    provider: Gate,
    local: Gate,
    fan_out: Gate,
    /// Written when a cluster is first asked and when clusters go; read by every request.
    clusters: Snapshot<stallproof::Map<String, Gate>>,
    streams: Gate,
    /// Written by the memory guard, read when a gate is made.
    shedding: Snapshot<Shedding>,
}

impl Gates {
    /// With so many places for streams.
    pub fn new(streams: usize) -> Self {
        let fixed = InFlightLimits { min: streams, initial: streams, max: streams };
        Self(Arc::new(Inner {
            anonymous: Gate::new(GateConfig::new("strangers")),
            provider: Gate::new(GateConfig::new("identity-providers")),
            local: Gate::new(GateConfig::new("local")),
            fan_out: Gate::new(GateConfig::new("across")),
            clusters: Snapshot::new(stallproof::Map::new()),
            // Nobody waits for a place among the streams.
            streams: Gate::new(GateConfig {
                limits: fixed,
                queue: 0,
                ..GateConfig::new("streams")
            }),
            shedding: Snapshot::new(Shedding::None),
        }))
    }

    /// Lets memory pressure refuse what can wait, at every gate.
    pub fn heed(&self, memory: &MemoryGuard) {
        let gates = self.clone();
        memory.on_change(move |pressure| gates.shed(pressure));
    }

    fn shed(&self, pressure: Pressure) {
        let shedding = match pressure {
            Pressure::Normal => Shedding::None,
            Pressure::Shedding => Shedding::Low,
            Pressure::Critical => Shedding::High,
        };
        // First the word, then those who hear it: a gate made in between takes the word.
        self.0.shedding.publish(shedding);
        self.0.anonymous.shed(shedding);
        self.0.provider.shed(shedding);
        self.0.local.shed(shedding);
        self.0.fan_out.shed(shedding);
        for gate in self.0.clusters.load().values() {
            gate.shed(shedding);
        }
    }

    /// The gate of a route. `RouteGate::Cluster` is asked for only of clusters that exist, so that a
    /// stranger's guesses make no gates.
    pub(crate) fn at(&self, route: RouteGate<'_>) -> Gate {
        match route {
            RouteGate::Anonymous => self.0.anonymous.clone(),
            RouteGate::Provider => self.0.provider.clone(),
            RouteGate::Local => self.0.local.clone(),
            RouteGate::FanOut => self.0.fan_out.clone(),
            RouteGate::Cluster(name) => {
                let found = self.0.clusters.read(|gates| gates.get(name).cloned());
                found.unwrap_or_else(|| self.make(name))
            }
        }
    }

    /// A place for a stream of `user`, for as long as it is open.
    pub(crate) fn stream(&self, user: &str) -> Result<Permit, Overloaded> {
        self.0.streams.try_admit_for(user, Priority::Normal)
    }

    fn make(&self, name: &str) -> Gate {
        self.0.clusters.update(|gates| {
            let missing = !gates.contains_key(name);
            if missing {
                gates.insert(name.to_owned(), Gate::new(GateConfig::new("cluster")));
            }
            missing
        });
        let made = self.0.clusters.read(|gates| gates.get(name).cloned());
        let gate = made.unwrap_or_else(|| Gate::new(GateConfig::new("cluster")));
        gate.shed(*self.0.shedding.load());
        gate
    }

    /// Forgets the gates of clusters that are no more. Who waits at one is still answered.
    pub fn retain(&self, there: impl Fn(&str) -> bool) {
        self.0.clusters.update(|gates| {
            let before = gates.len();
            gates.retain(|name, _| there(name));
            gates.len() != before
        });
    }

    pub fn register(&self, registry: &mut Registry) {
        self.0.anonymous.register(registry);
        self.0.provider.register(registry);
        self.0.local.register(registry);
        self.0.fan_out.register(registry);
        self.0.streams.register(registry);
        registry.register_collector(Box::new(self.clone()));
    }
}

/// The gates of clusters come and go, so they are read when asked: which cluster's requests wait.
impl Collector for Gates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        type Figure = fn(&GateStatus) -> usize;
        const FIGURES: [(&str, &str, Figure); 3] = [
            ("api_cluster_in_flight", "Requests let in to a cluster and not ended", |s| {
                s.in_flight
            }),
            ("api_cluster_queued", "Requests that wait for a cluster", |s| s.queued.iter().sum()),
            ("api_cluster_limit", "How many may be in flight to a cluster now", |s| s.limit),
        ];
        let gates = self.0.clusters.load();
        let read: Vec<_> = gates.iter().map(|(name, gate)| (name, gate.status())).collect();
        for (name, help, figure) in FIGURES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (cluster, status) in &read {
                let labels = [("cluster", cluster.as_str())];
                let mut gauge = family.encode_family(&labels)?;
                gauge.encode_gauge(&i64::try_from(figure(status)).unwrap_or(i64::MAX))?;
            }
        }
        Ok(())
    }
}

impl Default for Gates {
    fn default() -> Self {
        // As many connections are left for what is not a stream.
        Self::new(super::connections() / 2)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stallproof::{Deadline, gate::Reason};

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_cluster_takes_no_place_from_another() {
        let gates = Gates::new(8);
        let dead = gates.at(RouteGate::Cluster("dead"));
        let mut held = Vec::new();
        while let Ok(permit) =
            dead.admit(Priority::Normal, Deadline::after(Duration::from_millis(1))).await
        {
            held.push(permit);
        }
        assert!(!held.is_empty());
        assert!(
            gates.at(RouteGate::Cluster("dead")).admit(Priority::Normal, soon()).await.is_err()
        );
        assert!(gates.at(RouteGate::Cluster("well")).admit(Priority::Normal, soon()).await.is_ok());
        assert!(gates.at(RouteGate::Local).admit(Priority::Normal, soon()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn pressure_is_heeded_at_every_door_also_those_made_later() {
        let gates = Gates::new(8);
        gates.at(RouteGate::Cluster("old"));
        gates.shed(Pressure::Shedding);
        for route in [
            RouteGate::Local,
            RouteGate::FanOut,
            RouteGate::Cluster("old"),
            RouteGate::Cluster("new"),
        ] {
            let refused = gates.at(route).admit(Priority::Low, soon()).await.unwrap_err();
            assert_eq!(refused.reason, Reason::Shed, "{route:?}");
        }
        gates.shed(Pressure::Normal);
        assert!(gates.at(RouteGate::Cluster("new")).admit(Priority::Low, soon()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_say_which_cluster_is_full() {
        let gates = Gates::new(8);
        let mut registry = Registry::default();
        gates.register(&mut registry);
        gates.at(RouteGate::Cluster("idle"));
        let _held =
            gates.at(RouteGate::Cluster("busy")).admit(Priority::Normal, soon()).await.unwrap();
        let mut said = String::new();
        prometheus_client::encoding::text::encode(&mut said, &registry).unwrap();
        assert!(said.contains("api_cluster_in_flight{cluster=\"busy\"} 1\n"), "{said}");
        assert!(said.contains("api_cluster_in_flight{cluster=\"idle\"} 0\n"), "{said}");
        assert!(said.contains("api_cluster_queued{cluster=\"busy\"} 0\n"), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_users_slow_requests_keep_no_other_user_out_of_any_gate() {
        let gates = Gates::new(8);
        for route in
            [RouteGate::Anonymous, RouteGate::Local, RouteGate::FanOut, RouteGate::Cluster("slow")]
        {
            let gate = gates.at(route);
            let mut held = Vec::new();
            let a_moment = || Deadline::after(Duration::from_millis(1));
            while let Ok(permit) = gate.admit_for("viewer", Priority::Normal, a_moment()).await {
                held.push(permit);
            }
            assert!(held.len() > 1, "{route:?}");
            let other = gate.admit_for("operator", Priority::Normal, soon()).await;
            assert!(other.is_ok(), "{route:?}: {other:?}");
        }
    }

    #[test]
    fn one_users_streams_leave_places_to_others() {
        let gates = Gates::new(8);
        let held: Vec<_> = std::iter::from_fn(|| gates.stream("viewer").ok()).collect();
        assert_eq!(held.len(), 4);
        assert_eq!(gates.stream("viewer").unwrap_err().reason, Reason::Share);
        let other = gates.stream("operator").unwrap();
        drop((held, other));
        assert!(gates.stream("viewer").is_ok());
    }

    #[test]
    fn a_cluster_that_is_gone_leaves_no_gate() {
        let gates = Gates::new(8);
        gates.at(RouteGate::Cluster("a"));
        gates.at(RouteGate::Cluster("b"));
        gates.retain(|name| name == "b");
        assert_eq!(gates.0.clusters.load().keys().collect::<Vec<_>>(), ["b"]);
    }
}
