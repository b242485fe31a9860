//! `ProgramSession`: the task that has this node enforce the program that its controller sends.
//!
//! Contract:
//! - It says what the node enforces, is sent what leads to what it should enforce, and says of each change
//!   what became of it. After anything that fails it begins again with what the node has then.
//! - A controller that is away, slow or wrong costs waiting: the node goes on enforcing what it has.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use kernel::nftables::Counted;
use policy::program::{CounterId, RuleTotal};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use protocol::program::TOTALS;
use stallproof::backoff::Curve;
use stallproof::ledger::Outcome;
use stallproof::{Backoff, Deadline, Ledger, Stop, sentence};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::client::{Client, ClientError};
use crate::enforcement::Enforcement;

const CURVE: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(30) };
const ASK: Duration = Duration::from_secs(10);
/// For the kernel to make one change: a whole program on a node that is busy.
const APPLY: Duration = Duration::from_secs(45);
/// How often the figures of what is enforced are looked at.
const SHOW: Duration = Duration::from_secs(5);
/// How often the controller is told what rules counted and whom they do not decide about, if that changed.
const TELL: Duration = Duration::from_secs(10);
/// Each so many times it is told everything: a controller that leads anew knows nothing.
const ANEW: usize = 12;

#[derive(Clone, Debug, Default)]
struct Metrics {
    generation: Gauge,
    changed: Gauge,
    confirmed: Gauge,
    pending: Gauge,
    selected: Gauge,
    connected: Gauge,
    applied: Counter<u64, AtomicU64>,
    failed: Counter<u64, AtomicU64>,
}

/// Follows the node's program.
#[derive(Debug)]
pub(crate) struct ProgramSession {
    node: String,
    enforcement: Enforcement,
    joined: watch::Receiver<Option<Client>>,
    ledger: Ledger,
    metrics: Metrics,
}

/// What outlives a stream.
struct Trouble {
    backoff: Backoff,
    said: String,
}

impl ProgramSession {
    pub(crate) fn new(
        node: &str,
        enforcement: Enforcement,
        joined: watch::Receiver<Option<Client>>,
        ledger: &Ledger,
    ) -> Self {
        let (node, ledger) = (node.to_owned(), ledger.clone());
        Self { node, enforcement, joined, ledger, metrics: Metrics::default() }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let Metrics { generation, changed, confirmed, pending, selected, connected, .. } =
            &self.metrics;
        for (name, help, gauge) in [
            (
                "enforced_generation",
                "The generation of policies that this node enforces",
                generation,
            ),
            (
                "enforced_changed_time_seconds",
                "When this node's policies changed last, in seconds since 1970",
                changed,
            ),
            (
                "enforced_confirmed_time_seconds",
                "When it was last known that this node enforces what it should, in seconds since 1970",
                confirmed,
            ),
            (
                "enforced_pods_pending",
                "Addresses that are denied until their policies arrive",
                pending,
            ),
            ("enforced_pods_selected", "Addresses of pods that some policy selects", selected),
            ("enforced_connected", "Whether a controller sends this node its policies", connected),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("enforced_changes", "Changes of policies that this node made", &self.metrics.applied),
            (
                "enforced_failures",
                "Changes of policies that this node could not make, and streams that broke",
                &self.metrics.failed,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }

    pub(crate) async fn run(self, stop: Stop) {
        let showing = self.clone_for_showing();
        let (enforcement, joined) = (self.enforcement.clone(), self.joined.clone());
        let telling = Telling { enforcement, joined, told: None };
        tokio::select! {
            () = stop.stopped() => {}
            () = showing => {}
            () = telling.run() => {}
            () = self.follow() => {}
        }
    }

    /// Keeps the figures up to date.
    fn clone_for_showing(&self) -> impl Future<Output = ()> + use<> {
        let (status, metrics) = (self.enforcement.status(), self.metrics.clone());
        async move {
            loop {
                let status = status.load();
                let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
                metrics.generation.set(i64::try_from(status.generation).unwrap_or(i64::MAX));
                metrics.pending.set(count(status.pending));
                metrics.selected.set(count(status.selected));
                if metrics.connected.get() == 1 {
                    metrics.confirmed.set(Timestamp::now().as_second());
                }
                tokio::time::sleep(SHOW).await;
            }
        }
    }

    async fn follow(mut self) {
        let mut trouble = Trouble { backoff: Backoff::new(CURVE), said: String::new() };
        loop {
            let Some(client) = self.joined.borrow_and_update().clone() else {
                if self.joined.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let mut joined = self.joined.clone();
            let ended = tokio::select! {
                ended = self.session(&client, &mut trouble) => ended,
                // Another connection, or none: this one is over.
                changed = joined.changed() => match changed {
                    Ok(()) => {
                        self.metrics.connected.set(0);
                        continue;
                    }
                    Err(_) => return,
                },
            };
            self.metrics.connected.set(0);
            let Err(error) = ended;
            let wait = match &error {
                ClientError::ComeBack { after, .. } => *after,
                _ => {
                    self.metrics.failed.inc();
                    trouble.backoff.failed().wait
                }
            };
            let why = error.to_string();
            if trouble.said == why {
                debug!(error = why, "still no policies from a controller");
            } else {
                warn!(
                    error = why,
                    "no controller sends policies; what is enforced stays, and it is tried again"
                );
                trouble.said = why;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Follows until something fails.
    async fn session(
        &self,
        client: &Client,
        trouble: &mut Trouble,
    ) -> Result<Infallible, ClientError> {
        let unusable = |error| ClientError::Over(sentence(&error));
        let position = self.enforcement.position(Deadline::after(ASK)).await.map_err(unusable)?;
        let (generation, fingerprint) = position;
        let mut changes = client.programs(generation, fingerprint, Deadline::after(ASK)).await?;
        self.metrics.connected.set(1);
        loop {
            let delta = changes.next().await?;
            let (from, to, size) = (delta.from, delta.to, delta.size());
            let op = self.ledger.begin("policy-change", to.to_string(), self.node.clone());
            op.step("kernel");
            let applied = self.enforcement.apply(delta, Deadline::after(APPLY)).await;
            op.step("acknowledge");
            let error = applied.as_ref().err().map(|error| sentence(error));
            let told = client.applied(to, error.clone(), Deadline::after(ASK)).await;
            if let Some(error) = error {
                op.finish(Outcome::Failed);
                return Err(ClientError::Over(format!("a change was not enforced: {error}")));
            }
            self.metrics.applied.inc();
            let now = Timestamp::now().as_second();
            self.metrics.changed.set(now);
            self.metrics.confirmed.set(now);
            self.metrics.generation.set(i64::try_from(to).unwrap_or(i64::MAX));
            trouble.backoff.succeeded();
            trouble.said.clear();
            match from {
                0 => info!(generation = to, size, "the controller's policies are enforced"),
                _ => debug!(from, generation = to, size, "a change of policies is enforced"),
            }
            told?;
            op.finish(Outcome::Done);
        }
    }
}

/// Tells the controller what rules counted, and why some pods are not judged.
struct Telling {
    enforcement: Enforcement,
    joined: watch::Receiver<Option<Client>>,
    /// What the controller knows; none if it knows nothing.
    told: Option<Told>,
}

#[derive(Default)]
struct Told {
    uncovered: Vec<String>,
    counters: HashMap<CounterId, Counted>,
}

impl Telling {
    async fn run(mut self) {
        for turn in 0_usize.. {
            tokio::select! {
                () = tokio::time::sleep(TELL) => {}
                changed = self.joined.changed() => match changed {
                    // Another connection, perhaps to another controller.
                    Ok(()) => self.told = None,
                    Err(_) => return,
                },
            }
            if turn.is_multiple_of(ANEW) {
                self.told = None;
            }
            let Some(client) = self.joined.borrow_and_update().clone() else { continue };
            if let Err(error) = self.tell(&client).await {
                debug!(%error, "what rules counted is told later");
                self.told = None;
            }
        }
    }

    async fn tell(&mut self, client: &Client) -> Result<(), ClientError> {
        let unusable = |error| ClientError::Over(sentence(&error));
        let counters = self.enforcement.counters(Deadline::after(ASK)).await.map_err(unusable)?;
        let uncovered = self.enforcement.status().read(|status| status.uncovered.clone());
        let anew = self.told.is_none();
        let told = self.told.take().unwrap_or_default();
        let new = |(counter, counted): &(&CounterId, &Counted)| {
            counted.packets > 0 && told.counters.get(*counter) != Some(*counted)
        };
        let total = |(counter, counted): (&CounterId, &Counted)| RuleTotal {
            counter: *counter,
            packets: counted.packets,
            bytes: counted.bytes,
        };
        let totals: Vec<_> = counters.iter().filter(new).map(total).collect();
        if anew && totals.is_empty() || told.uncovered != uncovered && totals.is_empty() {
            client.enforced(&uncovered, &[], anew, Deadline::after(ASK)).await?;
        }
        for (at, some) in totals.chunks(TOTALS).enumerate() {
            client.enforced(&uncovered, some, anew && at == 0, Deadline::after(ASK)).await?;
        }
        self.told = Some(Told { uncovered, counters });
        Ok(())
    }
}
