//! `Watcher`: the thread that lists the kernel's connections, adds them up, and hands over reports.
//!
//! Contract: a report that is handed over was saved before, so that a start after a `kill -9` goes on
//! from there. Nothing here waits for the network.

use std::fmt::Display;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::conntrack;
use kernel::netlink::Netlink;
use stallproof::watchdog::Severity;
use stallproof::{Tasks, Watchdog};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};
use traffic::conversations::{Moment, Report};

use crate::applications::Applications;
use crate::conntrack_source::{self, ConntrackSource};
use crate::enforcement::Denials;
use crate::metrics::Metrics;
use crate::sensor::{ConversationKey, Limits, Sensor};
use crate::socket_source::SocketSource;
use crate::source::Source;
use crate::{Connections, LocalPods, SessionEvent};

/// How long to wait for connections to end before looking at what else there is to do.
const WAKE: Duration = Duration::from_millis(200);
/// Until a controller says otherwise.
const INTERVAL: Duration = Duration::from_secs(5);
/// A controller hears from us at least so often, half the time that it allows.
const QUIET: Duration = Duration::from_secs(30);
/// Listing takes no more than this part of the time.
const SHARE: u32 = 20;
/// After ends were lost the table is listed, but not more often than this.
const SOONEST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) node: Arc<str>,
    /// Where the sensor is saved.
    pub(super) file: PathBuf,
    pub(super) connections: Connections,
    pub(super) pods: Option<Arc<dyn LocalPods>>,
    /// What this node's policies stop.
    pub(super) denials: Option<Denials>,
    /// What first bytes tell of conversations, where they are looked at.
    pub(super) applications: Option<Applications>,
}

/// Why connections cannot be observed here.
#[derive(Debug, thiserror::Error)]
pub enum CannotObserve {
    #[error(transparent)]
    Accounts(#[from] conntrack::AccountingError),
    #[error("connections cannot be observed: {doing}")]
    Denied { doing: String, source: io::Error },
}

impl CannotObserve {
    pub(crate) fn denied(doing: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Denied { doing: doing.to_string(), source }
    }
}

pub(super) struct Watcher {
    settings: Settings,
    metrics: Metrics,
    place: String,
    sensor: Sensor,
    source: Box<dyn Source>,
    netlink: Netlink,
    interval: Duration,
    connected: bool,
    /// The session has the report that is under way.
    posted: bool,
    list_at: Instant,
    listed_at: Instant,
    report_at: Instant,
    reported_at: Instant,
    /// What is wrong now, to be said once.
    wrong: Option<String>,
}

impl Watcher {
    /// Everything that could be refused is done here, before the agent says that it is up.
    pub(super) fn open(settings: Settings, metrics: Metrics) -> Result<Self, CannotObserve> {
        let denied = CannotObserve::denied;
        let place = conntrack_source::name().map_err(denied("which boot this is"))?;
        let (source, place): (Box<dyn Source>, _) = match settings.connections {
            Connections::Tracked { everywhere } => {
                (Box::new(ConntrackSource::open(everywhere)?), place)
            }
            Connections::OwnSockets => {
                let source = SocketSource::open().map_err(denied("no socket that lists others"))?;
                (Box::new(source), format!("sockets {place}"))
            }
        };
        let netlink = Netlink::open().map_err(denied("no netlink socket"))?;
        let saved = match fs::read(&settings.file) {
            Ok(saved) => Some(saved),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(CannotObserve::denied(settings.file.display())(error)),
        };
        let (node, limits) = (Arc::clone(&settings.node), Limits::default());
        let mut sensor = Sensor::begin(node, &place, saved.as_deref(), limits, Moment::now());
        if saved.is_none() && settings.connections == Connections::OwnSockets {
            sensor.count_whole();
        }
        if settings.applications.is_none() {
            sensor.forget_names();
        }
        let now = Instant::now();
        Ok(Self {
            settings,
            metrics,
            place,
            sensor,
            source,
            netlink,
            interval: INTERVAL,
            connected: false,
            posted: false,
            list_at: now,
            listed_at: now,
            report_at: now,
            reported_at: now,
            wrong: None,
        })
    }

    /// Runs on a thread of its own until `tasks` stop; they wait for it.
    pub(super) fn start(
        mut self,
        reports: mpsc::Sender<Arc<Report>>,
        mut events: mpsc::Receiver<SessionEvent>,
        watchdog: &Watchdog,
        tasks: &Tasks,
    ) -> io::Result<()> {
        let beacon = watchdog.beacon("sense", Severity::Noted);
        let stop = tasks.stopping();
        let (ended, end) = oneshot::channel::<()>();
        std::thread::Builder::new().name("sense".to_owned()).spawn(move || {
            loop {
                let stopped = stop.is_stopped();
                let last = loop {
                    match events.try_recv() {
                        Ok(event) => self.hear(event),
                        Err(TryRecvError::Empty) => break false,
                        // Nobody will be told any more.
                        Err(TryRecvError::Disconnected) => break true,
                    }
                };
                if stopped || last {
                    break;
                }
                let owed = beacon.owe();
                let looked = self.look();
                self.say(looked);
                self.tell(&reports);
                drop(owed);
            }
            self.leave();
            let _ = ended.send(());
        })?;
        tasks.spawn("sense", async move {
            if end.await.is_err() {
                error!("connections are no longer observed: the thread has panicked");
            }
        });
        Ok(())
    }

    fn hear(&mut self, event: SessionEvent) {
        let now = Moment::now();
        match event {
            SessionEvent::Joining { answer } => {
                // If nobody waits for it any more, it is asked again.
                let _ = answer.send(self.sensor.joining(now));
            }
            SessionEvent::Outdated { known } => self.sensor.outdated(known, now),
            SessionEvent::Joined { epoch, interval } => {
                self.sensor.joined(epoch, now);
                (self.connected, self.posted, self.interval) = (true, false, interval);
                (self.list_at, self.report_at) = (Instant::now(), Instant::now());
            }
            SessionEvent::Disconnected => (self.connected, self.posted) = (false, false),
            SessionEvent::Counted { sequence, durable, interval } => {
                if self.sensor.counted(sequence, durable, now) {
                    self.report_at = Instant::now();
                }
                self.interval = interval;
            }
            SessionEvent::Rules(rules) => self.sensor.set_rules(rules),
        }
    }

    fn look(&mut self) -> io::Result<()> {
        self.read(WAKE)?;
        self.count_denials();
        self.name_conversations();
        if Instant::now() < self.list_at {
            return Ok(());
        }
        // Whatever comes of it, not again at once.
        self.list_at = Instant::now() + self.interval;
        if let Some(pods) = &self.settings.pods {
            let own =
                conntrack_source::own(&mut self.netlink, &**pods).map_err(io::Error::other)?;
            self.sensor.set_scope(Some(own));
        }
        let (began, now) = (Instant::now(), Moment::now());
        let Self { source, sensor, .. } = self;
        if source.list(&mut |flow| sensor.observe(flow, now))? {
            sensor.listed();
        }
        let took = began.elapsed();
        self.metrics.listing.observe(took);
        self.listed_at = Instant::now();
        self.list_at = self.listed_at + self.interval.max(took * SHARE);
        self.read(Duration::ZERO)?;
        self.metrics.show(&self.sensor.counters());
        if !self.connected {
            self.save();
        }
        Ok(())
    }

    /// What was stopped is no conversation: the kernel does not track it. What was only told of is one, and a
    /// controller judges that itself.
    fn count_denials(&mut self) {
        let Some(denials) = &self.settings.denials else { return };
        let now = Moment::now();
        for denial in denials.take().iter().filter(|it| it.rule.verdict.is_deny()) {
            let key = ConversationKey {
                client: denial.source,
                server: denial.destination,
                port: denial.port,
                protocol: denial.protocol,
            };
            let rule = denial.rule.in_words().unwrap_or_default().into();
            self.sensor.denied(key, &rule, 1, now);
        }
    }

    fn name_conversations(&mut self) {
        let Some(applications) = &self.settings.applications else { return };
        let now = Moment::now();
        for named in applications.take() {
            self.sensor.name(named.conversation, named.application, now);
        }
    }

    fn read(&mut self, wait: Duration) -> io::Result<()> {
        let Self { source, sensor, .. } = self;
        let lost = source.ends(wait, &mut |flow| sensor.observe(flow, Moment::now()))?;
        if lost {
            self.metrics.overruns.inc();
            self.sensor.overrun();
            self.list_at = self.list_at.min(self.listed_at + SOONEST);
        }
        Ok(())
    }

    fn tell(&mut self, reports: &mpsc::Sender<Arc<Report>>) {
        if !self.connected {
            return;
        }
        if self.sensor.outstanding().is_none() && Instant::now() >= self.report_at {
            self.report_at = Instant::now() + self.interval;
            let quiet = self.reported_at.elapsed() >= QUIET;
            if self.sensor.report(quiet, Moment::now()).is_some() {
                self.save();
                (self.reported_at, self.posted) = (Instant::now(), false);
            }
        }
        let report = self.sensor.outstanding().filter(|_| !self.posted).cloned();
        if let Some(report) = report {
            // No room: the session has not looked yet.
            self.posted = reports.try_send(report).is_ok();
        }
    }

    /// The last look: what is saved is where the next start goes on.
    fn leave(&mut self) {
        self.list_at = Instant::now();
        if let Err(error) = self.look() {
            warn!(%error, "connections cannot be observed");
        }
        self.save();
        self.source.close();
    }

    fn save(&mut self) {
        let saved = self.sensor.save(&self.place);
        if let Err(error) = write(&self.settings.file, &saved) {
            let file = self.settings.file.display();
            warn!(%file, %error, "what was seen is not saved: a kill would lose some of it");
            // What it has is too old soon: what was told since would be told anew, and counted twice.
            let _ = fs::remove_file(&self.settings.file);
        }
    }

    /// Once when it begins and once when it is over.
    fn say(&mut self, looked: io::Result<()>) {
        match looked {
            Ok(()) => {
                if self.wrong.take().is_some() {
                    info!("connections are observed again");
                }
            }
            Err(error) => {
                let wrong = stallproof::sentence(&error);
                if self.wrong.as_ref() != Some(&wrong) {
                    warn!(error = wrong, "connections cannot be observed");
                    self.wrong = Some(wrong);
                }
                std::thread::sleep(WAKE);
            }
        }
    }
}

/// Whole or not at all, as far as this process can be killed; see `Sensor::save` for why no more.
fn write(file: &std::path::Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let draft = file.with_extension("new");
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).mode(0o600);
    open.open(&draft)?.write_all(bytes)?;
    fs::rename(&draft, file)
}

#[cfg(test)]
mod tests;
