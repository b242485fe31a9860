//! `FleetView`: what the fleet publishes: every cluster, one generation, whole.
//!
//! Contract:
//! - A view is a value. A sync of a source, however large, changes it in one step; a cluster's own
//!   progress changes only that cluster's entry.
//! - A cluster that can be called has its [`Connection`] in the same generation that says so.
//! - What changes with every probe and wakes nobody (when it was last seen, how fast it answered)
//!   is in [`Heartbeat`], beside the generations: it is always the newest.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use stallproof::Map;

use crate::connection::{ClusterCalls, Connection};
use crate::credentials::Access;
use crate::error::Error;
use crate::source::Offer;

/// The whole fleet at one moment.
#[derive(Clone, Default)]
pub struct FleetView {
    pub clusters: Map<Arc<str>, Arc<ClusterView>>,
    /// Those whose name another source has taken, in the order of their names.
    pub shadowed: Arc<[Arc<ClusterView>]>,
    /// Whether every source has told at least once what it has.
    pub synced: bool,
    /// Those that can be called: exactly the clusters that are ready or degraded and have a client.
    pub(crate) connections: Map<Arc<str>, Connection>,
    /// What `clusters` was made from.
    pub(crate) wanted: Map<Arc<str>, DesiredCluster>,
}

/// A cluster as it is to be.
#[derive(Clone)]
pub(crate) struct DesiredCluster {
    pub(crate) offer: Arc<Offer>,
    /// Which life of a cluster by this name: one that was removed and came back is another, and so
    /// is one with another server.
    pub(crate) incarnation: u64,
    pub(crate) tenant: Arc<ClusterCalls>,
    pub(crate) heartbeat: Heartbeat,
}

impl DesiredCluster {
    /// How to reach it, if it is to be connected to and that can be.
    pub(crate) fn access(&self) -> Option<&Arc<Access>> {
        self.offer.access.as_ref().ok().filter(|_| self.offer.enabled)
    }
}

/// One cluster, as a person is shown it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    #[serde(serialize_with = "text")]
    pub name: Arc<str>,
    pub source: Source,
    pub labels: BTreeMap<String, String>,
    /// The address of its API server, without credentials.
    pub server: Option<String>,
    pub state: State,
    pub since: Timestamp,
    /// The sentence a person needs; none while all is well.
    pub why: Option<String>,
    /// As its `/version` says: `v1.31.2`.
    pub version: Option<String>,
    /// Unknown when we may not list them.
    pub nodes: Option<u64>,
    /// When it is tried again, while it is not well.
    pub next_try: Option<Timestamp>,
    /// The source that has this name instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadowed_by: Option<Source>,
    #[serde(flatten)]
    pub heartbeat: Heartbeat,
}

/// How it stands with a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not tried yet, or the first try is under way.
    Connecting,
    Ready,
    /// It can be called, and something is wrong: see `why`.
    Degraded,
    /// It does not answer.
    Unreachable,
    /// It answers, and does not take our credentials.
    Unauthorised,
    /// It cannot work as it is set up: what is wrong is on our side or in its certificate.
    Misconfigured,
    /// Somebody said that it is not to be connected to.
    Disabled,
}

impl State {
    pub const ALL: [Self; 7] = [
        Self::Connecting,
        Self::Ready,
        Self::Degraded,
        Self::Unreachable,
        Self::Unauthorised,
        Self::Misconfigured,
        Self::Disabled,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Unreachable => "unreachable",
            Self::Unauthorised => "unauthorised",
            Self::Misconfigured => "misconfigured",
            Self::Disabled => "disabled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a cluster comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    pub kind: SourceKind,
    /// The file, the Secret, the object.
    pub place: String,
}

/// In the order of precedence: of two sources that offer one name from the start the first has it, and
/// within one source the first in its own order (files as listed, Secrets by age). Who can write a Secret
/// is not who runs Fairlead, so that Secrets come last. Whoever has a name keeps it while it is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    Imported,
    InCluster,
    Kubeconfig,
    Secret,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SourceKind::Imported => write!(f, "an import"),
            SourceKind::Secret => write!(f, "Secret {}", self.place),
            SourceKind::InCluster => write!(f, "the service account of this pod"),
            SourceKind::Kubeconfig => write!(f, "{}", self.place),
        }
    }
}

/// When a cluster last answered, and how fast. Written by its prober, read by anyone.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<LastAnswer>);

#[derive(Debug, Default)]
struct LastAnswer {
    /// Milliseconds since 1970; 0: never.
    seen: AtomicI64,
    /// In microseconds; 0: unknown.
    latency: AtomicU64,
}

impl Heartbeat {
    pub(crate) fn beat(&self, at: Timestamp, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.latency.store(micros.max(1), Relaxed);
        self.0.seen.store(at.as_millisecond(), Relaxed);
    }

    pub fn last_seen(&self) -> Option<Timestamp> {
        let seen = self.0.seen.load(Relaxed);
        (seen != 0).then(|| Timestamp::from_millisecond(seen).ok()).flatten()
    }

    /// Of the last probe that was answered.
    pub fn latency(&self) -> Option<Duration> {
        let micros = self.0.latency.load(Relaxed);
        (micros != 0).then(|| Duration::from_micros(micros))
    }
}

/// The same pulse, not the same beat.
impl PartialEq for Heartbeat {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Serialize for Heartbeat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("lastSeen", &self.last_seen())?;
        let ms = self.latency().map(|latency| latency.as_micros() as f64 / 1000.0);
        map.serialize_entry("latencyMs", &ms)?;
        map.end()
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

impl ClusterView {
    /// Whether calls are let through to it.
    pub fn is_usable(&self) -> bool {
        matches!(self.state, State::Ready | State::Degraded)
    }

    /// How long ago it last answered.
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        let age = now.duration_since(self.heartbeat.last_seen()?);
        Some(age.max(SignedDuration::ZERO).unsigned_abs())
    }
}

impl FleetView {
    /// A map lookup.
    pub fn connection(&self, name: &str) -> Result<Connection, Error> {
        if let Some(connection) = self.connections.get(name) {
            return Ok(connection.clone());
        }
        let cluster = name.to_owned();
        let Some(view) = self.clusters.get(name) else {
            return Err(Error::NoSuchCluster { cluster });
        };
        let soon = Duration::from_secs(1);
        let retry_after = match view.state {
            State::Connecting => Some(soon),
            // What is due is under way.
            _ => view.next_try.map(|next| {
                Duration::try_from(next.duration_since(Timestamp::now())).unwrap_or(soon)
            }),
        };
        let why = view.why.clone().unwrap_or_else(|| match view.state {
            State::Disabled => "enable it first".to_owned(),
            _ => "it has not answered yet".to_owned(),
        });
        Err(Error::NotReady { cluster, state: view.state.name(), why, retry_after })
    }

    /// How many clusters are in each state, in the order of [`State::ALL`].
    pub fn counts(&self) -> [(State, usize); State::ALL.len()] {
        let mut counts = State::ALL.map(|state| (state, 0));
        for view in self.clusters.values() {
            counts[view.state as usize].1 += 1;
        }
        counts
    }
}

impl fmt::Debug for FleetView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FleetView { clusters, shadowed, synced, .. } = self;
        f.debug_struct("FleetView")
            .field("clusters", clusters)
            .field("shadowed", shadowed)
            .field("synced", synced)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
