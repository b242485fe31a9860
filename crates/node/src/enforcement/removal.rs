//! Ends enforcement on a node for good.

use std::io;

use kernel::nftables::{Batch, Nftables};

use super::ruleset::TABLE;

/// Removes the table that agents left; says whether there was one. Connections that were ended stay so.
pub fn remove() -> io::Result<bool> {
    let mut nftables = Nftables::open()?;
    if nftables.table(TABLE)?.is_none() {
        return Ok(false);
    }
    let mut batch = Batch::new(TABLE);
    batch.delete_table();
    nftables.commit(&batch, None)?;
    Ok(true)
}
