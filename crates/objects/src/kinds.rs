//! The kinds of `fairlead.dev/v1alpha1`, one a file, and the kinds of Kubernetes that the store
//! keeps beside them.

mod access;
pub mod admission_rule;
mod cluster;
mod field;
mod group;
mod mesh;
mod network_rule;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use access::{
    AccessRole, AccessRoleSpec, AccessToken, AccessTokenSpec, Rule, User, UserSpec, VERBS,
};
pub use admission_rule::{AdmissionRule, AdmissionRuleSpec};
pub use cluster::{Cluster, ClusterSpec, ClusterStatus, KubeconfigSecret};
pub use group::{
    Group, GroupCriterion, GroupKey, GroupMode, GroupOp, GroupSpec, GroupStatus, RESERVED_GROUPS,
    network,
};
pub use mesh::{
    ClusterMesh, ClusterMeshSpec, ClusterMeshStatus, KubeconfigSecretRef, MOST_SKIPPED,
    MeshCluster, MeshClusterRef, MeshClusterStatus, MeshCondition, MeshState, SkippedNode,
};
pub use network_rule::{GroupName, NetworkRule, NetworkRuleSpec, Ports, Protocol, RuleAction};

use crate::store::{Invalid, Kind};

/// Every definition, in the order of their names.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        AccessRole::crd(),
        AccessToken::crd(),
        AdmissionRule::crd(),
        ClusterMesh::crd(),
        Cluster::crd(),
        Group::crd(),
        NetworkRule::crd(),
        User::crd(),
    ]
}

impl Kind for Secret {
    const NAME: &'static str = "Secret";
    const NAMESPACED: bool = true;

    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

impl Kind for ConfigMap {
    const NAME: &'static str = "ConfigMap";
    const NAMESPACED: bool = true;

    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

impl Kind for Lease {
    const NAME: &'static str = "Lease";
    const NAMESPACED: bool = true;

    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }
}
