//! What `fairlead net` shows of this node. The JSON is a contract.

use std::collections::BTreeMap;

use cni::spec::{Code, Error};
use cni::wire::{Reply, Show};
use flow::Deadline;
use objects::kinds::{AddressBlock, AddressPool};
use objects::{Objects, Within};
use serde_json::{Value, json};

use crate::Addresses;
use crate::claims::Claims;

#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) node: String,
    pub(super) objects: Objects,
    pub(super) addresses: Addresses,
    pub(super) claims: Claims,
}

impl Shown {
    pub(super) async fn show(&self, what: Show, deadline: Deadline) -> Reply {
        let shown = match what {
            Show::Pools => self.pools(deadline).await,
            Show::Blocks => Ok(self.blocks()),
            Show::Addresses => Ok(self.addresses()),
            Show::Faults => Ok(self.faults()),
        };
        shown.map_or_else(Reply::Failed, |rows| Reply::Shown(Value::Array(rows)))
    }

    async fn pools(&self, deadline: Deadline) -> Result<Vec<Value>, Error> {
        let pools = self.objects.list::<AddressPool>(&Within::default(), deadline).await;
        let pools = pools.map_err(|error| {
            Error::new(Code::Io, format!("the pools cannot be read: {}", flow::sentence(&error)))
        })?;
        Ok(pools.items.iter().map(pool).collect())
    }

    fn blocks(&self) -> Vec<Value> {
        let view = self.addresses.view();
        let own: BTreeMap<&str, _> = view.blocks().collect();
        let all = self.claims.blocks().load();
        let row = |(name, block): (&String, &std::sync::Arc<AddressBlock>)| {
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
        let row = |a: &std::sync::Arc<crate::Attachment>| {
            json!({
                "container": a.key.container, "ifname": a.key.ifname, "network": a.network,
                "pod": a.pod, "pool": a.pool, "ipv4": a.ipv4, "ipv6": a.ipv6,
                "hostInterface": a.host_interface, "netns": a.netns, "since": a.since,
            })
        };
        attachments.into_iter().map(row).collect()
    }

    fn faults(&self) -> Vec<Value> {
        let fault = |trouble: &String| json!({ "what": "pools", "fault": trouble });
        self.claims.troubles().load().iter().map(fault).collect()
    }
}

fn pool(pool: &AddressPool) -> Value {
    let status = pool.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.r#type == "Ready");
    let trouble = ready.filter(|c| c.status == "False").map(|c| c.message.clone());
    let subnets = pool.spec.subnets.iter().flat_map(|s| s.ipv4.iter().chain(&s.ipv6));
    json!({
        "name": pool.metadata.name, "subnets": subnets.collect::<Vec<_>>(),
        "blockSizeBits": pool.spec.block_size_bits,
        "blocks": status.blocks, "claimed": status.claimed, "used": status.used,
        "free": status.free, "nodes": status.nodes, "trouble": trouble,
    })
}
