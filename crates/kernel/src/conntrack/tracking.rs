//! Has the kernel track connections in a namespace where no rule needs it to.
//!
//! The kernel tracks connections where some nftables rule looks at them. Fairlead's rule does, and no
//! packet ever comes to it: it costs a packet nothing beyond the tracking, and a table of its own keeps
//! it out of everybody's way. It stays until it is removed, so connections stay tracked while an agent
//! is restarted.

use std::io;

use crate::nftables::expression::{Expression, Register, Tracked};
use crate::nftables::{Batch, Chain, Nftables, Rule};

const TABLE: &str = "fairlead";
const CHAIN: &str = "track";

/// Adds the rule in the network namespace of the calling thread; a second call changes nothing.
pub fn enable_tracking() -> io::Result<()> {
    let mut batch = Batch::new(TABLE);
    // One that is there is replaced, in the same instant.
    batch.add_table(0);
    batch.delete_table();
    batch.add_table(0);
    batch.add_chain(&Chain { name: CHAIN.to_owned(), hook: None, drops: false });
    let looks = Expression::Tracked { fact: Tracked::State, into: Register::FIRST };
    batch.add_rule(CHAIN, &Rule { expressions: vec![looks], ..Rule::default() });
    Ok(Nftables::open()?.commit(&batch, None)?)
}

/// Removes the table; says whether there was one.
pub fn disable_tracking() -> io::Result<bool> {
    let mut batch = Batch::new(TABLE);
    batch.delete_table();
    match Nftables::open()?.commit(&batch, None) {
        Ok(()) => Ok(true),
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Asks nftables for the generation of its rules, which changes nothing: an error says that the kernel
/// has no nftables, or that we may not ask.
pub fn probe_nftables() -> io::Result<()> {
    Nftables::open()?.generation().map(|_| ())
}
