//! The configuration of a fleet.

use std::path::PathBuf;
use std::time::Duration;

use objects::Selector;

use crate::resources::usage_history::PrometheusService;

#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// Kubeconfig files, as in `KUBECONFIG`: the first file that has a name wins. A file that does not
    /// exist yet is read when it appears.
    pub kubeconfigs: Vec<PathBuf>,
    /// The cluster this process runs in; see [`InCluster::detect`].
    pub in_cluster: Option<InCluster>,
    pub secrets: Option<Secrets>,
    /// The namespace of the store that holds imported kubeconfigs and the list of disabled clusters.
    pub namespace: String,
    /// Whether clusters that were imported, or that Secrets name, may be at loopback, link-local and metadata
    /// addresses. Those of kubeconfig files always may: they are the owner's.
    pub local_imports: bool,
    /// Clusters on which users act under their own names, beside those whose object says so.
    pub impersonate: Vec<String>,
    /// Where clusters have a Prometheus that knows what was used.
    pub prometheus: Option<PrometheusService>,
    pub timing: Timing,
}

/// How to find the API server of the cluster that runs this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InCluster {
    /// The name of the cluster in the fleet.
    pub name: String,
    pub host: String,
    pub port: u16,
    /// The directory that the service account's `token`, `ca.crt` and `namespace` are mounted in.
    pub mounted: PathBuf,
}

/// Which Secrets hold kubeconfigs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secrets {
    pub selector: Selector,
    /// The namespace to look in; `None` means all namespaces.
    pub namespace: Option<String>,
    /// Whether Cluster API's `<cluster>-kubeconfig` Secrets are taken as well.
    pub cluster_api: bool,
}

/// Limits and intervals of connecting and probing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The limit for finding the address and connecting to it, and to the proxy if there is one.
    pub connect: Duration,
    /// The limit for the TLS handshake.
    pub tls: Duration,
    /// The limit for the answer to one request of a probe.
    pub answer: Duration,
    /// The limit for one run of an exec plugin.
    pub plugin: Duration,
    /// The interval between probes of a healthy cluster, a quarter more or less at random.
    pub probe: Duration,
    /// A cluster that has not answered a probe for this long is no longer shown as ready.
    pub slow: Duration,
    /// The longest wait before a failing cluster is tried again.
    pub retry: Duration,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            kubeconfigs: Vec::new(),
            in_cluster: None,
            secrets: None,
            namespace: "fairlead".to_owned(),
            local_imports: true,
            impersonate: Vec::new(),
            prometheus: None,
            timing: Timing::default(),
        }
    }
}

impl Default for Secrets {
    fn default() -> Self {
        let selector = "fairlead.dev/cluster".parse().expect("a label's name is a selector");
        Self { selector, namespace: None, cluster_api: true }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            tls: Duration::from_secs(5),
            answer: Duration::from_secs(5),
            plugin: Duration::from_secs(15),
            probe: Duration::from_secs(10),
            slow: Duration::from_secs(2),
            retry: Duration::from_secs(30),
        }
    }
}

impl InCluster {
    /// Reads what the kubelet tells a pod; `None` outside of a pod.
    pub fn detect() -> Option<Self> {
        Some(Self {
            name: "in-cluster".to_owned(),
            host: std::env::var("KUBERNETES_SERVICE_HOST").ok()?,
            port: std::env::var("KUBERNETES_SERVICE_PORT").ok()?.parse().ok()?,
            mounted: PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount"),
        })
    }
}
