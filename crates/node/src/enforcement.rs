//! Policies on a node: a thread keeps the kernel to the program that a controller sends.
//!
//! ```text
//! ControllerSession ═ deltas ═► thread: Enforcer ─► PolicyDatapath: NftDatapath ─► kernel
//! net: ADD, DEL     ═ pods ═══►        │
//! DNS of pods       ═ names ══►        │
//!                                      └─► Status (a Snapshot), the program on disk
//! ```
//!
//! Invariants:
//! 1. A packet is judged by the program before a change or by the one after it.
//! 2. What is enforced stays when the agent ends, however it ends; the next start adopts it and makes it
//!    exactly the program that was saved, without a gap.
//! 3. Nothing that a packet or the start of a pod waits for asks a controller.

mod counted;
pub mod coverage;
pub mod datapath;
pub mod denials;
mod dns;
pub mod enforcer;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz {
    pub use super::dns::fuzz::dns_message;
    pub use super::saved::fuzz::program_file;
}
mod learned;
pub mod nft;
mod removal;
mod resolved;
mod ruleset;
mod saved;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use kernel::nftables::Counted;
use policy::program::{CounterId, Delta, Fingerprint, Program};
use stallproof::watchdog::Severity;
use stallproof::{Deadline, Snapshot, Tasks, Watchdog, sentence};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

pub use counted::RuleCount;
pub use coverage::PodNetwork;
pub use datapath::{DatapathError, DenySettings, Revoked};
pub use denials::{Denial, DenialCounters, Denials, NamedRule};
pub use dns::DnsCounters;
pub use enforcer::{EnforceError, Enforcer, EnforcerSettings, FailMode, NewPods};
pub use nft::NftDatapath;
pub use removal::remove;
pub use resolved::Resolved;
pub use saved::ProgramFile;

/// Commands wait here while a batch is made. A node starts some pods a second, and a session sends one
/// delta at a time: more is a fault that the sender is told of.
const WAITING: usize = 256;
/// How often the kernel's rules are looked after where they cannot be owned, and the program is saved.
const WAKE: Duration = Duration::from_millis(100);
/// How long a change may stay unsaved. The kernel has it at once; the file is for the next boot.
const UNSAVED: Duration = Duration::from_secs(1);
/// The longest that the start of a pod waits for its policies ([`NewPods::Wait`]).
pub const WAIT_FOR_POLICIES: Duration = Duration::from_secs(2);
/// How often it looks whether they are there.
const LOOK: Duration = Duration::from_millis(20);

/// How often it is looked whether netfilter sees the pods of another plugin, sooner where it did not
/// before, and how many of them are looked at.
const COVERAGE: Duration = Duration::from_secs(10);
const COVERAGE_AGAIN: Duration = Duration::from_secs(1);
const COVERAGE_PODS: usize = 2_000;

#[derive(Debug)]
pub struct Settings {
    pub enforcer: EnforcerSettings,
    /// Who wires this node's pods.
    pub network: PodNetwork,
    /// Where the program is kept for the next boot.
    pub file: PathBuf,
    /// The pods that this node's network has: address, namespace and name.
    pub pods: Vec<(IpAddr, Arc<str>)>,
}

/// What is enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The generation of the program; 0 without one.
    pub generation: u64,
    /// Addresses that are denied until their policies arrive.
    pub pending: usize,
    /// Addresses of pods that some policy selects.
    pub selected: usize,
    /// Addresses of pods whose DNS goes through the agent, for rules by domain name.
    pub asking: usize,
    /// Why packets of some pods are not judged, a sentence for each reason.
    pub uncovered: Vec<String>,
    /// What is wrong, in words.
    pub failing: Option<String>,
}

/// A handle on the thread that enforces. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Enforcement {
    commands: SyncSender<Command>,
    status: Snapshot<Status>,
    denials: Denials,
    dns: Arc<dns::Counters>,
    resolved: Resolved,
}

/// Why a command was not done.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("policies are not enforced any more: the thread has ended")]
    Ended,
    #[error("too many changes wait to be enforced; try again")]
    Busy,
    #[error("the kernel did not make the change in time")]
    TooLate,
    #[error(transparent)]
    Enforce(#[from] EnforceError),
    #[error("the kernel's counters cannot be read")]
    Counters(#[source] io::Error),
}

enum Command {
    Apply(Box<Delta>, oneshot::Sender<Result<u64, EnforceError>>),
    Admit(String, Vec<IpAddr>, SyncSender<Result<bool, DatapathError>>),
    Release(Vec<IpAddr>),
    Counters(oneshot::Sender<io::Result<HashMap<CounterId, Counted>>>),
    RuleCounts(oneshot::Sender<io::Result<Vec<RuleCount>>>),
    Learn(Arc<str>, Vec<(IpAddr, Duration)>, oneshot::Sender<Result<(), DatapathError>>),
    Position(oneshot::Sender<(u64, Fingerprint)>),
}

/// Why enforcing could not begin.
#[derive(Debug, thiserror::Error)]
pub enum NotEnforced {
    #[error("no netfilter socket can be opened")]
    Open(#[source] io::Error),
    #[error("the node's links cannot be looked at")]
    Links(#[source] io::Error),
    #[error("packets of pods here pass by netfilter: {}", in_words(.0))]
    Bypassed(Vec<coverage::Bypass>),
    #[error(transparent)]
    Datapath(#[from] DatapathError),
    #[error("the thread that enforces policies cannot be started")]
    Thread(#[source] io::Error),
}

/// Loads the program that was saved, makes the kernel enforce it, and goes on until the tasks stop. When
/// this returns, what was saved is enforced.
pub fn start(
    settings: Settings,
    watchdog: &Watchdog,
    tasks: &Tasks,
) -> Result<Enforcement, NotEnforced> {
    let Settings { enforcer, network, file, pods } = settings;
    let file = ProgramFile::new(file);
    let mut saved = file.load().unwrap_or_else(|error| {
        let error = sentence(&error);
        warn!(error, "the saved program cannot be used; a controller will send one");
        None
    });
    let bypasses = coverage::of_node().map_err(NotEnforced::Links)?;
    match network {
        PodNetwork::Own if !bypasses.is_empty() => return Err(NotEnforced::Bypassed(bypasses)),
        // It goes on and refuses what it is sent: the reason may go, and whoever asks hears it.
        PodNetwork::Foreign if !bypasses.is_empty() => saved = None,
        PodNetwork::Own | PodNetwork::Foreign => {}
    }
    let datapath = NftDatapath::open().map_err(NotEnforced::Open)?;
    let enforcer = Enforcer::start(datapath, enforcer, saved, pods)?;
    info!(generation = enforcer.program().generation, "policies are enforced");
    let (commands, inbox) = sync_channel(WAITING);
    let status = Snapshot::new(Status::of(&enforcer));
    let stop = tasks.stopping();
    let (ended, end) = oneshot::channel::<()>();
    let shown = status.clone();
    let beacon = watchdog.beacon("enforce", Severity::Noted);
    let denials = Denials::new(enforcer.program());
    if let Err(error) = denials.follow(tasks) {
        let error = sentence(&error);
        warn!(error, "denied packets are not told of: the kernel's log cannot be read");
    }
    let names = Snapshot::new(enforcer.domain_names());
    let patterns = names.clone();
    let told = denials.clone();
    let coverage = Coverage { network, looked: None, suspects: BTreeSet::new(), said: Vec::new() };
    let mut worker = Worker {
        enforcer,
        file,
        status: shown,
        denials: told,
        names,
        unsaved: None,
        revoke: true,
        coverage,
    };
    thread::Builder::new()
        .name("enforce".to_owned())
        .spawn(move || {
            while !stop.is_stopped() {
                let command = inbox.recv_timeout(WAKE);
                let owed = beacon.owe();
                let goes_on = worker.turn(command, &inbox);
                drop(owed);
                if !goes_on {
                    break;
                }
            }
            worker.save(true);
            let _ = ended.send(());
        })
        .map_err(NotEnforced::Thread)?;
    tasks.spawn("enforce", async move {
        if end.await.is_err() {
            error!("policies stay as they are: the thread that changes them has panicked");
        }
    });
    let (dns, resolved) = (Arc::default(), Resolved::default());
    let enforcement = Enforcement { commands, status, denials, dns, resolved };
    let counters = Arc::clone(&enforcement.dns);
    dns::start(enforcement.clone(), patterns, counters, tasks).map_err(NotEnforced::Thread)?;
    Ok(enforcement)
}

struct Worker {
    enforcer: Enforcer<NftDatapath>,
    file: ProgramFile,
    status: Snapshot<Status>,
    denials: Denials,
    /// The domain names that rules have.
    names: Snapshot<Vec<Arc<str>>>,
    /// Since when the file is behind.
    unsaved: Option<Instant>,
    /// Whether connections under way are to be judged again.
    revoke: bool,
    coverage: Coverage,
}

/// What is known of pods whose packets netfilter does not see.
struct Coverage {
    network: PodNetwork,
    looked: Option<Instant>,
    /// The pods that netfilter did not see at the last look. One look says nothing: a pod comes and goes
    /// at other times than its place in the program.
    suspects: BTreeSet<String>,
    said: Vec<String>,
}

impl Coverage {
    /// Refuses what would not be enforced.
    fn refuse(&self) -> Result<(), EnforceError> {
        if self.network == PodNetwork::Own {
            return Ok(());
        }
        let bypasses = coverage::of_node().map_err(DatapathError::Read)?;
        match bypasses.is_empty() {
            true => Ok(()),
            false => Err(EnforceError::Bypassed(in_words(&bypasses))),
        }
    }

    /// Looks, if it is time to.
    fn look(&mut self, program: &Program) {
        let pause = if self.suspects.is_empty() { COVERAGE } else { COVERAGE_AGAIN };
        let due = self.looked.is_none_or(|looked| looked.elapsed() >= pause);
        if self.network == PodNetwork::Own || !due {
            return;
        }
        self.looked = Some(Instant::now());
        let pods = program.pods.iter().take(COVERAGE_PODS);
        let found = coverage::of_pods(pods.map(|(address, pod)| (*address, &*pod.pod)));
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                warn!(%error, "it cannot be seen whether pods are judged");
                return;
            }
        };
        let now: BTreeSet<String> = found.iter().flat_map(|it| it.pods.iter().cloned()).collect();
        let last = std::mem::replace(&mut self.suspects, now);
        let lasting = found.into_iter().filter_map(|mut it| {
            it.pods.retain(|pod| last.contains(pod));
            (!it.pods.is_empty()).then(|| it.to_string())
        });
        let said: Vec<String> = lasting.collect();
        if self.said != said {
            said.iter().for_each(|reason| warn!(reason, "policies are not enforced for some pods"));
            self.said = said;
        }
    }
}

fn in_words(bypasses: &[coverage::Bypass]) -> String {
    bypasses.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Worker {
    /// Does what there is to do; says whether to go on.
    fn turn(
        &mut self,
        first: Result<Command, RecvTimeoutError>,
        inbox: &Receiver<Command>,
    ) -> bool {
        let goes_on = !matches!(first, Err(RecvTimeoutError::Disconnected));
        let mut next = first.ok();
        let mut failing = None;
        while let Some(command) = next {
            failing = self.serve(command).err().or(failing);
            next = inbox.try_recv().ok();
        }
        match self.enforcer.look_after() {
            Ok(true) => warn!("somebody else changed the table fairlead-guard; it is restored"),
            Ok(false) => {}
            Err(error) => failing = Some(sentence(&error)),
        }
        if std::mem::take(&mut self.revoke) {
            match self.enforcer.revoke() {
                Ok(Revoked { ended: 0, restored: 0 }) => {}
                Ok(Revoked { ended, restored }) => {
                    info!(ended, restored, "connections under way were judged again");
                }
                Err(error) => {
                    self.revoke = true;
                    failing = Some(format!("connections cannot be judged again: {error}"));
                }
            }
        }
        self.save(false);
        self.coverage.look(self.enforcer.program());
        let mut status = Status::of(&self.enforcer);
        status.failing = failing;
        status.uncovered.clone_from(&self.coverage.said);
        if *self.status.load() != status {
            self.status.publish(status);
        }
        goes_on
    }

    /// Serves one command; an error is told to who asked, and is in the status.
    fn serve(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Apply(delta, answer) => {
                let applied = self.coverage.refuse().and_then(|()| self.enforcer.apply(&delta));
                if applied.is_ok() {
                    if !delta.chains.is_empty() || !delta.removed_chains.is_empty() {
                        self.denials.publish(self.enforcer.program());
                        self.names.publish(self.enforcer.domain_names());
                    }
                    self.revoke |= enforcer::may_revoke(&delta);
                    if !delta.pods.is_empty() {
                        self.coverage.looked = None;
                    }
                    self.unsaved.get_or_insert_with(Instant::now);
                }
                let failing = applied.as_ref().err().map(|error| sentence(error));
                let generation = self.enforcer.program().generation;
                let _ = answer.send(applied.map(|()| generation));
                failing.map_or(Ok(()), Err)
            }
            Command::Admit(pod, addresses, answer) => {
                let admitted = self.enforcer.admit(&pod, &addresses);
                let failing = admitted.as_ref().err().map(|error| sentence(error));
                let _ = answer.send(admitted);
                failing.map_or(Ok(()), Err)
            }
            Command::Release(addresses) => {
                self.enforcer.release(&addresses).map_err(|error| sentence(&error))
            }
            Command::Counters(answer) => {
                let _ = answer.send(self.enforcer.counters());
                Ok(())
            }
            Command::RuleCounts(answer) => {
                let counters = self.enforcer.counters();
                let counts = counters.map(|it| counted::rules(self.enforcer.program(), &it));
                let _ = answer.send(counts);
                Ok(())
            }
            Command::Learn(name, addresses, answer) => {
                let learned = self.enforcer.learn(&name, &addresses);
                let failing = learned.as_ref().err().map(|error| sentence(error));
                let _ = answer.send(learned);
                failing.map_or(Ok(()), Err)
            }
            Command::Position(answer) => {
                let program = self.enforcer.program();
                let _ = answer.send((program.generation, program.fingerprint()));
                Ok(())
            }
        }
    }

    fn save(&mut self, now: bool) {
        let due = self.unsaved.is_some_and(|since| now || since.elapsed() >= UNSAVED);
        if !due {
            return;
        }
        match self.file.save(self.enforcer.program()) {
            Ok(()) => self.unsaved = None,
            Err(error) => {
                let error = sentence(&error);
                warn!(
                    error,
                    "the program is not saved: the next boot would begin with an older one"
                );
                self.unsaved = Some(Instant::now());
            }
        }
    }
}

impl Status {
    fn of(enforcer: &Enforcer<NftDatapath>) -> Self {
        let pending = enforcer.entries().values().filter(|it| **it == datapath::Entry::PENDING);
        let pending = pending.count();
        Self {
            generation: enforcer.program().generation,
            pending,
            selected: enforcer.entries().len() - pending,
            asking: enforcer.entries().values().filter(|entry| entry.asks).count(),
            uncovered: Vec::new(),
            failing: None,
        }
    }
}

impl Enforcement {
    pub fn status(&self) -> Snapshot<Status> {
        self.status.clone()
    }

    /// Makes the program the next generation, and returns when packets are judged by it.
    pub async fn apply(&self, delta: Delta, deadline: Deadline) -> Result<u64, CommandError> {
        let (answer, applied) = oneshot::channel();
        self.send(Command::Apply(Box::new(delta), answer))?;
        let applied = deadline.bound(applied).await.map_err(|_| CommandError::TooLate)?;
        Ok(applied.map_err(|_| CommandError::Ended)??)
    }

    /// Has a pod's addresses decided before they carry packets; says whether its policies have yet to
    /// arrive. Blocks.
    pub fn admit(
        &self,
        pod: &str,
        addresses: &[IpAddr],
        deadline: Deadline,
    ) -> Result<bool, CommandError> {
        // One answer.
        let (answer, admitted) = sync_channel(1);
        self.send(Command::Admit(pod.to_owned(), addresses.to_vec(), answer))?;
        let admitted =
            admitted.recv_timeout(deadline.remaining()).map_err(|error| match error {
                RecvTimeoutError::Timeout => CommandError::TooLate,
                RecvTimeoutError::Disconnected => CommandError::Ended,
            })?;
        Ok(admitted.map_err(EnforceError::from)?)
    }

    /// Waits until the pod's policies have arrived, for [`WAIT_FOR_POLICIES`] at most; says whether they
    /// have. Blocks.
    pub fn wait_for_policies(&self, pod: &str, addresses: &[IpAddr]) -> bool {
        let end = Deadline::after(WAIT_FOR_POLICIES);
        loop {
            match self.admit(pod, addresses, end) {
                Ok(false) => return true,
                Ok(true) if !end.has_passed() => thread::sleep(LOOK),
                _ => return false,
            }
        }
    }

    /// The pod that had these addresses is gone. If it cannot be said, the next program says it.
    pub fn release(&self, addresses: &[IpAddr]) -> Result<(), CommandError> {
        self.send(Command::Release(addresses.to_vec()))
    }

    /// What rules stopped or told of, as it comes.
    pub fn denials(&self) -> Denials {
        self.denials.clone()
    }

    /// What became of the DNS of pods that rules by domain name select.
    pub fn dns_counters(&self) -> DnsCounters {
        self.dns.load()
    }

    /// Which names of rules resolved to which addresses.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// Has the addresses of a name be known to rules that have it; returns when they are.
    async fn learn(
        &self,
        name: &str,
        addresses: Vec<(IpAddr, Duration)>,
        deadline: Deadline,
    ) -> Result<(), CommandError> {
        let (answer, learned) = oneshot::channel();
        let resolved: Vec<_> = addresses.iter().map(|(address, _)| *address).collect();
        self.send(Command::Learn(name.into(), addresses, answer))?;
        let learned = deadline.bound(learned).await.map_err(|_| CommandError::TooLate)?;
        learned.map_err(|_| CommandError::Ended)?.map_err(EnforceError::from)?;
        self.resolved.add(name, resolved.into_iter(), Instant::now());
        Ok(())
    }

    /// Returns what each rule has counted, with the rules of policies that it stands for.
    pub async fn rule_counts(&self, deadline: Deadline) -> Result<Vec<RuleCount>, CommandError> {
        let (answer, counts) = oneshot::channel();
        self.send(Command::RuleCounts(answer))?;
        let counts = deadline.bound(counts).await.map_err(|_| CommandError::TooLate)?;
        counts.map_err(|_| CommandError::Ended)?.map_err(CommandError::Counters)
    }

    /// Returns what each rule has counted.
    pub async fn counters(
        &self,
        deadline: Deadline,
    ) -> Result<HashMap<CounterId, Counted>, CommandError> {
        let (answer, counters) = oneshot::channel();
        self.send(Command::Counters(answer))?;
        let counters = deadline.bound(counters).await.map_err(|_| CommandError::TooLate)?;
        counters.map_err(|_| CommandError::Ended)?.map_err(CommandError::Counters)
    }

    /// Returns the generation that is enforced, and what tells its content.
    pub async fn position(&self, deadline: Deadline) -> Result<(u64, Fingerprint), CommandError> {
        let (answer, position) = oneshot::channel();
        self.send(Command::Position(answer))?;
        let position = deadline.bound(position).await.map_err(|_| CommandError::TooLate)?;
        position.map_err(|_| CommandError::Ended)
    }

    fn send(&self, command: Command) -> Result<(), CommandError> {
        self.commands.try_send(command).map_err(|error| match error {
            TrySendError::Full(_) => CommandError::Busy,
            TrySendError::Disconnected(_) => CommandError::Ended,
        })
    }
}
