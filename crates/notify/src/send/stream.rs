//! A connection to a receiver's server: TCP, and TLS over it.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use stallproof::Deadline;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::DeliveryError;

/// For one address of a name; the next one is tried after it.
const CONNECT: Duration = Duration::from_secs(3);

pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

pub(super) fn unavailable(why: impl Into<String>) -> DeliveryError {
    DeliveryError::Unavailable(why.into())
}

pub(super) async fn connect(
    host: &str,
    port: u16,
    deadline: Deadline,
) -> Result<TcpStream, DeliveryError> {
    let addresses = lookup_host((host, port)).await;
    let addresses =
        addresses.map_err(|error| unavailable(format!("{host} is not known: {error}")))?;
    let mut why = format!("{host} has no address");
    for address in addresses {
        match deadline.within(CONNECT).bound(TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                tcp.set_nodelay(true).map_err(|error| unavailable(error.to_string()))?;
                return Ok(tcp);
            }
            Ok(Err(error)) => why = format!("{address}: {error}"),
            Err(_) => why = format!("{address}: no connection in time"),
        }
    }
    Err(unavailable(why))
}

pub(super) async fn secure<T: Connection + 'static>(
    host: &str,
    stream: T,
    tls: &Arc<ClientConfig>,
) -> Result<tokio_rustls::client::TlsStream<T>, DeliveryError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| unavailable(format!("{host:?} can have no certificate")))?;
    let secured = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
    secured.map_err(|error| unavailable(format!("{host}: TLS: {error}")))
}
