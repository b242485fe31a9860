//! The kinds of `fairlead.dev/v1alpha1`, one a file, and the kinds of Kubernetes that the store
//! keeps beside them.

mod access;
mod address_block;
mod address_pool;
pub mod admission_rule;
mod cluster;
mod disruption_budget;
mod egress;
mod field;
mod group;
mod identity;
mod image_report;
mod image_trust_root;
mod mesh;
mod network_rule;
mod networks;
mod open_report;
mod policies;
mod receiver;
mod response_rule;
mod schema;
mod vulnerability_exception;
mod wireguard;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolumeClaim, Pod, ReplicationController, Secret,
    Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use access::{
    AccessRole, AccessRoleSpec, AccessToken, AccessTokenSpec, Rule, User, UserSpec, VERBS,
};
pub use address_block::{AddressBlock, AddressBlockSpec, AddressBlockStatus};
pub use address_pool::{
    AddressPool, AddressPoolSpec, AddressPoolStatus, MOST_BLOCK_BITS, MOST_NODES, Masquerade,
    MasqueradeRule, Networks, NodeBlocks, Overlay, Subnet,
};
pub use admission_rule::{AdmissionRule, AdmissionRuleSpec, AdmissionRuleStatus};
pub use cluster::{Cluster, ClusterSpec, ClusterStatus, Impersonation, KubeconfigSecret};
pub use disruption_budget::BetaPodDisruptionBudget;
pub use egress::{
    EGRESS_ANNOTATIONS, Egress, EgressDisruptionBudget, EgressFailure, EgressPodMetadata,
    EgressPodTemplate, EgressReplica, EgressSpec, EgressStatus, MOST_REPLICAS, SessionAffinity,
};
pub use group::{
    Group, GroupCriteria, GroupCriterion, GroupKey, GroupMode, GroupOp, GroupSpec, GroupStatus,
    GroupSubject, RESERVED_GROUPS, domain, network,
};
pub use identity::{
    ClientSecret, IdentityProvider, IdentityProviderSpec, RoleMapping, RoleMappingSpec,
};
pub use image_report::{ImageReport, ImageReportSpec, ImageReportSummary, LONGEST_DATA};
pub use image_trust_root::{ImageTrustRoot, ImageTrustRootSpec, ImageVerifier};
pub use mesh::{
    ClusterMesh, ClusterMeshSpec, ClusterMeshStatus, DataPlane, ExternalPeer, FEWEST_GATEWAYS,
    JoinedCluster, KubeconfigSecretRef, MOST_SKIPPED, MeshCluster, MeshClusterRef,
    MeshClusterStatus, MeshCondition, MeshState, SkippedNode, Topology,
};
pub use network_rule::{GroupName, NetworkRule, NetworkRuleSpec, Ports, Protocol, RuleAction};
pub use open_report::{OpenReport, OpenReportResult, OpenReportSummary, OpenReportTime};
pub use policies::{
    AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy, NetworkPolicy,
};
pub use receiver::{
    AlertmanagerReceiver, EmailReceiver, MailSecurity, OtlpEncoding, OtlpReceiver, Receiver,
    ReceiverSpec, SlackReceiver, SyslogReceiver, SyslogTransport, TeamsReceiver, WebhookReceiver,
    host_and_port,
};
pub use response_rule::{
    EventKind, EventLevel, Frequency, ResponseAction, ResponseConditions, ResponseRule,
    ResponseRuleSpec,
};
pub use vulnerability_exception::{VulnerabilityException, VulnerabilityExceptionSpec};
pub use wireguard::{
    MOST_TUNNELS, WireguardEndpoint, WireguardHost, WireguardMove, WireguardNode,
    WireguardNodeSpec, WireguardNodeStatus, WireguardPathState, WireguardPeer, WireguardPeerSpec,
    WireguardRouting, WireguardTunnel, WireguardWithin,
};

/// As Kubernetes' own conditions.
pub use mesh::MeshCondition as Condition;

use crate::store::{Invalid, Kind};

pub use schema::manifest;

/// Every definition, in the order of their names.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let definitions = [
        AccessRole::crd(),
        AccessToken::crd(),
        AddressBlock::crd(),
        AddressPool::crd(),
        AdmissionRule::crd(),
        ClusterMesh::crd(),
        Cluster::crd(),
        Egress::crd(),
        Group::crd(),
        IdentityProvider::crd(),
        ImageReport::crd(),
        ImageTrustRoot::crd(),
        NetworkRule::crd(),
        Receiver::crd(),
        ResponseRule::crd(),
        RoleMapping::crd(),
        User::crd(),
        VulnerabilityException::crd(),
        WireguardNode::crd(),
        WireguardPeer::crd(),
    ];
    definitions.into_iter().map(schema::fit).collect()
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
    Event: true,
    Job: true,
    Lease: true,
    Namespace: false,
    Node: false,
    PersistentVolumeClaim: true,
    Pod: true,
    PodDisruptionBudget: true,
    ReplicaSet: true,
    ReplicationController: true,
    Role: true,
    RoleBinding: true,
    Secret: true,
    Service: true,
    StatefulSet: true,
    ValidatingWebhookConfiguration: false,
}
