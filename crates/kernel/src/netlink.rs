//! Links, addresses, neighbours and routes, through one netlink socket.
//!
//! Contract: a [`Netlink`] speaks for the namespace it was opened in. Calls are synchronous: the
//! kernel does what it is asked to while the caller is in `send`, so there is nothing to wait for
//! afterwards, and nothing can be taken back while it waits for a lock of its own. [`Netlink::apply`]
//! sends any number of [`Change`]s in one call and reads one answer; the kernel goes through all of
//! them even if one fails, and the first failure is told. A listing that the kernel says was
//! disturbed is taken again.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::route::RouteHeader;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

mod change;
mod delivery;
mod listing;
mod tunnel;
mod value;

pub use value::{
    Address, Change, InputRule, Link, LinkRef, Mac, MarkBits, Neighbour, Route, RouteKind, Rule,
    SetLink, Tunnel, Veth, VethPeer, Vxlan, VxlanPeers,
};

/// The kernel has answered when `send` returns; this ends a wait that cannot be.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// What the kernel fills at most per datagram of a listing.
const DATAGRAM: usize = 32 << 10;
/// How many times a disturbed listing is tried.
const LISTINGS: usize = 10;

/// One socket in one namespace.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    received: Vec<u8>,
}

/// A request that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}{}", note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default())]
pub struct Error {
    /// The request, in words that follow "cannot".
    pub what: String,
    /// The kernel's explanation beyond the error number.
    pub note: Option<String>,
    /// The position of the change in its call.
    pub at: usize,
    #[source]
    pub source: io::Error,
}

impl Error {
    fn new(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { what: what.into(), note: None, at: 0, source: source.into() }
    }

    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// Says whether the link, address or route to be made exists already.
    pub fn already_exists(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }

    /// Says whether the link, address or route that was named does not exist.
    pub fn not_found(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::ENODEV | libc::ESRCH | libc::ENOENT | libc::EADDRNOTAVAIL)
        )
    }
}

/// The kernel's refusal of one message of a call.
struct Failure {
    at: usize,
    source: io::Error,
    note: Option<String>,
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Self::socket().and_then(Self::of)
    }

    pub(crate) fn socket() -> io::Result<OwnedFd> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // Of the protocol NETLINK_ROUTE.
        Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
    }

    pub(crate) fn of(socket: OwnedFd) -> io::Result<Self> {
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWERED_WITHIN))?;
        // Words with errors; no copy of the request in them; listings filtered by the kernel.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK, libc::NETLINK_GET_STRICT_CHK] {
            switch_on(&socket, option)?;
        }
        Ok(Self { socket, sequence: 0, received: Vec::with_capacity(DATAGRAM) })
    }

    /// Makes all changes in one call; the kernel goes on after one that fails.
    pub fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), Error> {
        let requests = changes.iter().map(change::request).collect();
        self.exchange(requests, false).map(|_| ()).map_err(|failure| failed(changes, failure))
    }

    /// Makes all changes as [`Self::apply`] does, and looks at a link behind them: one call.
    pub fn apply_then_link(
        &mut self,
        changes: &[Change<'_>],
        link: u32,
    ) -> Result<Option<Link>, Error> {
        let mut requests: Vec<_> = changes.iter().map(change::request).collect();
        requests.push(listing::link(LinkRef::Index(link)));
        match self.exchange(requests, true) {
            Ok(found) => Ok(found.and_then(listing::read_link)),
            Err(failure) if failure.at < changes.len() => Err(failed(changes, failure)),
            Err(failure) if failure.source.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(failure) => Err(Error::new(format!("look at link number {link}"), failure.source)),
        }
    }

    /// Makes a veth pair and says what it became: one call. One of which that cannot be said is
    /// removed again.
    pub fn create_veth(&mut self, veth: Veth<'_>) -> Result<Link, Error> {
        let name = veth.name;
        let changes = [Change::Veth(veth)];
        let requests = vec![change::request(&changes[0]), listing::link(LinkRef::Name(name))];
        let source = match self.exchange(requests, true) {
            Ok(found) => match found.and_then(listing::read_link) {
                Some(link) => return Ok(link),
                None => io::ErrorKind::NotFound.into(),
            },
            Err(failure) if failure.at == 0 => return Err(failed(&changes, failure)),
            Err(failure) => failure.source,
        };
        // If this fails as well, what is told is why the caller has no link.
        let _ = self.apply(&[Change::Delete(LinkRef::Name(name))]);
        Err(Error::new(format!("find {name} after making it"), source))
    }

    /// Returns the link of that name or index, if there is one.
    pub fn link(&mut self, link: LinkRef<'_>) -> Result<Option<Link>, Error> {
        match self.exchange(vec![listing::link(link)], true) {
            Ok(found) => Ok(found.and_then(listing::read_link)),
            Err(failure) if failure.source.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(failure) => Err(Error::new(format!("look at link {link}"), failure.source)),
        }
    }

    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        self.list("links", &listing::links(), listing::read_link)
    }

    /// Lists the addresses of one link.
    pub fn addresses(&mut self, link: u32) -> Result<Vec<Address>, Error> {
        let mut found = self.list("addresses", &listing::addresses(link), listing::read_address)?;
        found.retain(|address| address.link == link);
        Ok(found)
    }

    /// Lists the addresses of all links.
    pub fn all_addresses(&mut self) -> Result<Vec<Address>, Error> {
        self.list("addresses", &listing::addresses(0), listing::read_address)
    }

    /// Lists the permanent neighbours of one link or of all.
    pub fn neighbours(&mut self, link: Option<u32>) -> Result<Vec<Neighbour>, Error> {
        let mut found =
            self.list("neighbours", &listing::neighbours(link), listing::read_neighbour)?;
        found.retain(|neighbour| link.is_none_or(|link| link == neighbour.link));
        Ok(found)
    }

    /// Lists the unicast, blackhole, unreachable and throw routes of both families in one table.
    pub fn routes(&mut self, table: u32) -> Result<Vec<Route>, Error> {
        let mut found = Vec::new();
        for request in listing::routes(table) {
            found.append(&mut self.list("routes", &request, listing::read_route)?);
        }
        found.retain(|route| route.table == table);
        Ok(found)
    }

    /// Lists the rules of both families that route packets from some addresses, or from all, by a table.
    pub fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        let mut found = Vec::new();
        for request in tunnel::rules() {
            found.append(&mut self.list("rules", &request, tunnel::read_rule)?);
        }
        Ok(found)
    }

    /// Returns the link that the main table's best default route leaves by, IPv4's before IPv6's.
    pub fn default_link(&mut self) -> Result<Option<u32>, Error> {
        for request in listing::routes(u32::from(RouteHeader::RT_TABLE_MAIN)) {
            let mut found = self.list("routes", &request, listing::read_default)?;
            found.sort_unstable();
            if let Some((_, link)) = found.first() {
                return Ok(Some(*link));
            }
        }
        Ok(None)
    }

    /// Returns the link by which a packet of this machine to the address would leave; none if no route
    /// leads there.
    pub fn link_towards(&mut self, address: IpAddr) -> Result<Option<u32>, Error> {
        match self.exchange(vec![(listing::route_to(address), 0)], true) {
            Ok(found) => Ok(found.and_then(listing::read_link_of_route)),
            Err(failure) => match failure.source.raw_os_error() {
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EACCES) => {
                    Ok(None)
                }
                _ => Err(Error::new(format!("find the route to {address}"), failure.source)),
            },
        }
    }

    fn list<T>(
        &mut self,
        what: &str,
        request: &Message,
        read: impl Fn(Message) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let failed = |source| Error::new(format!("list {what}"), source);
        for _ in 0..LISTINGS {
            if let Some(found) = self.try_list(request, &read).map_err(failed)? {
                return Ok(found);
            }
        }
        Err(failed(io::Error::other("the kernel's table changed during every attempt")))
    }

    /// Returns none if the kernel's table changed meanwhile.
    fn try_list<T>(
        &mut self,
        request: &Message,
        read: &impl Fn(Message) -> Option<T>,
    ) -> io::Result<Option<Vec<T>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let mut bytes = Vec::new();
        append(&mut bytes, request.clone(), NLM_F_REQUEST | NLM_F_DUMP, sequence);
        self.send(&bytes)?;
        let (mut found, mut disturbed) = (Vec::new(), false);
        loop {
            self.receive()?;
            for raw in messages(&self.received).filter(|raw| raw.sequence_number() == sequence) {
                disturbed |= i32::from(raw.flags()) & libc::NLM_F_DUMP_INTR != 0;
                match raw.message_type() {
                    NLMSG_ERROR => {
                        let unasked = || io::Error::other("acknowledged instead of answered");
                        return Err(answer(&raw).0.unwrap_or_else(unasked));
                    }
                    NLMSG_DONE => return Ok((!disturbed).then_some(found)),
                    // What this build cannot read is none of what it made itself.
                    _ => found.extend(inner(&raw).and_then(read)),
                }
            }
        }
    }

    /// Sends all in one call, and reads until the last is answered. That one is answered by what it
    /// asks for (`asks`) or by an acknowledgement; those before it only if they fail.
    fn exchange(
        &mut self,
        requests: Vec<(Message, u16)>,
        asks: bool,
    ) -> Result<Option<Message>, Failure> {
        let Some(last) = requests.len().checked_sub(1) else {
            return Ok(None);
        };
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::with_capacity(256 * requests.len());
        for (at, (message, flags)) in requests.into_iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            let acknowledged = if at == last && !asks { NLM_F_ACK } else { 0 };
            append(&mut bytes, message, NLM_F_REQUEST | flags | acknowledged, self.sequence);
        }
        let broken = |source| Failure { at: last, source, note: None };
        self.send(&bytes).map_err(broken)?;
        let mut failure = None;
        loop {
            self.receive().map_err(broken)?;
            for raw in messages(&self.received) {
                let at = raw.sequence_number().wrapping_sub(first) as usize;
                if at > last {
                    continue;
                }
                let mut found = None;
                if raw.message_type() == NLMSG_ERROR {
                    if let (Some(source), note) = answer(&raw) {
                        failure.get_or_insert(Failure { at, source, note });
                    }
                } else {
                    found = inner(&raw);
                }
                if at == last {
                    return failure.map_or(Ok(found), Err);
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, bytes, SendFlags::empty()))?;
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        self.received.clear();
        let buffer = &mut self.received;
        let socket = &self.socket;
        let (_, whole) = rustix::io::retry_on_intr(|| {
            rustix::net::recv(socket, rustix::buffer::spare_capacity(buffer), RecvFlags::TRUNC)
        })?;
        if whole > self.received.len() {
            return Err(io::Error::other("a message was longer than any should be"));
        }
        Ok(())
    }
}

fn failed(changes: &[Change<'_>], failure: Failure) -> Error {
    let Failure { at, source, note } = failure;
    let what = changes.get(at).map(ToString::to_string).unwrap_or_default();
    Error { what, note, at, source }
}

fn append(bytes: &mut Vec<u8>, message: Message, flags: u16, sequence: u32) {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let start = bytes.len();
    // Each begins at a multiple of four.
    bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
    message.serialize(&mut bytes[start..]);
}

/// Splits a datagram into its messages, as far as they are whole.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let raw = NetlinkBuffer::new_checked(rest).ok()?;
        let length = raw.length() as usize;
        let (whole, _) = rest.split_at_checked(length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(NetlinkBuffer::new(whole))
    })
}

fn inner(raw: &NetlinkBuffer<&[u8]>) -> Option<Message> {
    let message = NetlinkMessage::<Message>::deserialize(raw.buffer).ok()?;
    match message.payload {
        NetlinkPayload::InnerMessage(message) => Some(message),
        _ => None,
    }
}

/// Decodes an NLMSG_ERROR: no error if it acknowledges, and the kernel's explanation if it has one.
fn answer(raw: &NetlinkBuffer<&[u8]>) -> (Option<io::Error>, Option<String>) {
    let payload = raw.payload();
    let Some((code, rest)) = payload.split_first_chunk::<4>() else {
        return (Some(io::Error::other("an answer was cut short")), None);
    };
    let code = i32::from_ne_bytes(*code);
    let source = (code != 0).then(|| io::Error::from_raw_os_error(code.saturating_neg()));
    (source, listing::note(rest))
}

pub(crate) fn switch_on(socket: &OwnedFd, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option is an int, and `on` outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            option,
            (&raw const on).cast(),
            mem::size_of_val(&on) as libc::socklen_t,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
