//! Syslog over UDP (RFC 5426), TCP with counted octets (RFC 6587) and TLS (RFC 5425).

use std::fmt;
use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use objects::kinds::SyslogTransport;
use rustls::ClientConfig;
use stallproof::Deadline;
use tokio::io::{AsyncWriteExt, ReadBuf};
use tokio::net::{UdpSocket, lookup_host};

use super::DeliveryError;
use super::stream::{Connection, connect, secure, unavailable};
use crate::event::Event;
use crate::message::syslog::{LONGEST_DATAGRAM, LONGEST_FRAME, message};

pub(super) enum SyslogStream {
    Datagrams(UdpSocket),
    Frames(Box<dyn Connection>),
}

impl fmt::Debug for SyslogStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Datagrams(_) => "udp",
            Self::Frames(_) => "stream",
        })
    }
}

impl SyslogStream {
    pub(super) async fn open(
        host: &str,
        port: u16,
        transport: SyslogTransport,
        tls: &Arc<ClientConfig>,
        deadline: Deadline,
    ) -> Result<Self, DeliveryError> {
        if transport == SyslogTransport::Udp {
            return datagrams(host, port).await.map(Self::Datagrams);
        }
        let tcp = connect(host, port, deadline).await?;
        Ok(Self::Frames(match transport {
            SyslogTransport::Tls => Box::new(secure(host, tcp, tls).await?),
            _ => Box::new(tcp),
        }))
    }

    pub(super) async fn send(&mut self, event: &Event, facility: u8) -> Result<(), DeliveryError> {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let failed = |error: std::io::Error| unavailable(error.to_string());
        match self {
            Self::Datagrams(socket) => {
                let message = message(event, facility, &name, LONGEST_DATAGRAM);
                socket.send(&message).await.map_err(failed)?;
            }
            Self::Frames(stream) => {
                if has_ended(stream).await {
                    return Err(unavailable("the server closed the connection"));
                }
                let message = message(event, facility, &name, LONGEST_FRAME);
                let mut frame = format!("{} ", message.len()).into_bytes();
                frame.extend_from_slice(&message);
                stream.write_all(&frame).await.map_err(failed)?;
                stream.flush().await.map_err(failed)?;
            }
        }
        Ok(())
    }
}

async fn datagrams(host: &str, port: u16) -> Result<UdpSocket, DeliveryError> {
    let mut found =
        lookup_host((host, port)).await.map_err(|e| unavailable(format!("{host}: {e}")))?;
    let to = found.next().ok_or_else(|| unavailable(format!("{host} has no address")))?;
    let from: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(from).await.map_err(|error| unavailable(error.to_string()))?;
    // Connected, it hears of a port that nobody listens on.
    socket.connect(to).await.map_err(|error| unavailable(format!("{to}: {error}")))?;
    Ok(socket)
}

/// Whether the server has closed its side: what is written then is lost without a word. A server of syslog says
/// nothing, so that anything to be read is an end.
async fn has_ended(stream: &mut Box<dyn Connection>) -> bool {
    let mut byte = [0; 64];
    poll_fn(|context| {
        let mut buffer = ReadBuf::new(&mut byte);
        match Pin::new(&mut **stream).poll_read(context, &mut buffer) {
            Poll::Pending => Poll::Ready(false),
            Poll::Ready(Err(_)) => Poll::Ready(true),
            Poll::Ready(Ok(())) => Poll::Ready(buffer.filled().is_empty()),
        }
    })
    .await
}
