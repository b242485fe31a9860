//! `Target`: the address of one object: a kind that the cluster serves, a namespace if the kind has
//! namespaces, and a name that is one segment of a path.

use std::fmt;

use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};

use super::check_segment;
use crate::{Error, ServedKind};

#[derive(Clone, Debug)]
pub struct Target {
    found: ServedKind,
    namespace: Option<String>,
    name: String,
}

impl Target {
    /// Kinds without namespaces ignore `namespace`; the others need it.
    pub fn new(found: &ServedKind, namespace: Option<&str>, name: &str) -> Result<Self, Error> {
        check_segment(&found.resource.kind, name)?;
        let namespace = match namespace {
            _ if !found.namespaced => None,
            None => {
                let plural = &found.resource.plural;
                return Err(Error::Invalid(format!("{plural} live in a namespace; say in which")));
            }
            Some(namespace) => {
                check_segment("namespace", namespace)?;
                Some(namespace.to_owned())
            }
        };
        Ok(Self { found: found.clone(), namespace, name: name.to_owned() })
    }

    pub fn resource(&self) -> &ApiResource {
        &self.found.resource
    }

    pub(crate) fn has_subresource(&self, name: &str) -> bool {
        self.found.subresources.iter().any(|has| has == name)
    }

    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn api(&self, client: Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, self.resource()),
            None => Api::all_with(client, self.resource()),
        }
    }
}

/// Shows it as `deployments/web in shop`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.resource().plural, self.name)?;
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}
