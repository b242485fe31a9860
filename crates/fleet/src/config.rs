//! What a fleet is told at its start.

use std::path::PathBuf;
use std::time::Duration;

use objects::Selector;

#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// As a `KUBECONFIG` list: the first that has a name wins; those that are not there yet are
    /// picked up when they appear.
    pub kubeconfigs: Vec<PathBuf>,
    /// The cluster this process runs in; see [`InCluster::detect`].
    pub in_cluster: Option<InCluster>,
    pub secrets: Option<Secrets>,
    /// Where imported kubeconfigs and the list of disabled clusters are kept.
    pub namespace: String,
    pub timing: Timing,
}

/// How to find the API server of the cluster that runs this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InCluster {
    /// What the cluster is called here.
    pub name: String,
    pub host: String,
    pub port: u16,
    /// Where the service account's `token`, `ca.crt` and `namespace` are mounted.
    pub mounted: PathBuf,
}

/// Which Secrets hold kubeconfigs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secrets {
    pub selector: Selector,
    /// Where they are looked for; none: in all namespaces.
    pub namespace: Option<String>,
    /// Cluster API's `<cluster>-kubeconfig` as well.
    pub cluster_api: bool,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// To find the address and connect to it, and to the proxy if there is one.
    pub connect: Duration,
    /// The TLS handshake.
    pub tls: Duration,
    /// The answer to one request of a probe.
    pub answer: Duration,
    /// One run of an exec plugin.
    pub plugin: Duration,
    /// From one probe of a healthy cluster to the next; up to a quarter more or less at random.
    pub probe: Duration,
    /// A ready cluster that has not answered a probe for this long is no longer called ready.
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
    /// What the kubelet tells a pod, if this is one.
    pub fn detect() -> Option<Self> {
        Some(Self {
            name: "in-cluster".to_owned(),
            host: std::env::var("KUBERNETES_SERVICE_HOST").ok()?,
            port: std::env::var("KUBERNETES_SERVICE_PORT").ok()?.parse().ok()?,
            mounted: PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount"),
        })
    }
}
