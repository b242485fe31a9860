//! The listings of this node that `fairlead net` shows. The JSON is a contract.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cni::spec::{Code, Error};
use cni::wire::{Reply, Show};
use kernel::netlink::Change;
use objects::kinds::{AddressBlock, AddressPool, Egress};
use objects::{Objects, Within};
use serde_json::{Value, json};
use stallproof::{Deadline, Tasks, sentence};

use crate::claims::BlockClaims;
use crate::datapath::Datapath;
use crate::egress::EgressSeen;
use crate::encryption::PodEncryption;
use crate::node::{Node, NodeError, kernel_call};
use crate::overlay::{self, DeviceSettings, NodePath, PathInputs, Underlay};
use crate::pool_controller::pool_rows;
use crate::reconcile::namespace_of;
use crate::routes::{self, RouteInputs, RoutedBlock};
use crate::service::{CniService, Health};
use crate::trust::BlockTrust;
use crate::wiring::{Fault, Wiring};
use crate::{Addresses, Attachment};

/// How long a node behind the tunnel may take to answer.
const PROBE: Duration = Duration::from_millis(1500);

#[derive(Clone, Debug)]
pub(super) struct Listings {
    pub(super) node: String,
    pub(super) objects: Objects,
    pub(super) addresses: Addresses,
    pub(super) claims: BlockClaims,
    pub(super) trust: BlockTrust,
    pub(super) service: CniService<Wiring>,
    pub(super) wiring: Wiring,
    pub(super) export_table: Option<u32>,
    pub(super) device: DeviceSettings,
    /// The MTU of pods whose packets take no tunnel.
    pub(super) mtu: u32,
    /// None where packets between nodes are not encrypted.
    pub(super) encryption: Option<PodEncryption>,
    /// None where pods may not use egresses.
    pub(super) egress: Option<EgressSeen>,
    pub(super) tasks: Tasks,
}

/// The rows of all egresses, as this node sees them.
pub(super) async fn egresses(
    objects: &Objects,
    seen: &EgressSeen,
    deadline: Deadline,
) -> Result<Vec<Value>, String> {
    let all = objects.list::<Egress>(&Within::default(), deadline).await;
    let all = all.map_err(|error| format!("egresses cannot be read: {}", sentence(&error)))?;
    Ok(seen.rows(&all.items))
}

pub(super) fn reply(rows: Result<Vec<Value>, String>) -> Reply {
    let failed = |why| Reply::Failed(Error::new(Code::Io, why));
    rows.map_or_else(failed, |rows| Reply::Shown(Value::Array(rows)))
}

impl Listings {
    pub(super) async fn show(&self, what: Show, deadline: Deadline) -> Reply {
        let rows = match what {
            Show::Pools => self.pools(deadline).await,
            Show::Blocks => Ok(self.blocks()),
            Show::Addresses => Ok(self.addresses()),
            Show::Faults => self.faults(deadline).await,
            Show::Egresses => self.egresses(deadline).await,
            Show::Nodes => self.nodes(),
            Show::Towards(node) => self.towards(&node, deadline).await,
        };
        reply(rows)
    }

    async fn pools(&self, deadline: Deadline) -> Result<Vec<Value>, String> {
        let pools = self.objects.list::<AddressPool>(&Within::default(), deadline).await;
        let pools =
            pools.map_err(|error| format!("the pools cannot be read: {}", sentence(&error)))?;
        Ok(pool_rows::rows(&pools.items.into_iter().collect(), &self.claims.blocks().load()))
    }

    async fn egresses(&self, deadline: Deadline) -> Result<Vec<Value>, String> {
        let off =
            "pods of this node may not use egresses: set net.egress to on (in the chart, true)";
        let seen = self.egress.as_ref().ok_or_else(|| off.to_owned())?;
        egresses(&self.objects, seen, deadline).await
    }

    fn nodes(&self) -> Result<Vec<Value>, String> {
        let off =
            "packets between nodes are not encrypted: set net.encryption to preferred or required";
        self.encryption.as_ref().map(PodEncryption::rows).ok_or_else(|| off.to_owned())
    }

    async fn towards(&self, other: &str, deadline: Deadline) -> Result<Vec<Value>, String> {
        if other == self.node {
            return Err(format!("{other} is the node that looks: name another"));
        }
        if let Some(why) = self.trust.waits_for() {
            return Err(why.to_owned());
        }
        let verdict = self.trust.verdict();
        let towards = verdict.blocks().filter(|block| block.node == other);
        let blocks: Vec<_> = towards.map(|block| RoutedBlock::clone(block)).collect();
        if blocks.is_empty() {
            return Err(format!(
                "node {other} has no block that this node believes, so no pod of it is reached: see \
                 `fairlead net blocks` and `fairlead net check`"
            ));
        }
        let encrypted = self.encryption.as_ref().and_then(|it| it.towards(other, &blocks));
        if let Some(mut rows) = encrypted {
            for row in &mut rows {
                (row["from"], row["to"]) = (json!(self.node), json!(other));
            }
            return Ok(rows);
        }
        let (node, device, direct_mtu) = (self.wiring.node().clone(), self.device, self.mtu);
        let look = move || -> Result<_, NodeError> {
            let tunnel = routes::device(&node)?;
            let underlay = node.netlink(|netlink| Underlay::read(netlink, tunnel))?;
            let inputs = PathInputs { underlay: &underlay, device, direct_mtu, wait: PROBE };
            overlay::look(node.namespace(), inputs, &blocks).map_err(NodeError::Enter)
        };
        let paths = kernel_call(&self.tasks, "net-check", deadline, look).await;
        let paths = paths.map_err(|error| sentence(&error))?.map_err(|error| sentence(&error))?;
        let row = |path: &NodePath| {
            let mut row = json!(path);
            (row["from"], row["to"]) = (json!(self.node), json!(other));
            row
        };
        Ok(paths.iter().map(row).collect())
    }

    fn blocks(&self) -> Vec<Value> {
        let view = self.addresses.view();
        let own: BTreeMap<&str, _> = view.blocks().collect();
        let all = self.claims.blocks().load();
        let row = |(name, block): (&String, &Arc<AddressBlock>)| {
            let spec = &block.spec;
            let status = block.status.clone().unwrap_or_default();
            // A node knows its own blocks best; of the others' it knows what they last wrote.
            let here = own.get(name.as_str());
            json!({
                "name": name, "pool": spec.pool, "node": spec.node, "here": spec.node == self.node,
                "ipv4": spec.ipv4, "ipv6": spec.ipv6, "via": spec.node_addresses,
                "used": here.map_or(status.used, |own| own.used()),
                "free": here.map_or(status.free, |own| own.free()),
                "trouble": here.and_then(|own| own.cordoned().map(str::to_owned)).or(status.trouble),
            })
        };
        all.iter().map(row).collect()
    }

    fn addresses(&self) -> Vec<Value> {
        let view = self.addresses.view();
        let mut attachments: Vec<_> = view.attachments().collect();
        attachments.sort_by_key(|attachment| (attachment.ipv4, attachment.ipv6));
        let row = |a: &Arc<Attachment>| {
            json!({
                "container": a.key.container, "ifname": a.key.ifname, "network": a.network,
                "pod": a.pod, "pool": a.pool, "ipv4": a.ipv4, "ipv6": a.ipv6,
                "hostInterface": a.host_interface, "netns": a.netns, "since": a.since,
            })
        };
        attachments.into_iter().map(row).collect()
    }

    async fn faults(&self, deadline: Deadline) -> Result<Vec<Value>, String> {
        let fault = |what: &str, fault: &str| json!({ "what": what, "fault": fault });
        let mut faults = Vec::new();
        match &*self.service.health().load() {
            Health::Well => {}
            Health::Reconciling(doing) => {
                faults.push(fault("agent", &format!("reconciling: {doing}")));
            }
            Health::Limited(why) => faults.push(fault("agent", why)),
        }
        faults.extend(self.claims.troubles().iter().map(|trouble| fault("pools", trouble)));
        let recorded: Vec<_> = self.addresses.view().attachments().cloned().collect();
        let verdict = self.trust.verdict();
        faults.extend(self.trust.waits_for().map(|why| fault("routes to blocks", why)));
        faults
            .extend(verdict.doubts.iter().map(|(name, why)| fault(&format!("block {name}"), why)));
        let ways = self.encryption.iter().flat_map(PodEncryption::faults);
        faults.extend(ways.map(|(what, why)| fault(&what, &why)));
        let inputs = RouteInputs::new(&self.trust, &verdict, self.export_table, self.device);
        let wiring = self.wiring.clone();
        let look = move || {
            let verified = recorded.into_iter().map(|attachment| {
                // Its network namespace is looked into if it can be seen from here.
                let found = wiring.verify(&attachment, namespace_of(&attachment).as_ref());
                (attachment, found)
            });
            let verified: Vec<(_, Vec<Fault>)> = verified.collect();
            (verified, misrouted(wiring.node(), &inputs))
        };
        let (verified, misrouted) = kernel_call(&self.tasks, "net-check", deadline, look)
            .await
            .map_err(|error| sentence(&error))?;
        faults.extend(misrouted.iter().map(|found| fault("routes to blocks", found)));
        let now = self.addresses.view();
        for (attachment, found) in verified {
            // An attachment that is being made or removed meanwhile is not yet, or no longer, whole.
            let key = &attachment.key;
            if now.attachment(key) == Some(&attachment) && !self.service.is_busy(key) {
                let what = described(&attachment);
                faults.extend(found.iter().map(|found| fault(&what, &found.to_string())));
            }
        }
        Ok(faults)
    }
}

/// Says what an attempt to reconcile the routes would change, and which nodes the tunnel does not reach.
fn misrouted(node: &Node, inputs: &RouteInputs) -> Vec<String> {
    let told = |change: &Change<'_>| match change {
        Change::DeleteRoute(route) => format!("there is a route to {route} that should not be"),
        Change::Route(route) => format!("there is no route to {route}"),
        other => format!("something is left to do: {other}"),
    };
    let look = || -> Result<Vec<String>, NodeError> {
        let device = routes::device(node)?;
        let (underlay, found) = node.netlink(|netlink| {
            let underlay = Underlay::read(netlink, device)?;
            Ok((underlay, routes::found(netlink, inputs.export_table, device)?))
        })?;
        let wanted = routes::wanted(inputs, &underlay);
        let changes = routes::plan(&wanted, &found, inputs.complete);
        let mut faults: Vec<_> = changes.iter().map(told).collect();
        if let Some(device) = device {
            let nodes = underlay.nodes(&inputs.node, &inputs.blocks);
            let nodes: Vec<_> = nodes
                .into_iter()
                .map(|(node, (tunnel, _))| (node.to_owned(), tunnel.remote))
                .collect();
            let port = inputs.device.port;
            let silent = overlay::probe(node.namespace(), device, port, &nodes, PROBE);
            let silent = silent.map_err(NodeError::Enter)?;
            faults.extend(silent.into_iter().map(|(node, why)| format!("node {node}: {why}")));
        }
        Ok(faults)
    };
    look().unwrap_or_else(|error| vec![sentence(&error)])
}

fn described(attachment: &Attachment) -> String {
    match &attachment.pod {
        Some(pod) => format!("pod {pod}"),
        None => format!("container {}", attachment.key),
    }
}
