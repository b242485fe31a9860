//! The node's agent: the pod network, on the store that it stands on; and what is seen of who talks
//! to whom.

use std::sync::Arc;
use std::time::Duration;

use kernel::netns::Namespace;
use net::daemon::{self, BesideConfig, DaemonContext, NetConfig};
use net::datapath::PodPolicies;
use net::encryption::PodEncryption;
use net::node::Node;
use node::enforcement::Enforcement;
use objects::Objects;
use prometheus_client::registry::Registry;
use stallproof::Snapshot;
use tracing::{debug, info};
use wireguard::agent::{AgentConfig, ClusterEncryption};
use wireguard::{Encryption, TunnelConfig};

use crate::config::{Config, Store};
use crate::daemon::process::{self, Process, Told};
use crate::daemon::{observe, policies, store};
use crate::output::Failure;

/// How long nodes of other clusters know the next key of this one before it is used: a controller that
/// is replaced takes a quarter of a minute, a cluster that is away for a while a little more.
const ANNOUNCE: Duration = Duration::from_secs(5 * 60);
/// What WireGuard puts around a packet over IPv6.
const WIREGUARD_OVERHEAD: u32 = 80;

pub(crate) fn begin(
    config: &Config,
    process: &Process,
    registry: &mut Registry,
) -> Result<Told, Failure> {
    let encryption = config.net.encryption.filter(|_| config.net.serve);
    let keeps_interface = config.mesh.wireguard || encryption.is_some();
    let beside = config.net.egress && !config.net.serve;
    let keeps_network = config.net.serve || config.mesh.wireguard || beside;
    if !keeps_network && config.sense.controllers.is_empty() {
        let why = "with net.serve, net.egress and mesh.wireguard off and no guard.controllers there is \
                   nothing to do; set one";
        return Err(Failure(why.to_owned()));
    }
    if config.mesh.wireguard && config.store != Store::Kubernetes {
        let why = "mesh.wireguard needs store=kubernetes: a mesh's peers are objects of the cluster's \
                   API server";
        return Err(Failure(why.to_owned()));
    }
    if encryption.is_some() && config.store != Store::Kubernetes {
        let why = "net.encryption needs store=kubernetes: nodes say their keys by objects of the cluster's \
                   API server";
        return Err(Failure(why.to_owned()));
    }
    if !config.policy.enforce {
        policies::end(config);
    }
    if !keeps_interface {
        end_wireguard(config);
    }
    let mut told = vec![("node", config.net.node.clone())];
    let objects = match keeps_network {
        true => Some(store::open(config, &process.tasks, registry)?),
        false => None,
    };
    let encryption = encryption.map(|mode| pod_encryption(config, mode)).transpose()?;
    if let Some(objects) = objects.clone().filter(|_| keeps_interface) {
        begin_wireguard(config, encryption.as_ref(), process, objects)?;
        let at = format!("{} on UDP port {}", config.mesh.interface, config.mesh.port);
        if let Some(encryption) = &encryption {
            told.push(("encryption", format!("{}, {at}", encryption.mode)));
        }
        if config.mesh.wireguard {
            told.push(("mesh", at));
        }
    }
    if !config.net.egress {
        end_egress();
    }
    if let Some(objects) = objects.clone().filter(|_| beside) {
        begin_beside(config, process, objects, registry)?;
        told.push((
            "egress",
            format!("UDP port {}, beside another plugin", config.net.egress_port),
        ));
    }
    let (pods, enforcement) = match objects.filter(|_| config.net.serve) {
        Some(objects) => {
            let (pods, enforcement) = begin_net(config, encryption, process, objects, registry)?;
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
fn end_wireguard(config: &Config) {
    let namespace = Namespace::current().map_err(|error| process::explain(&error).0);
    let purge = |namespace| {
        let removed = wireguard::purge(&namespace, &config.mesh.interface);
        removed.map_err(|error| process::explain(&error).0)
    };
    match namespace.and_then(purge) {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => {
            let off = "mesh.wireguard and net.encryption are off";
            info!(?removed, off, "what was left of the WireGuard interface is removed");
        }
        // An agent that may not change the network has changed nothing.
        Err(error) => debug!(error, "what a WireGuard interface left is not looked for"),
    }
}

/// Removes what an agent left that let pods use egresses: nobody would keep it up to date.
fn end_egress() {
    let namespace = Namespace::current().map_err(|error| process::explain(&error).0);
    let remove = |namespace| {
        let removed = net::egress::remove(&Node::new(namespace));
        removed.map_err(|error| process::explain(&error).0)
    };
    match namespace.and_then(remove) {
        Ok(false) => {}
        Ok(true) => info!("what was left of egresses is removed: net.egress is off"),
        // An agent that may not change the network has changed nothing.
        Err(error) => debug!(error, "what egresses left is not looked for"),
    }
}

/// Lets pods that another plugin connects use egresses.
fn begin_beside(
    config: &Config,
    process: &Process,
    objects: Objects,
    registry: &mut Registry,
) -> Result<(), Failure> {
    let net = &config.net;
    let settings = BesideConfig {
        socket: net.socket.clone(),
        data: config.data.join("net"),
        node: net.node.clone(),
        addresses: net.addresses.clone(),
        pod_networks: net.pod_networks.clone(),
        egress_port: net.egress_port,
    };
    daemon::start_beside(settings, objects, context(process), registry)
        .map_err(|e| process::explain(&e))
}

fn context(process: &Process) -> DaemonContext {
    let Process { ledger, readiness, tasks, .. } = process;
    DaemonContext { ledger: ledger.clone(), readiness: readiness.clone(), tasks: tasks.clone() }
}

/// What net and the WireGuard interface tell each other.
fn pod_encryption(config: &Config, mode: Encryption) -> Result<PodEncryption, Failure> {
    let namespace = Namespace::current().map_err(|e| process::explain(&e))?;
    let uplink = Node::new(namespace).uplink_mtu().map_err(|e| process::explain(&e))?;
    Ok(PodEncryption {
        mode,
        interface: config.mesh.interface.clone(),
        port: config.mesh.port,
        mtu: config.mesh.mtu.min(uplink.saturating_sub(WIREGUARD_OVERHEAD)),
        network: Snapshot::default(),
        tunnels: Snapshot::default(),
        guarded: Snapshot::default(),
    })
}

/// Keeps this node's WireGuard interface.
fn begin_wireguard(
    config: &Config,
    encryption: Option<&PodEncryption>,
    process: &Process,
    objects: Objects,
) -> Result<(), Failure> {
    let mesh = &config.mesh;
    let cluster = encryption.map(|PodEncryption { mode, network, tunnels, guarded, .. }| {
        let (network, tunnels) = (network.clone(), tunnels.clone());
        ClusterEncryption { mode: *mode, network, tunnels, guarded: guarded.clone() }
    });
    let namespace = Namespace::current().map_err(|e| process::explain(&e))?;
    let settings = AgentConfig {
        node: config.net.node.clone(),
        keys: config.data.join("wireguard"),
        tunnel: TunnelConfig {
            mtu: encryption.map_or(mesh.mtu, |it| it.mtu),
            implementation: mesh.implementation,
            probes: true,
            ..TunnelConfig::new(&mesh.interface, mesh.port)
        },
        key_lifetime: mesh.key_lifetime,
        announce: ANNOUNCE,
        preshared_keys: mesh.preshared_keys.clone(),
        mesh: mesh.wireguard,
        cluster,
    };
    let Process { ledger, tasks, .. } = process;
    wireguard::agent::start(settings, Arc::new(namespace), objects, ledger, tasks);
    Ok(())
}

fn begin_net(
    config: &Config,
    encryption: Option<PodEncryption>,
    process: &Process,
    objects: Objects,
    registry: &mut Registry,
) -> Result<(net::Addresses, Option<Enforcement>), Failure> {
    let net = &config.net;
    let settings = NetConfig {
        socket: net.socket.clone(),
        data: config.data.join("net"),
        node: net.node.clone(),
        addresses: net.addresses.clone(),
        subnets: net.subnets.clone(),
        masquerade: net.masquerade,
        interface_names: net.interface_names,
        mtu: net.mtu,
        vxlan_port: net.vxlan_port,
        egress: net.egress,
        egress_port: net.egress_port,
        export_table: net.export_table,
        grace: net.grace,
        tunnel: (config.mesh.wireguard || encryption.is_some())
            .then(|| config.mesh.interface.clone()),
        encryption,
        kubernetes: config.store == Store::Kubernetes,
    };
    let mut enforcement = None;
    let mut begin = |attachments: &[Arc<net::Attachment>]| {
        let begun = policies::begin(config, process, attachments)?;
        enforcement = Some(begun.enforcement().clone());
        Ok(begun as Arc<dyn PodPolicies>)
    };
    let begin: Option<daemon::BeginPolicies<'_>> =
        if config.policy.enforce { Some(&mut begin) } else { None };
    let addresses = daemon::start_with(settings, objects, context(process), begin, registry)
        .map_err(|e| process::explain(&e))?;
    Ok((addresses, enforcement))
}
