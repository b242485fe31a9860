//! From the interface to the network: packets are read, encrypted for the peer that has their destination, and
//! sent, as many at a time as there are.
//!
//! Contract:
//! - The segments of one packet of the kernel are encrypted under one lock of their peer, and leave in one
//!   call, but for a last one that is smaller and for what UDP does not hold.
//! - Packets of a peer leave in the order in which they were read.
//! - What no peer has is dropped, and what is for a peer that nobody knows the place of. `gotatun` keeps 256
//!   packets of a peer while there is no session with it.
//! - If the network takes no more, packets wait in the interface's own queue, and then are dropped there.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use gotatun::packet::{Packet, PacketBufPool, WgKind};
use gotatun::tun::MtuWatcher;
use kernel::tun::{LARGEST, Offload};

use super::inner;
use super::peers::{DevicePeer, DevicePeers, PeerState, Table};
use super::{Shared, Woken};
use crate::offload::{self, Cut};

/// How many packets are encrypted before they are sent: those of one packet of the kernel, and a second one so
/// that what UDP does not hold of the first leaves with it.
const BATCH: usize = 90;
/// How many buffers are kept: those of a batch, to which one packet of the kernel adds its segments. A kernel's
/// packet has at most 64 kB in segments of, by its own smallest, 536 bytes.
const BUFFERS: usize = BATCH + 128;

/// Runs until the device stops or somebody removes the interface.
pub(super) fn run(shared: &Shared) {
    let mut outgoing = Outgoing::new(&shared.peers, shared.mtu);
    let mut room = vec![0; LARGEST].into_boxed_slice();
    loop {
        let mut is_empty = false;
        let table = shared.peers.table();
        while outgoing.sealed.len() < BATCH && !is_empty {
            match shared.tun.read(&mut room) {
                Ok((offload, length)) => outgoing.seal(&table, &offload, &mut room[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => is_empty = true,
                // A packet that the kernel cannot describe is lost.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                // The interface is gone; its owner finds that out.
                Err(_) => return,
            }
        }
        drop(table);
        shared.socket.send_all(&mut outgoing.sealed, || shared.wait_until_writable());
        let is_over = match is_empty {
            true => shared.wait_for_tun() == Woken::Stopped,
            false => shared.is_stopped(),
        };
        if is_over {
            return;
        }
    }
}

/// Encrypts packets of the interface.
pub(super) struct Outgoing<'d> {
    peers: &'d DevicePeers,
    pool: PacketBufPool,
    mtu: MtuWatcher,
    /// What is to be sent where, in its order.
    pub(super) sealed: Vec<(Packet, SocketAddr)>,
}

impl<'d> Outgoing<'d> {
    pub(super) fn new(peers: &'d DevicePeers, mtu: u16) -> Self {
        let (pool, mtu) = (PacketBufPool::new(BUFFERS), MtuWatcher::new(mtu));
        Self { peers, pool, mtu, sealed: Vec::with_capacity(BUFFERS) }
    }

    /// Encrypts one packet of the kernel, in segments if it is to be cut.
    pub(super) fn seal(&mut self, table: &Table, offload: &Offload, packet: &mut [u8]) {
        let Some(destination) = inner::destination(packet) else { return };
        let Some(peer) = table.having(destination) else { return };
        match offload.segments {
            Some((kind, size)) => {
                let Some(mut cut) = Cut::new(kind, size, packet) else { return };
                self.seal_for(peer, |room| cut.next_into(room));
            }
            None if offload::finish(offload, packet) => {
                let mut whole = Some(&*packet);
                self.seal_for(peer, |room| {
                    let packet = whole.take()?;
                    room.get_mut(..packet.len())?.copy_from_slice(packet);
                    Some(packet.len())
                });
            }
            None => {}
        }
    }

    /// Encrypts packets for a peer for as long as `fill` makes some.
    fn seal_for(
        &mut self,
        peer: &Arc<DevicePeer>,
        mut fill: impl FnMut(&mut [u8]) -> Option<usize>,
    ) {
        let mut state = peer.state.lock();
        let PeerState { tunnel, endpoint: Some(endpoint), .. } = &mut *state else { return };
        let endpoint = *endpoint;
        let mut handshake = None;
        loop {
            let mut packet = self.pool.get();
            let Some(length) = fill(&mut packet) else { break };
            packet.truncate(length);
            if let Some(sealed) = tunnel.handle_outgoing_packet(packet, Some(&mut self.mtu)) {
                match sealed {
                    WgKind::Data(packet) => {
                        self.sealed.push((packet.into(), endpoint));
                    }
                    // At most one, for the first packet that finds no session.
                    other => handshake = Some(other),
                }
            }
        }
        if let Some(packet) = handshake {
            self.peers.register(&packet, peer, &mut state);
            self.sealed.push((packet.into(), endpoint));
        }
    }
}
