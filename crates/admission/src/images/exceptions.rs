//! `VulnerabilityException`: vulnerabilities that count for nothing, in some namespaces and images, for a
//! time.
//!
//! Contract:
//! - An exception takes a vulnerability out of one package only, before anything is counted or named. It ends
//!   with its day.
//! - What is recent, and what has no fix, is asked of the vulnerability in all packages of the image: one that
//!   has a fix in another package has a fix. One whose publication is unknown is never recent.

use jiff::Timestamp;
use objects::Kind;
use objects::kinds::{VulnerabilityException, VulnerabilityExceptionSpec};
use serde::Deserialize;
use serde_json::Value;

use super::Images;
use super::read::Unreadable;
use super::record::FindingAt;
use crate::glob::Glob;
use crate::image::{Image, ImageItem};

const DAY: i64 = 24 * 60 * 60;

/// An exception as it is compared.
#[derive(Clone, Debug)]
pub(super) struct Exception {
    which: Which,
    domains: Vec<Glob>,
    images: Vec<ImageItem>,
    packages: Vec<Glob>,
    until: Option<i64>,
}

#[derive(Clone, Debug)]
enum Which {
    Named(Glob),
    Recent { days: i64, without_fix: bool },
}

impl Exception {
    /// Reads a document; none if it is something else.
    pub(super) fn read(document: &Value) -> Result<Option<Self>, Unreadable> {
        if document["kind"] != "VulnerabilityException" {
            return Ok(None);
        }
        let name = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let wrong = |why: String| Unreadable(format!("VulnerabilityException {name:?}: {why}"));
        let spec = VulnerabilityExceptionSpec::deserialize(&document["spec"])
            .map_err(|error| wrong(error.to_string()))?;
        let exception = VulnerabilityException::new(name, spec);
        exception.check().map_err(|problems| wrong(problems.to_string()))?;
        Ok(Some(Self::new(&exception.spec)))
    }

    /// `spec` has been checked.
    pub(super) fn new(spec: &VulnerabilityExceptionSpec) -> Self {
        let which = match spec.name.trim() {
            name @ ("_RecentVuln" | "_RecentVulnWithoutFix") => {
                Which::Recent { days: spec.days, without_fix: name == "_RecentVulnWithoutFix" }
            }
            name => Which::Named(Glob::new(&name.to_uppercase())),
        };
        let globs = |items: &[String]| items.iter().map(|item| Glob::new(item.trim())).collect();
        Self {
            which,
            domains: globs(&spec.domains),
            images: spec.images.iter().map(|item| ImageItem::new(item.trim())).collect(),
            packages: globs(&spec.packages),
            // One whose end cannot be read has ended.
            until: spec.until.as_ref().map(|_| spec.ends().map_or(0, Timestamp::as_second)),
        }
    }

    fn is_for(&self, image: &Image, namespace: &str, now: i64) -> bool {
        self.until.is_none_or(|until| now < until)
            && (self.domains.is_empty() || self.domains.iter().any(|glob| glob.matches(namespace)))
            && (self.images.is_empty() || self.images.iter().any(|item| item.matches(image)))
    }

    fn takes(&self, finding: FindingAt<'_>, images: &Images, now: i64) -> bool {
        let package = images.text(images.package(finding.package).name);
        let named = self.packages.is_empty() || self.packages.iter().any(|p| p.matches(package));
        named
            && match &self.which {
                Which::Named(glob) => finding.names().any(|name| glob.matches(images.text(name))),
                Which::Recent { days, without_fix } => {
                    let age = (now - i64::from(finding.published)).div_euclid(DAY);
                    let has_fix = finding.has_fix() || finding.fixed_elsewhere;
                    let is_recent = finding.published != 0 && !finding.older_elsewhere;
                    is_recent && age < *days && !(*without_fix && has_fix)
                }
            }
    }
}

/// The exceptions that count for one image in one namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excepted<'i> {
    exceptions: Vec<&'i Exception>,
    now: i64,
}

impl<'i> Excepted<'i> {
    pub(super) fn new(all: &'i [Exception], image: &Image, namespace: &str, now: i64) -> Self {
        let exceptions = all.iter().filter(|one| one.is_for(image, namespace, now)).collect();
        Self { exceptions, now }
    }

    /// Whether every finding counts.
    pub(crate) fn is_empty(&self) -> bool {
        self.exceptions.is_empty()
    }

    pub(crate) fn takes(&self, finding: FindingAt<'_>, images: &Images) -> bool {
        self.exceptions.iter().any(|one| one.takes(finding, images, self.now))
    }
}
