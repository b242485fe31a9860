//! Documents that are imported, as the objects that keep them.
//!
//! Contract: what is kept of a document is what rules and `fairlead images show` ask for, compressed. Who
//! imports the same scanner's report of the same image again replaces it. A time in the future is now:
//! nobody makes a report that stays the newest.

use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use jiff::Timestamp;
use objects::Kind;
use objects::kinds::{
    ImageReport, ImageReportSpec, ImageReportSummary, ImageTrustRoot, LONGEST_DATA,
    VulnerabilityException,
};
use pki::sigstore::{ImageSignature, TrustRoot};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::read::{self, Report, Unreadable};
use super::vex::{self, Statement};

/// The most bytes that are read of what one object keeps. Findings compress to an eighth or less.
const LARGEST: u64 = 64 << 20;
/// Names that are shown of an image; more are found all the same.
const SHOWN_NAMES: usize = 64;

/// What an object keeps.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Packed {
    Report(Box<Report>),
    Statements(Vec<Statement>),
    /// Signatures as they are, so that they can be verified again when what is trusted changes: the digest
    /// of the image, and each signature as a document.
    Signatures(String, Vec<String>),
}

/// A document as the object that keeps it.
#[derive(Clone, Debug)]
pub enum Document {
    Report(Box<ImageReport>),
    Exception(Box<VulnerabilityException>),
    Root(Box<ImageTrustRoot>),
}

/// Reads a document that somebody imports: a report of any form, a VEX document, a signature, a
/// `VulnerabilityException` or an `ImageTrustRoot`. `received`, in seconds, is now.
pub fn document(document: &Value, received: i64, by: &str) -> Result<Document, Unreadable> {
    match document["kind"].as_str() {
        Some(VulnerabilityException::NAME) => {
            return object(document).map(|object| Document::Exception(Box::new(object)));
        }
        Some(ImageTrustRoot::NAME) => {
            let root: ImageTrustRoot = object(document)?;
            TrustRoot::of_spec(&root.spec)
                .map_err(|why| Unreadable(format!("is no ImageTrustRoot: {why}")))?;
            return Ok(Document::Root(Box::new(root)));
        }
        _ => {}
    }
    let packed = if let Some(statements) = vex::read(document)? {
        Packed::Statements(statements)
    } else if let Some(digest) = signed_image(document)? {
        Packed::Signatures(digest, vec![document.to_string()])
    } else {
        Packed::Report(Box::new(in_time(read::report(document, received)?, received)))
    };
    let (source, images, at, summary, key) = match &packed {
        Packed::Report(report) => {
            let images: Vec<String> = report.references.iter().map(ToString::to_string).collect();
            let summary = report.vulnerabilities.as_ref().map(|_| {
                let [critical, high, medium, low] =
                    report.by_severity().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
                ImageReportSummary { critical, high, medium, low }
            });
            let mut key: Vec<&str> =
                report.references.iter().filter_map(|one| one.digest.as_deref()).collect();
            if key.is_empty() {
                key = images.iter().map(String::as_str).collect();
            }
            key.sort_unstable();
            key.dedup();
            // A report without vulnerabilities, such as an SBOM, must not replace one that has them.
            let parts = if report.vulnerabilities.is_some() { "" } else { "modules\n" };
            let key = format!("{parts}{}", key.join("\n"));
            (report.source.clone(), images, Some(report.scanned_at), summary, key)
        }
        Packed::Signatures(digest, signatures) => {
            let key = signatures.join("\n");
            ("signature".to_owned(), vec![digest.clone()], Some(received), None, key)
        }
        Packed::Statements(_) => {
            let id = ["@id", "/document/tracking/id"];
            let id = id.iter().find_map(|at| match at.strip_prefix('/') {
                Some(_) => document.pointer(at).and_then(Value::as_str),
                None => document[*at].as_str(),
            });
            let key = id.map_or_else(|| document.to_string(), str::to_owned);
            ("vex".to_owned(), Vec::new(), None, None, key)
        }
    };
    let hash = Sha256::digest(key.as_bytes());
    let hash: String = hash.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    let shown = images.into_iter().filter(|image| image.chars().count() <= 1024);
    let spec = ImageReportSpec {
        images: shown.take(SHOWN_NAMES).collect(),
        scanned_at: at.and_then(|at| Timestamp::from_second(at).ok()).map(|at| at.to_string()),
        imported_by: by.chars().filter(|c| !c.is_control()).take(1024).collect(),
        summary,
        data: pack(&packed)?,
        source: source.clone(),
    };
    Ok(Document::Report(Box::new(ImageReport::new(&format!("{source}-{hash}"), spec))))
}

/// An object of ours, checked.
fn object<K: Kind>(document: &Value) -> Result<K, Unreadable> {
    let wrong = |why: String| Unreadable(format!("is no {}: {why}", K::NAME));
    let object: K =
        serde_json::from_value(document.clone()).map_err(|error| wrong(error.to_string()))?;
    object.check().map_err(|problems| wrong(problems.to_string()))?;
    Ok(object)
}

/// The digest of the image that a signature of cosign's is of; none if the document is something else.
fn signed_image(document: &Value) -> Result<Option<String>, Unreadable> {
    let media = document["mediaType"].as_str().unwrap_or_default();
    let is_signature = media.starts_with("application/vnd.dev.sigstore.bundle")
        || document["Base64Signature"].is_string();
    if !is_signature {
        return Ok(None);
    }
    let signature = ImageSignature::of_json(&document.to_string())
        .map_err(|why| Unreadable(format!("is a signature that cannot be read: {why}")))?;
    let digest = signature.digest();
    digest.map(Some).ok_or_else(|| Unreadable("does not say of which image it is".to_owned()))
}

/// A report whose time is no later than now.
pub(super) fn in_time(report: Report, now: i64) -> Report {
    let at = if report.scanned_at == 0 { now } else { report.scanned_at.min(now) };
    Report { scanned_at: at, ..report }
}

fn pack(packed: &Packed) -> Result<String, Unreadable> {
    let wrong = |error: std::io::Error| Unreadable(format!("cannot be kept: {error}"));
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    serde_json::to_writer(&mut encoder, packed).map_err(|error| wrong(error.into()))?;
    encoder.flush().map_err(wrong)?;
    let data = STANDARD.encode(encoder.finish().map_err(wrong)?);
    if data.len() > LONGEST_DATA {
        return Err(Unreadable(format!(
            "has too many findings to be kept: {} bytes compressed, {LONGEST_DATA} at most; scan \
             with fewer severities",
            data.len()
        )));
    }
    Ok(data)
}

/// What an object keeps, read.
pub(super) fn unpack(spec: &ImageReportSpec) -> Result<Packed, Unreadable> {
    let wrong = |why: String| Unreadable(format!("spec.data cannot be read: {why}"));
    let bytes = STANDARD.decode(&spec.data).map_err(|error| wrong(error.to_string()))?;
    let reader = ZlibDecoder::new(bytes.as_slice()).take(LARGEST);
    serde_json::from_reader(std::io::BufReader::new(reader))
        .map_err(|error| wrong(error.to_string()))
}
