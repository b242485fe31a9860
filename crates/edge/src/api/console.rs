//! The console's files: embedded in the binary, compressed when it was built (`build.rs`).
//!
//! Contract:
//! - A file under `/assets/` has a hash in its name: a browser keeps it for ever. `index.html` is asked
//!   for each time, and answered 304 while it is the same.
//! - Every path that is neither a file nor under `/api/` is the page: what it shows is in its URL.
//! - Nothing of another origin, no inline script or style, no frame: the content security policy is on
//!   every file, since a worker goes by that of its own script.
//! - Files are answered from memory, to anybody, and wait for nothing; they pass no gate.

use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};

use super::{Problem, outside};

/// One file of `console/dist`.
#[derive(Debug)]
struct ConsoleFile {
    /// Such as `/assets/index-4f2a.js`.
    path: &'static str,
    etag: &'static str,
    plain: &'static [u8],
    /// None of what does not get smaller.
    gzip: Option<&'static [u8]>,
}

/// The files in the order of their paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Console(&'static [ConsoleFile]);

pub(super) const EMBEDDED: Console =
    Console(include!(concat!(env!("OUT_DIR"), "/console_files.rs")));

const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
);

const ASSETS: &str = "/assets/";
const INDEX: &str = "/index.html";

/// Answers what no route takes: a file of the console, its page, or a problem.
pub(crate) async fn file_or_page(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    EMBEDDED.answer(&method, &uri, &headers)
}

/// A page of plain HTML.
pub(crate) fn page(status: StatusCode, text: &str) -> Response {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Fairlead</title>\n\
         <h1>Fairlead</h1>\n{text}\n</html>\n"
    );
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}

impl Console {
    pub(super) fn answer(self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Response {
        let path = uri.path();
        let is_page = matches!(*method, Method::GET | Method::HEAD)
            && path != "/api"
            && !path.starts_with("/api/");
        if !is_page {
            return outside::no_such_route(uri).into_response();
        }
        if let Some(file) = self.file(path) {
            return file.answer(headers);
        }
        // A script that is no longer there must not be answered with a page.
        let is_file = path.starts_with(ASSETS) || path.rfind('/') == Some(0) && path.contains('.');
        match self.file(INDEX) {
            _ if is_file => {
                let detail = format!("the console has no file {path}; load the page again");
                Problem::new(super::ErrorCode::NotFound, detail).into_response()
            }
            Some(index) => index.answer(headers),
            None if path == "/" => page(StatusCode::OK, WITHOUT),
            None => outside::no_such_route(uri).into_response(),
        }
    }

    fn file(self, path: &str) -> Option<&'static ConsoleFile> {
        let at = self.0.binary_search_by(|file| file.path.cmp(path)).ok()?;
        self.0.get(at)
    }
}

impl ConsoleFile {
    fn answer(&self, headers: &HeaderMap) -> Response {
        let caching = if self.path.starts_with(ASSETS) {
            "public, max-age=31536000, immutable"
        } else {
            "no-cache"
        };
        let asked = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let known = asked.is_some_and(|tags| tags.split(',').any(|tag| is_same(tag, self.etag)));
        let gzip = self.gzip.filter(|_| takes_gzip(headers));
        let mut response = if known {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            Bytes::from_static(gzip.unwrap_or(self.plain)).into_response()
        };
        let answer = response.headers_mut();
        answer.remove(header::CONTENT_TYPE);
        if !known {
            let kind = HeaderValue::from_static(content_type(self.path));
            answer.insert(header::CONTENT_TYPE, kind);
            if gzip.is_some() {
                answer.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
        }
        answer.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
        answer.insert(header::ETAG, HeaderValue::from_static(self.etag));
        answer.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        answer.insert(header::CONTENT_SECURITY_POLICY, POLICY);
        response
    }
}

fn is_same(asked: &str, etag: &str) -> bool {
    let asked = asked.trim();
    asked == "*" || asked.trim_start_matches("W/") == etag
}

/// Whether an answer may be compressed.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).into_iter();
    let mut words = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    words.any(|word| {
        let (coding, quality) = word.split_once(';').unwrap_or((word, ""));
        let refused = quality.split_once('=').is_some_and(|(_, quality)| {
            quality.trim().parse::<f32>().is_ok_and(|quality| quality <= 0.0)
        });
        coding.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

const WITHOUT: &str = "<p>Many Kubernetes clusters in one place. A slow call, a stuck lock, a dead \
    cluster or a flood holds up nothing but itself, and is named within seconds.</p>\n\
    <p>This binary was built without the console. To get it, install Node.js 18 or newer, run \
    <code>npm ci &amp;&amp; npm run build</code> in <code>console/</code>, and build the binary \
    again; <code>make run</code> does all of it.</p>\n\
    <p>The API is under <a href=\"/api/v1/clusters\">/api/v1</a>; \
    <a href=\"/api/v1/openapi.json\">openapi.json</a> describes it. \
    On the command line: <code>fairlead clusters list</code>.</p>";

#[cfg(test)]
mod tests;
