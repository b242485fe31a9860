//! The risky tags of service accounts: what every role that they are bound to allows, together.

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use objects::{Id, Index, Kind};
use stallproof::Map;

use crate::facts::RiskyTags;

const ACCOUNTS: &str = "system:serviceaccounts";
const AUTHENTICATED: &str = "system:authenticated";

/// A role is named by where it is; one of the cluster is nowhere.
type Roles = Map<Id, RiskyTags>;

#[derive(Clone, Debug, Default)]
pub(super) struct Bindings {
    roles: Roles,
    /// To which role each subject is bound by which binding: one entry a binding, so that a change
    /// costs what it changes.
    by_subject: Map<String, Map<Id, Id>>,
    /// The subjects of each binding.
    subjects: Map<Id, Vec<String>>,
    /// Which of the four kinds have been told whole.
    told: [bool; 4],
}

/// A role of a namespace, or of the cluster.
pub(super) trait Grants: Kind {
    const PART: usize;
    fn rules(&self) -> &[PolicyRule];
}

impl Grants for Role {
    const PART: usize = 0;
    fn rules(&self) -> &[PolicyRule] {
        self.rules.as_deref().unwrap_or_default()
    }
}

impl Grants for ClusterRole {
    const PART: usize = 1;
    fn rules(&self) -> &[PolicyRule] {
        self.rules.as_deref().unwrap_or_default()
    }
}

/// A binding of a namespace, or of the cluster.
pub(super) trait Binds: Kind {
    const PART: usize;
    fn role(&self) -> &RoleRef;
    fn subjects(&self) -> &[Subject];
}

impl Binds for RoleBinding {
    const PART: usize = 2;
    fn role(&self) -> &RoleRef {
        &self.role_ref
    }
    fn subjects(&self) -> &[Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }
}

impl Binds for ClusterRoleBinding {
    const PART: usize = 3;
    fn role(&self) -> &RoleRef {
        &self.role_ref
    }
    fn subjects(&self) -> &[Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }
}

impl Bindings {
    /// None while not everything is known.
    pub(super) fn tags(&self, namespace: &str, account: &str) -> Option<RiskyTags> {
        if self.told.contains(&false) {
            return None;
        }
        let mut tags = RiskyTags::default();
        let names = [
            user(namespace, account),
            group(ACCOUNTS),
            group(&format!("{ACCOUNTS}:{namespace}")),
            group(AUTHENTICATED),
        ];
        for name in &names {
            for role in self.by_subject.get(name).into_iter().flat_map(Map::values) {
                tags.add(self.roles.get(role).copied().unwrap_or_default());
            }
        }
        Some(tags)
    }

    fn reset_roles<K: Grants>(&mut self, all: &[K]) {
        self.roles.retain(|id, _| id.namespace.is_some() != K::NAMESPACED);
        all.iter().for_each(|role| self.put_role(role));
        self.told[K::PART] = true;
    }

    fn put_role(&mut self, role: &impl Grants) {
        let mut tags = RiskyTags::default();
        for rule in role.rules() {
            tags.grant(&rule.verbs, rule.resources.as_deref().unwrap_or_default());
        }
        self.roles.insert(Id::of(role), tags);
    }

    fn reset_bindings<K: Binds>(&mut self, all: &[K]) {
        let of_kind = |id: &&Id| id.namespace.is_some() == K::NAMESPACED;
        let before: Vec<_> = self.subjects.keys().filter(of_kind).cloned().collect();
        before.iter().for_each(|id| self.remove_binding(id));
        all.iter().for_each(|binding| self.put_binding(binding));
        self.told[K::PART] = true;
    }

    fn put_binding(&mut self, binding: &impl Binds) {
        let id = Id::of(binding);
        self.remove_binding(&id);
        let RoleRef { kind, name, .. } = binding.role();
        let role = match (kind.as_str(), &id.namespace) {
            ("Role", Some(namespace)) => Id::namespaced(namespace, name),
            _ => Id::cluster(name),
        };
        let subjects: Vec<_> =
            binding.subjects().iter().filter_map(|subject| named(subject, &id)).collect();
        for subject in &subjects {
            let bound = self.by_subject.entry(subject.clone()).or_default();
            bound.insert(id.clone(), role.clone());
        }
        self.subjects.insert(id, subjects);
    }

    fn remove_binding(&mut self, id: &Id) {
        for subject in self.subjects.remove(id).into_iter().flatten() {
            if let Some(bound) = self.by_subject.get_mut(&subject) {
                bound.remove(id);
                if bound.is_empty() {
                    self.by_subject.remove(&subject);
                }
            }
        }
    }
}

macro_rules! indexed {
    ($($kind:ident: $reset:ident, $put:ident, $remove:expr;)*) => {$(
        impl Index<$kind> for Bindings {
            fn reset(&mut self, all: Vec<$kind>) -> bool {
                self.$reset(&all);
                true
            }

            fn apply(&mut self, object: $kind) -> bool {
                self.$put(&object);
                true
            }

            fn delete(&mut self, object: $kind) -> bool {
                let remove: fn(&mut Self, &Id) = $remove;
                remove(self, &Id::of(&object));
                true
            }
        }
    )*};
}

indexed! {
    Role: reset_roles, put_role, |bindings, id| { bindings.roles.remove(id); };
    ClusterRole: reset_roles, put_role, |bindings, id| { bindings.roles.remove(id); };
    RoleBinding: reset_bindings, put_binding, Self::remove_binding;
    ClusterRoleBinding: reset_bindings, put_binding, Self::remove_binding;
}

/// A service account is a user to RBAC, by this name.
fn user(namespace: &str, account: &str) -> String {
    format!("user system:serviceaccount:{namespace}:{account}")
}

fn group(name: &str) -> String {
    format!("group {name}")
}

/// As it is looked up; none for what no service account can be.
fn named(subject: &Subject, binding: &Id) -> Option<String> {
    let Subject { kind, name, namespace, .. } = subject;
    match kind.as_str() {
        "ServiceAccount" => Some(user(namespace.as_ref().or(binding.namespace.as_ref())?, name)),
        "User" if name.starts_with("system:serviceaccount:") => Some(format!("user {name}")),
        "Group" if name == AUTHENTICATED || name.starts_with(ACCOUNTS) => Some(group(name)),
        _ => None,
    }
}
