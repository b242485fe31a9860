//! Network sysctls: those of the network namespace that the calling thread is in.
//!
//! A container that is not privileged has `/proc/sys` read-only. One that sets network sysctls is given
//! the node's `/proc/sys/net`, and nothing else of it, at [`MOUNTED`]; there as well a thread sees those of
//! its own network namespace.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where a container finds those of its node, if it was given them.
pub const MOUNTED: &str = "/host/proc/sys/net";
const USUAL: &str = "/proc/sys/net";

/// The file of a network sysctl, such as `ipv4/ip_forward`.
pub fn net(name: impl AsRef<Path>) -> PathBuf {
    static ROOT: OnceLock<&Path> = OnceLock::new();
    ROOT.get_or_init(|| root(Path::new(MOUNTED), Path::new(USUAL))).join(name)
}

fn root<'a>(mounted: &'a Path, usual: &'a Path) -> &'a Path {
    if mounted.join("ipv4").is_dir() { mounted } else { usual }
}

#[cfg(test)]
mod tests;
