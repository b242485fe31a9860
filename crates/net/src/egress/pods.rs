//! `NodePods`: which pods of this node chose which egresses, and under which addresses: as the journal and
//! the watch have it where this agent connects them, else as the API server does ([`ForeignPods`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use objects::kinds::Networks;
use stallproof::Snapshot;
use stallproof::snapshot::{Changes, View};

use super::foreign::{self, Bypass, ForeignPods};
use super::hold::{Choices, EgressHold, Held, choice_of};
use super::kernel_state::EgressError;
use super::plan::{Client, EgressInputs, EgressProgram};
use crate::address_table::AddressTable;
use crate::node::Node;
use crate::pool::Pools;
use crate::{Addresses, Attachment};

/// A handle.
#[derive(Clone, Debug)]
pub(crate) enum NodePods {
    /// This agent connects them.
    Served(ServedPods),
    /// Another plugin connects them.
    Foreign(ForeignPods),
}

#[derive(Clone, Debug)]
pub(crate) struct ServedPods {
    pub(crate) hold: EgressHold,
    pub(crate) addresses: Addresses,
    pub(crate) pools: Snapshot<Pools>,
}

/// One look at them.
pub(super) enum PodsSeen {
    Served { hold: EgressHold, choices: View<Choices>, table: View<AddressTable>, own: Vec<IpNet> },
    Foreign(foreign::PodsSeen),
}

#[derive(Debug)]
pub(super) enum PodChanges {
    Served {
        choices: Changes<Choices>,
        held: Changes<Held>,
        pools: Changes<Pools>,
        addresses: Changes<AddressTable>,
    },
    Foreign(Changes<foreign::Pods>),
}

impl NodePods {
    /// Looks at the pods; none until the store has told of them.
    pub(super) fn look(&self) -> Option<PodsSeen> {
        match self {
            Self::Served(ServedPods { hold, addresses, pools }) => {
                let choices = hold.choices().load();
                let told = choices.synced && pools.read(Pools::synced);
                told.then(|| PodsSeen::Served {
                    hold: hold.clone(),
                    choices,
                    table: addresses.view(),
                    own: networks(&pools.load()),
                })
            }
            Self::Foreign(pods) => pods.look().map(PodsSeen::Foreign),
        }
    }

    pub(super) fn subscribe(&self) -> PodChanges {
        match self {
            Self::Served(ServedPods { hold, addresses, pools }) => PodChanges::Served {
                choices: hold.choices().subscribe(),
                held: hold.changes(),
                pools: pools.subscribe(),
                addresses: addresses.changes(),
            },
            Self::Foreign(pods) => PodChanges::Foreign(pods.subscribe()),
        }
    }

    /// How many new pods are held.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Served(pods) => pods.hold.held().len(),
            Self::Foreign(pods) => pods.without_address(),
        }
    }

    /// How many pods of this node chose each egress.
    pub(super) fn chosen(&self) -> BTreeMap<String, usize> {
        let clients = self.look().map(|seen| seen.clients()).unwrap_or_default();
        let mut chosen = BTreeMap::new();
        for egress in clients.into_iter().flat_map(|client| client.egresses) {
            *chosen.entry(egress).or_default() += 1;
        }
        chosen
    }
}

impl PodsSeen {
    /// The pods that chose egresses.
    pub(super) fn clients(&self) -> Vec<Client> {
        match self {
            Self::Served { choices, table, .. } => {
                let clients = table.attachments().filter_map(|attachment| {
                    let pod = attachment.pod.as_ref()?;
                    let egresses = choice_of(choices, pod).filter(|chosen| !chosen.is_empty())?;
                    Some(Client {
                        namespace: pod.namespace.clone(),
                        pod: pod.name.clone(),
                        addresses: attachment.addresses().collect(),
                        egresses: egresses.to_vec(),
                    })
                });
                clients.collect()
            }
            Self::Foreign(seen) => seen.clients(),
        }
    }

    /// The networks of pods.
    pub(super) fn own(&self) -> Vec<IpNet> {
        match self {
            Self::Served { own, .. } => own.clone(),
            Self::Foreign(seen) => seen.networks().to_vec(),
        }
    }

    /// Adds what only the node's kernel can tell. Blocks.
    pub(super) fn read_node(
        &self,
        node: &Node,
        inputs: &mut EgressInputs,
        bypasses: &mut Vec<Bypass>,
    ) -> Result<(), EgressError> {
        match self {
            Self::Served { .. } => Ok(()),
            Self::Foreign(seen) => seen.read_node(node, inputs, bypasses),
        }
    }

    /// Lets go of new pods, now that the kernel has the program; returns those that the API server did not tell
    /// of in time. In the namespace of the node. Blocks.
    pub(super) fn settle(
        &self,
        program: &EgressProgram,
    ) -> Result<Vec<Arc<Attachment>>, EgressError> {
        match self {
            Self::Served { hold, choices, table, .. } => {
                hold.ensure(program.holds())?;
                let is_known = |it: &Attachment| {
                    let pod = it.pod.as_ref();
                    let chosen = pod.and_then(|pod| choice_of(choices, pod));
                    // One that was assigned after the plan was made is not in the kernel yet.
                    chosen
                        .is_some_and(|them| them.is_empty() || table.attachment(&it.key).is_some())
                };
                hold.let_go(is_known).map_err(EgressError::Socket)
            }
            Self::Foreign(seen) => seen.settle().map(|()| Vec::new()),
        }
    }
}

impl PodChanges {
    pub(super) async fn changed(&mut self) {
        match self {
            Self::Served { choices, held, pools, addresses } => tokio::select! {
                _ = choices.changed() => {}
                _ = held.changed() => {}
                _ = pools.changed() => {}
                _ = addresses.changed() => {}
            },
            Self::Foreign(pods) => {
                pods.changed().await;
            }
        }
    }
}

/// The networks of all pools.
fn networks(pools: &Pools) -> Vec<IpNet> {
    let networks = pools.values().filter_map(|judged| judged.object.spec.networks().ok()).flatten();
    networks
        .flat_map(|Networks { ipv4, ipv6 }| {
            ipv4.map(IpNet::V4).into_iter().chain(ipv6.map(IpNet::V6))
        })
        .collect()
}
