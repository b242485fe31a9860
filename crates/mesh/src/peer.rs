//! The fields of Kilo's `Peer` that the mesh writes. The preshared key is not one of them: it is never
//! read, so it can never be shown, and a patch leaves it as it is.

use std::net::IpAddr;

use kube::{CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};

/// The labels that say which mesh a peer belongs to.
pub mod label {
    pub const MESH: &str = "fairlead.dev/mesh";
    pub const NAMESPACE: &str = "fairlead.dev/mesh-namespace";
    pub const CLUSTER: &str = "fairlead.dev/source-cluster";
    /// The labels of kilo-clustermesh, whose peers are adopted on request.
    pub const KILO_MESH: &str = "kilo-clustermesh.io/mesh";
    pub const KILO_CLUSTER: &str = "kilo-clustermesh.io/source-cluster";
}

#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "kilo.squat.ai",
    version = "v1alpha1",
    kind = "Peer",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct PeerSpec {
    #[serde(rename = "allowedIPs", default)]
    pub allowed_ips: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<PeerEndpoint>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub persistent_keepalive: u32,
    #[serde(default)]
    pub public_key: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct PeerEndpoint {
    #[serde(rename = "dnsOrIP", default)]
    pub dns_or_ip: DnsOrIp,
    #[serde(default)]
    pub port: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DnsOrIp {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

impl PeerEndpoint {
    pub(crate) fn ip(ip: IpAddr, port: u16) -> Self {
        let dns_or_ip = DnsOrIp { ip: Some(ip.to_string()), dns: None };
        Self { dns_or_ip, port: port.into() }
    }

    pub(crate) fn dns(name: String, port: u16) -> Self {
        Self { dns_or_ip: DnsOrIp { dns: Some(name), ip: None }, port: port.into() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl Peer {
    /// Returns the cluster of the peer's node if the peer belongs to this mesh; with `adopt`, also if
    /// kilo-clustermesh made the peer for a mesh of this name.
    pub(crate) fn source<'a>(
        &'a self,
        namespace: &str,
        mesh: &str,
        adopt: bool,
    ) -> Option<&'a str> {
        let label = |key: &str| self.labels().get(key).map(String::as_str);
        let owned = label(label::MESH) == Some(mesh) && label(label::NAMESPACE) == Some(namespace);
        let unclaimed = label(label::MESH).is_none() && label(label::KILO_MESH) == Some(mesh);
        if owned {
            // A peer without its cluster's label is still the mesh's to remove.
            Some(label(label::CLUSTER).unwrap_or_default())
        } else if adopt && unclaimed {
            label(label::KILO_CLUSTER)
        } else {
            None
        }
    }
}
