//! The kinds of `fairlead.dev/v1alpha1`, one a file, and the kinds of Kubernetes that the store
//! keeps beside them.

mod access;
pub mod admission_rule;
mod cluster;
mod field;
mod mesh;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, ReplicationController, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use access::{
    AccessRole, AccessRoleSpec, AccessToken, AccessTokenSpec, Rule, User, UserSpec, VERBS,
};
pub use admission_rule::{AdmissionRule, AdmissionRuleSpec, AdmissionRuleStatus};
pub use cluster::{Cluster, ClusterSpec, ClusterStatus, KubeconfigSecret};
pub use mesh::{
    ClusterMesh, ClusterMeshSpec, ClusterMeshStatus, KubeconfigSecretRef, MOST_SKIPPED,
    MeshCluster, MeshClusterRef, MeshClusterStatus, MeshCondition, MeshState, SkippedNode,
};

use crate::store::{Invalid, Kind};

/// Every definition, in the order of their names.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        AccessRole::crd(),
        AccessToken::crd(),
        AdmissionRule::crd(),
        ClusterMesh::crd(),
        Cluster::crd(),
        User::crd(),
    ]
}

/// Kinds of Kubernetes: their own server checks them.
macro_rules! kubernetes {
    ($($kind:ident: $namespaced:literal,)*) => {$(
        impl Kind for $kind {
            const NAME: &'static str = stringify!($kind);
            const NAMESPACED: bool = $namespaced;

            fn check(&self) -> Result<(), Invalid> {
                Ok(())
            }
        }
    )*};
}

kubernetes! {
    ClusterRole: false,
    ClusterRoleBinding: false,
    ConfigMap: true,
    CronJob: true,
    DaemonSet: true,
    Deployment: true,
    Job: true,
    Lease: true,
    PersistentVolumeClaim: true,
    ReplicaSet: true,
    ReplicationController: true,
    Role: true,
    RoleBinding: true,
    Secret: true,
    StatefulSet: true,
    ValidatingWebhookConfiguration: false,
}
