//! What a decision may know beside the request. Every answer comes from a published snapshot, at
//! once, and may be "unknown".

use std::collections::BTreeMap;

use objects::kinds::admission_rule::RiskyTag;

use super::images::Images;

/// The tags of every role that a service account is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RiskyTags(u8);

impl RiskyTags {
    pub fn insert(&mut self, tag: RiskyTag) {
        self.0 |= 1 << tag as u8;
    }

    pub fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub fn contains(self, tag: RiskyTag) -> bool {
        self.0 & (1 << tag as u8) != 0
    }

    /// Adds what one rule of a role allows. API groups play no part.
    pub fn grant(&mut self, verbs: &[String], resources: &[String]) {
        const WORKLOADS: [&str; 9] = [
            "pods",
            "deployments",
            "cronjobs",
            "jobs",
            "daemonsets",
            "statefulsets",
            "replicasets",
            "replicationcontrollers",
            "*",
        ];
        const RBAC: [&str; 5] =
            ["roles", "clusterroles", "rolebindings", "clusterrolebindings", "*"];
        let rows: [(RiskyTag, &[&str], &[&str]); 5] = [
            (RiskyTag::ViewSecret, &["get", "list", "watch", "*"], &["secrets", "*"]),
            (RiskyTag::CreatePod, &["create", "*"], &WORKLOADS),
            (RiskyTag::AnyActionWorkload, &["*"], &WORKLOADS),
            (RiskyTag::AnyActionRbac, &["*"], &RBAC),
            (RiskyTag::ExecIntoContainer, &["create", "*"], &["pods/exec", "*"]),
        ];
        let has = |have: &[String], want: &[&str]| have.iter().any(|x| want.contains(&x.as_str()));
        for (tag, of_verbs, of_resources) in rows {
            if has(verbs, of_verbs) && has(resources, of_resources) {
                self.insert(tag);
            }
        }
    }
}

/// The root owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub kind: String,
    pub name: String,
    /// Who made it, if its review was seen: the user, and the groups.
    pub by: Option<(String, Vec<String>)>,
    /// Its own and its template's, the template's first.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

pub trait Facts {
    /// The root owner of an object that is controlled by what has this uid.
    fn owner(&self, _uid: &str) -> Option<&Owner> {
        None
    }

    /// Whether an injector added the container of this name to a pod: whether it is known not to be in
    /// the template of what controls the pod, by uid. None is a pod that nothing controls.
    fn injected(&self, _controller: Option<&str>, _container: &str) -> bool {
        false
    }

    fn storage_class(&self, _namespace: &str, _claim: &str) -> Option<&str> {
        None
    }

    fn risky_tags(&self, _namespace: &str, _service_account: &str) -> Option<RiskyTags> {
        None
    }

    /// What is known of images; none where there is no source of scan results.
    fn images(&self) -> Option<&Images> {
        None
    }

    /// The time in seconds, for what depends on the age of a vulnerability or of a scan.
    fn now(&self) -> i64 {
        jiff::Timestamp::now().as_second()
    }
}

/// Offline: nothing is known.
#[derive(Clone, Copy, Debug)]
pub struct Unknown;

impl Facts for Unknown {}
