//! `VulnerabilityException`: vulnerabilities that count for nothing, in some namespaces and images, for a
//! time.
//!
//! Contract: an exception takes a vulnerability out of one package only, before anything is counted or
//! named. It ends with its day. A vulnerability whose publication is unknown is never recent.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::Images;
use super::read::Unreadable;
use super::record::{Finding, Findings};
use crate::glob::Glob;
use crate::image::{Image, ImageItem};

const DAY: i64 = 24 * 60 * 60;

/// The fields of a `VulnerabilityException`; the first five are those of NeuVector's vulnerability profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VulnerabilityExceptionSpec {
    /// A name such as `CVE-2024-3094`, a glob, `_RecentVuln` or `_RecentVulnWithoutFix`.
    pub name: String,
    /// For the last two: how many days a vulnerability is recent.
    #[serde(default)]
    pub days: i64,
    /// Namespaces; none named is all.
    #[serde(default)]
    pub domains: Vec<String>,
    /// Images, as in the criterion `image`; none named is all.
    #[serde(default)]
    pub images: Vec<String>,
    #[serde(default)]
    pub comment: String,
    /// Packages by name; none named is all.
    #[serde(default)]
    pub packages: Vec<String>,
    /// When the exception ends.
    #[serde(default)]
    pub until: Option<Timestamp>,
    #[serde(default)]
    pub reason: String,
}

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
        Self::new(&spec).map(Some).map_err(wrong)
    }

    fn new(spec: &VulnerabilityExceptionSpec) -> Result<Self, String> {
        let which = match spec.name.trim() {
            "" => return Err("spec.name is empty".to_owned()),
            name @ ("_RecentVuln" | "_RecentVulnWithoutFix") => {
                if spec.days <= 0 {
                    return Err(format!("spec.days says how long {name} counts; it is missing"));
                }
                Which::Recent { days: spec.days, without_fix: name == "_RecentVulnWithoutFix" }
            }
            name => Which::Named(Glob::new(&name.to_uppercase())),
        };
        let globs = |items: &[String]| items.iter().map(|item| Glob::new(item.trim())).collect();
        Ok(Self {
            which,
            domains: globs(&spec.domains),
            images: spec.images.iter().map(|item| ImageItem::new(item.trim())).collect(),
            packages: globs(&spec.packages),
            until: spec.until.map(Timestamp::as_second),
        })
    }

    fn is_for(&self, image: &Image, namespace: &str, now: i64) -> bool {
        self.until.is_none_or(|until| now < until)
            && (self.domains.is_empty() || self.domains.iter().any(|glob| glob.matches(namespace)))
            && (self.images.is_empty() || self.images.iter().any(|item| item.matches(image)))
    }

    fn takes(&self, finding: &Finding, findings: &Findings, images: &Images, now: i64) -> bool {
        let package = images.text(finding.package);
        let named = self.packages.is_empty() || self.packages.iter().any(|p| p.matches(package));
        named
            && match &self.which {
                Which::Named(glob) => {
                    findings.names(finding).any(|name| glob.matches(images.text(name)))
                }
                Which::Recent { days, without_fix } => {
                    let age = (now - i64::from(finding.published)).div_euclid(DAY);
                    finding.published != 0 && age < *days && !(*without_fix && finding.has_fix)
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

    pub(crate) fn takes(&self, finding: &Finding, findings: &Findings, images: &Images) -> bool {
        self.exceptions.iter().any(|one| one.takes(finding, findings, images, self.now))
    }
}
