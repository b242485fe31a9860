//! From the network to the interface: packets are received, decrypted, checked, and written, as many at a time
//! as there are.
//!
//! Contract:
//! - What came in one call is decrypted under one lock of its peer, where it is of one session.
//! - A peer is taken to be where its last packet came from that was authentic.
//! - A packet goes on only if packets for its sender would go to the peer that it came from.
//! - TCP that follows each other is written as one packet.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use gotatun::noise::TunnResult;
use gotatun::noise::handshake::parse_handshake_anon;
use gotatun::packet::{Packet, PacketBufPool, WgKind};
use gotatun::tun::MtuWatcher;
use kernel::datagrams::{self, Received};

use super::inner;
use super::peers::{DevicePeer, DevicePeers, PeerState, Table};
use super::{Shared, Woken};
use crate::key::PublicKey;
use crate::offload::{self, Joined};

/// How often is received before what came is written: datagrams of one size come together anyway, and those
/// that do not come one by one.
const RECEIVES: usize = 16;
/// The kernel hands over as much as a packet of IP holds.
const ROOM: usize = datagrams::LARGEST + 29;
/// How many bytes are received before what came is written: more than one packet of the kernel holds need not
/// wait for more.
const ENOUGH: usize = 48 << 10;

/// Runs until the device stops.
pub(super) fn run(shared: &Shared) {
    let pool = PacketBufPool::<ROOM>::new(RECEIVES);
    let mut incoming = Incoming::new(&shared.peers, shared.mtu);
    let mut joined: Vec<Joined<Packet>> = Vec::new();
    loop {
        let (mut is_empty, mut bytes) = (false, 0);
        let table = shared.peers.table();
        for _ in 0..RECEIVES {
            let mut room = pool.get();
            match shared.socket.receive(&mut room) {
                Ok(received) => {
                    bytes += received.length;
                    incoming.open(&table, room, &received);
                }
                // Other errors are of packets before this one.
                Err(error) => is_empty = error.kind() == io::ErrorKind::WouldBlock,
            }
            if is_empty || bytes >= ENOUGH {
                break;
            }
        }
        drop(table);
        shared.socket.send_all(&mut incoming.answers, || false);
        offload::join(incoming.opened.drain(..), &mut joined);
        for mut packet in joined.drain(..) {
            // What the interface does not take is lost, as on any network. That it is gone is what its
            // owner finds.
            let _ = packet.write(|offload, parts| shared.tun.write_parts(offload, parts));
        }
        let is_over = match is_empty {
            true => shared.wait_for_socket() == Woken::Stopped,
            false => shared.is_stopped(),
        };
        if is_over {
            return;
        }
    }
}

/// Decrypts packets of the network.
pub(super) struct Incoming<'d> {
    peers: &'d DevicePeers,
    mtu: MtuWatcher,
    /// What goes to the interface, in its order.
    pub(super) opened: Vec<Packet>,
    /// What is to be sent where: parts of handshakes, and what waited for them.
    pub(super) answers: Vec<(Packet, SocketAddr)>,
}

impl<'d> Incoming<'d> {
    pub(super) fn new(peers: &'d DevicePeers, mtu: u16) -> Self {
        Self { peers, mtu: MtuWatcher::new(mtu), opened: Vec::new(), answers: Vec::new() }
    }

    /// Decrypts what came together.
    pub(super) fn open(&mut self, table: &Table, mut room: Packet, received: &Received) {
        let Received { from, length, size } = *received;
        room.truncate(length);
        let rest = room.buf_mut();
        while !rest.is_empty() {
            match session_of(rest) {
                Some(number) => match self.peers.of_session(number) {
                    Some(peer) => self.open_session(table, &peer, number, rest, size, from),
                    None => drop(next(rest, size)),
                },
                None => self.open_handshake(table, next(rest, size), from),
            }
        }
    }

    /// Decrypts the packets of one session that come first.
    fn open_session(
        &mut self,
        table: &Table,
        peer: &Arc<DevicePeer>,
        number: u32,
        rest: &mut BytesMut,
        size: usize,
        from: SocketAddr,
    ) {
        let mut state = peer.state.lock();
        let mut is_heard = false;
        while session_of(rest) == Some(number) {
            let Ok(packet) = Packet::from_bytes(next(rest, size)).try_into_wg() else { continue };
            if let TunnResult::WriteToTunnel(mut packet) =
                state.tunnel.handle_incoming_packet(packet)
            {
                is_heard = true;
                // A packet without anything says that the peer is there.
                if inner::is_from(table, &mut packet, peer) {
                    self.opened.push(packet);
                }
            }
        }
        if is_heard {
            state.endpoint = Some(from);
            // The first packet of a session that the peer asked for lets us use it.
            self.flush(peer, &mut state, from);
        }
    }

    /// Sends what waited for a session.
    fn flush(&mut self, peer: &Arc<DevicePeer>, state: &mut PeerState, to: SocketAddr) {
        let mut handshake = None;
        for packet in state.tunnel.get_queued_packets(&mut self.mtu) {
            match packet {
                WgKind::Data(packet) => self.answers.push((packet.into(), to)),
                // The session is used up already.
                other => handshake = Some(other),
            }
        }
        if let Some(packet) = handshake {
            self.peers.register(&packet, peer, state);
            self.answers.push((packet.into(), to));
        }
    }

    /// Takes part in a handshake.
    fn open_handshake(&mut self, table: &Table, packet: BytesMut, from: SocketAddr) {
        let identity = self.peers.identity();
        let packet = match identity.limiter.verify_packet(from, Packet::from_bytes(packet)) {
            Ok(packet) => packet,
            Err(TunnResult::WriteToNetwork(cookie)) => {
                return self.answers.push((cookie.into(), from));
            }
            Err(_) => return,
        };
        let peer = match &packet {
            WgKind::HandshakeInit(packet) => {
                let parsed = parse_handshake_anon(&identity.secret, &identity.public, packet);
                let Ok(parsed) = parsed else { return };
                table.peer(&PublicKey(parsed.peer_static_public)).cloned()
            }
            WgKind::HandshakeResp(packet) => self.peers.of_session(packet.receiver_idx.get()),
            WgKind::CookieReply(packet) => self.peers.of_session(packet.receiver_idx.get()),
            WgKind::Data(_) => None,
        };
        let Some(peer) = peer else { return };
        let mut state = peer.state.lock();
        if let TunnResult::WriteToNetwork(answer) = state.tunnel.handle_incoming_packet(packet) {
            state.endpoint = Some(from);
            self.peers.register(&answer, &peer, &mut state);
            // The answer to a handshake of ours has a session that is there. One that the peer began is there
            // when its first packet comes.
            let is_ours = matches!(answer, WgKind::Data(_));
            self.answers.push((answer.into(), from));
            if is_ours {
                self.flush(&peer, &mut state, from);
            }
        }
    }
}

/// Takes the first datagram away.
fn next(rest: &mut BytesMut, size: usize) -> BytesMut {
    rest.split_to(size.clamp(1, rest.len()))
}

/// The number of the session that a packet of data begins with.
fn session_of(packet: &[u8]) -> Option<u32> {
    match packet {
        [4, 0, 0, 0, a, b, c, d, ..] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}
