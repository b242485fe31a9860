//! `Node`: the node's side of the kernel: its network namespace, netlink sockets in it, forwarding.
//!
//! Contract: a [`Node`] works from any thread, whichever namespace that is in. Calls that run at the
//! same time have a socket each; idle ones are kept.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use kernel::netlink::{self, LinkRef, Netlink};
use kernel::netns::Namespace;
use kernel::sysctl;
use parking_lot::Mutex;
use stallproof::tasks::TaskError;
use stallproof::{Deadline, Tasks};

/// More calls than this at the same time open sockets of their own, and close them.
const IDLE: usize = 64;
/// Ethernet's own.
const USUAL_MTU: u32 = 1500;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    namespace: Namespace,
    /// Sockets are taken and put back, never used under the lock.
    idle: Mutex<Vec<Netlink>>,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("cannot open a netlink socket")]
    Open(#[source] io::Error),
    #[error(transparent)]
    Kernel(#[from] netlink::Error),
    #[error("cannot write {path}")]
    Switch {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot enter the node's network namespace")]
    Enter(#[source] io::Error),
    #[error("link {0} was removed by somebody else as it was made")]
    Gone(&'static str),
}

/// A kernel call, on a thread of its own, that gave no result.
#[derive(Debug, thiserror::Error)]
pub enum KernelCallError {
    #[error("the kernel refused")]
    Node(#[source] NodeError),
    #[error("the kernel does not answer in time")]
    TooLate,
    #[error("the thread of the kernel call failed")]
    Thread(#[source] TaskError),
}

/// Runs `work` on a thread, and gives up on it at the deadline.
pub(crate) async fn kernel_call<T: Send + 'static>(
    tasks: &Tasks,
    name: &'static str,
    deadline: Deadline,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, KernelCallError> {
    let started = tasks.spawn_blocking(name, deadline, work).await;
    let running = started.map_err(|_| KernelCallError::TooLate)?;
    let done = deadline.bound(running).await.map_err(|_| KernelCallError::TooLate)?;
    done.map_err(KernelCallError::Thread)
}

impl Node {
    pub fn new(namespace: Namespace) -> Self {
        Self(Arc::new(Inner { namespace, idle: Mutex::default() }))
    }

    pub fn namespace(&self) -> &Namespace {
        &self.0.namespace
    }

    /// Runs `calls` with a netlink socket of the node.
    pub fn netlink<T>(
        &self,
        calls: impl FnOnce(&mut Netlink) -> Result<T, netlink::Error>,
    ) -> Result<T, NodeError> {
        let idle = self.0.idle.lock().pop();
        let mut socket = match idle {
            Some(socket) => socket,
            None => self.0.namespace.netlink().map_err(NodeError::Open)?,
        };
        let result = calls(&mut socket);
        let mut idle = self.0.idle.lock();
        if idle.len() < IDLE {
            idle.push(socket);
        }
        drop(idle);
        Ok(result?)
    }

    /// Returns the MTU of the link that the default route leaves by, else Ethernet's.
    pub fn uplink_mtu(&self) -> Result<u32, NodeError> {
        self.netlink(|netlink| {
            let Some(uplink) = netlink.default_link()? else {
                return Ok(USUAL_MTU);
            };
            let uplink = netlink.link(LinkRef::Index(uplink))?;
            Ok(uplink.map_or(USUAL_MTU, |link| link.mtu))
        })
    }

    /// Switches on IP forwarding, of both families where the kernel has both.
    pub fn forward(&self) -> Result<(), NodeError> {
        self.0.namespace.run_in(forward).map_err(NodeError::Enter)?
    }
}

fn forward() -> Result<(), NodeError> {
    switch(sysctl::net("ipv4/ip_forward"), "1")?;
    let links = sysctl::net("ipv6/conf");
    // No such directory: a kernel without IPv6.
    let Ok(entries) = fs::read_dir(&links) else {
        return Ok(());
    };
    let all = links.join("all/forwarding");
    if !is(&all, "0") {
        return Ok(());
    }
    // A router does not listen to routers: with forwarding on, a link that has its address and its
    // default route from router advertisements loses both, unless told to go on.
    for entry in entries.flatten() {
        let accepts = entry.path().join("accept_ra");
        if is(&accepts, "1") {
            switch(accepts, "2")?;
        }
    }
    switch(all, "1")
}

fn is(path: &Path, value: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|found| found.trim_end() == value)
}

/// Writes only what differs: where the value is right, /proc/sys may be read-only.
fn switch(path: impl AsRef<Path>, value: &str) -> Result<(), NodeError> {
    let path = path.as_ref();
    if is(path, value) {
        return Ok(());
    }
    let failed = |source| NodeError::Switch { path: path.display().to_string(), source };
    fs::write(path, value).map_err(failed)
}

#[cfg(test)]
mod tests;
