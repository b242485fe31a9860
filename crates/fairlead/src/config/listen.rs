//! Where a listener is: one address, or every address of the machine.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Completes "expected …" for an address to listen on.
pub(super) const EXPECTED: &str =
    "an address and port, such as 127.0.0.1:7680 or [::1]:7680, or *:7680 for every address";

/// Connections that wait to be accepted; the kernel allows no more than this unless told.
const BACKLOG: i32 = 4096;

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    /// `*:PORT`: every address, of both families; of IPv4 alone where the kernel has no IPv6.
    Every(u16),
    One(SocketAddr),
}

impl ListenAddress {
    pub(crate) const fn loopback(port: u16) -> Self {
        Self::One(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }

    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self, Self::One(address) if address.ip().is_loopback())
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Every(port) => *port,
            Self::One(address) => address.port(),
        }
    }

    /// A host by which a program on this machine reaches the listener.
    pub(crate) fn local_host(&self) -> String {
        match self {
            Self::One(address) if !address.ip().is_unspecified() => address.ip().to_string(),
            _ => "localhost".to_owned(),
        }
    }

    /// The same with the port; where every address is listened on, that of loopback.
    pub(crate) fn local(&self) -> SocketAddr {
        match self {
            Self::One(address) if !address.ip().is_unspecified() => *address,
            Self::One(SocketAddr::V6(address)) => (Ipv6Addr::LOCALHOST, address.port()).into(),
            Self::One(address) => (Ipv4Addr::LOCALHOST, address.port()).into(),
            Self::Every(port) => (Ipv4Addr::LOCALHOST, *port).into(),
        }
    }

    /// Listens. Says where: port 0 has become the one that the kernel chose.
    pub(crate) fn bind(self) -> io::Result<(TcpListener, Self)> {
        let listener = match self {
            Self::One(address) => TcpListener::bind(address)?,
            Self::Every(port) => match bind_both_families(port) {
                Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?
                }
                bound => bound?,
            },
        };
        // std asks for 128. When a fleet of agents comes back at once, the kernel would drop the rest,
        // and each of them would knock again a second later.
        rustix::net::listen(&listener, BACKLOG)?;
        let bound = listener.local_addr()?;
        let address = match self {
            Self::One(_) => Self::One(bound),
            Self::Every(_) => Self::Every(bound.port()),
        };
        Ok((listener, address))
    }
}

/// A socket of IPv6 that takes IPv4 as well, whatever `net.ipv6.bindv6only` says.
fn bind_both_families(port: u16) -> Result<TcpListener, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET6,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    Ok(TcpListener::from(socket))
}

impl FromStr for ListenAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.strip_prefix("*:") {
            Some(port) => port.parse().map(Self::Every).map_err(|_| ()),
            None => text.parse().map(Self::One).map_err(|_| ()),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(port) => write!(f, "*:{port}"),
            Self::One(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
