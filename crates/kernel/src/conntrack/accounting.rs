//! Has the kernel count what connections carry, keep their times and send events of their ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::sysctl;

/// The sysctls to switch on; each holds for connections that begin afterwards. Of events the kernel's
/// default (`2`) covers only connections that began while somebody listened, which are not those that
/// began while an agent was being restarted.
const SWITCHES: [&str; 3] = ["nf_conntrack_acct", "nf_conntrack_timestamp", "nf_conntrack_events"];

#[derive(Debug, thiserror::Error)]
pub enum AccountingError {
    #[error("this kernel tracks no connections: it has no {}", .0.display())]
    NoTracking(PathBuf),
    #[error("cannot write 1 to {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Switches accounting on in the network namespace of the calling thread. A sysctl that is on is not
/// written: it may be read-only.
pub fn enable_accounting() -> Result<(), AccountingError> {
    for name in SWITCHES {
        let path = sysctl::net(Path::new("netfilter").join(name));
        match fs::read_to_string(&path) {
            Ok(value) if value.trim_end() == "1" => {}
            Ok(_) => {
                let write = fs::write(&path, "1");
                write.map_err(|source| AccountingError::Write { path, source })?;
            }
            Err(_) => return Err(AccountingError::NoTracking(path)),
        }
    }
    Ok(())
}
