//! `Peer`: the object by which a data plane learns of a peer, Kilo's `Peer` or our own `WireguardPeer`.
//! Both have the same fields. Kilo's preshared key is not one of them: it is never read, so it can never
//! be shown, and a patch leaves it as it is.

use std::borrow::Cow;
use std::net::IpAddr;

use k8s_openapi::ClusterResourceScope;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use objects::kinds::{DataPlane, WireguardRouting, WireguardWithin};
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

/// A peer of the kind that its data plane knows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub spec: PeerSpec,
}

impl Resource for Peer {
    type DynamicType = DataPlane;
    type Scope = ClusterResourceScope;

    fn kind(plane: &DataPlane) -> Cow<'_, str> {
        match plane {
            DataPlane::Kilo => "Peer".into(),
            DataPlane::Wireguard => "WireguardPeer".into(),
        }
    }

    fn group(plane: &DataPlane) -> Cow<'_, str> {
        match plane {
            DataPlane::Kilo => "kilo.squat.ai".into(),
            DataPlane::Wireguard => "fairlead.dev".into(),
        }
    }

    fn version(_: &DataPlane) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural(plane: &DataPlane) -> Cow<'_, str> {
        match plane {
            DataPlane::Kilo => "peers".into(),
            DataPlane::Wireguard => "wireguardpeers".into(),
        }
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
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
    /// The key that the node is about to use. Kilo has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_public_key: Option<String>,
    /// Of a node of the same cluster, which has gateways. Kilo has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<WireguardWithin>,
    /// When packets are sent to it. Kilo has none.
    #[serde(default, skip_serializing_if = "WireguardRouting::is_always")]
    pub routing: WireguardRouting,
    /// Ranges in which nothing is sent but to peers. Kilo has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external_networks: Vec<String>,
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

    /// The endpoint as `wg` takes it.
    pub(crate) fn text(&self) -> String {
        let port = self.port;
        match (&self.dns_or_ip.ip, &self.dns_or_ip.dns) {
            (Some(ip), _) if ip.contains(':') => format!("[{ip}]:{port}"),
            (Some(host), _) | (None, Some(host)) => format!("{host}:{port}"),
            (None, None) => String::new(),
        }
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
    /// Makes a peer of the kind that a data plane knows.
    pub fn new(plane: DataPlane, name: &str, spec: PeerSpec) -> Self {
        Self {
            api_version: Self::api_version(&plane).into_owned(),
            kind: Self::kind(&plane).into_owned(),
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec,
        }
    }

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
