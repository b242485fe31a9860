//! Looks at the way to one other node with real packets: does it carry them, how long do they take, how large
//! may they be.
//!
//! A packet goes to a UDP port that nobody listens to, and the other kernel refuses it: no agent answers, so a
//! node whose agent is away is looked at as well. Kernels refuse a handful at once and one a second after that:
//! sizes are tried sparingly.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use kernel::netns::Namespace;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use serde::Serialize;

use super::probe::{TIMES, UNUSED, refused, socket};
use super::{DeviceSettings, Underlay, direct, gateway_of};
use crate::routes::RoutedBlock;

/// What is tried where the largest packet does not come through.
const SIZES: [u32; 10] = [8950, 1500, 1460, 1450, 1430, 1420, 1400, 1380, 1330, 1280];
/// What the headers of IP and UDP take.
const HEADERS_V4: u32 = 28;
const HEADERS_V6: u32 = 48;
const SMALL: u32 = 100;

/// The way that packets for pods of one family take to another node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodePath {
    /// Of the pods.
    pub(crate) family: &'static str,
    /// `direct` or `vxlan`.
    pub(crate) path: &'static str,
    /// Where the other node is reached.
    pub(crate) at: IpAddr,
    /// The tunnel's UDP port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    /// The MTU of pods' interfaces.
    pub(crate) mtu: u32,
    /// The largest packet that came through; none if none did.
    pub(crate) carries: Option<u32>,
    pub(crate) milliseconds: Option<f64>,
    pub(crate) fault: Option<String>,
}

/// What is known of the way before it is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathInputs<'a> {
    pub(crate) underlay: &'a Underlay,
    pub(crate) device: DeviceSettings,
    /// The MTU of pods whose packets take no tunnel.
    pub(crate) direct_mtu: u32,
    pub(crate) wait: Duration,
}

/// Looks at the ways to the node that these blocks are of. Blocks.
pub(crate) fn look(
    namespace: &Namespace,
    inputs: PathInputs<'_>,
    blocks: &[RoutedBlock],
) -> io::Result<Vec<NodePath>> {
    let mut paths: Vec<NodePath> = Vec::new();
    for block in blocks {
        for network in &block.networks {
            let is_ipv4 = network.addr().is_ipv4();
            let Some(path) = plan(inputs, block, is_ipv4) else { continue };
            let known = |other: &NodePath| (other.family, other.path) == (path.family, path.path);
            if !paths.iter().any(known) {
                paths.push(path);
            }
        }
    }
    let inside = || -> io::Result<()> {
        for path in &mut paths {
            let node = blocks.first().map(|block| block.node.as_str()).unwrap_or_default();
            measure(path, node, inputs)?;
        }
        Ok(())
    };
    namespace.run_in(inside)??;
    Ok(paths)
}

fn plan(inputs: PathInputs<'_>, block: &RoutedBlock, is_ipv4: bool) -> Option<NodePath> {
    let PathInputs { underlay, device, direct_mtu, .. } = inputs;
    let family = if is_ipv4 { "ipv4" } else { "ipv6" };
    let path = |path, at, port, mtu| NodePath {
        family,
        path,
        at,
        port,
        mtu,
        carries: None,
        milliseconds: None,
        fault: None,
    };
    match underlay.is_tunnelled(block, is_ipv4) {
        true => {
            let at = underlay.remote(&block.via)?;
            Some(path("vxlan", at, Some(device.port), direct_mtu.min(device.mtu)))
        }
        false => Some(path("direct", direct(block, is_ipv4)?, None, direct_mtu)),
    }
}

fn measure(path: &mut NodePath, node: &str, inputs: PathInputs<'_>) -> io::Result<()> {
    let beside = SocketAddr::new(path.at, UNUSED);
    let at = match (path.port, inputs.underlay.device) {
        (None, _) => beside,
        (Some(_), Some(device)) => SocketAddrV6::new(gateway_of(node), UNUSED, 0, device).into(),
        (Some(_), None) => {
            path.fault = Some("this node has no tunnel yet: see the agent's log".to_owned());
            return Ok(());
        }
    };
    let Some(took) = answers(at, SMALL, inputs.wait)? else {
        let address = path.at;
        let reached = at != beside && answers(beside, SMALL, inputs.wait)?.is_some();
        path.fault = Some(match path.port.filter(|_| reached) {
            Some(port) => format!(
                "it is reached at {address}, but not through the tunnel: UDP port {port} is blocked \
                 between the nodes, or its agent has not made the device; open the port in both directions"
            ),
            None => format!(
                "it is not reached at {address}: see whether the node is there, and what filters packets \
                 to it"
            ),
        });
        return Ok(());
    };
    path.milliseconds = Some(took.as_secs_f64() * 1e3);
    let mtu = path.mtu;
    let sizes = std::iter::once(mtu).chain(SIZES.into_iter().filter(|size| *size < mtu));
    for size in sizes {
        if answers(at, size, inputs.wait)?.is_some() {
            path.carries = Some(size);
            break;
        }
    }
    if path.carries != Some(mtu) {
        let most = path.carries.unwrap_or(SMALL);
        path.fault = Some(format!(
            "packets of {mtu} bytes, which pods send, do not come through; those of {most} do: let larger \
             ones pass between the nodes, or set net.mtu to {most} and make the pods anew"
        ));
    }
    Ok(())
}

/// Returns after how long a packet of this size, its headers included, was refused at the other end.
fn answers(at: SocketAddr, size: u32, wait: Duration) -> io::Result<Option<Duration>> {
    let socket = socket(at)?;
    // It is neither cut into pieces nor held to what the kernel thinks of the way.
    let headers = match at {
        SocketAddr::V4(_) => {
            sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
            HEADERS_V4
        }
        SocketAddr::V6(_) => {
            sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
            HEADERS_V6
        }
    };
    let packet = vec![0; usize::try_from(size.saturating_sub(headers)).unwrap_or_default()];
    for _ in 0..TIMES {
        let sent = Instant::now();
        if let Err(error) = socket.send(&packet)
            && error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
        {
            return Ok(None);
        }
        if is_refused_within(&socket, wait / TIMES) {
            return Ok(Some(sent.elapsed()));
        }
    }
    Ok(None)
}

fn is_refused_within(socket: &UdpSocket, wait: Duration) -> bool {
    let began = Instant::now();
    while began.elapsed() < wait {
        if refused(socket) {
            return true;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    false
}
