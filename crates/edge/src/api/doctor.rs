//! The doctor: dumps, logs, metrics and bundles that are uploaded, or a process in a pod that is asked;
//! findings out.
//!
//! Contract: an examination runs on a thread of its own, on the ledger as `doctor`, and answers what
//! `fairlead doctor -o json` answers of the same files or the same pod. Nothing of them is kept.

mod pod;

use access::Verb;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use stallproof::Deadline;
use stallproof::ledger::Outcome;
use utoipa_axum::routes;

use super::extract::whole;
use super::{Api, Caller, ErrorCode, Problem, Route, Routes};

/// The resource in the cluster `-`.
const DOCTOR: &str = "doctor.fairlead.dev";
/// Dumps of a hundred thousand goroutines are some tens of megabytes, bundles are compressed.
const LARGEST: usize = 64 << 20;
/// The most files at once.
const FILES: usize = 100;

pub(crate) fn routes() -> Routes {
    let uploaded = Route::list().question().body(LARGEST);
    Routes::default().with(uploaded, routes!(doctor)).and(pod::routes())
}

/// Examine dumps, logs, metrics or support bundles
///
/// The body is one file, or several as `multipart/form-data`, 64 MiB at most; each is recognised by its
/// content. The answer is that of `fairlead doctor -o json`.
#[utoipa::path(
    post, path = "/doctor", tag = "about",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "The findings", body = Object))
)]
async fn doctor(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    caller.may_in_fleet(DOCTOR, Verb::Create)?;
    let body = whole(request, &()).await?;
    let files = match boundary(&headers) {
        Some(boundary) => parts(&body, &boundary)?,
        None => vec![("upload".to_owned(), body)],
    };
    if files.is_empty() {
        return Err(Problem::invalid("there is no file in the body"));
    }
    let count = files.len();
    let examine = move || {
        let files = files.iter().map(|(name, bytes)| (name.as_str(), &**bytes));
        Ok(doctor::render::json(&doctor::examine_all(files)))
    };
    let user = caller.who.user.to_string();
    examined(&api, (format!("{count} files"), user), caller.deadline, examine).await
}

/// Examines on a thread of its own, on the ledger with this key and tenant.
async fn examined(
    api: &Api,
    (key, tenant): (String, String),
    deadline: Deadline,
    examine: impl FnOnce() -> Result<String, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    let op = api.ledger.begin("doctor", key, tenant);
    op.step("examine");
    let busy = |_| Problem::new(ErrorCode::Overloaded, "no thread was free for it in time");
    let examined = api.tasks.spawn_blocking("doctor", deadline, examine).await;
    let report = examined.map_err(busy)?.await;
    let report = report.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    op.finish(report.as_ref().map_or_else(|problem| problem.code.outcome(), |_| Outcome::Done));
    Ok(([(header::CONTENT_TYPE, "application/json")], report?).into_response())
}

/// The boundary of a body with several files.
fn boundary(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let (name, params) = kind.split_once(';')?;
    if !name.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let mut params = params.split(';').map(str::trim);
    let boundary = params.find_map(|param| param.strip_prefix("boundary="))?;
    Some(boundary.trim_matches('"').to_owned())
}

/// The files of a `multipart/form-data` body, as browsers write it.
fn parts(body: &Bytes, boundary: &str) -> Result<Vec<(String, Bytes)>, Problem> {
    let broken =
        || Problem::invalid("the body is not the multipart/form-data that its header says");
    let mark = format!("--{boundary}").into_bytes();
    let between = format!("\r\n--{boundary}").into_bytes();
    if !body.starts_with(&mark) {
        return Err(broken());
    }
    let mut files = Vec::new();
    let mut at = mark.len();
    while !body[at..].starts_with(b"--") {
        let head = memchr::memmem::find(&body[at..], b"\r\n\r\n").ok_or_else(broken)?;
        let name = file_name(&body[at..at + head]);
        let from = at + head + 4;
        let length = memchr::memmem::find(&body[from..], &between).ok_or_else(broken)?;
        if files.len() == FILES {
            let detail = format!("these are more than {FILES} files; pack them into one archive");
            return Err(Problem::invalid(detail));
        }
        let number = files.len() + 1;
        let name = name.unwrap_or_else(|| format!("upload-{number}"));
        files.push((name, body.slice(from..from + length)));
        at = from + length + between.len();
        if at > body.len() {
            return Err(broken());
        }
    }
    Ok(files)
}

fn file_name(head: &[u8]) -> Option<String> {
    let head = std::str::from_utf8(head).ok()?;
    let line = head.lines().find(|line| {
        line.get(..20).is_some_and(|name| name.eq_ignore_ascii_case("content-disposition:"))
    })?;
    let (_, name) = line.split_once("filename=\"")?;
    let (name, _) = name.split_once('"')?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests;
