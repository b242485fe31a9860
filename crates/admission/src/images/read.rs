//! Reports of scanners, read into one form.
//!
//! Contract: a report of a form that is not known, or that has something else where a list of findings
//! should be, is refused: findings that were not understood must not look like none.

mod cyclonedx;
mod grype;
mod neuvector;
mod sbomscanner;
mod trivy;
mod trivy_operator;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NameKey;
pub(super) use super::record::ImageConfig;

/// A document that is no report, or a damaged one, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub(super) String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Low,
    Medium,
    High,
    Critical,
}

impl Severity {
    /// Every word that is not known is low.
    fn new(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "critical" => Self::Critical,
            "high" => Self::High,
            "medium" => Self::Medium,
            _ => Self::Low,
        }
    }
}

/// One vulnerability as a scanner reports it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Vulnerability {
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) aliases: Vec<String>,
    pub(super) package: String,
    /// The version that was found; empty if the scanner does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) installed: String,
    /// The version that has a fix; empty if there is none, or the scanner does not say which.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) fixed: String,
    /// The package's URL, where the scanner gives it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) purl: String,
    pub(super) severity: Severity,
    pub(super) has_fix: bool,
    /// In tenths; zero if unknown.
    pub(super) score: u8,
    /// In seconds; zero if unknown.
    pub(super) published: u32,
}

/// A package: every name under which a rule may ask for it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Module {
    pub(super) names: Vec<String>,
    pub(super) version: String,
}

/// A name under which an image was scanned, or its digest, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Reference {
    pub(super) host: Option<String>,
    pub(super) repository: String,
    pub(super) tag: Option<String>,
    pub(super) digest: Option<String>,
}

/// What one document tells of one image. A part that is none is not in it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Report {
    /// The form of the document.
    pub(super) source: String,
    pub(super) references: Vec<Reference>,
    /// In seconds; zero if the document does not say.
    pub(super) scanned_at: i64,
    pub(super) vulnerabilities: Option<Vec<Vulnerability>>,
    pub(super) modules: Option<Vec<Module>>,
    pub(super) os: Option<String>,
    pub(super) secrets: Option<usize>,
    pub(super) set_id: Option<usize>,
    pub(super) config: Option<ImageConfig>,
    pub(super) verifiers: Option<Vec<String>>,
}

impl Report {
    /// How many vulnerabilities it has of each severity, the worst first, as the scanner counts them.
    pub(super) fn by_severity(&self) -> [usize; 4] {
        let found = self.vulnerabilities.as_deref().unwrap_or_default();
        [Severity::Critical, Severity::High, Severity::Medium, Severity::Low]
            .map(|severity| found.iter().filter(|one| one.severity == severity).count())
    }
}

impl Reference {
    /// The name by which it is found, if it has a tag; one without a registry counts only without one.
    pub(super) fn name(&self) -> Option<NameKey> {
        let tag = self.tag.as_deref()?;
        if self.repository.is_empty() {
            return None;
        }
        let hub = self.host.as_deref().is_none_or(is_docker_hub);
        if hub && !self.repository.contains('/') {
            let repository = format!("library/{}", self.repository);
            return Some(NameKey::new(self.host.as_deref(), &repository, tag));
        }
        Some(NameKey::new(self.host.as_deref(), &self.repository, tag))
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(host) = &self.host {
            write!(f, "{host}/")?;
        }
        f.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) if self.repository.is_empty() => f.write_str(digest),
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

fn is_docker_hub(host: &str) -> bool {
    crate::image::DEFAULT_REGISTRIES.contains(&host)
}

/// Reads a report of any form that is known.
pub(super) fn report(document: &Value, received: i64) -> Result<Report, Unreadable> {
    let group = text(document, "apiVersion").split('/').next().unwrap_or_default();
    let (source, report) = if document["bomFormat"] == "CycloneDX" {
        ("cyclonedx", cyclonedx::read(document)?)
    } else if group == "aquasecurity.github.io" {
        ("trivy-operator", trivy_operator::read(document)?)
    } else if group == "storage.sbomscanner.kubewarden.io" {
        ("sbomscanner", sbomscanner::read(document)?)
    } else if document.get("SchemaVersion").is_some() && document.get("ArtifactName").is_some() {
        ("trivy", trivy::read(document)?)
    } else if document.get("matches").is_some() && document.get("source").is_some() {
        ("grype", grype::read(document)?)
    } else if let Some(result) = neuvector::result(document) {
        ("neuvector", neuvector::read(result, received)?)
    } else {
        return Err(Unreadable(
            "is no report of a form that is known: a VulnerabilityReport, SbomReport or \
             ExposedSecretReport of trivy-operator, `trivy image -f json`, `grype -o json`, a scan \
             result of NeuVector, CycloneDX in JSON, or a report of sbomscanner"
                .to_owned(),
        ));
    };
    if report.references.is_empty() {
        return Err(Unreadable("does not say of which image it is".to_owned()));
    }
    Ok(Report { source: source.to_owned(), ..report })
}

/// A field that is a text; empty if it is absent.
fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default().trim()
}

/// A field that is a list, or absent.
fn list<'v>(value: &'v Value, field: &str) -> Result<&'v [Value], Unreadable> {
    match &value[field] {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(Unreadable(format!("has something else than a list in {field}"))),
    }
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let items = value[field].as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// The id of a vulnerability. A finding without one is a damaged report.
fn id<'v>(value: &'v Value, field: &str) -> Result<&'v str, Unreadable> {
    match text(value, field) {
        "" => Err(Unreadable(format!("has a vulnerability without {field}"))),
        id => Ok(id),
    }
}

/// Seconds of a time; zero if it is no time.
fn seconds(text: &str) -> i64 {
    text.parse::<Timestamp>().map_or(0, Timestamp::as_second)
}

/// Seconds of a publication; zero, which is unknown, if it is no time.
fn published(text: &str) -> u32 {
    let day = || text.parse::<jiff::civil::Date>().ok();
    let whole = || day()?.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|at| at.timestamp());
    let at = text.parse::<Timestamp>().ok().or_else(whole);
    at.map_or(0, |at| u32::try_from(at.as_second()).unwrap_or(0))
}

/// Tenths of a score.
fn tenths(score: f64) -> u8 {
    // A score is from 0 to 10.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let tenths = (score.clamp(0.0, 10.0) * 10.0).round() as u8;
    if score.is_nan() { 0 } else { tenths }
}

/// A score that is a number, or a text that is one.
fn score(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// An image as a person or a registry writes it: `[HOST/]REPOSITORY[:TAG][@DIGEST]`.
fn reference(text: &str) -> Option<Reference> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest).trim();
    let (host, rest) = match rest.split_once('/') {
        Some((first, rest)) if crate::image::is_host(first) => (Some(first.to_lowercase()), rest),
        _ => (None, rest),
    };
    let (name, digest) = match rest.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (rest, None),
    };
    let last = name.rfind('/').map_or(0, |at| at + 1);
    let (repository, tag) = match name[last..].find(':') {
        Some(at) => (&name[..last + at], Some(&name[last + at + 1..])),
        None => (name, None),
    };
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let reference = Reference {
        host,
        repository: repository.to_owned(),
        tag: tag.and_then(filled),
        digest: digest.and_then(filled),
    };
    (!reference.repository.is_empty()).then_some(reference)
}

/// A registry's address without its scheme and path.
fn host(registry: &str) -> Option<String> {
    let rest = registry.split_once("://").map_or(registry, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default().trim();
    (!host.is_empty()).then(|| host.to_lowercase())
}

/// Parts that some forms give one by one.
fn assembled(registry: &str, repository: &str, tag: &str, digest: &str) -> Option<Reference> {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let reference = Reference {
        host: host(registry),
        repository: repository.trim_matches('/').to_owned(),
        tag: filled(tag),
        digest: filled(digest),
    };
    (!reference.repository.is_empty() || reference.digest.is_some()).then_some(reference)
}

/// `KEY=VALUE` lines of an image's environment.
fn environment(lines: &[String]) -> BTreeMap<String, String> {
    let pair = |line: &String| {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        (name.to_owned(), value.to_owned())
    };
    lines.iter().map(pair).collect()
}

/// The `config` of an image by the OCI's words.
fn oci_config(config: &Value) -> Option<ImageConfig> {
    let fields = config.as_object()?;
    let labels = fields.get("Labels").and_then(Value::as_object).into_iter().flatten();
    let label = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    Some(ImageConfig {
        labels: labels.filter_map(label).collect(),
        env: environment(&texts(config, "Env")),
        runs_as_root: is_root(text(config, "User")),
    })
}

/// Whether the user of an image is root: none is.
fn is_root(user: &str) -> bool {
    let name = user.split(':').next().unwrap_or_default();
    matches!(name, "" | "root" | "0")
}

/// Every name of a package. Libraries of a group go by their plain name, `GROUP:NAME` and `GROUP/NAME`.
fn module(name: &str, group: &str, version: &str, purl: &str) -> Module {
    let mut names = vec![name.to_owned()];
    let mut add = |group: &str, name: &str| {
        for form in [name.to_owned(), format!("{group}:{name}"), format!("{group}/{name}")] {
            if !names.contains(&form) {
                names.push(form);
            }
        }
    };
    if !group.is_empty() {
        add(group, name);
    } else if let Some((group, plain)) = name.rsplit_once(':') {
        add(group, plain);
    } else if let Some((group, plain)) = library_of(purl).filter(|(_, plain)| name.contains(plain))
    {
        add(group, plain);
    }
    Module { names, version: version.to_owned() }
}

/// Group and name in the URL of a library; a distribution's name is no group.
fn library_of(purl: &str) -> Option<(&str, &str)> {
    let rest = purl.strip_prefix("pkg:")?;
    let rest = rest.split(['?', '#', '@']).next()?;
    let (kind, path) = rest.split_once('/')?;
    let (group, name) = path.rsplit_once('/')?;
    (!matches!(kind, "deb" | "rpm" | "apk" | "alpm" | "oci")).then_some((group, name))
}
