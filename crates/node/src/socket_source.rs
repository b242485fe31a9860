//! The connections of this machine's own sockets: all that can be seen of them without changing anything
//! of its network. Only TCP, and nothing that begins and ends between two listings.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use kernel::sockets::{Socket, Sockets, State};
use traffic::conversations::Protocol;

use crate::sensor::{Flow, FlowId};
use crate::source::Source;

const TCP: Protocol = Protocol(6);

#[derive(Debug)]
pub(crate) struct SocketSource {
    sockets: Sockets,
    /// The connections of the last listing, by the kernel's number of the socket.
    listed: HashMap<u64, Flow>,
}

impl SocketSource {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { sockets: Sockets::open()?, listed: HashMap::new() })
    }
}

impl Source for SocketSource {
    fn list(&mut self, each: &mut dyn FnMut(&Flow)) -> io::Result<bool> {
        let mut all = Vec::new();
        self.sockets.list(|socket| all.push(socket))?;
        let now: HashMap<_, _> = flows(&all).collect();
        // Those that are gone carried this much at least.
        let gone = self.listed.iter().filter(|(cookie, _)| !now.contains_key(cookie));
        gone.for_each(|(_, flow)| each(&Flow { ended: true, ..*flow }));
        now.values().for_each(&mut *each);
        self.listed = now;
        Ok(true)
    }

    fn ends(&mut self, wait: Duration, _: &mut dyn FnMut(&Flow)) -> io::Result<bool> {
        thread::sleep(wait);
        Ok(false)
    }
}

/// The connections among these sockets. One between two sockets of this machine is told by its client.
fn flows(sockets: &[Socket]) -> impl Iterator<Item = (u64, Flow)> {
    let mut listening = HashSet::new();
    let mut connected = HashSet::new();
    for socket in sockets {
        match socket.state {
            State::Listening => listening.insert(socket.local),
            State::Established { remote, .. } => connected.insert((socket.local, remote)),
        };
    }
    let serves = move |local: SocketAddr| {
        let any: [IpAddr; 2] = [[0; 4].into(), [0; 16].into()];
        listening.contains(&local)
            || any.iter().any(|any| listening.contains(&SocketAddr::new(*any, local.port())))
    };
    sockets.iter().filter_map(move |socket| {
        let State::Established { remote, bytes, packets } = socket.state else { return None };
        let is_server = serves(socket.local);
        if is_server && connected.contains(&(remote, socket.local)) {
            return None;
        }
        let (client, server) =
            if is_server { (remote, socket.local) } else { (socket.local, remote) };
        let id = FlowId {
            // The lower half tells apart what has the same ends.
            number: socket.cookie as u32,
            zone: 0,
            protocol: TCP,
            client: client.ip(),
            client_port: client.port(),
            server: server.ip(),
            port: server.port(),
            begun: None,
        };
        Some((socket.cookie, Flow { id, bytes, packets, ended: false }))
    })
}

#[cfg(test)]
mod tests;
