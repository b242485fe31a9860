//! The wire between a cluster's nodes: a network namespace with a bridge in it, and a thread of this
//! process that lives in that namespace.
//!
//! ```text
//! test, CLI ── 127.0.0.1:PORT ── thread ── bridge (10.97.0.1) ── node0 of every node
//!                                  └── names for pods, on a socket in each node
//! ```
//!
//! The machine's own network is not touched: who is outside reaches the API server at a port of the
//! loopback, which the thread accepted before it moved into the namespace.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{future, io};

use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle as TaskHandle;
use tokio::time::timeout;

use super::dns;

/// Many times what a test and its commands open at once.
const CONNECTIONS: usize = 512;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A request to the API server, and the time to hand it over.
const REQUEST_WITHIN: Duration = Duration::from_secs(15);

type Reply = Result<String, String>;

enum Job {
    /// Answer for names at this socket, which is in the node's namespace.
    Names {
        node: u32,
        socket: UdpSocket,
    },
    /// Let go of the node's socket, which keeps its namespace.
    Forget {
        node: u32,
        done: SyncSender<()>,
    },
    Request {
        request: Box<http::Request<Vec<u8>>>,
        reply: SyncSender<Reply>,
    },
}

#[derive(Debug)]
pub(super) struct Wire {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    /// Forwards what `listener` accepts to `server` in the namespace `netns`. `kubeconfig` is the
    /// administrator's, for `server`.
    pub(super) fn start(
        netns: &Path,
        listener: TcpListener,
        server: SocketAddr,
        kubeconfig: String,
    ) -> io::Result<Self> {
        let netns = File::open(netns)?;
        listener.set_nonblocking(true)?;
        // As many as tests have threads, and more.
        let (jobs, queue) = mpsc::channel(64);
        let thread = thread::Builder::new().name("cluster-wire".to_owned()).spawn(move || {
            enter(&netns)
                .unwrap_or_else(|error| panic!("cannot enter the wire's namespace: {error}"));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
            runtime.block_on(run(listener, server, kubeconfig, queue));
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Answers for names at port 53 of `address`, in the namespace of the process `pid`.
    pub(super) fn names(&self, node: u32, pid: u32, address: SocketAddr) -> io::Result<()> {
        let netns = File::open(format!("/proc/{pid}/ns/net"))?;
        // A socket belongs to the namespace in which it was made: a thread goes there, and ends.
        let bind = move || {
            enter(&netns)?;
            UdpSocket::bind(address)
        };
        let socket = thread::spawn(bind).join().map_err(|_| io::Error::other("panicked"))??;
        socket.set_nonblocking(true)?;
        self.send(Job::Names { node, socket });
        Ok(())
    }

    /// Returns when the node's socket is closed.
    pub(super) fn forget(&self, node: u32) {
        let (done, is_done) = sync_channel(1);
        self.send(Job::Forget { node, done });
        let _ = is_done.recv_timeout(REQUEST_WITHIN);
    }

    /// What the API server answers to the administrator.
    pub(super) fn request(&self, request: http::Request<Vec<u8>>) -> Reply {
        let (reply, answer) = sync_channel(1);
        self.send(Job::Request { request: Box::new(request), reply });
        answer
            .recv_timeout(REQUEST_WITHIN + Duration::from_secs(5))
            .unwrap_or_else(|error| Err(format!("no answer of the wire's thread: {error}")))
    }

    /// Does not wait, so that it may be called from within a runtime.
    fn send(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("it is there until the wire is dropped");
        jobs.try_send(job)
            .unwrap_or_else(|error| panic!("the wire's thread does not work: {error}"));
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn enter(netns: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))?)
}

async fn run(
    listener: TcpListener,
    server: SocketAddr,
    kubeconfig: String,
    mut jobs: mpsc::Receiver<Job>,
) {
    let client = client(&kubeconfig).await;
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket and a runtime");
    let forwarding = tokio::spawn(forward(listener, server));
    let mut serving: BTreeMap<u32, TaskHandle<()>> = BTreeMap::new();
    while let Some(job) = jobs.recv().await {
        match job {
            Job::Names { node, socket } => {
                let socket =
                    tokio::net::UdpSocket::from_std(socket).expect("a socket and a runtime");
                serving.insert(node, tokio::spawn(dns::serve(socket, client.clone())));
            }
            Job::Forget { node, done } => {
                if let Some(task) = serving.remove(&node) {
                    task.abort();
                    let _ = task.await;
                }
                let _ = done.try_send(());
            }
            Job::Request { request, reply } => {
                let client = client.clone();
                tokio::spawn(async move {
                    let answer = match timeout(REQUEST_WITHIN, client.request_text(*request)).await
                    {
                        Ok(answer) => answer.map_err(|error| error.to_string()),
                        Err(_) => Err(format!("no answer within {} s", REQUEST_WITHIN.as_secs())),
                    };
                    let _ = reply.try_send(answer);
                });
            }
        }
    }
    forwarding.abort();
}

async fn client(kubeconfig: &str) -> kube::Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig we wrote");
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    kube::Client::try_from(config.expect("a kubeconfig we wrote")).expect("a config we wrote")
}

async fn forward(listener: tokio::net::TcpListener, server: SocketAddr) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return future::pending().await;
        };
        let Ok((mut outer, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        tokio::spawn(async move {
            // A server that is not there closes the connection, as a refusal would.
            if let Ok(Ok(mut inner)) = timeout(CONNECT_WITHIN, TcpStream::connect(server)).await {
                let _ = outer.set_nodelay(true);
                let _ = inner.set_nodelay(true);
                let _ = copy_bidirectional(&mut outer, &mut inner).await;
            }
            drop(place);
        });
    }
}
