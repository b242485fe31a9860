//! `FleetView`: every cluster of the fleet in one generation.
//!
//! Contract:
//! - A view is a plain value. A change of a source, however large, is one step; a change of one
//!   cluster's state changes that cluster's entry alone.
//! - The generation that shows a cluster as usable has its [`Connection`], too.
//! - The time and latency of the last answer change with every probe. They are in [`Heartbeat`], beside
//!   the generations: they are always the newest, and a change of them wakes nobody.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use stallproof::Map;

use crate::actor::Actor;
use crate::connection::{ClusterCalls, Connection};
use crate::credentials::Access;
use crate::error::Error;
use crate::source::Offer;

/// The whole fleet at one moment.
#[derive(Clone, Default)]
pub struct FleetView {
    pub clusters: Map<Arc<str>, Arc<ClusterView>>,
    /// Clusters whose name belongs to another source, in the order of their names.
    pub shadowed: Arc<[Arc<ClusterView>]>,
    /// Whether every source has told its clusters at least once.
    pub synced: bool,
    /// The connections of the clusters that can be called, which are the ready and degraded ones.
    pub(crate) connections: Map<Arc<str>, Connection>,
    /// The offers that `clusters` was made from.
    pub(crate) wanted: Map<Arc<str>, DesiredCluster>,
}

/// A cluster as its source wants it.
#[derive(Clone)]
pub(crate) struct DesiredCluster {
    pub(crate) offer: Arc<Offer>,
    /// Tells this cluster from earlier ones of the same name: a cluster that was removed and came back
    /// is a new one, and so is one with another server.
    pub(crate) incarnation: u64,
    pub(crate) calls: Arc<ClusterCalls>,
    pub(crate) heartbeat: Heartbeat,
}

impl DesiredCluster {
    /// How to reach the cluster, if it is enabled and its source says how.
    pub(crate) fn access(&self) -> Option<&Arc<Access>> {
        self.offer.access.as_ref().ok().filter(|_| self.offer.enabled)
    }
}

/// One cluster as users see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    #[serde(serialize_with = "text")]
    pub name: Arc<str>,
    pub source: Source,
    pub labels: BTreeMap<String, String>,
    /// The address of the API server, without credentials.
    pub server: Option<String>,
    pub state: State,
    pub since: Timestamp,
    /// A sentence that says what is wrong; `None` while nothing is.
    pub why: Option<String>,
    /// The version of the API server, such as `v1.31.2`.
    pub version: Option<String>,
    /// The number of nodes; `None` when the cluster does not allow us to list them.
    pub nodes: Option<u64>,
    /// When a cluster that is not ready is tried again.
    pub next_try: Option<Timestamp>,
    /// Whether users act on it under their own names.
    pub impersonating: bool,
    /// The source that this name belongs to, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadowed_by: Option<Source>,
    #[serde(flatten)]
    pub heartbeat: Heartbeat,
}

/// The state of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It was not tried yet, or the first attempt is under way.
    Connecting,
    Ready,
    /// It can be called, and something is wrong; `why` says what.
    Degraded,
    /// It does not answer.
    Unreachable,
    /// It answers, and does not accept our credentials.
    Unauthorised,
    /// Its kubeconfig or its certificate is wrong.
    Misconfigured,
    /// A user has disabled it.
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
    /// The path of the file, or the name of the Secret or object.
    pub place: String,
}

/// The kinds of sources in their order of precedence: of two sources that offer one name from the start
/// the first gets it, and within one source the first in its own order (files as listed, Secrets by
/// age). Others than the operator may write Secrets, so that these come last. An offer that has a name
/// keeps it as long as it is made.
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

/// The time and latency of a cluster's last answer. Its connector writes it, anybody reads it.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<LastAnswer>);

#[derive(Debug, Default)]
struct LastAnswer {
    /// Milliseconds since 1970; 0 means never.
    seen: AtomicI64,
    /// Microseconds; 0 means unknown.
    latency: AtomicU64,
}

impl Heartbeat {
    pub(crate) fn record(&self, at: Timestamp, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.latency.store(micros.max(1), Relaxed);
        self.0.seen.store(at.as_millisecond(), Relaxed);
    }

    pub fn last_seen(&self) -> Option<Timestamp> {
        let seen = self.0.seen.load(Relaxed);
        (seen != 0).then(|| Timestamp::from_millisecond(seen).ok()).flatten()
    }

    /// The latency of the last probe that was answered.
    pub fn latency(&self) -> Option<Duration> {
        let micros = self.0.latency.load(Relaxed);
        (micros != 0).then(|| Duration::from_micros(micros))
    }
}

/// Compares identity, not the time: a new answer does not make a view differ.
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
    /// Whether it can be called.
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
    /// Returns the connection of a cluster, or why there is none. Where users act under their own names it
    /// is refused: nothing of theirs is done as Fairlead by mistake.
    pub fn connection(&self, name: &str) -> Result<Connection, Error> {
        let connection = self.own_connection(name)?;
        match connection.impersonation() {
            None => Ok(connection),
            Some(_) => {
                let why = "nobody is named to act as".to_owned();
                Err(Error::Impersonation { cluster: name.to_owned(), why })
            }
        }
    }

    /// Returns the connection of a cluster on which everything is done as `actor`, where users act under
    /// their own names; otherwise as Fairlead.
    pub fn connection_as(&self, name: &str, actor: &Actor) -> Result<Connection, Error> {
        self.own_connection(name)?.acting_as(actor)
    }

    /// Whether users act on the cluster under their own names.
    pub fn is_impersonating(&self, name: &str) -> bool {
        let wanted = self.wanted.get(name).and_then(|wanted| wanted.offer.access.as_ref().ok());
        wanted.is_some_and(|access| access.impersonation.is_some())
    }

    /// Returns the connection for Fairlead's own work, which no user asked for.
    pub fn own_connection(&self, name: &str) -> Result<Connection, Error> {
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
            // An attempt that is due is under way.
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
