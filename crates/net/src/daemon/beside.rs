//! The agent's part where another CNI plugin connects the pods: egress, and nothing else.
//!
//! The plugin is neither asked nor changed. On the socket only `fairlead net egress list` is answered.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use cni::spec::{Code, Error};
use cni::wire::{Operation, Reply, Request, Show};
use ipnet::IpNet;
use kernel::netns::Namespace;
use objects::{Objects, reconcile};
use prometheus_client::registry::Registry;
use stallproof::Deadline;
use tracing::info;

use super::{DaemonContext, StartError, node_addresses, show};
use crate::claims::NodeIdentity;
use crate::egress::{self, EgressMetrics, EgressReconciler, ForeignPods, NodePods};
use crate::node::Node;
use crate::overlay::{self, DeviceSettings};
use crate::server::{self, ServerLimits};

#[derive(Clone, Debug)]
pub struct BesideConfig {
    pub socket: PathBuf,
    /// The directory in which the numbers of classes are kept.
    pub data: PathBuf,
    pub node: String,
    /// Where other nodes reach this one; by default the addresses that it sends from.
    pub addresses: Vec<IpAddr>,
    /// Where the plugin takes pods' addresses from, on all nodes.
    pub pod_networks: Vec<IpNet>,
    /// The UDP port of the tunnels to egress pods, the same on all nodes.
    pub egress_port: u16,
}

/// Starts egress for pods of another plugin in the context's tasks, in the runtime that the caller has entered.
pub fn start(
    config: BesideConfig,
    objects: Objects,
    context: DaemonContext,
    registry: &mut Registry,
) -> Result<(), StartError> {
    let DaemonContext { ledger, readiness, tasks } = context;
    let node = Node::new(Namespace::current().map_err(StartError::Namespace)?);
    node.forward().map_err(StartError::Node)?;
    let uplink = node.uplink_mtu().map_err(StartError::Node)?;
    let failed = |source| {
        let path = config.data.display().to_string();
        StartError::Directory { path, source }
    };
    fs::create_dir_all(&config.data).map_err(failed)?;
    let listener = server::listen(&config.socket)?;
    let addresses = node_addresses::follow(config.addresses, &tasks);
    let over_ipv4 = addresses.read(|own| own.iter().all(IpAddr::is_ipv4));
    let metrics = EgressMetrics::default();
    metrics.register(registry);
    let pods = ForeignPods::watch(&config.node, config.pod_networks, &objects, &tasks);
    let egress = EgressReconciler::new(
        node,
        NodeIdentity { name: config.node.clone(), addresses },
        DeviceSettings { port: config.egress_port, mtu: overlay::mtu(uplink, over_ipv4) },
        &objects,
        NodePods::Foreign(pods),
        &config.data,
        metrics,
        tasks.clone(),
    )
    .with_readiness(readiness.announce("egress"));
    let seen = egress.seen();
    let handle = move |request: Request, _| {
        let (objects, seen) = (objects.clone(), seen.clone());
        async move {
            let deadline = Deadline::after(request.wait());
            match request.operation {
                Operation::Show(Show::Egresses) => {
                    show::reply(show::egresses(&objects, &seen, deadline).await)
                }
                _ => Reply::Failed(Error::new(
                    Code::NotAvailable,
                    "another plugin connects this node's pods: net.serve is off",
                )),
            }
        }
    };
    let serve = server::serve(listener, handle, ServerLimits::default(), tasks.clone());
    tasks.spawn_essential("cni-server", serve);
    let stop = tasks.stopping();
    tasks.spawn("net-egress", reconcile("egress", config.node, egress::PACE, egress, ledger, stop));
    info!("egress starts, beside another plugin");
    Ok(())
}
