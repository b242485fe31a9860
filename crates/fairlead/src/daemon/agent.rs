//! The node's agent: the pod network, on the store that it stands on; and what is seen of who talks
//! to whom.

use std::sync::Arc;

use net::daemon::{self, DaemonContext, NetConfig};
use net::datapath::PodPolicies;
use node::enforcement::Enforcement;
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
    if !config.policy.enforce {
        policies::end(config);
    }
    let mut told = vec![("node", config.net.node.clone())];
    let (pods, enforcement) = match config.net.serve {
        true => {
            let (pods, enforcement) = begin_net(config, process, registry)?;
            (Some(pods), enforcement)
        }
        false if config.policy.enforce => {
            let enforcement = policies::begin_beside(config, process);
            let why = |why| Failure(format!("policies cannot be enforced: {why}"));
            (None, Some(enforcement.map_err(why)?))
        }
        false => (None, None),
    };
    if pods.is_some() {
        told.push(("cni", config.net.socket.display().to_string()));
    }
    if enforcement.is_some() {
        let from = match config.sense.controllers.is_empty() {
            true => "those that it has: without guard.controllers nobody sends it others",
            false => "enforced",
        };
        told.push(("policies", from.to_owned()));
    }
    told.extend(observe::begin(config, process, pods, enforcement, registry)?);
    Ok(told)
}

fn begin_net(
    config: &Config,
    process: &Process,
    registry: &mut Registry,
) -> Result<(net::Addresses, Option<Enforcement>), Failure> {
    let Process { ledger, readiness, tasks, .. } = process;
    let objects = store::open(config, tasks, registry)?;
    let net = &config.net;
    let settings = NetConfig {
        socket: net.socket.clone(),
        data: config.data.join("net"),
        node: net.node.clone(),
        addresses: net.addresses.clone(),
        subnets: net.subnets.clone(),
        masquerade: net.masquerade,
        mtu: net.mtu,
        vxlan_port: net.vxlan_port,
        egress: net.egress,
        egress_port: net.egress_port,
        export_table: net.export_table,
        grace: net.grace,
        kubernetes: config.store == Store::Kubernetes,
    };
    let context = DaemonContext {
        ledger: ledger.clone(),
        readiness: readiness.clone(),
        tasks: tasks.clone(),
    };
    let mut enforcement = None;
    let mut begin = |attachments: &[Arc<net::Attachment>]| {
        let begun = policies::begin(config, process, attachments)?;
        enforcement = Some(begun.enforcement().clone());
        Ok(begun as Arc<dyn PodPolicies>)
    };
    let begin: Option<daemon::BeginPolicies<'_>> =
        if config.policy.enforce { Some(&mut begin) } else { None };
    let addresses = daemon::start_with(settings, objects, context, begin, registry)
        .map_err(|e| process::explain(&e))?;
    Ok((addresses, enforcement))
}
