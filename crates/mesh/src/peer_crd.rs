//! The CustomResourceDefinition of Kilo's `Peer`, with the names, fields and types of Kilo's own. Where
//! Kilo is installed, its own definition is there already and is left alone.

use serde_json::{Value, json};

pub(crate) const PEER_CRD_NAME: &str = "peers.kilo.squat.ai";

/// Returns the definition as an API server takes it.
pub fn peer_crd() -> Value {
    let text = |what: &str| json!({"type": "string", "description": what});
    let endpoint = json!({
        "type": "object",
        "description": "Where the peer is reached first.",
        "required": ["dnsOrIP", "port"],
        "properties": {
            "dnsOrIP": {
                "type": "object",
                "description": "Its name or its address.",
                "properties": {"dns": text("A name."), "ip": text("An address.")},
            },
            "port": {"type": "integer", "format": "int32", "description": "Its UDP port."},
        },
    });
    let spec = json!({
        "type": "object",
        "required": ["allowedIPs", "publicKey"],
        "properties": {
            "allowedIPs": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The networks that are behind the peer.",
            },
            "endpoint": endpoint,
            "persistentKeepalive": {
                "type": "integer",
                "description": "Seconds between keepalives; 0 is none.",
            },
            "presharedKey": text("A key that both sides know beside their own."),
            "publicKey": text("The peer's public key."),
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": PEER_CRD_NAME},
        "spec": {
            "group": "kilo.squat.ai",
            "scope": "Cluster",
            "names": {"kind": "Peer", "listKind": "PeerList", "plural": "peers", "singular": "peer"},
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A peer of Kilo's WireGuard network.",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec,
                    },
                }},
            }],
        },
    })
}

#[cfg(test)]
mod tests;
