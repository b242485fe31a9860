//! `Gateway`: what an egress pod does. The kernel does it once it is set up, and goes on if the process ends.
//!
//! ```text
//! prerouting   by fl-egress: mark of the connection = number of the node, from the hardware address
//!              a reply: mark of the packet = mark of the connection
//! rule         by the uplink: table 117 ─► fl-egress
//! forward      what nobody asked for from the uplink is dropped; TCP segments fit the tunnel
//! postrouting  connections of clients get the pod's address
//! fl-egress    hardware address of the destination = prefix and mark
//! ```
//!
//! Contract: nothing is kept of single clients, and links are the same for one client and for thousands.
//! Setting up again leaves connections as they are.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use kernel::conntrack;
use kernel::netlink::{
    self, Change, InputRule, Link, LinkRef, Mac, Neighbour, Route, RouteKind, Vxlan, VxlanPeers,
};
use kernel::netns::{self, Namespace};
use kernel::nftables::expression::{Comparison, Expression, Header, Meta, Register, Tracked};
use kernel::nftables::{Batch, Chain, CommitError, Hook, Nftables, Rule, Verdict};

use super::{DEVICE, GATEWAY, GATEWAY_MAC, NETWORK, NODES, PREFIX, TABLE};
use crate::node::{Node, NodeError};
use crate::overlay;
use crate::wiring::ROUTE_PROTOCOL;

/// The table of replies.
const REPLIES: u32 = 117;
const PRIORITY: u32 = 11_700;
const AFTER_MANGLE: i32 = -149;
const SOURCE_NAT: i32 = 100;
const TCP: u8 = 6;
const SYN: u8 = 2;
/// What the headers of IP and TCP take of a packet.
const HEADERS: [(u8, u32); 2] = [(2, 40), (10, 60)];

#[derive(Clone, Copy, Debug)]
pub struct GatewaySettings {
    /// The tunnel's UDP port.
    pub port: u16,
}

#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("the pod's network namespace cannot be held")]
    Namespace(#[source] netns::Error),
    #[error("the pod has no default route, and nowhere to send connections to")]
    NoUplink,
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("the kernel's rules cannot be asked for")]
    Socket(#[source] io::Error),
    #[error("the kernel's rules cannot be made")]
    Commit(#[from] CommitError),
    #[error("the kernel's connections cannot be listed")]
    Connections(#[source] io::Error),
}

/// How much an egress pod is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayUse {
    pub clients: usize,
    pub connections: usize,
}

/// An egress pod that is set up.
#[derive(Debug)]
pub struct Gateway {
    node: Node,
}

impl Gateway {
    /// Sets up the network namespace of the calling thread. Blocks.
    pub fn set_up(settings: GatewaySettings) -> Result<Self, GatewayError> {
        let node = Node::new(Namespace::current().map_err(GatewayError::Namespace)?);
        node.forward()?;
        let (uplink, over_ipv4) = uplink(&node)?;
        let mtu = overlay::mtu(uplink.mtu, over_ipv4);
        let vxlan = Vxlan {
            name: DEVICE,
            mac: GATEWAY_MAC,
            mtu,
            port: settings.port,
            peers: VxlanPeers::Learned { network: NETWORK, over_ipv4 },
        };
        let device = overlay::ensure_vxlan(&node, vxlan, GATEWAY)?;
        // The rules write the rest of the hardware address.
        let mac = Mac([PREFIX[0], PREFIX[1], 0, 0, 0, 0]);
        let neighbour = Neighbour { link: device, address: NODES.into(), mac };
        let reply = |destination| Route {
            destination,
            table: REPLIES,
            protocol: ROUTE_PROTOCOL,
            kind: RouteKind::On(device, NODES.into()),
        };
        let everywhere = [IpNet::V4(Default::default()), IpNet::V6(Default::default())];
        node.netlink(|netlink| {
            netlink.apply(&[Change::Neighbour(neighbour)])?;
            netlink.apply(&everywhere.map(|net| Change::Route(reply(net))))?;
            for is_ipv4 in [true, false] {
                let rule = InputRule {
                    link: &uplink.name,
                    is_ipv4,
                    table: REPLIES,
                    priority: PRIORITY,
                    protocol: ROUTE_PROTOCOL,
                };
                allow_existing(netlink.apply(&[Change::InputRule(rule)]))?;
            }
            Ok(())
        })?;
        let rules = || Nftables::open().map(|mut it| it.commit(&batch(&uplink.name, mtu), None));
        node.namespace()
            .run_in(rules)
            .map_err(GatewayError::Socket)?
            .map_err(GatewayError::Socket)??;
        Ok(Self { node })
    }

    /// Counts clients and their connections. Blocks.
    pub fn usage(&self) -> Result<GatewayUse, GatewayError> {
        let (mut clients, mut connections) = (BTreeSet::<IpAddr>::new(), BTreeSet::new());
        let mut count = || {
            conntrack::Table::open()?.list(|entry| {
                if entry.mark != 0 && connections.insert(entry.id) {
                    clients.insert(entry.original.source);
                }
            })
        };
        let counted = self.node.namespace().run_in(&mut count);
        counted.and_then(|listed| listed).map_err(GatewayError::Connections)?;
        Ok(GatewayUse { clients: clients.len(), connections: connections.len() })
    }
}

fn allow_existing(made: Result<(), netlink::Error>) -> Result<(), netlink::Error> {
    match made {
        Err(error) if error.already_exists() => Ok(()),
        other => other,
    }
}

/// The link that connections leave by, and whether it has an IPv4 address, to which tunnels come then.
fn uplink(node: &Node) -> Result<(Link, bool), GatewayError> {
    let found = node.netlink(|netlink| {
        let Some(index) = netlink.default_link()? else { return Ok(None) };
        let over_ipv4 = netlink.addresses(index)?.iter().any(|it| it.address.addr().is_ipv4());
        Ok(netlink.link(LinkRef::Index(index))?.map(|link| (link, over_ipv4)))
    })?;
    found.ok_or(GatewayError::NoUplink)
}

fn batch(uplink: &str, mtu: u32) -> Batch {
    let mut batch = Batch::new(TABLE);
    // Made first, so that there is one to delete.
    batch.add_table(0);
    batch.delete_table();
    batch.add_table(0);
    let chain = |name: &str, hook, priority| Chain {
        name: name.to_owned(),
        hook: Some((hook, priority)),
        drops: false,
    };
    batch.add_chain(&chain("prerouting", Hook::Prerouting, AFTER_MANGLE));
    batch.add_chain(&chain("forward", Hook::Forward, 0));
    batch.add_nat_chain("postrouting", Hook::Postrouting, SOURCE_NAT);
    let in_by = |name: &str| {
        let name = Expression::interface_name(name);
        vec![Expression::input_interface(Register::FIRST), is(Comparison::Equal, name)]
    };
    let direction = |direction: u8| {
        let into = Register::FIRST;
        [
            Expression::Tracked { fact: Tracked::Direction, into },
            is(Comparison::Equal, vec![direction]),
        ]
    };
    // The last four bytes of the sender's hardware address.
    let header = Header::Link;
    let mut learn = in_by(DEVICE);
    learn.push(Expression::Payload { header, offset: 8, length: 4, into: Register::FIRST });
    learn.push(Expression::SetTrackedMark { from: Register::FIRST });
    batch.add_rule("prerouting", &rule(learn));
    let mut reply = in_by(uplink);
    reply.extend(direction(1));
    reply.push(Expression::Tracked { fact: Tracked::Mark, into: Register::FIRST });
    reply.push(Expression::SetMark { from: Register::FIRST });
    batch.add_rule("prerouting", &rule(reply));
    let mut unasked = in_by(uplink);
    unasked.extend(direction(0));
    unasked.push(Expression::Verdict(Verdict::Drop));
    batch.add_rule("forward", &rule(unasked));
    for (family, headers) in HEADERS {
        let most = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
        batch.add_rule("forward", &rule(clamp(family, most)));
    }
    let name = Expression::interface_name(uplink);
    batch.add_rule(
        "postrouting",
        &rule(vec![
            Expression::output_interface(Register::FIRST),
            is(Comparison::Equal, name),
            Expression::Tracked { fact: Tracked::Mark, into: Register::FIRST },
            is(Comparison::NotEqual, vec![0; 4]),
            Expression::Counter { packets: 0, bytes: 0 },
            Expression::masquerade(None),
        ]),
    );
    batch.of_links();
    batch.add_table(0);
    batch.delete_table();
    batch.add_table(0);
    batch.add_link_chain("out", DEVICE);
    batch.add_rule(
        "out",
        &rule(vec![
            Expression::Meta { fact: Meta::Mark, into: Register::FIRST },
            is(Comparison::NotEqual, vec![0; 4]),
            Expression::write_link_header(Register::FIRST, 2),
        ]),
    );
    batch
}

/// A TCP packet of this family that begins a connection announces no more than what the tunnel carries.
fn clamp(family: u8, most: u16) -> Vec<Expression> {
    let (into, register) = (Register::FIRST, Register::FIRST);
    vec![
        Expression::Meta { fact: Meta::Family, into },
        is(Comparison::Equal, vec![family]),
        Expression::Meta { fact: Meta::Protocol, into },
        is(Comparison::Equal, vec![TCP]),
        Expression::Payload { header: Header::Transport, offset: 13, length: 1, into },
        Expression::Bits { register, mask: vec![SYN], xor: vec![0] },
        is(Comparison::NotEqual, vec![0]),
        Expression::Immediate { into, value: most.to_be_bytes().to_vec() },
        Expression::clamp_segments(register),
    ]
}

fn is(is: Comparison, value: Vec<u8>) -> Expression {
    Expression::Compare { register: Register::FIRST, is, value }
}

fn rule(expressions: Vec<Expression>) -> Rule {
    Rule { expressions, ..Rule::default() }
}
