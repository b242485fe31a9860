//! `Admission`: reviews in, answers out, whatever else goes on.
//!
//! ```text
//! store ──watch──► Rules ──► Snapshot ─┐
//! cluster ─watch─► ClusterFacts ──► Snapshot ─┼─► review ──► answer
//!                  RecentOwners ◄─┐  Snapshot ─┘      │
//!                  Audit ◄┴── one writer ◄── bounded, never waited for
//! ```
//!
//! Contract: `review` takes no lock, does no I/O and waits for nothing. Before the rules have been
//! read it decides nothing, and says so: the API server's `failurePolicy` does.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use objects::kinds::AdmissionRule;
use objects::{Objects, Within};
use prometheus_client::registry::Registry;
use stallproof::line_log::LogPosition;
use stallproof::readiness::Component;
use stallproof::snapshot::{Changes, View};
use stallproof::{Deadline, Map, Readiness, Snapshot, Tasks};
use tokio::sync::mpsc;

use super::audit::files::{AuditFiles, AuditReader};
use super::audit::{Audit, AuditKey, AuditWriter, Decided, Line, Outcome};
use super::cluster_facts::ClusterFacts;
use super::compile::Settings;
use super::decide::{Decision, Hit, decide};
use super::facts::{Facts, Owner};
use super::images::{ImageFacts, Images};
use super::metrics::Metrics;
use super::recent_owners::{OwnerRecorder, RecentOwners, ReviewedOwner};
use super::request::{Malformed, Request, response};
use super::rules::{Compiling, Rules};
use super::running::{Judge, RunningAudit};
use super::unreadable;

/// The cluster that the store is in.
pub const LOCAL_CLUSTER: &str = "local";

/// Notes that wait to be written down: a flood of ten thousand reviews at once fits, at about half a
/// kilobyte each.
const NOTES: usize = 16_384;
/// How many are taken together before readers are shown.
const BATCH: usize = 512;
/// How often entries are let go whose time is over.
const SWEEP: Duration = Duration::from_secs(15);
/// How often what has changed is handed to the files.
const FLUSH: Duration = Duration::from_secs(1);

/// Why a review was not decided. The API server's `failurePolicy` says what then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    #[error("the rules have not been read yet")]
    NotReady,
    #[error("what is known of images has not been read yet")]
    ImagesNotReady,
    #[error("no cluster {0:?} has its reviews decided here")]
    NoSuchCluster(String),
    /// There is no one to answer to.
    #[error("{0}")]
    Malformed(String),
    /// No rule refuses anything, so that this is not refused either.
    #[error("{0}")]
    Unread(String),
}

/// The judge. Clones share it.
#[derive(Clone, Debug)]
pub struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    /// Namespaces that no rule looks into.
    exempt: Vec<String>,
    /// Written by the watch, read by every review.
    rules: Snapshot<Rules>,
    /// Written when a cluster is first followed, read by every review.
    clusters: Snapshot<Map<String, ClusterFacts>>,
    /// Follows what is known of images; each cluster's facts have its snapshot.
    images: ImageFacts,
    /// Written by the one writer, read by every review.
    seen: Snapshot<RecentOwners>,
    /// Written by the one writer, read by whoever looks.
    audit: Snapshot<Audit>,
    /// What runs against the rules, by cluster. Written by the leader, read by whoever looks.
    running: Snapshot<Map<String, RunningAudit>>,
    notes: mpsc::Sender<WriterMessage>,
    /// Where the audit is kept, from [`Admission::keep_audit`] on.
    files: OnceLock<AuditReader>,
    metrics: Metrics,
}

/// What is written down after a decision.
#[derive(Debug)]
enum WriterMessage {
    Decided(AuditKey, Decided),
    Owner(ReviewedOwner),
    Keep(AuditFiles),
}

impl Admission {
    /// Follows the rules of the store.
    pub fn start(
        objects: &Objects,
        settings: Settings,
        exempt: Vec<String>,
        readiness: &Readiness,
        tasks: &Tasks,
    ) -> Self {
        let (notes, taken) = mpsc::channel(NOTES);
        let images = ImageFacts::start(settings.images, tasks);
        images.follow_store(objects, tasks);
        let local = ClusterFacts::new(images.of_cluster(LOCAL_CLUSTER));
        let admission = Self(Arc::new(Inner {
            settings,
            exempt,
            images,
            rules: Snapshot::default(),
            clusters: Snapshot::new(Map::unit(LOCAL_CLUSTER.into(), local)),
            seen: Snapshot::default(),
            audit: Snapshot::default(),
            running: Snapshot::new(Map::new()),
            notes,
            files: OnceLock::new(),
            metrics: Metrics::default(),
        }));
        let ready = readiness.announce("admission");
        ready.not_ready("admission rules are being read");
        let following = admission.clone().follow(objects.clone(), ready, tasks.clone());
        tasks.spawn_essential("admission-rules", following);
        tasks.spawn_essential("admission-audit", admission.clone().write(taken, tasks.clone()));
        admission
    }

    /// Keeps the audit in files in `dir`, and goes on with what is there. To be called once, at the start.
    pub fn keep_audit(&self, dir: &Path, tasks: &Tasks) {
        let files = AuditFiles::start(dir, tasks);
        if self.0.files.set(files.reader.clone()).is_ok() {
            self.hand_over(WriterMessage::Keep(files));
        }
    }

    /// Decisions that are kept and `wanted`, the oldest first, from where an earlier part ended.
    pub async fn export(
        &self,
        after: Option<LogPosition>,
        deadline: Deadline,
        wanted: impl Fn(&Line) -> bool + Send + 'static,
    ) -> Result<(Vec<Line>, Option<LogPosition>), String> {
        match self.0.files.get() {
            Some(files) => files.export(after, deadline, wanted).await,
            None => Ok((Vec::new(), None)),
        }
    }

    /// Lines that were lost to the files: the disk was too slow.
    pub fn not_kept(&self) -> u64 {
        self.0.metrics.all_not_kept()
    }

    /// Decides reviews of this cluster too, with what `objects`, its own store, tells of it.
    pub fn follow_cluster(&self, name: &str, objects: &Objects, tasks: &Tasks) {
        let known = ClusterFacts::new(self.0.images.follow_cluster(name, objects, tasks));
        known.follow(objects, tasks);
        self.0.clusters.update(|clusters| {
            clusters.insert(name.into(), known);
            true
        });
    }

    /// The answer to an `AdmissionReview` of a cluster.
    pub fn review(&self, cluster: &str, bytes: &[u8]) -> Result<Vec<u8>, Undecided> {
        let Inner { settings, exempt, metrics, .. } = &*self.0;
        let began = Instant::now();
        let rules = self.0.rules.load();
        if !rules.is_told() {
            return Err(Undecided::NotReady);
        }
        let found = self.0.clusters.read(|clusters| clusters.get(cluster).cloned());
        let Some(known) = found else {
            return Err(Undecided::NoSuchCluster(cluster.to_owned()));
        };
        let mut request = match Request::review(bytes, settings) {
            Ok(request) => request,
            Err(broken) => {
                metrics.malformed();
                return refuse(&broken);
            }
        };
        if exempt.contains(&request.namespace) {
            request.pass("its namespace is exempt");
        }
        let facts = known.now(&self.0.seen);
        // What was not read yet is not "nothing known": a rule on it would let in what it refuses.
        if rules.program.asks_scans() && !facts.images().is_some_and(Images::is_told) {
            return Err(Undecided::ImagesNotReady);
        }
        let decision = decide(&rules.program, &request, &facts);
        let answer = response(Ok((&request, &decision))).to_string().into_bytes();
        metrics.decided(outcome(&decision), began.elapsed());
        self.note(cluster, request, &decision, &facts);
        Ok(answer)
    }

    /// The answer to a review of which only the beginning was read, and why: a refusal wherever rules
    /// refuse, because nobody knows what they would have said.
    pub fn refuse_unread(
        &self,
        cluster: &str,
        beginning: &[u8],
        why: &str,
    ) -> Result<Vec<u8>, Undecided> {
        let rules = self.0.rules.load();
        if !rules.is_told() {
            return Err(Undecided::NotReady);
        }
        if !self.knows(cluster) {
            return Err(Undecided::NoSuchCluster(cluster.to_owned()));
        }
        self.0.metrics.malformed();
        if !self.0.settings.protect && !rules.program.protects() {
            return Err(Undecided::Unread(why.to_owned()));
        }
        let (uid, version) = unreadable::asked_by(beginning);
        refuse(&Malformed { uid, version, why: why.to_owned() })
    }

    /// Whether reviews of this cluster are decided here.
    pub fn knows(&self, cluster: &str) -> bool {
        self.0.clusters.read(|clusters| clusters.contains_key(cluster))
    }

    /// What is known of images in a cluster whose reviews are decided here, now.
    pub fn images(&self, cluster: &str) -> Option<View<Images>> {
        self.0.clusters.read(|clusters| Some(clusters.get(cluster)?.images.load()))
    }

    /// Tells when what is known of images in a cluster changes.
    pub fn image_changes(&self, cluster: &str) -> Option<Changes<Images>> {
        self.0.clusters.read(|clusters| Some(clusters.get(cluster)?.images.subscribe()))
    }

    /// What runs against the rules, by cluster. Only the leader looks.
    pub fn running(&self) -> &Snapshot<Map<String, RunningAudit>> {
        &self.0.running
    }

    /// What a cluster's pods are judged by, now; none before everything that counts has been read.
    pub(super) fn judge(&self, cluster: &str) -> Option<Judge<impl Facts + use<>>> {
        let known = self.0.clusters.read(|clusters| clusters.get(cluster).cloned())?;
        let (rules, facts) = (self.0.rules.load(), known.now(&self.0.seen));
        let told = !rules.program.asks_scans() || facts.images().is_some_and(Images::is_told);
        let Inner { settings, exempt, .. } = &*self.0;
        let (settings, exempt) = (settings.clone(), exempt.clone());
        (rules.is_told() && told).then_some(Judge { rules, settings, exempt, facts })
    }

    /// How reviews are decided.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The rules, now.
    pub fn rules(&self) -> View<Rules> {
        self.0.rules.load()
    }

    pub fn rule_changes(&self) -> Changes<Rules> {
        self.0.rules.subscribe()
    }

    pub fn audit(&self) -> View<Audit> {
        self.0.audit.load()
    }

    pub fn audit_changes(&self) -> Changes<Audit> {
        self.0.audit.subscribe()
    }

    /// Decisions that the audit was too slow to take.
    pub fn dropped(&self) -> u64 {
        self.0.metrics.drops()
    }

    pub fn register(&self, registry: &mut Registry) {
        self.0.metrics.register(registry);
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    async fn follow(self, objects: Objects, ready: Component, tasks: Tasks) {
        let stop = tasks.stopping();
        let settings = &self.0.settings;
        let mut watch = objects.watch::<AdmissionRule>(Within::default());
        while let Some(Some(event)) = stop.bound(watch.next()).await {
            self.0.rules.update(|rules| event.apply_to(&mut Compiling(rules, settings)));
            self.0.metrics.rules(&self.0.rules.load());
            ready.ready();
        }
    }

    /// Hands over what is to be written down; what there is no room for is counted.
    fn note(&self, cluster: &str, request: Request, decision: &Decision<'_>, facts: &dyn Facts) {
        if decision.passed.is_some() {
            return;
        }
        let told = |outcome, hit: Option<&Hit<'_>>| {
            let subject = AuditKey {
                outcome,
                cluster: cluster.to_owned(),
                namespace: request.namespace.clone(),
                owner: owner_of(&request, facts),
                image: hit
                    .map_or_else(|| request.images(), |hit| hit.image.clone().unwrap_or_default()),
                rule: hit.map(|hit| hit.rule.to_owned()),
                dry_run: request.dry_run,
            };
            let decided = Decided {
                object: format!("{}/{}", request.kind, request.name),
                container: hit.and_then(|hit| hit.container.clone()),
                user: request.user.clone(),
                why: hit.map_or_else(|| decision.sentence(), |hit| hit.criteria.join("; ")),
            };
            WriterMessage::Decided(subject, decided)
        };
        for hit in &decision.monitored {
            self.hand_over(told(Outcome::Monitored, Some(hit)));
        }
        let verdict = if decision.allowed { Outcome::Allowed } else { Outcome::Denied };
        if decision.decided.is_some() || decision.monitored.is_empty() {
            self.hand_over(told(verdict, decision.decided.as_ref()));
        }
        if decision.allowed
            && !request.dry_run
            && let Some(sighting) = request.into_sighting()
        {
            self.hand_over(WriterMessage::Owner(sighting));
        }
    }

    fn hand_over(&self, note: WriterMessage) {
        if self.0.notes.try_send(note).is_err() {
            self.0.metrics.dropped();
        }
    }

    /// The one writer.
    async fn write(self, mut taken: mpsc::Receiver<WriterMessage>, tasks: Tasks) {
        let stop = tasks.stopping();
        let (mut book, mut sightings) = (AuditWriter::default(), OwnerRecorder::default());
        let mut notes = Vec::with_capacity(BATCH);
        let mut files: Option<AuditFiles> = None;
        let mut flushed = tokio::time::Instant::now();
        loop {
            let wait = if files.is_some() { FLUSH } else { SWEEP };
            let some = tokio::time::timeout(wait, taken.recv_many(&mut notes, BATCH));
            let Some(some) = stop.bound(some).await else {
                if let Some(files) = files {
                    files.finish(&book.unwritten()).await;
                }
                return;
            };
            let now = tokio::time::Instant::now();
            let (mut written, mut sighted) = (false, sightings.expire(now));
            if some.is_ok() {
                let at = Timestamp::now();
                for note in notes.drain(..) {
                    match note {
                        WriterMessage::Decided(subject, decided) => {
                            book.write(subject, decided, at);
                            written = true;
                        }
                        WriterMessage::Owner(sighting) => {
                            sightings.take(sighting, now);
                            sighted = true;
                        }
                        WriterMessage::Keep(kept) => {
                            book.restore(kept.reader.load().await);
                            files = Some(kept);
                            written = true;
                        }
                    }
                }
            }
            if let Some(files) = &files
                && flushed.elapsed() >= FLUSH
            {
                flushed = now;
                book.flush(files);
                self.0.metrics.not_kept(book.not_written());
            }
            if sighted {
                let seen = sightings.seen();
                self.0.seen.update(|shown| {
                    *shown = seen;
                    true
                });
            }
            if written {
                let audit = book.audit();
                self.0.metrics.forgotten(audit.forgotten);
                self.0.audit.update(|shown| {
                    *shown = audit;
                    true
                });
            }
        }
    }
}

fn refuse(broken: &Malformed) -> Result<Vec<u8>, Undecided> {
    // An answer must name the request; an API server takes one that does not for a failed call.
    if broken.uid.is_empty() {
        return Err(Undecided::Malformed(broken.to_string()));
    }
    Ok(response(Err(broken)).to_string().into_bytes())
}

fn outcome(decision: &Decision<'_>) -> Outcome {
    match (decision.allowed, decision.monitored.is_empty()) {
        (false, _) => Outcome::Denied,
        (true, false) => Outcome::Monitored,
        (true, true) => Outcome::Allowed,
    }
}

fn owner_of(request: &Request, facts: &dyn Facts) -> String {
    if let Some(Owner { kind, name, .. }) = request.root(facts) {
        return format!("{kind}/{name}");
    }
    match &request.controller {
        Some((kind, name)) => format!("{kind}/{name}"),
        None => format!("{}/{}", request.kind, request.name),
    }
}

#[cfg(test)]
mod tests;
