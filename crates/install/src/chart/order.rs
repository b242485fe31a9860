//! The order in which objects are applied, which is Helm's.

use serde_json::Value;

/// Kinds in Helm's order. Other kinds come last, sorted by name.
const KINDS: &[&str] = &[
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Sorts objects by kind; those of one kind keep their order.
pub(super) fn sort(objects: &mut [Value]) {
    objects.sort_by_cached_key(|object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let rank = KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len());
        (rank, if rank == KINDS.len() { kind.to_owned() } else { String::new() })
    });
}
