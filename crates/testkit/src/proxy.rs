//! Proxy: a TCP proxy on loopback whose connections can be made to fail.
//!
//! - Its address never changes, also while it refuses.
//! - What a fault held up goes on when the fault is healed, as after a mended network; nothing is
//!   lost or reordered, except what [`Proxy::cut`] cuts.
//! - A call has taken effect when it returns: the port is closed, the connections are gone.
//! - It runs on a thread of its own: a test may block its runtime, or pause its clock.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::mpsc as sync;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::port;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The port is closed. Connections that stand go on; see [`Proxy::cut`].
    Refuse,
    /// Connections are accepted, but no byte moves in either direction, on old ones either.
    BlackHole,
    /// A new connection gets the first bytes of the server's answer, then no more. Old ones go on.
    HangHandshake,
    /// Every piece is this late, in both directions.
    Delay(Duration),
    /// At most this many bytes a second, for each connection and direction.
    Throttle { bytes_per_second: u32 },
}

/// A TLS record's header: enough that the client knows it talks TLS, and waits.
const START_OF_ANSWER: usize = 5;

#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    /// `None` only while dropping.
    orders: Option<mpsc::Sender<(Order, sync::SyncSender<()>)>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Order {
    Set(Option<Fault>),
    Cut,
}

impl Proxy {
    /// A proxy in front of `target`, which need not be there yet.
    pub fn start(target: SocketAddr) -> Self {
        let listener = port::pick();
        let address = listener.local_addr().expect("a bound socket has an address");
        // Each caller waits for its answer, so this is the number of threads that may call at once.
        let (orders, inbox) = mpsc::channel(16);
        let thread = thread::Builder::new()
            .name(format!("proxy-{}", address.port()))
            .spawn(move || {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .and_then(|runtime| runtime.block_on(serve(listener, target, inbox)))
                    .expect("the proxy has its port");
            })
            .expect("a thread for the proxy");
        Self { address, orders: Some(orders), thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts `fault`, in place of the one before.
    pub fn inject(&self, fault: Fault) {
        self.order(Order::Set(Some(fault)));
    }

    /// Ends the fault.
    pub fn heal(&self) {
        self.order(Order::Set(None));
    }

    /// Resets every connection that stands. New ones are welcome, unless a fault says otherwise.
    pub fn cut(&self) {
        self.order(Order::Cut);
    }

    /// Blocks for as long as the proxy's thread takes to obey: microseconds.
    fn order(&self, order: Order) {
        let (done, obeyed) = sync::sync_channel(1);
        self.orders
            .as_ref()
            .and_then(|orders| orders.try_send((order, done)).ok())
            .and_then(|()| obeyed.recv().ok())
            .expect("the proxy's thread is there");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(
    listener: StdListener,
    target: SocketAddr,
    mut inbox: mpsc::Receiver<(Order, sync::SyncSender<()>)>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let mut listener = Some(TcpListener::from_std(listener)?);
    let faults = watch::Sender::new(None);
    let cuts = watch::Sender::new(());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            order = inbox.recv() => {
                let Some((order, done)) = order else { return Ok(()) };
                match order {
                    Order::Set(fault) => {
                        if fault == Some(Fault::Refuse) {
                            listener = None;
                        } else if listener.is_none() {
                            listener = Some(TcpListener::bind(address).await?);
                        }
                        faults.send_replace(fault);
                    }
                    Order::Cut => {
                        cuts.send_replace(());
                        while connections.join_next().await.is_some() {}
                    }
                }
                let _ = done.send(());
            }
            accepted = accept(listener.as_ref()) => {
                // A client that was gone before it was accepted is no concern of ours.
                if let Ok(client) = accepted {
                    connections.spawn(carry(client, target, faults.subscribe(), cuts.subscribe()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

async fn carry(
    mut client: TcpStream,
    target: SocketAddr,
    fault: watch::Receiver<Option<Fault>>,
    mut cut: watch::Receiver<()>,
) {
    let ended = tokio::select! {
        ended = exchange(&mut client, target, fault) => ended,
        _ = cut.changed() => Err(io::ErrorKind::ConnectionReset.into()),
    };
    if ended.is_err() {
        // The peer sees a reset, not an orderly end.
        let _ = client.set_zero_linger();
    }
}

async fn exchange(
    client: &mut TcpStream,
    target: SocketAddr,
    mut fault: watch::Receiver<Option<Fault>>,
) -> io::Result<()> {
    until(&mut fault, |fault| fault != Some(Fault::BlackHole)).await;
    let mut server = TcpStream::connect(target).await?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::try_join!(
        pump(from_client, to_server, fault.clone(), 0),
        pump(from_server, to_client, fault, START_OF_ANSWER),
    )?;
    Ok(())
}

/// Moves bytes one way until the source ends. `opening` is how much of the first piece passes a
/// hung handshake; zero: all of it.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut fault: watch::Receiver<Option<Fault>>,
    opening: usize,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut opening = opening;
    loop {
        let size = match *fault.borrow() {
            // Ten pieces a second make a steady trickle.
            Some(Fault::Throttle { bytes_per_second }) => {
                (bytes_per_second as usize / 10).clamp(1, buffer.len())
            }
            _ => buffer.len(),
        };
        let read = from.read(&mut buffer[..size]).await?;
        if read == 0 {
            until(&mut fault, |fault| fault != Some(Fault::BlackHole)).await;
            return to.shutdown().await;
        }
        let mut piece = &buffer[..read];
        let now = *fault.borrow_and_update();
        match now {
            Some(Fault::HangHandshake) if opening > 0 => {
                let (first, rest) = piece.split_at(opening.min(read));
                to.write_all(first).await?;
                piece = rest;
                until(&mut fault, |fault| fault != now).await;
            }
            Some(Fault::Delay(delay)) => late(&mut fault, delay).await,
            Some(Fault::Throttle { bytes_per_second }) => {
                let seconds = read as f64 / f64::from(bytes_per_second.max(1));
                late(&mut fault, Duration::from_secs_f64(seconds)).await;
            }
            _ => {}
        }
        opening = 0;
        until(&mut fault, |fault| fault != Some(Fault::BlackHole)).await;
        to.write_all(piece).await?;
    }
}

async fn late(fault: &mut watch::Receiver<Option<Fault>>, delay: Duration) {
    tokio::select! {
        () = sleep(delay) => {}
        _ = fault.changed() => {}
    }
}

/// Waits for a fault that lets pass. Never returns once the proxy is gone: then the task is, too.
async fn until(fault: &mut watch::Receiver<Option<Fault>>, pass: impl Fn(Option<Fault>) -> bool) {
    if fault.wait_for(|fault| pass(*fault)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
