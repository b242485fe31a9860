//! `Target`: one object that can be asked for: of a kind that the cluster serves, in a namespace if
//! its kind has them, and by a name that stays one segment of a path.

use std::fmt;

use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};

use super::check_segment;
use crate::{Error, Found};

#[derive(Clone, Debug)]
pub struct Target {
    found: Found,
    namespace: Option<String>,
    name: String,
}

impl Target {
    /// A namespace is needed by kinds that live in one, and is of no matter to the others.
    pub fn new(found: &Found, namespace: Option<&str>, name: &str) -> Result<Self, Error> {
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

/// As people write it: `deployments/web in shop`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.resource().plural, self.name)?;
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}
