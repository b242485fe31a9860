//! Asks nodes through the tunnel whether it carries packets both ways.
//!
//! A packet goes to a UDP port of the node that nobody listens to: the node's kernel refuses it, and the
//! refusal comes back through the tunnel. No agent needs to answer, and no raw socket is needed.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use kernel::netns::Namespace;

use super::gateway_of;

/// The discard port: nobody listens there.
pub(super) const UNUSED: u16 = 9;
/// How often it is asked: a packet may be lost.
pub(super) const TIMES: u32 = 3;
/// How many nodes are asked at the same time.
const AT_ONCE: usize = 128;

/// Returns the nodes that do not answer, one sentence each. Each is asked for `wait` at most. Blocks.
pub(crate) fn probe(
    namespace: &Namespace,
    device: u32,
    port: u16,
    nodes: &[(String, IpAddr)],
    wait: Duration,
) -> io::Result<Vec<(String, String)>> {
    namespace.run_in(|| {
        let mut silent = Vec::new();
        for nodes in nodes.chunks(AT_ONCE) {
            let behind = |(node, _): &(String, IpAddr)| {
                SocketAddrV6::new(gateway_of(node), UNUSED, 0, device).into()
            };
            let unanswered = ask(nodes, behind, wait)?;
            if unanswered.is_empty() {
                continue;
            }
            let beside = |(_, address): &(String, IpAddr)| SocketAddr::new(*address, UNUSED);
            let unreachable = ask(&unanswered, beside, wait)?;
            for node in unanswered {
                let away = unreachable.contains(&node);
                let (node, address) = node;
                let why = if away {
                    format!(
                        "it is reached at {address} neither through the tunnel nor beside it: see \
                         whether the node is there, and what filters packets to it"
                    )
                } else {
                    format!(
                        "it is reached at {address}, but not through the tunnel: UDP port {port} is \
                         blocked between the nodes, or its agent has not made the device; open the \
                         port in both directions"
                    )
                };
                silent.push((node, why));
            }
        }
        Ok(silent)
    })?
}

/// Returns those that did not refuse.
fn ask(
    nodes: &[(String, IpAddr)],
    at: impl Fn(&(String, IpAddr)) -> SocketAddr,
    wait: Duration,
) -> io::Result<Vec<(String, IpAddr)>> {
    let mut waiting = Vec::new();
    for node in nodes {
        waiting.push((node, socket(at(node))?));
    }
    let began = Instant::now();
    for time in 0..TIMES {
        for (_, socket) in &waiting {
            // Refusals of earlier packets and a missing route are both seen below.
            let _ = socket.send(&[]);
        }
        let until = wait / TIMES * (time + 1);
        loop {
            waiting.retain(|(_, socket)| !refused(socket));
            if waiting.is_empty() || began.elapsed() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(waiting.into_iter().map(|(node, _)| node.clone()).collect())
}

pub(super) fn socket(at: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match at {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    // Without a route it cannot be connected, and does not answer.
    let _ = socket.connect(at);
    Ok(socket)
}

pub(super) fn refused(socket: &UdpSocket) -> bool {
    let answered = socket.recv(&mut [0]);
    answered.map_or_else(|error| error.kind() == io::ErrorKind::ConnectionRefused, |_| true)
}
