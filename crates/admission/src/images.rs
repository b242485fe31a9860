//! What is known of images: results of scanners, by content and by name.
//!
//! ```text
//! reports of scanners ──► read ──► Report ─┐
//! statements (VEX)    ──► vex ─────────────┼──► Images (by digest; by host, repository and tag)
//! VulnerabilityException ──────────────────┘        │
//!                                  a container's image ──► records ──► criteria
//! ```
//!
//! Contract: one record per content of an image. Every part of it (vulnerabilities, modules, operating
//! system, secrets, configuration, verifiers) is known or unknown by itself, and of each part the newest
//! report that has it counts. A digest is the content: an image that is named with one is found by it
//! alone. A lookup takes no lock and makes no call.

mod exceptions;
mod live;
mod pack;
mod read;
mod record;
mod shown;
mod tables;
mod vex;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value;

pub(super) use exceptions::Excepted;
use exceptions::Exception;
pub(super) use live::ImageFacts;
pub use live::ImageLimits;
pub use pack::{Document, document};
pub use read::Unreadable;
use record::KnownReport;
pub(super) use record::{FindingAt, Findings, ImageConfig, ImageRecord};
pub use shown::{ShownFinding, ShownImage, ShownRecord};
use tables::Interner;
pub(super) use tables::{FoundModule, Package, Tables};
use vex::Statements;

use super::image::Image;

/// The most records of one name that a rule is tried with.
const MOST_RECORDS: usize = 8;

/// A name under which an image was scanned: `HOST/REPOSITORY:TAG`, without the host where it was scanned
/// without a registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct NameKey(Box<str>);

/// Everything that is known of images.
#[derive(Clone, Debug, Default)]
pub struct Images {
    records: Vec<ImageRecord>,
    by_digest: FxHashMap<Box<str>, u32>,
    by_name: FxHashMap<NameKey, Vec<u32>>,
    tables: Tables,
    exceptions: Arc<[Exception]>,
    /// Whether every source has told what it has, or was waited for long enough.
    told: bool,
    /// Reports that there was no room for, the oldest.
    left_out: usize,
}

/// What documents of outside tell, before it is put together.
#[derive(Debug, Default)]
pub struct Reports {
    reports: Vec<Arc<KnownReport>>,
    statements: Vec<vex::Statement>,
    exceptions: Vec<Exception>,
    interner: Interner,
}

impl Reports {
    /// Takes one document: a report of any form, a VEX document or a `VulnerabilityException`.
    ///
    /// `received`, in seconds, is when a form was scanned that does not say.
    pub fn add(&mut self, document: &Value, received: i64) -> Result<(), Unreadable> {
        if let Some(exception) = Exception::read(document)? {
            self.exceptions.push(exception);
        } else if let Some(statements) = vex::read(document)? {
            self.statements.extend(statements);
        } else {
            let report = KnownReport::new(read::report(document, received)?, &mut self.interner);
            self.reports.push(Arc::new(report));
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    /// What they tell together.
    pub fn images(&self) -> Images {
        let statements: Statements = self.statements.iter().cloned().collect();
        let tables = self.interner.tables().clone();
        let silence = |report: &Arc<KnownReport>, digests: &[&str]| {
            silenced(report, digests, &statements, &tables)
        };
        Images {
            exceptions: self.exceptions.clone().into(),
            told: true,
            ..Images::new(self.reports.clone(), tables.clone(), silence)
        }
    }
}

/// The findings of a report of an image with these digests without those that statements silence; none if
/// all of them count.
fn silenced(
    report: &KnownReport,
    digests: &[&str],
    statements: &Statements,
    tables: &Tables,
) -> Option<Arc<Findings>> {
    if statements.is_empty() {
        return None;
    }
    let counts = |finding: FindingAt<'_>| {
        let purl = tables.text(tables.package(finding.package).purl);
        let names = finding.names().map(|name| tables.text(name));
        !statements.silence(digests, names, purl)
    };
    report.findings.as_ref()?.without(counts).map(Arc::new)
}

impl Images {
    fn new(
        mut reports: Vec<Arc<KnownReport>>,
        tables: Tables,
        mut silence: impl FnMut(&Arc<KnownReport>, &[&str]) -> Option<Arc<Findings>>,
    ) -> Self {
        let mut images = Self { tables, ..Self::default() };
        // The newest first: it has the word on each part that it knows.
        reports.sort_by_key(|report| std::cmp::Reverse(report.scanned_at));
        let mut contents: Vec<Vec<&Arc<KnownReport>>> = Vec::new();
        let mut by_digest: FxHashMap<&str, usize> = FxHashMap::default();
        let mut without_digest: FxHashMap<Vec<NameKey>, usize> = FxHashMap::default();
        for report in &reports {
            let known = report.digests().find_map(|digest| by_digest.get(digest).copied());
            let names = || report.references.iter().filter_map(read::Reference::name).collect();
            let has_digest = report.digests().next().is_some();
            let known = match known {
                None if !has_digest => without_digest.get(&names()).copied(),
                known => known,
            };
            let at = known.unwrap_or_else(|| {
                contents.push(Vec::new());
                contents.len() - 1
            });
            for digest in report.digests() {
                by_digest.entry(digest).or_insert(at);
            }
            if !has_digest {
                without_digest.entry(names()).or_insert(at);
            }
            contents[at].push(report);
        }
        for of in contents {
            let at = u32::try_from(images.records.len()).unwrap_or(u32::MAX);
            let digests: Vec<&str> = of.iter().flat_map(|report| report.digests()).collect();
            for digest in &digests {
                images.by_digest.entry((*digest).into()).or_insert(at);
            }
            let references = of.iter().flat_map(|report| &report.references);
            for name in references.filter_map(read::Reference::name) {
                let records = images.by_name.entry(name).or_default();
                if !records.contains(&at) {
                    records.push(at);
                }
            }
            let mut record = ImageRecord::default();
            for report in &of {
                let had = record.vulnerabilities.is_some();
                record.fill(report);
                if !had
                    && record.vulnerabilities.is_some()
                    && let Some(left) = silence(report, &digests)
                {
                    record.vulnerabilities = Some(left);
                }
            }
            images.records.push(record);
        }
        let records = &images.records;
        for of_name in images.by_name.values_mut() {
            of_name.sort_by_key(|at| std::cmp::Reverse(records[*at as usize].known_since()));
            of_name.truncate(MOST_RECORDS);
        }
        images
    }

    /// The records of an image as a container names it.
    pub(super) fn find(&self, image: &Image) -> Found<'_> {
        let record = |at: &u32| &self.records[*at as usize];
        if let Some(digest) = &image.digest {
            let found = self.by_digest.get(digest.as_str()).map(record);
            return Found { named: found.into_iter().collect(), without_registry: Vec::new() };
        }
        let tag = image.tag.as_deref().unwrap_or("latest");
        let of = |host: Option<&str>| {
            let key = NameKey::new(host, &image.repository, tag);
            self.by_name.get(&key).map_or(&[][..], Vec::as_slice).iter().map(record)
        };
        let mut named: Vec<&ImageRecord> = Vec::new();
        for host in image.hosts.iter() {
            for record in of(Some(host)) {
                if !named.iter().any(|other| std::ptr::eq(*other, record)) {
                    named.push(record);
                }
            }
        }
        named.sort_by_key(|record| std::cmp::Reverse(record.known_since()));
        named.truncate(MOST_RECORDS);
        let without_registry = if named.is_empty() { of(None).collect() } else { Vec::new() };
        Found { named, without_registry }
    }

    /// The exceptions that count for an image in a namespace.
    pub(super) fn excepted(&self, image: &Image, namespace: &str, now: i64) -> Excepted<'_> {
        Excepted::new(&self.exceptions, image, namespace, now)
    }

    pub(super) fn text(&self, at: u32) -> &str {
        self.tables.text(at)
    }

    pub(super) fn package(&self, at: u32) -> Package {
        self.tables.package(at)
    }

    pub(super) fn module(&self, at: u32) -> Option<&FoundModule> {
        self.tables.module(at)
    }

    /// How many contents of images are known.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether every source has told what it has, or was waited for long enough.
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// Reports that there was no room for, the oldest.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl NameKey {
    fn new(host: Option<&str>, repository: &str, tag: &str) -> Self {
        let host = host.unwrap_or_default();
        let mut key = String::with_capacity(host.len() + repository.len() + tag.len() + 2);
        key.push_str(host);
        key.push('/');
        key.push_str(repository);
        key.make_ascii_lowercase();
        key.push(':');
        key.push_str(tag);
        Self(key.into())
    }
}

/// The records of an image, the newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found<'i> {
    named: Vec<&'i ImageRecord>,
    /// Those that were scanned under the same name without a registry, if there are no others. Who
    /// scanned some image of that name has not scanned this one: they refuse, and let nobody in.
    without_registry: Vec<&'i ImageRecord>,
}

impl<'i> Found<'i> {
    pub(super) fn for_deny(&self) -> &[&'i ImageRecord] {
        if self.named.is_empty() { &self.without_registry } else { &self.named }
    }

    pub(super) fn for_allow(&self) -> &[&'i ImageRecord] {
        &self.named
    }
}
