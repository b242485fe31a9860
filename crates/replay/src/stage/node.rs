//! A node and its pods: network namespaces of this process, gone with it.

use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kernel::netlink::{Address, Change, LinkRef, Mac, SetLink, Veth, VethPeer};
use kernel::netns::Namespace;
use serde_json::Value;

use crate::incident::Cannot;

/// The node's own address.
pub(crate) const ADDRESS: &str = "192.0.2.1";

/// Runs `work` on a node of its own: a namespace with an uplink, which threads and processes that
/// `work` starts are in as well.
pub(crate) fn on_a_node<T: Send>(
    work: impl FnOnce() -> Result<T, Cannot> + Send,
) -> Result<T, Cannot> {
    let node = Namespace::create()?;
    let mac = |number| Mac([2, 0, 0, 0, 0, number]);
    let peer = VethPeer { name: "far", mac: mac(2), namespace: node.as_fd() };
    let mut netlink = node.netlink()?;
    let uplink = netlink
        .create_veth(Veth { name: "uplink", mac: mac(1), mtu: 1500, group: None, peer })?
        .index;
    let own = [format!("{ADDRESS}/24").parse()?, "2001:db8::1/64".parse()?];
    let own = own.map(|address| Change::Address(Address { link: uplink, address }));
    netlink.apply(&[up("lo"), up("far"), up("uplink")])?;
    netlink.apply(&own)?;
    node.run_in(work)?
}

pub(crate) fn up(name: &str) -> Change<'_> {
    Change::Set(LinkRef::Name(name), SetLink { up: true, ..SetLink::default() })
}

/// A sandbox. Its path means nothing when this is gone.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) container: String,
    pub(crate) namespace: Namespace,
    path: PathBuf,
}

impl Pod {
    pub(crate) fn new(dir: &Path, number: usize) -> Result<Self, Cannot> {
        let container = format!("pod-{number}");
        let namespace = Namespace::create()?;
        let path = dir.join(&container);
        let fd = namespace.as_fd().as_raw_fd();
        symlink(format!("/proc/{}/fd/{fd}", std::process::id()), &path)?;
        Ok(Self { container, namespace, path })
    }

    /// Runs the plugin for `eth0`, as a runtime does: what it said, or its error.
    pub(crate) fn run(
        &self,
        plugin: &Path,
        command: &str,
        config: &Value,
    ) -> Result<Result<Value, Value>, Cannot> {
        let args =
            format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={}", self.container);
        let mut process = Command::new(plugin)
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &self.container)
            .env("CNI_NETNS", &self.path)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", args)
            .env("CNI_PATH", plugin.parent().unwrap_or(Path::new("/")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(mut stdin) = process.stdin.take() {
            stdin.write_all(config.to_string().as_bytes())?;
        }
        let output = process.wait_with_output()?;
        let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        Ok(if output.status.success() { Ok(said) } else { Err(said) })
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // Its directory may be gone before it.
        let _ = fs::remove_file(&self.path);
    }
}

pub(crate) fn pods(dir: &Path, count: usize) -> Result<Vec<Pod>, Cannot> {
    (0..count).map(|number| Pod::new(dir, number)).collect()
}

/// All at once, each on a thread of its own; what each gave, in their order.
pub(crate) fn at_once<I: Sync, T: Send>(items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| work(item))).collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}
