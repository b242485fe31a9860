//! `Target`: one object, by its kind as discovery resolved it.

use std::fmt;

use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};

/// One object. `namespace` is `None` for what lives outside of namespaces.
#[derive(Clone, Debug)]
pub struct Target {
    pub resource: ApiResource,
    pub namespace: Option<String>,
    pub name: String,
}

impl Target {
    pub(crate) fn api(&self, client: Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }
}

/// As people write it: `deployments/web in shop`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.resource.plural, self.name)?;
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}
