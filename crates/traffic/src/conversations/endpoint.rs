//! Who talks: an `Endpoint` is what an address stands for, an [`End`] is both.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Several addresses may be one endpoint: both families of a pod, all of a named network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// A pod with an address of its own.
    Workload {
        namespace: Arc<str>,
        name: Arc<str>,
        /// Kind and name of what it was made by, as `Deployment/web`; its own if nothing.
        owner: Arc<str>,
        node: Arc<str>,
    },
    /// A node, and the pods in its network.
    Host { name: Arc<str> },
    /// A service's cluster address.
    Service { namespace: Arc<str>, name: Arc<str> },
    /// An address of a service at which the cluster is entered from outside.
    Ingress { namespace: Arc<str>, name: Arc<str> },
    /// Outside of the cluster; by name where its network has one.
    External { name: Option<Arc<str>> },
    /// In the cluster's own ranges, and nobody's that we know.
    Unmanaged,
}

impl Endpoint {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Workload { .. } => "workload",
            Self::Host { .. } => "host",
            Self::Service { .. } => "service",
            Self::Ingress { .. } => "ingress",
            Self::External { .. } => "external",
            Self::Unmanaged => "unmanaged",
        }
    }

    pub fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Self::Workload { namespace, .. }
            | Self::Service { namespace, .. }
            | Self::Ingress { namespace, .. } => Some(namespace),
            Self::Host { .. } | Self::External { .. } | Self::Unmanaged => None,
        }
    }

    /// Whose agent sees its connections from nearby.
    pub fn node(&self) -> Option<&Arc<str>> {
        match self {
            Self::Workload { node, .. } => Some(node),
            Self::Host { name } => Some(name),
            _ => None,
        }
    }

    /// The namespace, or the kind of what has none: where a conversation is remembered once it is
    /// too old to be kept by itself.
    pub fn realm(&self) -> &str {
        self.namespace().map_or(self.kind(), |namespace| namespace)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload { namespace, name, .. } => write!(f, "{namespace}/{name}"),
            Self::Host { name } => write!(f, "host {name}"),
            Self::Service { namespace, name } => write!(f, "service {namespace}/{name}"),
            Self::Ingress { namespace, name } => write!(f, "ingress {namespace}/{name}"),
            Self::External { name: Some(name) } => write!(f, "external {name}"),
            Self::External { name: None } => f.write_str("external"),
            Self::Unmanaged => f.write_str("unmanaged"),
        }
    }
}

/// One side of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct End {
    pub endpoint: Arc<Endpoint>,
    pub address: IpAddr,
}
