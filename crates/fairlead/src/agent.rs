//! The node's agent: the store, and the pod network that stands on it.

use net::daemon::{self, NetConfig, On};
use objects::Objects;
use prometheus_client::registry::Registry;

use crate::config::{Config, Store};
use crate::controller;
use crate::ground::{self, Ground, Told};
use crate::output::Failure;

pub(crate) fn begin(
    config: &Config,
    ground: &Ground,
    registry: &mut Registry,
) -> Result<Told, Failure> {
    let Ground { ledger, readiness, tasks, .. } = ground;
    let objects = match config.store {
        Store::Embedded => {
            let dir = config.data.join("objects");
            Objects::embedded(&dir, tasks).map_err(|e| ground::explain(&e))?
        }
        Store::Kubernetes => {
            Objects::kubernetes(controller::lazy_client(tasks), controller::MANAGER)
        }
    };
    objects.register(registry);
    let net = &config.net;
    let settings = NetConfig {
        socket: net.socket.clone(),
        data: config.data.join("net"),
        node: net.node.clone(),
        addresses: net.addresses.clone(),
        subnets: net.subnets.clone(),
        mtu: net.mtu,
        export_table: net.export_table,
        kubernetes: config.store == Store::Kubernetes,
    };
    let on = On { ledger: ledger.clone(), readiness: readiness.clone(), tasks: tasks.clone() };
    daemon::begin(settings, objects, on, registry).map_err(|e| ground::explain(&e))?;
    Ok(vec![("node", net.node.clone()), ("cni", net.socket.display().to_string())])
}
