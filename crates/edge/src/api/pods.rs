//! A pod that something is done with: every cluster has them, so no kind is looked up.

use access::Verb;
use fleet::Connection;

use super::scope::permit;
use super::{Api, Caller, Problem};

pub(crate) const PODS: &str = "pods";

#[derive(Clone, Copy, Debug)]
pub(crate) struct PodRef<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl PodRef<'_> {
    /// The way to it, for who may do this with it.
    pub(crate) fn connection(
        self,
        api: &Api,
        caller: &Caller,
        verb: Verb,
    ) -> Result<Connection, Problem> {
        let Self { cluster, namespace, name } = self;
        permit(caller, cluster, (Some(namespace), PODS, name), verb)?;
        Ok(caller.connection(api, cluster)?)
    }
}
