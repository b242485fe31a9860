//! Network policies of Kubernetes and of its network-policy API, as they are written: reading what they
//! say is another's matter, which then sees fields of later versions, too.
//!
//! The kinds of `policy.networking.k8s.io` are definitions that a cluster may lack, and that may come and go.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::store::{Invalid, Kind};

macro_rules! written_policies {
    ($($(#[$doc:meta])* $kind:ident: $scope:ty, $namespaced:literal, $group:literal, $version:literal, $plural:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $kind {
            pub metadata: ObjectMeta,
            #[serde(default)]
            pub spec: Value,
        }

        impl $kind {
            /// The object as a manifest has it, with its name and without the server's bookkeeping.
            pub fn manifest(&self) -> Value {
                manifest(concat!($group, "/", $version), stringify!($kind), &self.metadata, &self.spec)
            }
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl Kind for $kind {
            const NAME: &'static str = stringify!($kind);
            const NAMESPACED: bool = $namespaced;

            fn check(&self) -> Result<(), Invalid> {
                Ok(())
            }
        }
    )*};
}

written_policies! {
    /// Kubernetes' own, of `networking.k8s.io/v1`.
    NetworkPolicy: NamespaceResourceScope, true, "networking.k8s.io", "v1", "networkpolicies";
    /// Of `policy.networking.k8s.io/v1alpha2`.
    ClusterNetworkPolicy: ClusterResourceScope, false, "policy.networking.k8s.io", "v1alpha2", "clusternetworkpolicies";
    /// Of `policy.networking.k8s.io/v1alpha1`.
    AdminNetworkPolicy: ClusterResourceScope, false, "policy.networking.k8s.io", "v1alpha1", "adminnetworkpolicies";
    /// Of `policy.networking.k8s.io/v1alpha1`.
    BaselineAdminNetworkPolicy: ClusterResourceScope, false, "policy.networking.k8s.io", "v1alpha1", "baselineadminnetworkpolicies";
}

fn manifest(version: &str, kind: &str, metadata: &ObjectMeta, spec: &Value) -> Value {
    let mut named = json!({"name": metadata.name});
    if let Some(namespace) = &metadata.namespace {
        named["namespace"] = json!(namespace);
    }
    json!({"apiVersion": version, "kind": kind, "metadata": named, "spec": spec})
}
