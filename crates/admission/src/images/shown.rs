//! What is known of an image, for people and programs.

use jiff::Timestamp;
use serde::Serialize;

use super::record::ImageRecord;
use super::{Findings, Images};
use crate::compile::Settings;
use crate::image::Image;

/// One content of an image in a list.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownImage {
    /// Names and digests under which it was scanned.
    pub images: Vec<String>,
    /// The forms of the reports that it is put together of.
    pub sources: Vec<String>,
    /// RFC 3339; none if nobody looked for vulnerabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scanned: Option<String>,
    /// Vulnerabilities by severity; none if nobody looked for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critical: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<usize>,
    /// Packages that were found; none if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packages: Option<usize>,
    /// The operating system: empty is none; absent is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Secrets and set-uid programs, as far as they were looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compliance_issues: Option<usize>,
    /// Verifiers that accept a signature of it, as ROOT/VERIFIER; absent is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verifiers: Option<Vec<String>>,
}

/// What a rule finds of an image.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownRecord {
    #[serde(flatten)]
    pub image: ShownImage,
    /// Whether rules that let in look at it: one that was scanned without a registry only refuses.
    pub counts_for_allow: bool,
    pub vulnerabilities: Vec<ShownFinding>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownFinding {
    pub id: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    pub package: String,
    pub installed: String,
    /// The version that has a fix; `yes` where the scanner does not say which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<String>,
    /// critical, high, medium or low.
    pub severity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// Whether an exception takes it out: it counts for nothing.
    pub excepted: bool,
}

fn moment(seconds: i64) -> Option<String> {
    Timestamp::from_second(seconds).ok().map(|at| at.to_string())
}

impl ShownImage {
    fn new(record: &ImageRecord) -> Self {
        let counts = record.vulnerabilities.as_deref().map(Findings::by_severity);
        Self {
            images: record.references.clone(),
            sources: record.sources.iter().map(ToString::to_string).collect(),
            scanned: record.scanned_at.and_then(moment),
            critical: counts.map(|counts| counts[0]),
            high: counts.map(|counts| counts[1]),
            medium: counts.map(|counts| counts[2]),
            low: counts.map(|counts| counts[3]),
            packages: record.modules.as_ref().map(|modules| modules.len()),
            os: record.os.as_ref().map(ToString::to_string),
            compliance_issues: record.compliance_issues(),
            verifiers: record.verifiers.as_ref().map(|verifiers| verifiers.to_vec()),
        }
    }
}

impl Images {
    /// Those of which a name contains `text`, in the order of their names, from the `skip`th on.
    pub fn list(&self, text: &str, skip: usize, limit: usize) -> (usize, Vec<ShownImage>) {
        let mut found: Vec<&ImageRecord> = self
            .records
            .iter()
            .filter(|record| {
                text.is_empty() || record.references.iter().any(|name| name.contains(text))
            })
            .collect();
        found.sort_by(|one, other| one.references.cmp(&other.references));
        let shown = found.iter().skip(skip).take(limit).map(|record| ShownImage::new(record));
        (found.len(), shown.collect())
    }

    /// What rules find of an image as a container in a namespace names it.
    pub fn show(
        &self,
        image: &str,
        namespace: &str,
        now: i64,
        settings: &Settings,
    ) -> Vec<ShownRecord> {
        let image = Image::parse(image, &settings.default_registries);
        let found = self.find(&image);
        let excepted = self.excepted(&image, namespace, now);
        let show = |record: &&ImageRecord| {
            let findings = record.vulnerabilities.as_deref();
            let vulnerabilities = findings.into_iter().flat_map(Findings::iter).map(|finding| {
                let package = self.package(finding.package);
                let text = |at| self.text(at).to_owned();
                ShownFinding {
                    id: text(finding.id),
                    aliases: finding.names().skip(1).map(text).collect(),
                    package: text(package.name),
                    installed: text(package.installed),
                    fixed: finding.has_fix().then(|| text(finding.fixed)),
                    severity: format!("{:?}", finding.severity).to_lowercase(),
                    score: (finding.score > 0).then(|| f64::from(finding.score) / 10.0),
                    published: (finding.published > 0)
                        .then(|| moment(i64::from(finding.published)))
                        .flatten(),
                    excepted: !excepted.is_empty() && excepted.takes(finding, self),
                }
            });
            ShownRecord {
                image: ShownImage::new(record),
                counts_for_allow: !found.for_allow().is_empty(),
                vulnerabilities: vulnerabilities.collect(),
            }
        };
        found.for_deny().iter().map(show).collect()
    }
}
