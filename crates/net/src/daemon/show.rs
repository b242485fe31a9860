//! What `fairlead net` shows of this node. The JSON is a contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use cni::spec::{Code, Error};
use cni::wire::{Reply, Show};
use kernel::netlink::{Change, Route};
use kernel::netns::Namespace;
use objects::kinds::{AddressBlock, AddressPool};
use objects::{Objects, Within};
use serde_json::{Value, json};
use stallproof::{Deadline, Tasks};

use crate::attach::{Attach, Health};
use crate::claims::Claims;
use crate::leader::shown;
use crate::node::Node;
use crate::routes;
use crate::trust::Trust;
use crate::wiring::{MAIN_TABLE, Wiring};
use crate::{Addresses, Attachment, NamespaceId};

#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) node: String,
    pub(super) objects: Objects,
    pub(super) addresses: Addresses,
    pub(super) claims: Claims,
    pub(super) trust: Trust,
    pub(super) attach: Attach<Wiring>,
    pub(super) wiring: Wiring,
    pub(super) export_table: Option<u32>,
    pub(super) tasks: Tasks,
}

impl Shown {
    pub(super) async fn show(&self, what: Show, deadline: Deadline) -> Reply {
        let shown = match what {
            Show::Pools => self.pools(deadline).await,
            Show::Blocks => Ok(self.blocks()),
            Show::Addresses => Ok(self.addresses()),
            Show::Faults => self.faults(deadline).await,
        };
        shown.map_or_else(Reply::Failed, |rows| Reply::Shown(Value::Array(rows)))
    }

    async fn pools(&self, deadline: Deadline) -> Result<Vec<Value>, Error> {
        let pools = self.objects.list::<AddressPool>(&Within::default(), deadline).await;
        let pools = pools.map_err(|error| {
            Error::new(
                Code::Io,
                format!("the pools cannot be read: {}", stallproof::sentence(&error)),
            )
        })?;
        Ok(shown::rows(&pools.items, &self.claims.blocks().load()))
    }

    fn blocks(&self) -> Vec<Value> {
        let view = self.addresses.view();
        let own: BTreeMap<&str, _> = view.blocks().collect();
        let all = self.claims.blocks().load();
        let row = |(name, block): (&String, &Arc<AddressBlock>)| {
            let spec = &block.spec;
            let status = block.status.clone().unwrap_or_default();
            // Of its own blocks a node knows best; of the others', what they last said.
            let here = own.get(name.as_str());
            json!({
                "name": name, "pool": spec.pool, "node": spec.node, "here": spec.node == self.node,
                "ipv4": spec.ipv4, "ipv6": spec.ipv6, "via": spec.node_addresses,
                "used": here.map_or(status.used, |own| own.used()),
                "free": here.map_or(status.free, |own| own.free()),
                "trouble": here.and_then(|own| own.barred().map(str::to_owned)).or(status.trouble),
            })
        };
        all.by_name.iter().map(row).collect()
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

    async fn faults(&self, deadline: Deadline) -> Result<Vec<Value>, Error> {
        let fault = |what: &str, fault: &str| json!({ "what": what, "fault": fault });
        let mut faults = Vec::new();
        match &*self.attach.health().load() {
            Health::Well => {}
            Health::Reconciling(doing) => {
                faults.push(fault("agent", &format!("reconciling: {doing}")));
            }
            Health::Limited(why) => faults.push(fault("agent", why)),
        }
        faults.extend(self.claims.troubles().load().iter().map(|trouble| fault("pools", trouble)));
        let view = self.addresses.view();
        let recorded: Vec<_> = view.attachments().cloned().collect();
        let verdict = self.trust.look();
        faults.extend(self.trust.waits_for().map(|why| fault("routes to blocks", why)));
        faults
            .extend(verdict.doubts.iter().map(|(name, why)| fault(&format!("block {name}"), why)));
        let blocks: Vec<_> = verdict.blocks().collect();
        let wanted = routes::wanted(&self.node, &blocks, self.export_table);
        let (wiring, table, all) = (self.wiring.clone(), self.export_table, verdict.all);
        let look = move || {
            let verified = recorded.into_iter().filter_map(|a| verified(&wiring, a));
            (verified.collect::<Vec<_>>(), misrouted(wiring.node(), &wanted, table, all))
        };
        let looked = async {
            let thread = self.tasks.spawn_blocking("net-check", deadline, look).await.ok()?;
            deadline.bound(thread).await.ok()?.ok()
        };
        let (verified, misrouted) = looked
            .await
            .ok_or_else(|| Error::new(Code::Io, "the kernel does not answer in time"))?;
        faults.extend(misrouted.iter().map(|found| fault("routes to blocks", found)));
        let now = self.addresses.view();
        for (attachment, found) in verified {
            // What is being made or taken down meanwhile is not yet, or no longer, whole.
            let key = &attachment.key;
            if now.attachment(key) == Some(&attachment) && !self.attach.is_busy(key) {
                faults.extend(found.iter().map(|found| fault(&told(&attachment), found)));
            }
        }
        Ok(faults)
    }
}

/// What a pass over the routes would change.
fn misrouted(node: &Node, wanted: &[Route], table: Option<u32>, all: bool) -> Vec<String> {
    let found = node.netlink(|netlink| {
        let mut found = netlink.routes(MAIN_TABLE)?;
        if let Some(table) = table {
            found.append(&mut netlink.routes(table)?);
        }
        Ok(found)
    });
    let told = |change: &Change<'_>| match change {
        Change::DeleteRoute(route) => format!("there is a route to {route} that should not be"),
        Change::Route(route) => format!("there is no route to {route}"),
        other => other.to_string(),
    };
    match found {
        Ok(found) => routes::plan(wanted, &found, all).iter().map(told).collect(),
        Err(error) => vec![stallproof::sentence(&error)],
    }
}

/// An attachment that is not as it should be. Its sandbox is looked into if it can be seen from here.
fn verified(
    wiring: &Wiring,
    attachment: Arc<Attachment>,
) -> Option<(Arc<Attachment>, Vec<String>)> {
    let sandbox = Namespace::open(&attachment.netns).ok().filter(|sandbox| {
        let id = sandbox.id();
        attachment.namespace == NamespaceId { device: id.device, inode: id.inode }
    });
    let faults = wiring.verify(&attachment, sandbox.as_ref()).err()?;
    Some((attachment, faults.iter().map(ToString::to_string).collect()))
}

fn told(attachment: &Attachment) -> String {
    match &attachment.pod {
        Some(pod) => format!("pod {}/{}", pod.namespace, pod.name),
        None => format!("container {}", attachment.key),
    }
}
