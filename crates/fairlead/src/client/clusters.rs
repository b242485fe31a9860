//! The clusters that the server shows.

use serde::{Deserialize, Serialize};

/// One cluster of the fleet, as the server sees it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClusterView {
    pub(crate) name: String,
    pub(crate) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_try: Option<String>,
}

impl ClusterView {
    /// Whether requests to it are answered; slowly, when it is degraded.
    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.state.as_str(), "ready" | "degraded")
    }
}

/// All that one may see, at one generation.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Clusters {
    #[serde(default)]
    pub(crate) generation: u64,
    pub(crate) clusters: Vec<ClusterView>,
}
