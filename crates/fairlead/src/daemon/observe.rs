//! Starts to observe this node's connections, if there is a controller to tell.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use node::enforcement::Enforcement;
use node::{Authorities, Connections, LocalPods, PodIdentity, Settings};
use objects::Id;
use pki::agents::PUBLISHED;
use prometheus_client::registry::Registry;
use tracing::warn;
use traffic::conversations::{LocalWorkload, Moment};

use crate::config::{Config, Store, Switch};
use crate::daemon::process::{self, Process, Told};
use crate::daemon::store;
use crate::output::Failure;

/// More pods than a node has; a batch can hold these.
const WORKLOADS: usize = 4096;

/// Begins to observe. `pods` are those of the node's network, where this agent runs it; `enforcement` is sent
/// the node's policies on the same connection.
pub(crate) fn begin(
    config: &Config,
    process: &Process,
    pods: Option<net::Addresses>,
    enforcement: Option<Enforcement>,
    registry: &mut Registry,
) -> Result<Told, Failure> {
    let sense = &config.sense;
    if sense.controllers.is_empty() {
        return Ok(Told::new());
    }
    let settings = Settings {
        node: config.net.node.clone(),
        addresses: net::daemon::sent_from,
        configured_addresses: config.net.addresses.clone(),
        controllers: sense.controllers.clone(),
        token_file: sense.token_file.clone(),
        pod: pod_identity(config, process),
        dir: config.data.join("guard"),
        connections: Connections::Tracked { everywhere: sense.track },
        first_bytes: sense.first_bytes,
        pods: pods.map(|pods| Arc::new(PodNetwork(pods)) as Arc<dyn LocalPods>),
        denials: enforcement.as_ref().map(Enforcement::denials),
        // Where Kubernetes keeps the objects, the controller knows pods from there.
        tell_pods: config.store == Store::Embedded,
        enforcement,
    };
    let Process { ledger, tasks, watchdog, .. } = process;
    node::start(settings, &node::Process { ledger, tasks, watchdog }, registry)
        .map_err(|e| process::explain(&e))?;
    Ok(vec![("guard", sense.controllers.join(", "))])
}

/// Begins to observe this machine's own sockets, for the controller of this process at `controller`: so
/// that there is something to see before anything is installed. Says whether it did.
pub(crate) fn begin_own(
    config: &Config,
    controller: SocketAddr,
    process: &Process,
    registry: &mut Registry,
) -> bool {
    let wanted = match config.sense.observe {
        Switch::On => true,
        Switch::Off => false,
        Switch::Auto => rustix::process::geteuid().is_root(),
    };
    // Else this process is no node to its own controller.
    if !wanted || !config.agents.plain {
        return false;
    }
    let settings = Settings {
        node: config.net.node.clone(),
        addresses: net::daemon::sent_from,
        configured_addresses: config.net.addresses.clone(),
        controllers: vec![controller.to_string()],
        token_file: None,
        pod: None,
        dir: config.data.join("observed"),
        connections: Connections::OwnSockets,
        // That needs a rule, and nothing of this machine's network is changed.
        first_bytes: false,
        pods: None,
        denials: None,
        tell_pods: false,
        enforcement: None,
    };
    let Process { ledger, tasks, watchdog, .. } = process;
    let started = node::start(settings, &node::Process { ledger, tasks, watchdog }, registry);
    if let Err(error) = &started {
        let error = stallproof::sentence(error);
        warn!(error, "this machine's own connections are not observed");
    }
    started.is_ok()
}

/// How this agent enrols as a pod, if it is to.
fn pod_identity(config: &Config, process: &Process) -> Option<PodIdentity> {
    let token_file = config.sense.identity_token_file.clone()?;
    let authorities = config.sense.ca_file.clone().map_or_else(
        || {
            let objects = store::kubernetes(&process.tasks);
            Authorities::Store(objects, Id::namespaced(&config.fleet.namespace, PUBLISHED))
        },
        Authorities::File,
    );
    Some(PodIdentity { token_file, authorities })
}

/// The pods that this agent wired itself.
#[derive(Debug)]
struct PodNetwork(net::Addresses);

impl LocalPods for PodNetwork {
    fn workloads(&self) -> Vec<LocalWorkload> {
        let mut found: BTreeMap<(&str, &str), LocalWorkload> = BTreeMap::new();
        let index = self.0.view();
        for attachment in index.attachments() {
            let Some(pod) = &attachment.pod else { continue };
            let since = u64::try_from(attachment.since.as_millisecond()).unwrap_or(0);
            let workload =
                found.entry((&pod.namespace, &pod.name)).or_insert_with(|| LocalWorkload {
                    namespace: pod.namespace.as_str().into(),
                    name: pod.name.as_str().into(),
                    addresses: Vec::new(),
                    from: Moment(since),
                });
            let ipv4 = attachment.ipv4.map(IpAddr::from);
            workload.addresses.extend(ipv4.into_iter().chain(attachment.ipv6.map(IpAddr::from)));
            workload.addresses.sort();
            workload.from = workload.from.min(Moment(since));
        }
        found.into_values().take(WORKLOADS).collect()
    }

    fn networks(&self) -> Vec<IpNet> {
        let index = self.0.view();
        let networks = index.blocks().map(|(_, block)| block.networks());
        networks
            .flat_map(|networks| {
                let ipv6 = networks.ipv6.map(IpNet::from);
                networks.ipv4.map(IpNet::from).into_iter().chain(ipv6)
            })
            .collect()
    }
}
