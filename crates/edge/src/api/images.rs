//! Images: what is known of them, and reports on them that are handed in.
//!
//! Who may hand in reports decides what is admitted: it is a right of its own, to create
//! `imagereports.fairlead.dev`, and every import is in the audit.

use access::Verb;
use admission::{Admission, Document, Images, LOCAL_CLUSTER};
use axum::Json;
use axum::extract::{Path, Request as HttpRequest, State};
use http::StatusCode;
use jiff::Timestamp;
use objects::kinds::{ImageReport, VulnerabilityException, VulnerabilityExceptionSpec};
use objects::{Expected, Id, Within};
use serde::{Deserialize, Serialize};
use stallproof::snapshot::View;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::extract::whole;
use super::yaml::documents;
use super::{Api, Caller, ErrorCode, Problem, Query, Route, Routes};

/// The resources in the cluster `-`.
pub(crate) const REPORTS: &str = "imagereports.fairlead.dev";
const EXCEPTIONS: &str = "vulnerabilityexceptions.fairlead.dev";
const ROOTS: &str = "imagetrustroots.fairlead.dev";
/// The report of an image with tens of thousands of findings.
const LARGEST: usize = 32 << 20;
/// Documents of one import.
const DOCUMENTS: usize = 500;
/// The most images of an answer.
const IMAGES: usize = 1000;

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::read(), routes!(list))
        .with(Route::read(), routes!(show))
        .with(Route::write(Verb::Create, REPORTS).body(LARGEST), routes!(import))
        .with(Route::write(Verb::Delete, REPORTS), routes!(delete))
        .with(Route::read(), routes!(exceptions))
        .with(Route::write(Verb::Delete, EXCEPTIONS), routes!(end_exception))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListParams {
    /// Whose scanner is believed beside what was imported; `local`, the cluster that the store is in,
    /// unless said.
    cluster: Option<String>,
    /// Only images of which a name contains this.
    #[serde(default)]
    name: String,
    /// How many to leave out at the beginning.
    #[serde(default)]
    skip: usize,
    /// The most to show; 1000 unless said.
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct KnownImages {
    /// In the order of their names: `images` (names and digests), `sources`, `scanned`, `critical`,
    /// `high`, `medium`, `low`, `packages`, `os`, `complianceIssues`, `verifiers`. What is absent is not
    /// known.
    #[schema(value_type = Vec<Object>)]
    images: Vec<admission::ShownImage>,
    /// How many there are in all.
    total: usize,
    /// Reports that there was no room for, the oldest.
    left_out: usize,
}

/// What is known of images
///
/// One for each content, put together of all reports on it.
#[utoipa::path(
    get, path = "/images", tag = "images", params(ListParams),
    responses((status = 200, description = "In the order of their names", body = KnownImages))
)]
async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(asked): Query<ListParams>,
) -> Result<Json<KnownImages>, Problem> {
    caller.may_in_fleet(REPORTS, Verb::List)?;
    let known = images(&api, asked.cluster.as_deref())?;
    let limit = asked.limit.unwrap_or(IMAGES).min(IMAGES);
    let (total, images) = known.list(&asked.name, asked.skip, limit);
    Ok(Json(KnownImages { images, total, left_out: known.left_out() }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ShowParams {
    /// The image as a container names it.
    image: String,
    /// Whose scanner is believed beside what was imported; `local` unless said.
    cluster: Option<String>,
    /// The namespace whose exceptions count; those of all namespaces unless said.
    #[serde(default)]
    namespace: String,
}

#[derive(Serialize, ToSchema)]
struct KnownImage {
    image: String,
    /// Whether anything is known of it.
    known: bool,
    /// What a rule finds, the newest first: the fields of the list, `countsForAllow`, and
    /// `vulnerabilities`: `id`, `aliases`, `package`, `installed`, `fixed`, `severity`, `score`,
    /// `published`, `excepted`.
    #[schema(value_type = Vec<Object>)]
    records: Vec<admission::ShownRecord>,
}

/// What rules find of an image
#[utoipa::path(
    get, path = "/images/show", tag = "images", params(ShowParams),
    responses((status = 200, description = "What rules find", body = KnownImage))
)]
async fn show(
    State(api): State<Api>,
    caller: Caller,
    Query(asked): Query<ShowParams>,
) -> Result<Json<KnownImage>, Problem> {
    caller.may_in_fleet(REPORTS, Verb::Get)?;
    let known = images(&api, asked.cluster.as_deref())?;
    let (now, settings) = (Timestamp::now().as_second(), admission(&api)?.settings());
    let records = known.show(&asked.image, &asked.namespace, now, settings);
    Ok(Json(KnownImage { image: asked.image, known: !records.is_empty(), records }))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ImportedDocument {
    /// ImageReport, VulnerabilityException or ImageTrustRoot.
    kind: String,
    /// The name of the object that keeps it.
    name: String,
    /// Names and digests of the images that it is about.
    images: Vec<String>,
    /// Whether it was written; a report older than the one that is kept is not.
    written: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ImportedDocuments {
    documents: Vec<ImportedDocument>,
}

/// Hand in reports on images
///
/// The body has one document or several, JSON or YAML: `trivy image -f json`, `grype -o json`, CycloneDX,
/// NeuVector's scan results, reports of trivy-operator or sbomscanner, OpenVEX, CSAF, signatures of cosign's,
/// VulnerabilityExceptions, ImageTrustRoots. All are read before one is written. A report takes the place of the one by the
/// same scanner on the same image, unless that is newer.
#[utoipa::path(
    post, path = "/images/import", tag = "images",
    request_body(content = String, content_type = "application/json"),
    responses((status = 200, description = "What became of each", body = ImportedDocuments))
)]
async fn import(
    State(api): State<Api>,
    caller: Caller,
    request: HttpRequest,
) -> Result<Json<ImportedDocuments>, Problem> {
    caller.may_in_fleet(REPORTS, Verb::Create)?;
    let body = whole(request, &()).await?;
    let text = std::str::from_utf8(&body)
        .map_err(|_| Problem::invalid("the body is neither JSON nor YAML: it is not UTF-8"))?;
    let documents = documents(text).map_err(Problem::invalid)?;
    if documents.is_empty() || documents.len() > DOCUMENTS {
        return Err(Problem::invalid(format!("send 1 to {DOCUMENTS} documents at once")));
    }
    let (now, by) = (Timestamp::now().as_second(), caller.who.user.to_string());
    let mut read = Vec::new();
    for (i, document) in documents.iter().enumerate() {
        let wrong = |why| Problem::invalid(format!("document {} {why}", i + 1));
        read.push(admission::document(document, now, &by).map_err(wrong)?);
    }
    for document in &read {
        match document {
            Document::Report(_) => {}
            Document::Exception(_) => caller.may_in_fleet(EXCEPTIONS, Verb::Create)?,
            Document::Root(_) => caller.may_in_fleet(ROOTS, Verb::Create)?,
        }
    }
    let mut imported = Vec::new();
    for document in read {
        imported.push(write(&api, &caller, document).await?);
    }
    Ok(Json(ImportedDocuments { documents: imported }))
}

async fn write(
    api: &Api,
    caller: &Caller,
    document: Document,
) -> Result<ImportedDocument, Problem> {
    let (objects, deadline) = (&api.objects, caller.deadline);
    let report = match document {
        Document::Root(root) => {
            let written = objects.apply(&*root, Expected::Any, deadline).await?;
            return Ok(ImportedDocument {
                kind: "ImageTrustRoot".to_owned(),
                name: written.metadata.name.unwrap_or_default(),
                images: Vec::new(),
                written: true,
                why: None,
            });
        }
        Document::Exception(exception) => {
            let written = objects.apply(&*exception, Expected::Any, deadline).await?;
            return Ok(ImportedDocument {
                kind: "VulnerabilityException".to_owned(),
                name: written.metadata.name.unwrap_or_default(),
                images: written.spec.images,
                written: true,
                why: None,
            });
        }
        Document::Report(report) => report,
    };
    let name = report.metadata.name.clone().unwrap_or_default();
    let there = objects.get::<ImageReport>(&Id::cluster(&*name), deadline).await?;
    let at = |report: &ImageReport| {
        report.spec.scanned_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok())
    };
    let newer = there.as_ref().filter(|there| at(there) > at(&report));
    let why = newer.map(|there| {
        let of = there.spec.scanned_at.as_deref().unwrap_or_default();
        format!("a newer report is kept, of {of}")
    });
    let images = report.spec.images.clone();
    if why.is_none() {
        objects.apply(&*report, Expected::Any, deadline).await?;
    }
    let kind = "ImageReport".to_owned();
    Ok(ImportedDocument { kind, name, images, written: why.is_none(), why })
}

/// Withdraw a report that was handed in
#[utoipa::path(
    delete, path = "/images/reports/{name}", tag = "images",
    responses((status = 204, description = "Gone"))
)]
async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(REPORTS, Verb::Delete)?;
    let id = Id::cluster(name.as_str());
    api.objects.delete::<ImageReport>(&id, Expected::Any, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A vulnerability that does not count.
#[derive(Serialize, ToSchema)]
struct ListedException {
    /// The name of the object that keeps it.
    name: String,
    /// The spec of a `VulnerabilityException`.
    #[schema(value_type = Object)]
    spec: VulnerabilityExceptionSpec,
    /// Whether its time is over: then it takes nothing out.
    ended: bool,
}

#[derive(Serialize, ToSchema)]
struct ExceptionList {
    exceptions: Vec<ListedException>,
}

/// Vulnerabilities that do not count
///
/// What is written for them is handed in as reports are, with `POST /images/import`.
#[utoipa::path(
    get, path = "/images/exceptions", tag = "images",
    responses((status = 200, description = "By name", body = ExceptionList))
)]
async fn exceptions(
    State(api): State<Api>,
    caller: Caller,
) -> Result<Json<ExceptionList>, Problem> {
    caller.may_in_fleet(EXCEPTIONS, Verb::List)?;
    let within = Within::default();
    let all = api.objects.list::<VulnerabilityException>(&within, caller.deadline).await?.items;
    let now = Timestamp::now();
    let mut exceptions: Vec<_> = all
        .into_iter()
        .map(|one| ListedException {
            ended: one.spec.ends().is_some_and(|end| end <= now),
            name: one.metadata.name.unwrap_or_default(),
            spec: one.spec,
        })
        .collect();
    exceptions.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Json(ExceptionList { exceptions }))
}

/// End an exception: the vulnerability counts again
#[utoipa::path(
    delete, path = "/images/exceptions/{name}", tag = "images",
    responses((status = 204, description = "Gone"))
)]
async fn end_exception(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(EXCEPTIONS, Verb::Delete)?;
    let id = Id::cluster(name.as_str());
    api.objects.delete::<VulnerabilityException>(&id, Expected::Any, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn admission(api: &Api) -> Result<&Admission, Problem> {
    let none = || Problem::new(ErrorCode::NotFound, "this process does not decide admissions");
    api.admission.as_ref().ok_or_else(none)
}

fn images(api: &Api, cluster: Option<&str>) -> Result<View<Images>, Problem> {
    let cluster = cluster.unwrap_or(LOCAL_CLUSTER);
    admission(api)?.images(cluster).ok_or_else(|| {
        let detail = format!("no reviews of cluster {cluster:?} are decided here");
        Problem::new(ErrorCode::NoSuchCluster, detail)
    })
}

#[cfg(test)]
mod tests;
