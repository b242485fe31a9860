//! `Scope`: which of a cluster's objects a caller may see.
//!
//! Contract: what is in a namespace that one may not see is answered as what is not there, and is
//! neither listed nor counted. What one may see but not do is refused with the permission that is
//! missing. Whether something is there plays no part in any of it: the same names get the same
//! answers. Every list, table, watch, search, description and object goes through here.

use std::sync::Arc;

use access::{AccessRequest, Permissions, Reach, Verb};
use fleet::ServedKind;
use kube::core::{ApiResource, DynamicObject};

use super::{Caller, Problem};

/// The objects that are namespaces themselves, each seen by its own name.
const NAMESPACES: &str = "namespaces";

/// The resource as roles name it: `pods`, `deployments.apps`.
pub(crate) fn resource(kind: &ApiResource) -> String {
    if kind.group.is_empty() {
        kind.plural.clone()
    } else {
        format!("{}.{}", kind.plural, kind.group)
    }
}

/// Whether an object can be seen at all: what is in no namespace can, as far as this goes.
pub(crate) fn is_visible(
    permissions: &Permissions,
    cluster: &str,
    namespace: Option<&str>,
    resource: &str,
    name: &str,
) -> bool {
    let within = namespace.or_else(|| (resource == NAMESPACES).then_some(name));
    within.is_none_or(|namespace| permissions.may_see_namespace(cluster, namespace))
}

/// Decides of one object by its name.
pub(crate) fn permit(
    caller: &Caller,
    cluster: &str,
    (namespace, resource, name): (Option<&str>, &str, &str),
    verb: Verb,
) -> Result<(), Problem> {
    if !is_visible(&caller.permissions, cluster, namespace, resource, name) {
        return Err(absent(cluster, resource, name));
    }
    caller.may(&AccessRequest { cluster, namespace, resource, verb })
}

/// In the words of an API server, so that what may not be seen cannot be told from what is not there.
pub(crate) fn absent(cluster: &str, resource: &str, name: &str) -> Problem {
    let status =
        kube::core::Status::failure(&format!("{resource} \"{name}\" not found"), "NotFound")
            .with_code(404)
            .boxed();
    Problem::from(fleet::Error::Refused { cluster: cluster.to_owned(), status })
}

/// Which objects of one kind in one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    permissions: Arc<Permissions>,
    of: ScopeQuery,
    visibility: Visibility,
}

#[derive(Clone, Debug)]
struct ScopeQuery {
    cluster: String,
    resource: String,
    namespaced: bool,
    /// None: all of them.
    namespace: Option<String>,
    /// The namespaces that are asked for and may be seen, of [`Visibility::Among`].
    among: Vec<String>,
    verb: Verb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visibility {
    Everything,
    /// Each is decided by its namespace.
    ByNamespace,
    /// They are namespaces, each decided by its name.
    Namespaces,
    /// They are in one of several namespaces that were asked for.
    Among,
    /// The namespace that was asked for is as good as not there.
    Nothing,
}

impl Scope {
    /// The scope of a list over `namespace`, or over all namespaces. `Err` when all of it is refused.
    pub(crate) fn list(
        caller: &Caller,
        cluster: &str,
        found: &ServedKind,
        namespace: Option<&str>,
        verb: Verb,
    ) -> Result<Self, Problem> {
        let of = ScopeQuery {
            cluster: cluster.to_owned(),
            resource: resource(&found.resource),
            namespaced: found.namespaced,
            namespace: namespace.filter(|_| found.namespaced).map(ToOwned::to_owned),
            among: Vec::new(),
            verb,
        };
        match of.visibility(&caller.permissions) {
            Some(visibility) => {
                Ok(Self { permissions: Arc::clone(&caller.permissions), of, visibility })
            }
            None => {
                caller.may(&of.ask(of.namespace.as_deref()))?;
                // Refused over all namespaces is refused outside of them too; should the two ever
                // disagree, nothing is seen.
                let visibility = Visibility::Nothing;
                Ok(Self { permissions: Arc::clone(&caller.permissions), of, visibility })
            }
        }
    }

    /// The scope of a list over several namespaces; of no matter to kinds that have none. A namespace
    /// that may not be seen is as good as not there, one in which it is refused refuses all of it.
    pub(crate) fn list_among(
        caller: &Caller,
        cluster: &str,
        found: &ServedKind,
        namespaces: &[String],
        verb: Verb,
    ) -> Result<Self, Problem> {
        if let [namespace] = namespaces {
            return Self::list(caller, cluster, found, Some(namespace), verb);
        }
        if namespaces.is_empty() || !found.namespaced {
            return Self::list(caller, cluster, found, None, verb);
        }
        let (mut among, mut last) = (Vec::new(), None);
        for namespace in namespaces {
            let scope = Self::list(caller, cluster, found, Some(namespace), verb)?;
            if !scope.is_empty() {
                among.push(namespace.clone());
            }
            last = Some(scope);
        }
        let mut scope = match last {
            Some(scope) => scope,
            None => Self::list(caller, cluster, found, None, verb)?,
        };
        scope.visibility = if among.is_empty() { Visibility::Nothing } else { Visibility::Among };
        scope.of.namespace = None;
        scope.of.among = among;
        Ok(scope)
    }

    /// Whether nothing can be in it, so that nobody needs to be asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.visibility == Visibility::Nothing
    }

    /// Whether all that the cluster answers may be told, counts and all.
    pub(crate) fn is_whole(&self) -> bool {
        self.visibility == Visibility::Everything
    }

    /// Whether it is the same under these permissions: a stream goes on only then.
    pub(crate) fn holds(&self, now: &Arc<Permissions>) -> bool {
        if Arc::ptr_eq(now, &self.permissions) {
            return true;
        }
        let may =
            |namespace: &String| access::decide(now, &self.of.ask(Some(namespace))).is_allowed();
        match self.visibility {
            Visibility::Among => self.of.among.iter().all(may),
            Visibility::Everything | Visibility::Nothing => {
                self.of.visibility(now) == Some(self.visibility)
            }
            Visibility::ByNamespace | Visibility::Namespaces => false,
        }
    }

    pub(crate) fn has_object(&self, object: &DynamicObject) -> bool {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        self.has(object.metadata.namespace.as_deref(), name)
    }

    pub(crate) fn has(&self, namespace: Option<&str>, name: &str) -> bool {
        let Self { permissions, of, .. } = self;
        match self.visibility {
            Visibility::Everything => true,
            Visibility::Nothing => false,
            Visibility::Among => {
                namespace.is_some_and(|within| of.among.iter().any(|name| name == within))
            }
            Visibility::Namespaces => permissions.may_see_namespace(&of.cluster, name),
            Visibility::ByNamespace => access::decide(permissions, &of.ask(namespace)).is_allowed(),
        }
    }
}

impl ScopeQuery {
    fn ask<'a>(&'a self, namespace: Option<&'a str>) -> AccessRequest<'a> {
        AccessRequest {
            cluster: &self.cluster,
            namespace,
            resource: &self.resource,
            verb: self.verb,
        }
    }

    /// `None`: refused.
    fn visibility(&self, permissions: &Permissions) -> Option<Visibility> {
        let may = |namespace| access::decide(permissions, &self.ask(namespace)).is_allowed();
        match self.namespace.as_deref() {
            _ if !self.namespaced => may(None).then_some(if self.resource == NAMESPACES {
                Visibility::Namespaces
            } else {
                Visibility::Everything
            }),
            Some(namespace) if !permissions.may_see_namespace(&self.cluster, namespace) => {
                Some(Visibility::Nothing)
            }
            Some(namespace) => may(Some(namespace)).then_some(Visibility::Everything),
            None => match permissions.reach(&self.cluster, &self.resource, self.verb) {
                Reach::Everywhere => Some(Visibility::Everything),
                Reach::Somewhere => Some(Visibility::ByNamespace),
                Reach::Nowhere => None,
            },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
