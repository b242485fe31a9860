//! Whose word on an owner is taken.
//!
//! Contract: an owner reference is believed only from an account that makes objects of that kind for
//! owners of that kind, or from one that the settings name, and only if it says `controller: true`.
//! Anybody may write a reference; so without that, an object is judged by who asks for it.

use super::pod::OwnerReference;

/// How Kubernetes' own controllers are called by an API server.
const ACCOUNTS: &str = "system:serviceaccount:kube-system:";

/// Controller, what it makes, and for whom.
const CONTROLLERS: [(&str, &str, &str); 7] = [
    ("replicaset-controller", "Pod", "ReplicaSet"),
    ("deployment-controller", "ReplicaSet", "Deployment"),
    ("daemon-set-controller", "Pod", "DaemonSet"),
    ("statefulset-controller", "Pod", "StatefulSet"),
    ("job-controller", "Pod", "Job"),
    ("cronjob-controller", "Job", "CronJob"),
    ("replication-controller", "Pod", "ReplicationController"),
];

/// The owner of an object of this kind that `user` asks for, if `user` is believed. `named` are the
/// users of the settings.
pub(super) fn believed<'m>(
    user: &str,
    kind: &str,
    owners: &'m [OwnerReference],
    named: &[String],
) -> Option<&'m OwnerReference> {
    let owner = owners.iter().find(|owner| owner.controller)?;
    let makes = |account: &str| CONTROLLERS.contains(&(account, kind, owner.kind.as_str()));
    let believed =
        user.strip_prefix(ACCOUNTS).is_some_and(makes) || named.iter().any(|name| name == user);
    believed.then_some(owner)
}

#[cfg(test)]
mod tests;
