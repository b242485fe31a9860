//! What every daemon stands on: a locked data directory, the ledger, the watchdog, the memory guard
//! and the admin surface, all up before the first piece of real work and down after the last.
//!
//! ```text
//! main thread   waits for a signal, or for an essential task that gave up
//! runtime       the daemon's own work, owned by `tasks`
//! watchdog      plain threads: names what stalls, writes evidence, fails liveness
//! admin         its own thread and runtime: answers when all of the above is stuck
//! ```

use std::fmt::Write;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use access::LocalToken;
use edge::admin::{self, Admin, AdminListener, AdminThread, LogLevel, Token};
use edge::exposition::Exposition;
use edge::tls::{CertificateFiles, ListenerTls, ManagedCertificate};
use kernel::lock_file::LockFile;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stallproof::ledger::{Filter, LedgerConfig};
use stallproof::watchdog::{Evidence, Severity, Stall, WatchdogLimits};
use stallproof::{Ledger, MemoryGuard, Readiness, Tasks, Watchdog};
use tracing::{error, info, warn};

use crate::config::{self, Config, ListenAddress, TlsSource};
use crate::daemon::logging::{self, LevelHandle, Logging};
use crate::output::{self, FAILED, Failure, Verdict};

/// Beyond the grace, for tasks that were aborted to be dropped.
const AFTER_GRACE: Duration = Duration::from_secs(1);

/// With so many, every listener but that of agents takes all the connections that it would; that one
/// takes six thousand.
const ENOUGH_DESCRIPTORS: usize = 16 << 10;

/// What the daemon's own work is given.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) ledger: Ledger,
    pub(crate) readiness: Readiness,
    pub(crate) tasks: Tasks,
    /// What ends first at a shutdown, before listeners do: leading. Below `tasks`.
    pub(crate) leading: Tasks,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) memory: Arc<MemoryGuard>,
}

/// What must be had before anything runs. Taken first and all at once, so that a daemon that
/// cannot start says so before it has done anything.
#[derive(Debug)]
pub(crate) struct Listeners {
    _lock: LockFile,
    reach: AdminListener,
    address: ListenAddress,
}

impl Listeners {
    pub(crate) fn take(config: &Config) -> Result<Self, Failure> {
        let lock = lock_data(&config.data)?;
        let (listener, address) = listen(config.admin.listen, "--admin-listen")?;
        let token = config.admin.token_file.as_deref().map(Token::read);
        let token = token.transpose().map_err(|e| explain(&e))?;
        let owner = LocalToken::open(&config.data).map_err(|e| explain(&e))?;
        let owner = Some(Token::new(owner.secret().expose()));
        let tls = admin_security(&config.admin)?;
        Ok(Self { _lock: lock, reach: AdminListener { listener, tls, token, owner }, address })
    }
}

/// How the admin endpoints are reached. A certificate of our own making says nothing of who serves; it
/// is for probes, which do not ask.
fn admin_security(admin: &config::Admin) -> Result<ListenerTls, Failure> {
    match admin.tls {
        TlsSource::Auto if admin.listen.is_loopback() => Ok(ListenerTls::Plain),
        TlsSource::Auto => {
            let held = ManagedCertificate::self_signed(&["localhost".to_owned()])
                .map_err(|e| explain(&e))?;
            Ok(ListenerTls::ManagedBeyondLoopback(held))
        }
        TlsSource::Files => Ok(match certificate(&admin.tls_cert, &admin.tls_key)? {
            Some(certificate) => ListenerTls::Files(certificate),
            None => ListenerTls::Plain,
        }),
    }
}

fn lock_data(data: &Path) -> Result<LockFile, Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let shown = data.display();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(|e| {
        Failure(format!(
            "the data directory {shown} cannot be made: {e}; choose another with --data"
        ))
    })?;
    LockFile::take(data).map_err(|e| explain(&e))
}

/// The pair that serves a listener, if it has one.
pub(crate) fn certificate(
    cert: &Option<PathBuf>,
    key: &Option<PathBuf>,
) -> Result<Option<Arc<CertificateFiles>>, Failure> {
    let (Some(cert), Some(key)) = (cert, key) else { return Ok(None) };
    CertificateFiles::load(cert.clone(), key.clone()).map(Some).map_err(|e| explain(&e))
}

pub(crate) fn listen(
    address: ListenAddress,
    flag: &str,
) -> Result<(TcpListener, ListenAddress), Failure> {
    address.bind().map_err(|e| {
        Failure(match e.kind() {
            ErrorKind::AddrInUse => format!(
                "{address} is taken by another process (another fairlead?); stop it, or choose another address with {flag}"
            ),
            ErrorKind::PermissionDenied => {
                format!("{address} may not be listened on; choose a port above 1023 with {flag}")
            }
            _ => {
                format!("{address} cannot be listened on: {e}; choose another address with {flag}")
            }
        })
    })
}

/// What could not be done, as a verb says it.
pub(crate) fn explain(error: &dyn std::error::Error) -> Failure {
    Failure(stallproof::sentence(error))
}

impl LogLevel for LevelHandle {
    fn get(&self) -> String {
        Self::get(self)
    }

    fn set(&self, directives: &str) -> Result<(), String> {
        Self::set(self, directives)
    }
}

/// What a daemon tells the person who started it: a name and a place.
pub(crate) type Told = Vec<(&'static str, String)>;

/// Runs a daemon: the process, then whatever `begin` starts on `Process::tasks`, until a signal.
/// `begin` waits for nothing, so that the admin surface is there from the first moment.
pub(crate) fn run(
    config: &Config,
    listeners: Listeners,
    begin: impl FnOnce(&Process, &mut Registry) -> Result<Told, Failure>,
) -> Verdict {
    let logging = logging::start(&config.log);
    let descriptors = kernel::descriptors::raise_limit();
    if descriptors < ENOUGH_DESCRIPTORS {
        warn!(
            limit = descriptors,
            enough = ENOUGH_DESCRIPTORS,
            "few files may be open (ulimit -Hn), so that fewer connections are taken; raise the hard limit"
        );
    }
    let stops = Stops::listen()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.workers)
        .thread_name("worker")
        .enable_all()
        .build()
        .map_err(|e| Failure(format!("the runtime cannot start: {e}")))?;
    let entered = runtime.enter();

    let evidence = Evidence::new(config.data.join("evidence"));
    let tasks = Tasks::new("fairlead");
    let process = Process {
        ledger: Ledger::new(LedgerConfig { late_after: config.slow }),
        readiness: Readiness::default(),
        leading: tasks.child("leading"),
        tasks,
        watchdog: Arc::new(Watchdog::start(WatchdogLimits::default(), Some(evidence.clone()))),
        memory: Arc::new(MemoryGuard::new(config.memory_limit, Some(evidence.clone()))),
    };
    process.watchdog.watch_runtime("main-runtime", runtime.handle().clone(), Severity::Critical);
    let ledger = process.ledger.clone();
    process.watchdog.each_tick("late-operations", move || {
        ledger.name_late(tokio::time::Instant::now());
    });
    let memory = process.memory.clone();
    process.watchdog.each_tick("memory-guard", move || memory.check());

    let mut registry = registry(&process, &logging);
    let told = begin(&process, &mut registry)?;
    let registry = Arc::new(registry);
    keep_evidence(&evidence, &process, &registry);
    let address = listeners.address;
    let scheme = listeners.reach.tls.scheme();
    let admin = start_admin(config, &process, &logging, registry, listeners.reach)?;

    stops.when_given_up(&process.tasks);
    let mut banner = format!("fairlead {} is up", env!("CARGO_PKG_VERSION"));
    let common =
        [("admin", format!("{scheme}://{address}/")), ("data", config.data.display().to_string())];
    for (name, place) in told.into_iter().chain(common) {
        let _ = write!(banner, "\n  {name:<6} {place}");
    }
    output::line(&banner)?;
    info!(version = env!("CARGO_PKG_VERSION"), %address, "up");

    let why = stops.wait();
    info!(%why, grace = ?config.grace, "shutting down; a second signal ends it at once");
    let leaving = process.readiness.announce("process");
    leaving.not_ready("shutting down");
    // Another leads, and nobody is sent here any more, before anything is refused.
    process.leading.stop("shutting down");
    if matches!(why, Stop::GivenUp) || !stops.again_within(config.shutdown_delay) {
        stop_tasks(&process, &stops, config.grace);
    } else {
        warn!("second signal: leaving at once");
    }
    drop(entered);
    // Never `drop(runtime)`: that would wait for a worker that is blocked.
    runtime.shutdown_background();
    drop(admin);
    info!("down");
    Ok(match why {
        Stop::Signal(_) => ExitCode::SUCCESS,
        Stop::GivenUp => ExitCode::from(FAILED),
    })
}

fn start_admin(
    config: &Config,
    process: &Process,
    logging: &Logging,
    registry: Arc<Registry>,
    reach: AdminListener,
) -> Result<AdminThread, Failure> {
    if config.admin.profiling
        && let Err(error) = kernel::heap::enable()
    {
        warn!(%error, "there are no heap profiles; of the CPU there are");
    }
    let shown = Admin {
        ledger: process.ledger.clone(),
        watchdog: process.watchdog.clone(),
        readiness: process.readiness.clone(),
        registry,
        log: Box::new(logging.level.clone()),
        profiling: config.admin.profiling,
    };
    admin::start(shown, reach)
        .map_err(|e| Failure(format!("the admin endpoints cannot be served: {e}")))
}

fn registry(process: &Process, logging: &Logging) -> Registry {
    let mut registry = Registry::with_prefix("fairlead");
    let build =
        Info::new([("version", env!("CARGO_PKG_VERSION")), ("commit", env!("FAIRLEAD_COMMIT"))]);
    registry.register("build", "What runs", build);
    process.ledger.register(&mut registry);
    process.watchdog.register(&mut registry);
    process.memory.register(&mut registry);
    process.tasks.register(&mut registry);
    stallproof::tracked_mutex::register(&mut registry);
    logging.register(&mut registry);
    registry
}

/// What is written when something is stuck beyond hope.
fn keep_evidence(evidence: &Evidence, process: &Process, registry: &Arc<Registry>) {
    // In the form of /debug/inflight, /debug/stalls and /debug/locks, which `fairlead doctor` reads.
    let ledger = process.ledger.clone();
    evidence.source("inflight.json", move || {
        let operations = ledger.in_flight(&Filter::default());
        let in_flight: usize = ledger.count().into_iter().map(|(_, count)| count).sum();
        document(&serde_json::json!({ "in_flight": in_flight, "operations": operations }))
    });
    // The watchdog owns the evidence; a handle of it there would keep both for ever.
    let watchdog = Arc::downgrade(&process.watchdog);
    evidence.source("stalls.json", move || {
        let stalls = watchdog.upgrade().map(|watchdog| watchdog.stalls()).unwrap_or_default();
        let stalls: Vec<_> = stalls.iter().map(told_of_stall).collect();
        document(&serde_json::json!({ "stalls": stalls }))
    });
    let registry = registry.clone();
    evidence.source("metrics.txt", move || {
        Exposition::Prometheus.encode(&registry).unwrap_or_default().into_bytes()
    });
    evidence.source("locks.json", || {
        document(&serde_json::json!({ "locks": stallproof::tracked_mutex::locks() }))
    });
    evidence.source("stacks.txt", || {
        let stacks = kernel::threads::stacks(Duration::from_secs(2)).unwrap_or_default();
        stacks.iter().map(|thread| format!("{thread}\n")).collect::<String>().into_bytes()
    });
}

fn document(value: &serde_json::Value) -> Vec<u8> {
    serde_json::to_vec_pretty(value).unwrap_or_default()
}

fn told_of_stall(stall: &Stall) -> serde_json::Value {
    serde_json::json!({
        "name": stall.name,
        "critical": stall.severity == Severity::Critical,
        "stalled_ms": u64::try_from(stall.stalled_for.as_millis()).unwrap_or(u64::MAX),
        "fails_liveness": stall.failing,
    })
}

/// Lets work finish within its grace, even when every worker is blocked and no timer of the
/// runtime fires: this thread's own clock decides.
fn stop_tasks(process: &Process, stops: &Stops, grace: Duration) {
    let (done, finished) = sync_channel(1);
    let tasks = process.tasks.clone();
    // In a group of its own: a shutdown that belonged to what it ends would wait for itself.
    Tasks::new("shutdown").spawn("tasks", async move {
        tasks.shutdown(grace).await;
        let _ = done.try_send(());
    });
    let patience = std::time::Instant::now() + grace + AFTER_GRACE;
    loop {
        match finished.recv_timeout(Duration::from_millis(50)) {
            Ok(()) => return,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stops.again() {
            warn!("second signal: leaving at once");
            return;
        }
        if std::time::Instant::now() >= patience {
            let left: Vec<_> = process.tasks.list().into_iter().map(|task| task.name).collect();
            error!(?left, "tasks did not leave within the grace");
            return;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stop {
    Signal(i32),
    /// A task without which the daemon is of no use ended.
    GivenUp,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Signal(SIGINT) => f.write_str("interrupted"),
            Self::Signal(_) => f.write_str("terminated"),
            Self::GivenUp => f.write_str("an essential task ended"),
        }
    }
}

/// Reasons to stop, from a thread of their own: a blocked runtime still hears a signal.
struct Stops {
    /// Four: the first signal, the second, and slack for what comes with them.
    told: Receiver<Stop>,
    tell: SyncSender<Stop>,
}

impl Stops {
    fn listen() -> Result<Self, Failure> {
        let (tell, told) = sync_channel(4);
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let signalled = tell.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                let _ = signalled.try_send(Stop::Signal(signal));
            }
        })?;
        Ok(Self { told, tell })
    }

    fn when_given_up(&self, tasks: &Tasks) {
        let tell = self.tell.clone();
        let stopping = tasks.stopping();
        tasks.spawn("given-up", async move {
            stopping.stopped().await;
            let _ = tell.try_send(Stop::GivenUp);
        });
    }

    fn wait(&self) -> Stop {
        self.told.recv().unwrap_or(Stop::GivenUp)
    }

    fn again(&self) -> bool {
        matches!(self.told.try_recv(), Ok(Stop::Signal(_)))
    }

    /// Waits so long, or until another signal; says whether one came.
    fn again_within(&self, time: Duration) -> bool {
        matches!(self.told.recv_timeout(time), Ok(Stop::Signal(_)))
    }
}
