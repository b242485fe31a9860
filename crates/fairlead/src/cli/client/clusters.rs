//! The clusters of the fleet, as the server lists them.

use serde::Deserialize;

/// One cluster of the fleet, as the server sees it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClusterView {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) since: Option<String>,
    pub(crate) why: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) nodes: Option<u64>,
    pub(crate) latency_ms: Option<f64>,
    pub(crate) source: Option<String>,
    /// The source whose cluster has this name instead.
    pub(crate) shadowed_by: Option<String>,
}

impl ClusterView {
    /// Whether the cluster answers requests; slowly, when it is degraded.
    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.state.as_str(), "ready" | "degraded")
    }
}

/// All clusters that the user may see, at one moment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Clusters {
    pub(crate) clusters: Vec<ClusterView>,
    /// Clusters whose name another source has taken: listed, and not used.
    pub(crate) shadowed: Vec<ClusterView>,
    /// The server's advice when there is no cluster.
    pub(crate) hint: Option<String>,
}

impl Clusters {
    /// All clusters, those that are used first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ClusterView> {
        self.clusters.iter().chain(&self.shadowed)
    }
}
