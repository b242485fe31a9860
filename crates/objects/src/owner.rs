//! Whose a pod is.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

/// A label by which a ReplicaSet of a Deployment tells its pods from those of another.
const TEMPLATE: &str = "pod-template-hash";
/// A Job of a CronJob is named by the minute it was due: eight digits until the year 2160.
const MINUTE: std::ops::RangeInclusive<usize> = 8..=10;

/// Kind and name of the uppermost owner of a pod, as `Deployment/web`, as far as its name tells: owners need
/// not be known for it. None for a pod by itself.
pub fn uppermost_owner(pod: &Pod) -> Option<String> {
    let owners = pod.owner_references();
    let owner = owners.iter().find(|owner| owner.controller == Some(true)).or(owners.first())?;
    let above = match owner.kind.as_str() {
        "ReplicaSet" => pod
            .labels()
            .get(TEMPLATE)
            .and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'))
            .map(|name| ("Deployment", name)),
        "Job" => owner
            .name
            .rsplit_once('-')
            .filter(|(_, due)| {
                MINUTE.contains(&due.len()) && due.bytes().all(|b| b.is_ascii_digit())
            })
            .map(|(name, _)| ("CronJob", name)),
        _ => None,
    };
    let (kind, name) =
        above.filter(|(_, name)| !name.is_empty()).unwrap_or((&owner.kind, &owner.name));
    Some(format!("{kind}/{name}"))
}
