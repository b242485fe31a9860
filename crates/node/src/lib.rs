//! A node's agent, as far as traffic goes: it observes connections, adds them up, and reports to a
//! controller.
//!
//! ```text
//! kernel ──► Watcher (a thread; owns the Sensor) ══ reports, one at a time ══► ControllerSession ──► controller
//!                                               ◄═ joined, counted, rules ════╝ (a task)
//! ```
//!
//! Where policies are enforced, a third task follows the node's program on the session's connection:
//!
//! ```text
//! controller ══ changes ══► ProgramSession ──► Enforcement ──► kernel
//!            ◄═ applied ═══╝
//! ```
//!
//! Invariants: the two wait for each other nowhere: a controller that does not answer leaves the watcher to
//! add up, and a kernel that does not answer leaves the session its connection. A report is sent until it
//! is counted; what is sent was saved before, so that a start after a `kill -9` goes on from there.

mod applications;
pub mod client;
mod conntrack_source;
pub mod enforcement;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod identity;
mod metrics;
mod program_session;
pub mod sensor;
mod session;
mod socket_source;
mod source;
mod watcher;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use prometheus_client::registry::Registry;
use stallproof::{Ledger, Tasks, Watchdog};
use tokio::sync::mpsc;
use traffic::conversations::LocalWorkload;

pub use identity::{Identity, IdentityError};
pub use session::{Authorities, PodIdentity};
pub use watcher::CannotObserve;

use applications::Applications;
use metrics::Metrics;
use program_session::ProgramSession;
use sensor::Rules;
use session::ControllerSession;
use watcher::Watcher;

/// The pods of this node, as its pod network knows them.
pub trait LocalPods: fmt::Debug + Send + Sync {
    /// Their names and addresses, in an order that does not depend on how they came.
    fn workloads(&self) -> Vec<LocalWorkload>;
    /// The networks that their addresses are from.
    fn networks(&self) -> Vec<IpNet>;
}

/// How a node observes and reports.
#[derive(Debug)]
pub struct Settings {
    pub node: String,
    /// The node's own addresses.
    pub addresses: fn() -> Vec<IpAddr>,
    /// The addresses that are configured; if there are none, `addresses` are asked at every joining.
    pub configured_addresses: Vec<IpAddr>,
    pub controllers: Vec<String>,
    pub token_file: Option<PathBuf>,
    /// How a pod enrols, in place of a token that was made for it.
    pub pod: Option<PodIdentity>,
    /// The directory of the sensor's state and of the node's identity.
    pub dir: PathBuf,
    pub connections: Connections,
    /// Whether applications are told by the first bytes of connections, where the kernel tracks all of them for
    /// this agent; else controllers go by ports.
    pub first_bytes: bool,
    /// None where another plugin wires the pods.
    pub pods: Option<Arc<dyn LocalPods>>,
    /// What this node's policies stop, where they are enforced.
    pub denials: Option<enforcement::Denials>,
    /// Whether controllers are told of the pods: where no Kubernetes tells them.
    pub tell_pods: bool,
    /// Enforces the policy program that controllers send; none where nothing is enforced.
    pub enforcement: Option<enforcement::Enforcement>,
}

/// Which connections are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// Those that the kernel tracks, pods' among them; `everywhere`: also where nothing else has it do so.
    Tracked { everywhere: bool },
    /// Those of this machine's own sockets: nothing of its network is changed for it.
    OwnSockets,
}

/// The process that a node's agent runs in.
#[derive(Debug)]
pub struct Process<'a> {
    pub ledger: &'a Ledger,
    pub tasks: &'a Tasks,
    pub watchdog: &'a Watchdog,
}

/// What the session tells the watcher.
enum SessionEvent {
    /// The session is about to join, and asks with which incarnation.
    Joining {
        answer: tokio::sync::oneshot::Sender<u64>,
    },
    /// The incarnation that it joined with is over; this one is known.
    Outdated {
        known: u64,
    },
    Joined {
        epoch: u64,
        interval: std::time::Duration,
    },
    /// The connection is over.
    Disconnected,
    Counted {
        sequence: u64,
        durable: u64,
        interval: std::time::Duration,
    },
    Rules(Arc<Rules>),
}

/// Why observing could not begin.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    #[error(transparent)]
    Observe(#[from] CannotObserve),
    #[error("the observer's thread cannot be started")]
    Thread(#[from] io::Error),
}

/// Begins to observe and to report, until the process's tasks stop.
pub fn start(
    settings: Settings,
    process: &Process<'_>,
    registry: &mut Registry,
) -> Result<(), NotStarted> {
    let metrics = Metrics::default();
    metrics.register(registry);
    // One report is under way at a time.
    let (reports, outbox) = mpsc::channel(1);
    // Events come one by one and are read several times a second; the session waits where there are more.
    let (events, heard) = mpsc::channel(16);
    // The rule has the kernel track connections, which is not wanted where tracking is off.
    let looks =
        settings.first_bytes && settings.connections == (Connections::Tracked { everywhere: true });
    let watcher = Watcher::open(
        watcher::Settings {
            node: settings.node.as_str().into(),
            file: settings.dir.join("sensor"),
            connections: settings.connections,
            pods: settings.pods.clone(),
            denials: settings.denials.clone(),
            applications: looks
                .then(|| Applications::follow(metrics.clone(), process.tasks))
                .transpose()?,
        },
        metrics.clone(),
    )?;
    watcher.start(reports, heard, process.watchdog, process.tasks)?;
    let (node, enforcement) = (settings.node.clone(), settings.enforcement.clone());
    let session =
        ControllerSession::new(settings, metrics, process.ledger.clone(), process.tasks.clone());
    if let Some(enforcement) = enforcement {
        let programs = ProgramSession::new(&node, enforcement, session.joined(), process.ledger);
        programs.register(registry);
        process.tasks.spawn("policy-session", programs.run(process.tasks.stopping()));
    }
    process.tasks.spawn("sense-link", session.run(outbox, events));
    Ok(())
}
