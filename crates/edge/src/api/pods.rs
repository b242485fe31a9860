//! A pod that something is done with: every cluster has them, so no kind is looked up.

use access::Verb;
use fleet::Connection;

use super::Api;
use super::door::Asker;
use super::problem::Problem;
use super::scope::permit;

pub(crate) const PODS: &str = "pods";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pod<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl Pod<'_> {
    /// The way to it, for who may do this with it.
    pub(crate) fn connection(
        self,
        api: &Api,
        asker: &Asker,
        verb: Verb,
    ) -> Result<Connection, Problem> {
        let Self { cluster, namespace, name } = self;
        permit(asker, cluster, (Some(namespace), PODS, name), verb)?;
        Ok(api.fleet.connection(cluster)?)
    }
}
