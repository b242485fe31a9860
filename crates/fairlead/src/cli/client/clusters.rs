//! The clusters that the server shows.

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
    /// The source that has its name instead.
    pub(crate) shadowed_by: Option<String>,
}

impl ClusterView {
    /// Whether requests to it are answered; slowly, when it is degraded.
    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.state.as_str(), "ready" | "degraded")
    }
}

/// All that one may see, at one moment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Clusters {
    pub(crate) clusters: Vec<ClusterView>,
    /// Those whose name another source has taken: shown, and not used.
    pub(crate) shadowed: Vec<ClusterView>,
    /// What to do when there is none.
    pub(crate) hint: Option<String>,
}

impl Clusters {
    /// Those that are used, then those that are not.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &ClusterView> {
        self.clusters.iter().chain(&self.shadowed)
    }
}
