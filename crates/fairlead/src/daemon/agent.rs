//! The node's agent: the pod network, on the store that it stands on; and what is seen of who talks
//! to whom.

use std::sync::Arc;
use std::time::Duration;

use kernel::netns::Namespace;
use net::daemon::{self, DaemonContext, NetConfig};
use net::datapath::PodPolicies;
use node::enforcement::Enforcement;
use objects::Objects;
use prometheus_client::registry::Registry;
use tracing::{debug, info};
use wireguard::TunnelConfig;
use wireguard::agent::AgentConfig;

use crate::config::{Config, Store};
use crate::daemon::process::{self, Process, Told};
use crate::daemon::{observe, policies, store};
use crate::output::Failure;

/// How long nodes of other clusters know the next key of this one before it is used: a controller that
/// is replaced takes a quarter of a minute, a cluster that is away for a while a little more.
const ANNOUNCE: Duration = Duration::from_secs(5 * 60);

pub(crate) fn begin(
    config: &Config,
    process: &Process,
    registry: &mut Registry,
) -> Result<Told, Failure> {
    if !config.net.serve && config.sense.controllers.is_empty() && !config.mesh.wireguard {
        let why = "with net.serve and mesh.wireguard off and no guard.controllers there is nothing to \
                   do; set one";
        return Err(Failure(why.to_owned()));
    }
    if config.mesh.wireguard && config.store != Store::Kubernetes {
        let why = "mesh.wireguard needs store=kubernetes: a mesh's peers are objects of the cluster's \
                   API server";
        return Err(Failure(why.to_owned()));
    }
    if !config.policy.enforce {
        policies::end(config);
    }
    if !config.mesh.wireguard {
        end_mesh(config);
    }
    let mut told = vec![("node", config.net.node.clone())];
    let objects = match config.net.serve || config.mesh.wireguard {
        true => Some(store::open(config, &process.tasks, registry)?),
        false => None,
    };
    if let Some(objects) = objects.clone().filter(|_| config.mesh.wireguard) {
        begin_mesh(config, process, objects)?;
        told.push(("mesh", format!("{} on UDP port {}", config.mesh.interface, config.mesh.port)));
    }
    let (pods, enforcement) = match objects.filter(|_| config.net.serve) {
        Some(objects) => {
            let (pods, enforcement) = begin_net(config, process, objects, registry)?;
            (Some(pods), enforcement)
        }
        None if config.policy.enforce => {
            let enforcement = policies::begin_beside(config, process);
            let why = |why| Failure(format!("policies cannot be enforced: {why}"));
            (None, Some(enforcement.map_err(why)?))
        }
        None => (None, None),
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

/// Removes what an agent left that kept an interface: its routes would lead nowhere.
fn end_mesh(config: &Config) {
    let namespace = Namespace::current().map_err(|error| process::explain(&error).0);
    let purge = |namespace| {
        let removed = wireguard::purge(&namespace, &config.mesh.interface);
        removed.map_err(|error| process::explain(&error).0)
    };
    match namespace.and_then(purge) {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => info!(?removed, "mesh.wireguard is off: what was left of it is removed"),
        // An agent that may not change the network has changed nothing.
        Err(error) => debug!(error, "what mesh.wireguard left is not looked for"),
    }
}

/// Keeps this node's WireGuard interface.
fn begin_mesh(config: &Config, process: &Process, objects: Objects) -> Result<(), Failure> {
    let mesh = &config.mesh;
    let namespace = Namespace::current().map_err(|e| process::explain(&e))?;
    let settings = AgentConfig {
        node: config.net.node.clone(),
        keys: config.data.join("wireguard"),
        tunnel: TunnelConfig {
            mtu: mesh.mtu,
            implementation: mesh.implementation,
            probes: true,
            ..TunnelConfig::new(&mesh.interface, mesh.port)
        },
        key_lifetime: mesh.key_lifetime,
        announce: ANNOUNCE,
    };
    let Process { ledger, tasks, .. } = process;
    wireguard::agent::start(settings, Arc::new(namespace), objects, ledger, tasks);
    Ok(())
}

fn begin_net(
    config: &Config,
    process: &Process,
    objects: Objects,
    registry: &mut Registry,
) -> Result<(net::Addresses, Option<Enforcement>), Failure> {
    let Process { ledger, readiness, tasks, .. } = process;
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
