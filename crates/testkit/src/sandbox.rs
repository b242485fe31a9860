//! Sandbox: hosts that are network namespaces, and cables between them that are veth pairs.
//!
//! - Its hosts, and the processes in them, are gone with the test process, however that ends.
//! - Names carry the process' id: sandboxes do not meet, and what a crash of the machine or of a
//!   container left behind is removed by the next sandbox.
//!
//! Needs [`need::netns`](crate::need::netns).

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::leash::Leash;

/// Where `ip netns` keeps them.
const NETNS: &str = "/run/netns";
const PREFIX: &str = "fairlead-test-";

/// Removes the namespaces whose names begin with `$1`.
const REMOVE: &str = r#"
for path in /run/netns/"$1"*; do
    [ -e "$path" ] || continue
    name=${path##*/}
    for pid in $(ip netns pids "$name"); do kill -KILL "$pid"; done
    ip netns delete "$name"
done
"#;

#[derive(Debug)]
pub struct Sandbox {
    prefix: String,
    _removed: Leash,
}

/// One network namespace, with its loopback up.
#[derive(Debug)]
pub struct Host {
    name: String,
    netns: String,
}

impl Sandbox {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        remove_those_of_the_dead();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{PREFIX}{}-{count}-", process::id());
        Self { _removed: remover(&prefix), prefix }
    }

    pub fn host(&self, name: &str) -> Host {
        let netns = format!("{}{name}", self.prefix);
        ip(&["netns", "add", &netns]);
        ip(&["-netns", &netns, "link", "set", "dev", "lo", "up"]);
        Host { name: name.to_owned(), netns }
    }

    /// A cable between two hosts, with an address (`10.0.0.1/24`) for each end. At either end the
    /// interface has the name of the host at the other.
    pub fn link(&self, (a, a_address): (&Host, &str), (b, b_address): (&Host, &str)) {
        let (from, to) = (a.netns.as_str(), b.netns.as_str());
        ip(&[
            "-netns", from, "link", "add", "name", &b.name, "type", "veth", //
            "peer", "name", &a.name, "netns", to,
        ]);
        for (netns, interface, address) in [(from, &b.name, a_address), (to, &a.name, b_address)] {
            // `nodad`: an IPv6 address is of use at once. It means nothing to an IPv4 one.
            let end = ["address", "add", address, "dev", interface, "nodad"];
            ip(&[&["-netns", netns][..], &end].concat());
            ip(&["-netns", netns, "link", "set", "dev", interface, "up"]);
        }
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// A command that runs in this host.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.netns]).arg(program);
        command
    }

    /// The namespace's file, for who enters it.
    pub fn netns(&self) -> PathBuf {
        Path::new(NETNS).join(&self.netns)
    }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run ip: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {}", args.join(" "), said.trim());
}

fn remover(prefix: &str) -> Leash {
    Leash::finally(REMOVE, &[prefix]).unwrap_or_else(|error| panic!("cannot run sh: {error}"))
}

fn remove_those_of_the_dead() {
    // No directory, no namespaces.
    let Ok(entries) = fs::read_dir(NETNS) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if let Some(pid) = pid.filter(|pid| !Path::new("/proc").join(pid).exists()) {
            drop(remover(&format!("{PREFIX}{pid}-")));
        }
    }
}

#[cfg(test)]
mod tests;
