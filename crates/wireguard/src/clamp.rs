//! What begins a TCP connection through the tunnel announces no larger segments than the tunnel carries.
//! Hosts that do not hear of too large packets, because somebody drops ICMP, need that.
//!
//! A connection has a first packet each way, and each leaves by the tunnel of its own side: both
//! directions are seen to by what leaves.

use std::io;

use kernel::netns::Namespace;
use kernel::nftables::expression::{Comparison, Expression, Header, Meta, Register};
use kernel::nftables::{Batch, Chain, Hook, Nftables, Rule};

pub(crate) const TABLE: &str = "fairlead-mesh";
const CHAIN: &str = "clamp";
/// `mangle`, where others change packets too.
const PRIORITY: i32 = -150;
const TCP: u8 = 6;
const SYN: u8 = 2;

/// Makes the rule for an interface, in place of what is there.
pub(crate) fn apply(namespace: &Namespace, interface: &str) -> io::Result<()> {
    let batch = table(interface);
    namespace.run_in(|| Ok(Nftables::open()?.commit(&batch, None)?))?
}

/// Removes the table in the network namespace of the calling thread; says whether there was one.
pub(crate) fn remove() -> io::Result<bool> {
    let mut batch = Batch::new(TABLE);
    batch.delete_table();
    match Nftables::open()?.commit(&batch, None).map_err(io::Error::from) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn table(interface: &str) -> Batch {
    let (into, register) = (Register::FIRST, Register::FIRST);
    let is = |is, value| Expression::Compare { register, is, value };
    let mut batch = Batch::new(TABLE);
    batch.add_table(0);
    batch.delete_table();
    batch.add_table(0);
    let hook = Some((Hook::Postrouting, PRIORITY));
    batch.add_chain(&Chain { name: CHAIN.to_owned(), hook, drops: false });
    let expressions = vec![
        Expression::output_interface(into),
        is(Comparison::Equal, Expression::interface_name(interface)),
        Expression::Meta { fact: Meta::Protocol, into },
        is(Comparison::Equal, vec![TCP]),
        Expression::Payload { header: Header::Transport, offset: 13, length: 1, into },
        Expression::Bits { register, mask: vec![SYN], xor: vec![0] },
        is(Comparison::NotEqual, vec![0]),
        Expression::route_segment(into),
        Expression::to_network_order(register),
        Expression::clamp_segments(register),
    ];
    batch.add_rule(CHAIN, &Rule { expressions, ..Rule::default() });
    batch
}
