//! What of a cluster's objects somebody may see.
//!
//! Contract: what is in a namespace that one may not see is answered as what is not there, and is
//! neither listed nor counted. What one may see but not do is refused with the permission that is
//! missing. Every list, table, watch, search and description goes through here.

use std::sync::Arc;

use ::access::{Ask, Permissions, Reach, Verb};
use fleet::Found;
use kube::core::DynamicObject;

use super::door::Asker;
use super::problem::Problem;

/// The resource as roles name it: `pods`, `deployments.apps`.
pub(crate) fn resource(found: &Found) -> String {
    let kind = &found.resource;
    if kind.group.is_empty() {
        kind.plural.clone()
    } else {
        format!("{}.{}", kind.plural, kind.group)
    }
}

/// Which objects of one kind in one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    permissions: Arc<Permissions>,
    cluster: String,
    resource: String,
    verb: Verb,
    sight: Sight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    Everything,
    /// Each is decided by its namespace.
    ByNamespace,
    /// They are namespaces, each decided by its name.
    Namespaces,
    /// The namespace that was asked for is as good as not there.
    Nothing,
}

impl Scope {
    /// What is seen of a list over `namespace`, or over all. `Err` when all of it is refused.
    pub(crate) fn list(
        asker: &Asker,
        cluster: &str,
        found: &Found,
        namespace: Option<&str>,
        verb: Verb,
    ) -> Result<Self, Problem> {
        let resource = resource(found);
        let permissions = &asker.permissions;
        let ask = |namespace| Ask { cluster, namespace, resource: &resource, verb };
        let sight = match namespace {
            _ if !found.namespaced => {
                asker.may(&ask(None))?;
                if resource == "namespaces" { Sight::Namespaces } else { Sight::Everything }
            }
            Some(namespace) if !permissions.may_see_namespace(cluster, namespace) => Sight::Nothing,
            Some(namespace) => {
                asker.may(&ask(Some(namespace)))?;
                Sight::Everything
            }
            None => match permissions.reach(cluster, &resource, verb) {
                Reach::Everywhere => Sight::Everything,
                Reach::Somewhere => Sight::ByNamespace,
                Reach::Nowhere => {
                    asker.may(&ask(None))?;
                    Sight::Nothing
                }
            },
        };
        Ok(Self { permissions: permissions.clone(), cluster: cluster.to_owned(), resource, verb, sight })
    }

    /// Whether nothing can be in it, so that nobody needs to be asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.sight == Sight::Nothing
    }

    /// Whether counts of the whole may be told.
    pub(crate) fn is_whole(&self) -> bool {
        self.sight == Sight::Everything
    }

    pub(crate) fn has_object(&self, object: &DynamicObject) -> bool {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        self.has(object.metadata.namespace.as_deref(), name)
    }

    pub(crate) fn has(&self, namespace: Option<&str>, name: &str) -> bool {
        match self.sight {
            Sight::Everything => true,
            Sight::Nothing => false,
            Sight::Namespaces => self.permissions.may_see_namespace(&self.cluster, name),
            Sight::ByNamespace => {
                let Self { cluster, resource, verb, .. } = self;
                let ask = Ask { cluster, namespace, resource, verb: *verb };
                ::access::decide(&self.permissions, &ask).is_allowed()
            }
        }
    }
}
