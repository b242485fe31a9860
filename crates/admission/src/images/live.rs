//! What is known of images while a process runs, from every source, published for reviews.
//!
//! ```text
//! ImageReport, VulnerabilityException (store) ─┐ of every cluster
//! trivy-operator's reports (each cluster) ─────┴──► State ──► Images of each cluster (Snapshot)
//! ```
//!
//! Contract:
//! - A review reads a published snapshot. Watches write under a lock that no review takes, and one task
//!   puts the snapshots together, at most every [`GATHER`].
//! - What a cluster's own reports say counts in that cluster alone: who may write there decides nothing
//!   elsewhere. What was imported counts everywhere.
//! - The last good report of an image holds while it is scanned again, and for [`ImageLimits::keep_gone`]
//!   after its source has withdrawn it: trivy-operator deletes a report with its workload.
//! - There are at most as many reports and findings as [`ImageLimits`] says; the oldest make room, and are
//!   counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DynamicObject;
use objects::kinds::{ImageReportSpec, ImageTrustRoot, VulnerabilityException};
use objects::{Event, Id, Kind, Objects, UntypedKind, Within};
use parking_lot::Mutex;
use pki::sigstore::{ImageSignature, TrustRoot, UnixTime, Verifier};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;
use serde_json::Value;
use stallproof::{Snapshot, Tasks};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

use super::exceptions::Exception;
use super::pack::{self, Packed};
use super::read::Report;
use super::record::{Findings, KnownReport};
use super::tables::{Interner, Tables};
use super::vex::{Statement, Statements};
use super::{Images, silenced};

/// How long changes are gathered before snapshots are put together again.
const GATHER: Duration = Duration::from_millis(200);
/// How often what is too old is let go.
const SWEEP: Duration = Duration::from_secs(60);
/// How long a source is waited for that does not tell what it has.
const PATIENCE: Duration = Duration::from_secs(10);
/// Reports of scanners are some hundred kilobytes each: a page of them is a few megabytes.
const PAGE: u32 = 20;
/// The tables are written anew when they have grown to twice their size, and by this much.
const GROWTH: usize = 65_536;

const IMAGE_REPORT: UntypedKind = UntypedKind {
    group: "fairlead.dev",
    version: "v1alpha1",
    kind: "ImageReport",
    plural: "imagereports",
    namespaced: false,
};

const fn trivy(kind: &'static str, plural: &'static str) -> UntypedKind {
    let (group, version) = ("aquasecurity.github.io", "v1alpha1");
    UntypedKind { group, version, kind, plural, namespaced: true }
}

/// What trivy-operator says of images.
const TRIVY: [UntypedKind; 3] = [
    trivy("VulnerabilityReport", "vulnerabilityreports"),
    trivy("SbomReport", "sbomreports"),
    trivy("ExposedSecretReport", "exposedsecretreports"),
];

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// Reports, of every source together.
    pub reports: usize,
    /// Findings, of all reports together; each takes about 21 bytes.
    pub findings: usize,
    /// How long a report counts that its source has withdrawn, in seconds.
    pub keep_gone: i64,
    /// How old a report may be, in seconds; none: any age.
    pub scan_age: Option<i64>,
}

impl Default for ImageLimits {
    fn default() -> Self {
        const WEEK: i64 = 7 * 24 * 60 * 60;
        Self { reports: 30_000, findings: 8_000_000, keep_gone: WEEK, scan_age: None }
    }
}

/// Follows every source. Clones share what they know.
#[derive(Clone, Debug)]
pub(crate) struct ImageFacts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: ImageLimits,
    /// Written by watches, for as long as it takes to put one report in, and read by the one task that
    /// publishes. No review takes it.
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    interner: Interner,
    epoch: Arc<Epoch>,
    /// Entries of the tables when they were last written anew.
    entries: usize,
    imported: Reports,
    statements: BTreeMap<Id, Vec<Statement>>,
    /// The same, found by names, as of the last time that they changed.
    by_name: Arc<Statements>,
    exceptions: BTreeMap<String, Exception>,
    /// Signatures of images, by the object that keeps them: the digest, and each signature.
    signatures: BTreeMap<Id, (String, Vec<ImageSignature>)>,
    trusted: BTreeMap<String, Trusted>,
    /// What the signatures of each image satisfy: verified when one of the two above changes.
    verified: Vec<Arc<KnownReport>>,
    signatures_changed: bool,
    clusters: BTreeMap<String, Cluster>,
    /// Sources that have not told what they have: a cluster, or the store, and a kind; and until when they
    /// are waited for.
    awaited: BTreeMap<(String, &'static str), Instant>,
    /// Whether everything is to be put together again, rather than the clusters that changed.
    all_changed: bool,
    statements_changed: bool,
    left_out: usize,
}

/// Reports by kind and name.
type Reports = BTreeMap<(&'static str, Id), Held>;

#[derive(Debug, Default)]
struct Cluster {
    reports: Reports,
    images: Snapshot<Images>,
    changed: bool,
}

#[derive(Clone, Debug)]
struct Held {
    report: Arc<KnownReport>,
    /// When its source withdrew it, in seconds.
    gone: Option<i64>,
}

/// One generation of the tables.
#[derive(Debug, Default)]
struct Epoch {
    /// The tables as they were, once they have been written anew: for reports that were still on their way.
    retired: OnceLock<Tables>,
}

/// What a watch keeps of an object.
#[derive(Debug)]
enum Kept {
    Report(Arc<Epoch>, Arc<KnownReport>),
    Statements(Vec<Statement>),
    Signatures(String, Vec<ImageSignature>),
}

/// A root of trust and its verifiers, by their names.
type Trusted = (TrustRoot, Vec<(String, Verifier)>);

fn now() -> i64 {
    Timestamp::now().as_second()
}

impl ImageFacts {
    /// Begins with nothing known; the snapshots are put together by a task of `tasks`.
    pub(crate) fn start(limits: ImageLimits, tasks: &Tasks) -> Self {
        let (state, changed) = (Mutex::new(State::default()), Notify::new());
        let facts = Self(Arc::new(Shared { limits, state, changed }));
        tasks.spawn_essential("admission-images", facts.clone().publish(tasks.clone()));
        facts
    }

    /// Follows what was imported.
    pub(crate) fn follow_store(&self, objects: &Objects, tasks: &Tasks) {
        let facts = self.clone();
        let keep = move |object: DynamicObject| facts.unpacked(&object);
        self.follow(None, &IMAGE_REPORT, objects, tasks, keep);
        self.0.state.lock().wait_for((String::new(), VulnerabilityException::NAME));
        self.0.state.lock().wait_for((String::new(), ImageTrustRoot::NAME));
        let (facts, stop) = (self.clone(), tasks.stopping());
        let mut watch = objects.watch::<ImageTrustRoot>(Within::default());
        tasks.spawn("admission watches ImageTrustRoot", async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                facts.take_roots(event);
            }
        });
        let (facts, stop) = (self.clone(), tasks.stopping());
        let mut watch = objects.watch::<VulnerabilityException>(Within::default());
        tasks.spawn("admission watches VulnerabilityException", async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                facts.take_exceptions(event);
            }
        });
    }

    /// Follows a cluster's own scanner. What it tells counts in this cluster alone.
    pub(crate) fn follow_cluster(
        &self,
        name: &str,
        objects: &Objects,
        tasks: &Tasks,
    ) -> Snapshot<Images> {
        for kind in &TRIVY {
            let facts = self.clone();
            let keep = move |object: DynamicObject| facts.read(object);
            self.follow(Some(name), kind, objects, tasks, keep);
        }
        self.of_cluster(name)
    }

    /// What is known in a cluster.
    pub(crate) fn of_cluster(&self, name: &str) -> Snapshot<Images> {
        let mut state = self.0.state.lock();
        let cluster = state.clusters.entry(name.to_owned()).or_default();
        cluster.changed = true;
        let images = cluster.images.clone();
        drop(state);
        self.0.changed.notify_one();
        images
    }

    fn follow(
        &self,
        cluster: Option<&str>,
        kind: &'static UntypedKind,
        objects: &Objects,
        tasks: &Tasks,
        keep: impl Fn(DynamicObject) -> Option<Kept> + Send + Sync + 'static,
    ) {
        let cluster = cluster.map(str::to_owned);
        let source = (cluster.clone().unwrap_or_default(), kind.kind);
        self.0.state.lock().wait_for(source.clone());
        let (facts, stop) = (self.clone(), tasks.stopping());
        let mut watch = objects.watch_kept(kind, PAGE, keep);
        tasks.spawn(format!("admission watches {}", kind.kind), async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                facts.take(cluster.as_deref(), kind.kind, event);
            }
            // Who is no longer followed is no longer waited for.
            facts.0.state.lock().awaited.remove(&source);
        });
    }

    /// What is kept of an object of trivy-operator's.
    fn read(&self, object: DynamicObject) -> Option<Kept> {
        let id = Id::of(&object);
        let DynamicObject { types, mut data, .. } = object;
        if let (Some(types), Some(fields)) = (types, data.as_object_mut()) {
            fields.insert("apiVersion".to_owned(), types.api_version.into());
            fields.insert("kind".to_owned(), types.kind.into());
        }
        let now = now();
        match super::read::report(&data, now) {
            Ok(report) => Some(self.known(pack::in_time(report, now))),
            Err(why) => {
                let kind = data["kind"].as_str().unwrap_or_default();
                warn!(kind, %id, %why, "a report on an image cannot be read and is left out");
                None
            }
        }
    }

    /// What is kept of an `ImageReport`.
    fn unpacked(&self, object: &DynamicObject) -> Option<Kept> {
        let id = Id::of(object);
        let spec = ImageReportSpec::deserialize(object.data.get("spec").unwrap_or(&Value::Null));
        let packed = spec.map_err(|error| error.to_string());
        let packed = packed.and_then(|spec| pack::unpack(&spec).map_err(|why| why.to_string()));
        match packed {
            Ok(Packed::Report(report)) => Some(self.known(pack::in_time(*report, now()))),
            Ok(Packed::Statements(statements)) => Some(Kept::Statements(statements)),
            Ok(Packed::Signatures(digest, documents)) => {
                let read = |document: &String| {
                    ImageSignature::of_json(document)
                        .inspect_err(|why| warn!(%id, %why, "a signature cannot be read"))
                        .ok()
                };
                Some(Kept::Signatures(digest, documents.iter().filter_map(read).collect()))
            }
            Err(why) => {
                warn!(%id, why, "an ImageReport cannot be read and is left out");
                None
            }
        }
    }

    fn known(&self, report: Report) -> Kept {
        let mut state = self.0.state.lock();
        let report = Arc::new(KnownReport::new(report, &mut state.interner));
        Kept::Report(Arc::clone(&state.epoch), report)
    }

    fn take(&self, cluster: Option<&str>, kind: &'static str, event: Event<(Id, Option<Kept>)>) {
        let mut state = self.0.state.lock();
        state.awaited.remove(&(cluster.unwrap_or_default().to_owned(), kind));
        match event {
            Event::Restarted(all) => {
                let there: BTreeSet<Id> = all.iter().map(|(id, _)| id.clone()).collect();
                let gone: Vec<Id> = state
                    .of(cluster)
                    .iter()
                    .filter(|((of, id), held)| {
                        *of == kind && held.gone.is_none() && !there.contains(id)
                    })
                    .map(|((_, id), _)| id.clone())
                    .collect();
                let others = state.statements.keys().chain(state.signatures.keys());
                let silent = others.filter(|id| !there.contains(*id)).cloned();
                let silent: Vec<Id> = if cluster.is_none() { silent.collect() } else { Vec::new() };
                for id in gone.iter().chain(&silent) {
                    state.withdraw(cluster, kind, id);
                }
                for (id, kept) in all {
                    state.put(cluster, kind, id, kept);
                }
            }
            Event::Applied((id, kept)) => state.put(cluster, kind, id, kept),
            Event::Deleted((id, _)) => state.withdraw(cluster, kind, &id),
        }
        state.bound(&self.0.limits);
        drop(state);
        self.0.changed.notify_one();
    }

    fn take_exceptions(&self, event: Event<VulnerabilityException>) {
        // The store's check is not the API server's: one that is not right takes nothing out.
        let read = |exception: VulnerabilityException| {
            let name = exception.name_any();
            exception.check().is_ok().then(|| (name, Exception::new(&exception.spec)))
        };
        let mut state = self.0.state.lock();
        state.awaited.remove(&(String::new(), VulnerabilityException::NAME));
        match event {
            Event::Restarted(all) => state.exceptions = all.into_iter().filter_map(read).collect(),
            Event::Applied(exception) => {
                state.exceptions.remove(&exception.name_any());
                state.exceptions.extend(read(exception));
            }
            Event::Deleted(exception) => drop(state.exceptions.remove(&exception.name_any())),
        }
        state.all_changed = true;
        drop(state);
        self.0.changed.notify_one();
    }

    fn take_roots(&self, event: Event<ImageTrustRoot>) {
        let read = |root: ImageTrustRoot| {
            let name = root.name_any();
            let problems = root.check().err().map(|problems| problems.to_string());
            let trusted = match problems {
                Some(problems) => Err(problems),
                None => TrustRoot::of_spec(&root.spec).map_err(|why| why.to_string()),
            };
            // One that is not right is satisfied by nobody.
            trusted
                .inspect_err(|why| warn!(root = %name, why, "an ImageTrustRoot is not right"))
                .ok()
                .map(|trusted| (name, trusted))
        };
        let mut state = self.0.state.lock();
        state.awaited.remove(&(String::new(), ImageTrustRoot::NAME));
        match event {
            Event::Restarted(all) => state.trusted = all.into_iter().filter_map(read).collect(),
            Event::Applied(root) => {
                state.trusted.remove(&root.name_any());
                state.trusted.extend(read(root));
            }
            Event::Deleted(root) => drop(state.trusted.remove(&root.name_any())),
        }
        (state.all_changed, state.signatures_changed) = (true, true);
        drop(state);
        self.0.changed.notify_one();
    }

    /// The one task that publishes.
    async fn publish(self, tasks: Tasks) {
        let stop = tasks.stopping();
        let mut silences = Silences::default();
        loop {
            let awaited = self.0.state.lock().awaits(None);
            let wait = if awaited { Duration::from_secs(1) } else { SWEEP };
            let changed = tokio::time::timeout(wait, self.0.changed.notified());
            if stop.bound(changed).await.is_none()
                || stop.bound(tokio::time::sleep(GATHER)).await.is_none()
            {
                return;
            }
            let gathered = self.0.state.lock().gather(&self.0.limits, now());
            for one in gathered {
                one.publish(&mut silences);
                tokio::task::yield_now().await;
            }
        }
    }
}

/// What the snapshot of one cluster is put together of.
struct Gathered {
    images: Snapshot<Images>,
    reports: Vec<Arc<KnownReport>>,
    tables: Tables,
    exceptions: Arc<[Exception]>,
    statements: Arc<Statements>,
    told: bool,
    left_out: usize,
}

/// Findings without those that statements silence, by report and digests, for as long as the statements
/// are the same.
#[derive(Default)]
struct Silences {
    statements: Arc<Statements>,
    known: FxHashMap<usize, Silenced>,
}

/// A report, the digests of its image, and the findings that are left; none if all of them count.
type Silenced = (Arc<KnownReport>, Vec<String>, Option<Arc<Findings>>);

impl Gathered {
    fn publish(self, silences: &mut Silences) {
        let Self { images, reports, tables, exceptions, statements, told, left_out } = self;
        if !Arc::ptr_eq(&silences.statements, &statements) {
            *silences = Silences { statements: Arc::clone(&statements), ..Silences::default() };
        }
        let silence = |report: &Arc<KnownReport>, digests: &[&str]| {
            if statements.is_empty() {
                return None;
            }
            let known = silences.known.get(&(Arc::as_ptr(report) as usize));
            if let Some((_, of, findings)) = known
                && of.iter().eq(digests)
            {
                return findings.clone();
            }
            let findings = silenced(report, digests, &statements, &tables);
            let digests = digests.iter().map(|digest| (*digest).to_owned()).collect();
            let known = (Arc::clone(report), digests, findings.clone());
            silences.known.insert(Arc::as_ptr(report) as usize, known);
            findings
        };
        let made = Images::new(reports, tables.clone(), silence);
        // Reports that are only kept here are no longer known.
        silences.known.retain(|_, (report, ..)| Arc::strong_count(report) > 1);
        images.update(|shown| {
            *shown = Images { exceptions, told, left_out, ..made };
            true
        });
    }
}

impl State {
    fn of(&mut self, cluster: Option<&str>) -> &mut Reports {
        match cluster {
            None => &mut self.imported,
            Some(name) => &mut self.clusters.entry(name.to_owned()).or_default().reports,
        }
    }

    fn mark(&mut self, cluster: Option<&str>) {
        match cluster.and_then(|name| self.clusters.get_mut(name)) {
            Some(cluster) => cluster.changed = true,
            None => self.all_changed = true,
        }
    }

    fn put(&mut self, cluster: Option<&str>, kind: &'static str, id: Id, kept: Option<Kept>) {
        match kept {
            // The last good one holds.
            None => return,
            Some(Kept::Statements(statements)) => {
                self.statements.insert(id, statements);
                self.statements_changed = true;
            }
            Some(Kept::Signatures(digest, signatures)) => {
                self.signatures.insert(id, (digest, signatures));
                self.signatures_changed = true;
            }
            Some(Kept::Report(epoch, report)) => {
                let report = match epoch.retired.get() {
                    Some(tables) => Arc::new(report.moved(tables, &mut self.interner)),
                    None => report,
                };
                self.of(cluster).insert((kind, id), Held { report, gone: None });
            }
        }
        self.mark(cluster);
    }

    fn withdraw(&mut self, cluster: Option<&str>, kind: &'static str, id: &Id) {
        if cluster.is_none() {
            // Whoever deletes what was imported means it.
            let report = self.imported.remove(&(kind, id.clone())).is_some();
            let statements = self.statements.remove(id).is_some();
            let signatures = self.signatures.remove(id).is_some();
            self.statements_changed |= statements;
            self.signatures_changed |= signatures;
            self.all_changed |= report || statements || signatures;
            return;
        }
        if let Some(held) = self.of(cluster).get_mut(&(kind, id.clone())) {
            held.gone = Some(now());
        }
        self.mark(cluster);
    }

    fn all(&self) -> impl Iterator<Item = &Held> {
        let clusters = self.clusters.values().flat_map(|cluster| cluster.reports.values());
        self.imported.values().chain(clusters)
    }

    fn wait_for(&mut self, source: (String, &'static str)) {
        self.awaited.insert(source, Instant::now() + PATIENCE);
    }

    /// Whether a source of a cluster, or of any, is still waited for.
    fn awaits(&self, cluster: Option<&str>) -> bool {
        let now = Instant::now();
        self.awaited.iter().any(|((of, _), until)| {
            *until > now && (of.is_empty() || cluster.is_none_or(|cluster| cluster == of))
        })
    }

    /// Makes room: the oldest go.
    fn bound(&mut self, limits: &ImageLimits) {
        let findings = |held: &Held| held.report.count_findings();
        let mut reports = self.imported.len();
        reports += self.clusters.values().map(|cluster| cluster.reports.len()).sum::<usize>();
        if reports <= limits.reports && self.all().map(findings).sum::<usize>() <= limits.findings {
            return;
        }
        let mut all: Vec<&Held> = self.all().collect();
        all.sort_by_key(|held| std::cmp::Reverse(held.report.scanned_at));
        let before = all.len();
        let mut room = limits.findings;
        let fits = all.into_iter().take(limits.reports).take_while(|held| {
            let fits = findings(held) <= room;
            room = room.saturating_sub(findings(held));
            fits
        });
        let kept: FxHashSet<usize> = fits.map(|held| Arc::as_ptr(&held.report) as usize).collect();
        let keep = |held: &Held| kept.contains(&(Arc::as_ptr(&held.report) as usize));
        self.imported.retain(|_, held| keep(held));
        for cluster in self.clusters.values_mut() {
            cluster.reports.retain(|_, held| keep(held));
        }
        self.left_out += before - self.all().count();
        self.all_changed = true;
        warn!(
            left_out = self.left_out,
            "there are more reports on images than fit; the oldest are left out"
        );
    }

    /// Takes what changed, one entry for each cluster whose snapshot is to be put together again.
    fn gather(&mut self, limits: &ImageLimits, now: i64) -> Vec<Gathered> {
        self.sweep(limits, now);
        self.compact();
        if std::mem::take(&mut self.statements_changed) {
            self.by_name = Arc::new(self.statements.values().flatten().cloned().collect());
        }
        if std::mem::take(&mut self.signatures_changed) {
            self.verify(now);
        }
        let changed: Vec<String> = self
            .clusters
            .iter()
            .filter(|(name, cluster)| {
                let turned = cluster.images.load().told == self.awaits(Some(name));
                self.all_changed || cluster.changed || turned
            })
            .map(|(name, _)| name.clone())
            .collect();
        if changed.is_empty() {
            return Vec::new();
        }
        let exceptions: Arc<[Exception]> = self.exceptions.values().cloned().collect();
        let gathered = changed.iter().map(|name| {
            let cluster = &self.clusters[name];
            let reports = self.imported.values().chain(cluster.reports.values());
            Gathered {
                images: cluster.images.clone(),
                reports: reports
                    .map(|held| &held.report)
                    .chain(&self.verified)
                    .map(Arc::clone)
                    .collect(),
                tables: self.interner.tables().clone(),
                exceptions: Arc::clone(&exceptions),
                statements: Arc::clone(&self.by_name),
                told: !self.awaits(Some(name)),
                left_out: self.left_out,
            }
        });
        let gathered = gathered.collect();
        self.all_changed = false;
        self.clusters.values_mut().for_each(|cluster| cluster.changed = false);
        gathered
    }

    /// Says of each image with signatures which verifiers they satisfy.
    fn verify(&mut self, now: i64) {
        let now = Duration::from_secs(u64::try_from(now).unwrap_or_default());
        let now = UnixTime::since_unix_epoch(now);
        let mut satisfied: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (digest, signatures) in self.signatures.values() {
            let of = satisfied.entry(digest).or_default();
            for (root, (trusted, verifiers)) in &self.trusted {
                let good = verifiers.iter().filter(|(_, verifier)| {
                    let verifies =
                        |one: &ImageSignature| trusted.verify(one, digest, verifier, now).is_ok();
                    signatures.iter().any(verifies)
                });
                of.extend(good.map(|(name, _)| format!("{root}/{name}")));
            }
        }
        let report = |(digest, verifiers): (&str, BTreeSet<String>)| {
            Arc::new(KnownReport::of_signatures(digest, verifiers.into_iter().collect()))
        };
        self.verified = satisfied.into_iter().map(report).collect();
    }

    /// Lets go what is too old.
    fn sweep(&mut self, limits: &ImageLimits, now: i64) {
        let counts = |held: &Held| {
            let age = now - held.report.scanned_at;
            limits.scan_age.is_none_or(|most| age <= most)
                && held.gone.is_none_or(|gone| now - gone < limits.keep_gone)
        };
        let before = self.imported.len();
        self.imported.retain(|_, held| counts(held));
        self.all_changed |= self.imported.len() != before;
        for cluster in self.clusters.values_mut() {
            let before = cluster.reports.len();
            cluster.reports.retain(|_, held| counts(held));
            cluster.changed |= cluster.reports.len() != before;
        }
    }

    /// Writes the tables anew when much of them may be about reports that are gone.
    fn compact(&mut self) {
        let have = self.interner.len();
        if have < self.entries * 2 + GROWTH {
            return;
        }
        let (from, mut to) = (self.interner.tables().clone(), Interner::default());
        let reports = self.imported.values_mut();
        let of_clusters = self.clusters.values_mut().flat_map(|one| one.reports.values_mut());
        for held in reports.chain(of_clusters) {
            held.report = Arc::new(held.report.moved(&from, &mut to));
        }
        self.entries = to.len();
        self.interner = to;
        // Reports that are still on their way have the old numbers.
        let _ = std::mem::take(&mut self.epoch).retired.set(from);
        self.all_changed = true;
        info!(before = have, after = self.entries, "what is known of images was written anew");
    }
}

#[cfg(test)]
mod tests;
