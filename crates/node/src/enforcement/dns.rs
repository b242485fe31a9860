//! The DNS of pods that a rule by domain name selects goes through the agent.
//!
//! ```text
//! pod ─ query ─► kernel (tproxy) ─► thread: policy-dns ─ with the pod's own address ─► the server it meant
//! pod ◄─ answer, with the server's address ◄─ addresses are in the kernel's sets ◄─ answer
//! ```
//!
//! Contract:
//! - A pod gets an answer only after the addresses in it are where its rules look for them.
//! - A query waits for nobody but its own server, for [`ANSWERED_WITHIN`] at most; how many are under way
//!   is bounded in all and for each pod, and what is past that is left for the pod to ask again.
//! - Egress rules judge the query on its way to the agent, by the server's own address; ingress rules of
//!   the server judge what the agent asks, by the pod's.
//! - Without an agent the kernel finds nobody to give queries to, and they go where the pod sent them:
//!   answers then teach nothing, so that what names newly resolve to stays denied.
//! - It begins when the first pod needs it: until then there is no socket, no route and no rule.

mod message;

#[cfg(feature = "fuzzing")]
pub(super) use message::fuzz;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use kernel::netlink::Netlink;
use kernel::transparent::{self, any_port};
use policy::spec::domain_matches;
use stallproof::{Deadline, Snapshot, Stop, Tasks, sentence};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, LocalSet};
use tracing::{error, info, warn};

use super::ruleset::{ANSWER_MARK, DNS_MARK, DNS_PORT};
use super::{Enforcement, Status};

/// The routing table that delivers marked packets to this machine; a number of our own.
const TABLE: u32 = 7685;
/// How long a server may take. Resolvers ask again after five seconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// How long the kernel may take to learn what an answer says before the answer is given up on.
const LEARNED_WITHIN: Duration = Duration::from_secs(2);
/// How long a connection of a pod may be silent.
const SILENT: Duration = Duration::from_secs(30);
/// Queries and connections under way, in all: some kilobytes each.
const UNDER_WAY: usize = 1024;
/// Of which of one pod: a pod that floods costs others nothing.
const OF_ONE_POD: usize = 64;
/// The longest datagram of DNS.
const DATAGRAM: usize = 65_535;
/// How long to wait before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Datagrams that are taken before others are looked after.
const TOGETHER: usize = 64;

/// How often each thing happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DnsCounters {
    pub asked: u64,
    pub answered: u64,
    /// Too many were under way.
    pub refused: u64,
    /// No answer came in time, or what it says could not be learned.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    asked: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    pub(super) fn load(&self) -> DnsCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DnsCounters {
            asked: load(&self.asked),
            answered: load(&self.answered),
            refused: load(&self.refused),
            failed: load(&self.failed),
        }
    }
}

/// Begins on a thread of its own, in the network namespace of the calling one, until the tasks stop.
pub(super) fn start(
    enforcement: Enforcement,
    patterns: Snapshot<Vec<Arc<str>>>,
    counters: Arc<Counters>,
    tasks: &Tasks,
) -> io::Result<()> {
    let stop = tasks.stopping();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ended, end) = oneshot::channel::<()>();
    thread::Builder::new().name("policy-dns".to_owned()).spawn(move || {
        let proxy = Rc::new(Proxy {
            enforcement,
            patterns,
            counters,
            of_pods: RefCell::new(HashMap::new()),
        });
        runtime.block_on(LocalSet::new().run_until(proxy.run(stop)));
        let _ = ended.send(());
    })?;
    tasks.spawn("policy-dns", async move {
        if end.await.is_err() {
            error!("rules by domain name learn nothing any more: the thread has panicked");
        }
    });
    Ok(())
}

struct Proxy {
    enforcement: Enforcement,
    /// The names that rules of the program have: other answers teach nothing.
    patterns: Snapshot<Vec<Arc<str>>>,
    counters: Arc<Counters>,
    /// What is under way, for each pod. Only this thread has it.
    of_pods: RefCell<HashMap<IpAddr, usize>>,
}

struct Sockets {
    datagrams: [UdpSocket; 2],
    listeners: [TcpListener; 2],
}

impl Sockets {
    fn open() -> io::Result<Self> {
        Netlink::open()?.deliver_marked(DNS_MARK, TABLE).map_err(io::Error::other)?;
        let own: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let [four, six] = own.map(|address| SocketAddr::new(address, DNS_PORT));
        let datagrams = |at| UdpSocket::from_std(transparent::udp_listener(at)?);
        let listener = |at| TcpListener::from_std(transparent::tcp_listener(at, ANSWER_MARK)?);
        Ok(Self {
            datagrams: [datagrams(four)?, datagrams(six)?],
            listeners: [listener(four)?, listener(six)?],
        })
    }
}

impl Proxy {
    async fn run(self: Rc<Self>, stop: Stop) {
        let mut changes = self.enforcement.status().subscribe();
        let needed = |status: &Status| status.asking > 0;
        while !self.enforcement.status().read(needed) {
            if stop.bound(changes.changed()).await.is_none() {
                return;
            }
        }
        let sockets = loop {
            match Sockets::open() {
                Ok(sockets) => break sockets,
                Err(error) => {
                    let error = sentence(&error);
                    warn!(error, "rules by domain name learn nothing: DNS cannot be looked at");
                    if stop.bound(tokio::time::sleep(AGAIN)).await.is_none() {
                        return;
                    }
                }
            }
        };
        info!("the DNS of pods with rules by domain name goes through this agent");
        let mut under_way: JoinSet<()> = JoinSet::new();
        let mut buffer = vec![0; DATAGRAM];
        let Sockets { datagrams: [udp4, udp6], listeners: [tcp4, tcp6] } = &sockets;
        let serve = async {
            loop {
                tokio::select! {
                    Ok(()) = udp4.readable() => self.take(udp4, &mut buffer, &mut under_way),
                    Ok(()) = udp6.readable() => self.take(udp6, &mut buffer, &mut under_way),
                    accepted = tcp4.accept() => self.accept(accepted, &mut under_way).await,
                    accepted = tcp6.accept() => self.accept(accepted, &mut under_way).await,
                    Some(_) = under_way.join_next() => {}
                }
            }
        };
        stop.bound(serve).await;
        under_way.shutdown().await;
    }

    /// Takes the datagrams that have come.
    fn take(self: &Rc<Self>, socket: &UdpSocket, buffer: &mut [u8], under_way: &mut JoinSet<()>) {
        for _ in 0..TOGETHER {
            let receive = || transparent::receive(socket, buffer);
            let received = match socket.try_io(Interest::READABLE, receive) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Of one datagram.
                Err(_) => continue,
            };
            let (from, to) = (received.from, received.to);
            let query = buffer[..received.length].to_vec();
            let Some(place) = self.place(from.ip(), under_way.len()) else { continue };
            let proxy = Rc::clone(self);
            under_way.spawn_local(async move {
                let _place = place;
                let answered = proxy.answer_datagram(&query, from, to);
                let done = tokio::time::timeout(ANSWERED_WITHIN + LEARNED_WITHIN, answered).await;
                proxy.count(matches!(done, Ok(Ok(()))));
            });
        }
    }

    async fn accept(
        self: &Rc<Self>,
        accepted: io::Result<(TcpStream, SocketAddr)>,
        under_way: &mut JoinSet<()>,
    ) {
        let Ok((stream, from)) = accepted else {
            // For want of descriptors, which others have to give back.
            tokio::time::sleep(Duration::from_millis(50)).await;
            return;
        };
        let Some(place) = self.place(from.ip(), under_way.len()) else { return };
        let proxy = Rc::clone(self);
        under_way.spawn_local(async move {
            let _place = place;
            let ended = proxy.answer_stream(stream, from).await;
            proxy.count(ended.is_ok());
        });
    }

    fn count(&self, good: bool) {
        let counter = if good { &self.counters.answered } else { &self.counters.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A place among what is under way, given back when it is dropped.
    fn place(self: &Rc<Self>, pod: IpAddr, under_way: usize) -> Option<Place> {
        self.counters.asked.fetch_add(1, Ordering::Relaxed);
        let mut of_pods = self.of_pods.borrow_mut();
        let own = of_pods.entry(pod).or_default();
        if under_way >= UNDER_WAY || *own >= OF_ONE_POD {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *own += 1;
        Some(Place { proxy: Rc::clone(self), pod })
    }

    async fn answer_datagram(
        &self,
        query: &[u8],
        from: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<()> {
        let server = UdpSocket::from_std(transparent::udp(any_port(from.ip()), 0)?)?;
        server.connect(to).await?;
        server.send(query).await?;
        let asked = message::question(query);
        let mut buffer = vec![0; DATAGRAM];
        let wait = async {
            loop {
                let length = server.recv(&mut buffer).await?;
                // What answers another question is none of ours. Of a query that cannot be read the first
                // answer is taken, which teaches nothing.
                let answers = message::answer(&buffer[..length]);
                let fits = match (&asked, &answers) {
                    (Some(asked), Some(answer)) => answer.question == *asked,
                    (asked, _) => asked.is_none(),
                };
                if fits {
                    return io::Result::Ok((length, answers));
                }
            }
        };
        let waited = tokio::time::timeout(ANSWERED_WITHIN, wait).await;
        let (length, answer) = waited.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        self.learn(answer.filter(|_| asked.is_some())).await?;
        // Not connected: it would take the pod's next query.
        let back = UdpSocket::from_std(transparent::udp(to, ANSWER_MARK)?)?;
        back.send_to(&buffer[..length], from).await?;
        Ok(())
    }

    /// One query after the other, as far as the pod waits for each answer.
    async fn answer_stream(&self, mut pod: TcpStream, from: SocketAddr) -> io::Result<()> {
        let to = pod.local_addr()?;
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        let socket = TcpSocket::from_std_stream(transparent::tcp(any_port(from.ip()))?.into());
        let server = tokio::time::timeout(ANSWERED_WITHIN, socket.connect(to)).await;
        let mut server = server.map_err(|_| late())??;
        let mut asked: VecDeque<message::Question> = VecDeque::new();
        loop {
            let query = tokio::time::timeout(SILENT, read_frame(&mut pod)).await;
            let Some(query) = query.map_err(|_| late())?? else { return Ok(()) };
            asked.extend(message::question(&query));
            let exchange = async {
                write_frame(&mut server, &query).await?;
                read_frame(&mut server).await
            };
            let answer = tokio::time::timeout(ANSWERED_WITHIN, exchange).await;
            let Some(answer) = answer.map_err(|_| late())?? else { return Ok(()) };
            let read = message::answer(&answer);
            let question = asked.pop_front();
            let fits = |answer: &message::Answer| question.as_ref() == Some(&answer.question);
            self.learn(read.filter(fits)).await?;
            tokio::time::timeout(SILENT, write_frame(&mut pod, &answer))
                .await
                .map_err(|_| late())??;
        }
    }

    /// Has the kernel know the addresses of the name, if a rule has it.
    async fn learn(&self, answer: Option<message::Answer>) -> io::Result<()> {
        let Some(answer) = answer.filter(|it| !it.addresses.is_empty()) else { return Ok(()) };
        let name = &answer.question.name;
        let is_named =
            |patterns: &Vec<Arc<str>>| patterns.iter().any(|pattern| domain_matches(pattern, name));
        if !self.patterns.read(is_named) {
            return Ok(());
        }
        let lives = |seconds: u32| Duration::from_secs(seconds.into());
        let addresses = answer.addresses.iter().map(|(address, it)| (*address, lives(*it)));
        let deadline = Deadline::after(LEARNED_WITHIN);
        let learned = self.enforcement.learn(name, addresses.collect(), deadline).await;
        learned.map_err(io::Error::other)
    }
}

struct Place {
    proxy: Rc<Proxy>,
    pod: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of_pods = self.proxy.of_pods.borrow_mut();
        if let Some(own) = of_pods.get_mut(&self.pod) {
            *own -= 1;
            if *own == 0 {
                of_pods.remove(&self.pod);
            }
        }
    }
}

/// Reads a message with its length before it; none at the end.
async fn read_frame(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 2];
    match stream.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).await?;
    Ok(Some(message))
}

async fn write_frame(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(message);
    stream.write_all(&frame).await
}
