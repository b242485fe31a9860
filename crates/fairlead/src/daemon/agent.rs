//! The node's agent: the pod network, on the store that it stands on; and what is seen of who talks
//! to whom.

use std::sync::Arc;

use net::daemon::{self, DaemonContext, NetConfig};
use net::datapath::PodPolicies;
use prometheus_client::registry::Registry;

use crate::config::{Config, Store};
use crate::daemon::process::{self, Process, Told};
use crate::daemon::{observe, policies, store};
use crate::output::Failure;

pub(crate) fn begin(
    config: &Config,
    process: &Process,
    registry: &mut Registry,
) -> Result<Told, Failure> {
    if !config.net.serve && config.sense.controllers.is_empty() {
        let why = "with net.serve off and no guard.controllers there is nothing to do; set one";
        return Err(Failure(why.to_owned()));
    }
    let mut told = vec![("node", config.net.node.clone())];
    let pods = match config.net.serve {
        true => Some(begin_net(config, process, registry)?),
        false => None,
    };
    if pods.is_some() {
        told.push(("cni", config.net.socket.display().to_string()));
    }
    told.extend(observe::begin(config, process, pods, registry)?);
    Ok(told)
}

fn begin_net(
    config: &Config,
    process: &Process,
    registry: &mut Registry,
) -> Result<net::Addresses, Failure> {
    let Process { ledger, readiness, tasks, .. } = process;
    let objects = store::open(config, tasks, registry)?;
    let net = &config.net;
    let settings = NetConfig {
        socket: net.socket.clone(),
        data: config.data.join("net"),
        node: net.node.clone(),
        addresses: net.addresses.clone(),
        subnets: net.subnets.clone(),
        mtu: net.mtu,
        export_table: net.export_table,
        grace: net.grace,
        kubernetes: config.store == Store::Kubernetes,
    };
    let context = DaemonContext {
        ledger: ledger.clone(),
        readiness: readiness.clone(),
        tasks: tasks.clone(),
    };
    let mut begin = |attachments: &[Arc<net::Attachment>]| {
        policies::begin(config, process, attachments).map(|it| it as Arc<dyn PodPolicies>)
    };
    let begin: Option<daemon::BeginPolicies<'_>> =
        if config.policy.enforce { Some(&mut begin) } else { None };
    daemon::start_with(settings, objects, context, begin, registry)
        .map_err(|e| process::explain(&e))
}
