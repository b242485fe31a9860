use axum::body::to_bytes;

use super::*;

static FILES: [ConsoleFile; 3] = [
    ConsoleFile {
        path: "/assets/app-1f.js",
        etag: "\"js\"",
        plain: b"plain",
        gzip: Some(b"small"),
    },
    ConsoleFile { path: "/icon.svg", etag: "\"svg\"", plain: b"<svg/>", gzip: None },
    ConsoleFile { path: "/index.html", etag: "\"html\"", plain: b"<html>", gzip: None },
];

const BUILT: Console = Console(&FILES);
const NOT_BUILT: Console = Console(&[]);

fn get(console: Console, path: &'static str, headers: &[(header::HeaderName, &str)]) -> Response {
    let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
    console.answer(&Method::GET, &Uri::from_static(path), &headers.collect())
}

async fn text(response: Response) -> String {
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_file_with_a_hash_in_its_name_is_kept_and_the_page_is_asked_for() {
    let script = get(BUILT, "/assets/app-1f.js", &[(header::ACCEPT_ENCODING, "br, gzip;q=0.8")]);
    assert_eq!(script.headers()[header::CACHE_CONTROL], "public, max-age=31536000, immutable");
    assert_eq!(script.headers()[header::CONTENT_ENCODING], "gzip");
    assert_eq!(script.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
    assert!(script.headers().contains_key(header::CONTENT_SECURITY_POLICY));
    assert_eq!(text(script).await, "small");
    let plain = get(BUILT, "/assets/app-1f.js", &[(header::ACCEPT_ENCODING, "gzip;q=0")]);
    assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
    assert_eq!(text(plain).await, "plain");

    let page = get(BUILT, "/", &[]);
    assert_eq!(page.headers()[header::CACHE_CONTROL], "no-cache");
    assert_eq!(page.headers()[header::ETAG], "\"html\"");
    let again = get(BUILT, "/", &[(header::IF_NONE_MATCH, "W/\"html\"")]);
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(text(again).await, "");
    let changed = get(BUILT, "/", &[(header::IF_NONE_MATCH, "\"older\"")]);
    assert_eq!(changed.status(), StatusCode::OK);
}

#[tokio::test]
async fn every_path_of_the_page_is_the_page_and_what_is_none_is_not() {
    for path in ["/", "/c/eu,us/pods", "/c/eu/pods/shop/web-1.2", "/index.html", "/now"] {
        let page = get(BUILT, path, &[]);
        assert_eq!(page.status(), StatusCode::OK, "{path}");
        assert_eq!(text(page).await, "<html>", "{path}");
    }
    for path in ["/api", "/api/v1/nothing", "/api/v2", "/assets/app-0e.js", "/favicon.ico"] {
        assert_eq!(get(BUILT, path, &[]).status(), StatusCode::NOT_FOUND, "{path}");
    }
    let posted = BUILT.answer(&Method::POST, &Uri::from_static("/now"), &HeaderMap::new());
    assert_eq!(posted.status(), StatusCode::NOT_FOUND);
}

#[test]
fn the_policy_lets_nothing_in_that_is_not_ours() {
    let policy = POLICY;
    let policy = policy.to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    for word in ["unsafe", "*", "http"] {
        assert!(!policy.contains(word), "{policy}");
    }
}

#[tokio::test]
async fn without_a_console_the_page_says_how_to_get_it() {
    let page = get(NOT_BUILT, "/", &[]);
    assert_eq!(page.status(), StatusCode::OK);
    assert!(text(page).await.contains("npm ci"));
    assert_eq!(get(NOT_BUILT, "/now", &[]).status(), StatusCode::NOT_FOUND);
}

#[test]
fn embedded_files_are_in_the_order_that_they_are_looked_for() {
    assert!(EMBEDDED.0.is_sorted_by(|one, other| one.path < other.path));
    assert!(EMBEDDED.0.is_empty() || EMBEDDED.file(INDEX).is_some());
}

#[tokio::test]
async fn the_page_without_a_console_asks_for_the_node_that_builds_one() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let package = std::fs::read_to_string(format!("{root}/console/package.json")).unwrap();
    let package: serde_json::Value = serde_json::from_str(&package).unwrap();
    let wanted = package["engines"]["node"].as_str().unwrap().trim_start_matches(">=").to_owned();
    let html = [(header::ACCEPT, "text/html")];
    let page = text(get(NOT_BUILT, "/", &html)).await;
    assert!(page.contains(&format!("Node.js {wanted} or newer")), "{page}");
    let script = std::fs::read_to_string(format!("{root}/scripts/console")).unwrap();
    assert!(script.contains(&format!("major >= {wanted}")), "scripts/console");
}
