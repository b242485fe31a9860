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
mod read;
mod record;
mod strings;
mod vex;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value;

pub(super) use exceptions::Excepted;
use exceptions::Exception;
pub use exceptions::VulnerabilityExceptionSpec;
use read::Report;
pub use read::Unreadable;
use record::Parts;
pub(super) use record::{FoundModule, ImageConfig, ImageRecord};
use strings::Strings;

use super::image::Image;

/// The most records of one name that a rule is tried with.
const MOST_RECORDS: usize = 8;

/// A name under which an image was scanned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct NameKey {
    /// None where it was scanned without a registry.
    host: Option<Box<str>>,
    repository: Box<str>,
    tag: Box<str>,
}

/// Everything that is known of images.
#[derive(Clone, Debug, Default)]
pub struct Images {
    records: Vec<Arc<ImageRecord>>,
    by_digest: FxHashMap<Box<str>, usize>,
    by_name: FxHashMap<NameKey, Vec<usize>>,
    strings: Strings,
    exceptions: Vec<Exception>,
}

/// What documents of outside tell, before it is put together.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    reports: Vec<Report>,
    statements: Vec<vex::Statement>,
    exceptions: Vec<Exception>,
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
            self.reports.push(read::report(document, received)?);
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    pub fn into_images(self) -> Images {
        Images::new(self)
    }
}

impl Images {
    fn new(Reports { mut reports, statements, exceptions }: Reports) -> Self {
        let mut images = Self { exceptions, ..Self::default() };
        // The newest first: it has the word on each part that it knows.
        reports.sort_by_key(|report| std::cmp::Reverse(report.scanned_at));
        let mut contents: Vec<(Vec<&Report>, Parts<'_>)> = Vec::new();
        let mut by_digest: FxHashMap<&str, usize> = FxHashMap::default();
        let mut without_digest: FxHashMap<Vec<NameKey>, usize> = FxHashMap::default();
        for report in &reports {
            let names: Vec<NameKey> = report.names().collect();
            let digests = report.references.iter().filter_map(|r| r.digest.as_deref());
            let known = digests.clone().find_map(|digest| by_digest.get(digest).copied());
            let known = match (known, digests.clone().next()) {
                (None, None) => without_digest.get(&names).copied(),
                (known, _) => known,
            };
            let at = known.unwrap_or_else(|| {
                contents.push(Default::default());
                contents.len() - 1
            });
            for digest in digests.clone() {
                by_digest.entry(digest).or_insert(at);
            }
            if digests.count() == 0 {
                without_digest.entry(names).or_insert(at);
            }
            let (of, parts) = &mut contents[at];
            of.push(report);
            parts.fill(report);
        }
        for (of, parts) in contents {
            let at = images.records.len();
            let references = || of.iter().flat_map(|report| &report.references);
            let digests: Vec<&str> = references().filter_map(|r| r.digest.as_deref()).collect();
            for digest in &digests {
                images.by_digest.entry((*digest).into()).or_insert(at);
            }
            for name in of.iter().flat_map(|report| report.names()) {
                let records = images.by_name.entry(name).or_default();
                if !records.contains(&at) {
                    records.push(at);
                }
            }
            let silenced = |vulnerability: &read::Vulnerability| {
                vex::is_silenced(&statements, &digests, vulnerability)
            };
            let record = ImageRecord::new(&parts, &mut images.strings, silenced);
            images.records.push(Arc::new(record));
        }
        for records in images.by_name.values_mut() {
            records.sort_by_key(|at| std::cmp::Reverse(images.records[*at].known_since()));
            records.truncate(MOST_RECORDS);
        }
        images
    }

    /// The records of an image as a container names it.
    pub(super) fn find(&self, image: &Image) -> Found<'_> {
        if let Some(digest) = &image.digest {
            let found = self.by_digest.get(digest.as_str()).map(|at| &*self.records[*at]);
            return Found { named: found.into_iter().collect(), without_registry: Vec::new() };
        }
        let tag = image.tag.as_deref().unwrap_or("latest");
        let of = |host: Option<&str>| {
            let key = NameKey::new(host, &image.repository, tag);
            let records = self.by_name.get(&key).map_or(&[][..], Vec::as_slice);
            records.iter().map(|at| &*self.records[*at])
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
        self.strings.text(at)
    }

    /// How many contents of images are known.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl NameKey {
    fn new(host: Option<&str>, repository: &str, tag: &str) -> Self {
        Self {
            host: host.map(|host| host.to_lowercase().into()),
            repository: repository.to_lowercase().into(),
            tag: tag.into(),
        }
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
