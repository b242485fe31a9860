//! Has the kernel count what connections carry, keep their times and tell of their ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Each holds for connections that begin afterwards. Ends: the kernel's own choice (`2`) is to tell
/// only of connections that began while somebody listened, which are not those that began while an
/// agent was being restarted.
const SWITCHES: [&str; 3] = ["nf_conntrack_acct", "nf_conntrack_timestamp", "nf_conntrack_events"];

#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    #[error("this kernel tracks no connections: it has no {}", .0.display())]
    NoTracking(PathBuf),
    #[error("cannot write 1 to {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// In the namespace of the calling thread. What is as it should be is not written: it may be
/// read-only.
pub fn keep_accounts() -> Result<(), AccountsError> {
    for name in SWITCHES {
        let path = Path::new("/proc/sys/net/netfilter").join(name);
        match fs::read_to_string(&path) {
            Ok(value) if value.trim_end() == "1" => {}
            Ok(_) => {
                let write = fs::write(&path, "1");
                write.map_err(|source| AccountsError::Write { path, source })?;
            }
            Err(_) => return Err(AccountsError::NoTracking(path)),
        }
    }
    Ok(())
}
