//! `ImageReport`: what a scanner or a vendor says of images, as it was imported.
//!
//! An imported document is an object, so that every replica has it by the watch that it has anyway, a
//! restart loses nothing, and the store's own rights and audit hold for it. Of a document only what rules
//! ask for is kept, compressed: some ten kilobytes for five hundred findings, well below what an API
//! server takes.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field;
use crate::store::{Invalid, Kind};

/// The most characters of what is kept of a document. An API server takes objects of up to 1.5 MB.
pub const LONGEST_DATA: usize = 1_000_000;
const LONGEST_TEXT: usize = 1024;
const MOST_NAMES: usize = 64;

/// What a scanner or a vendor says of images.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "ImageReport",
    doc = "What a scanner or a vendor says of images, as it was imported.",
    category = "fairlead",
    shortname = "imgrep",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Source","type":"string","jsonPath":".spec.source"}"#,
    printcolumn = r#"{"name":"Images","type":"string","jsonPath":".spec.images"}"#,
    printcolumn = r#"{"name":"Critical","type":"integer","jsonPath":".spec.summary.critical"}"#,
    printcolumn = r#"{"name":"High","type":"integer","jsonPath":".spec.summary.high"}"#,
    printcolumn = r#"{"name":"Medium","type":"integer","jsonPath":".spec.summary.medium"}"#,
    printcolumn = r#"{"name":"Scanned","type":"date","jsonPath":".spec.scannedAt"}"#,
    printcolumn = r#"{"name":"By","type":"string","jsonPath":".spec.importedBy","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ImageReportSpec {
    /// The form of the document: trivy, grype, neuvector, cyclonedx, trivy-operator, sbomscanner or vex.
    #[schemars(length(min = 1, max = 64), regex(pattern = field::TEXT))]
    pub source: String,
    /// Names and digests of the images that it is about; none for statements on packages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_NAMES), inner(length(max = LONGEST_TEXT)))]
    pub images: Vec<String>,
    /// When the images were scanned (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_TIME), extend("format" = "date-time"))]
    pub scanned_at: Option<String>,
    /// Who imported it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_TEXT), regex(pattern = field::TEXT))]
    pub imported_by: String,
    /// How many vulnerabilities there are, for people; rules count by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<ImageReportSummary>,
    /// What rules ask for: JSON, compressed (zlib), in base64. `fairlead images import` writes it.
    #[schemars(length(min = 1, max = LONGEST_DATA))]
    pub data: String,
}

/// Vulnerabilities by severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct ImageReportSummary {
    pub critical: u32,
    pub high: u32,
    pub medium: u32,
    pub low: u32,
}

impl Kind for ImageReport {
    const NAME: &'static str = "ImageReport";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let ImageReportSpec { source, images, scanned_at, imported_by, data, .. } = &self.spec;
        let mut problems = Invalid::default();
        field::text(&mut problems, "spec.source", source, 1, 64);
        field::at_most(&mut problems, "spec.images", images.len(), MOST_NAMES);
        for (i, image) in images.iter().enumerate() {
            field::no_longer(&mut problems, &format!("spec.images[{i}]"), image, LONGEST_TEXT);
        }
        if let Some(at) = scanned_at
            && (at.len() > field::LONGEST_TIME || at.parse::<Timestamp>().is_err())
        {
            let problem = format!("{at:?} is no time of RFC 3339, as 2027-01-31T12:00:00Z is");
            problems.add("spec.scannedAt", problem);
        }
        field::text(&mut problems, "spec.importedBy", imported_by, 0, LONGEST_TEXT);
        if data.is_empty() {
            problems
                .add("spec.data", "is empty; import the document with `fairlead images import`");
        } else if data.len() > LONGEST_DATA {
            let problem = format!("has {} characters; {LONGEST_DATA} at most", data.len());
            problems.add("spec.data", problem);
        }
        problems.into_result()
    }
}
