//! Compresses large JSON answers, and frames of the console's socket, for clients that take gzip: a page
//! of a table shrinks to a tenth.
//!
//! Contract: streams are left alone, and so is what is small; a token in a short answer is never
//! compressed beside what somebody else chose. Much of it is compressed on a thread of its own, within a
//! moment, or sent as it is.

use std::io::Write as _;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, header};
use stallproof::Deadline;

use super::Api;

/// Less is not worth it.
const SMALLEST: u64 = 16 << 10;
/// So much takes a millisecond or two; more would keep a worker from others.
const AT_ONCE: usize = 128 << 10;
/// For a thread to be free.
const PATIENCE: Duration = Duration::from_millis(50);

/// The response, compressed if that is worth it.
pub(crate) async fn compress(api: &Api, response: Response) -> Response {
    let json = response.headers().get(header::CONTENT_TYPE);
    let json = json.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let large = response.body().size_hint().exact().is_some_and(|size| size >= SMALLEST);
    if !json || !large || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // It is in memory already: its size is known.
    let Ok(plain) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(parts, Body::empty());
    };
    let gzip = gzip_if_worth(api, &plain).await;
    let Some(gzip) = gzip else { return Response::from_parts(parts, plain.into()) };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    Response::from_parts(parts, gzip.into())
}

/// It compressed, unless it is small or no thread is free in time.
pub(crate) async fn gzip_if_worth(api: &Api, plain: &Bytes) -> Option<Bytes> {
    if (plain.len() as u64) < SMALLEST {
        return None;
    }
    if plain.len() <= AT_ONCE {
        return gzip(plain);
    }
    let (sent, deadline) = (plain.clone(), Deadline::after(PATIENCE));
    let compressing = api.tasks.spawn_blocking("compress", deadline, move || gzip(&sent)).await;
    compressing.ok()?.await.ok().flatten()
}

pub(crate) fn gzip(plain: &Bytes) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    encoder.write_all(plain).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::response::IntoResponse;
    use flate2::read::GzDecoder;

    use super::*;
    use crate::api::tests::test_api::TestApi;

    async fn answer(api: &Api, kind: &'static str, body: String) -> (bool, Vec<u8>) {
        let response = ([(header::CONTENT_TYPE, kind)], body).into_response();
        let response = compress(api, response).await;
        let encoded = response.headers().contains_key(header::CONTENT_ENCODING);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (encoded, body.to_vec())
    }

    #[tokio::test]
    async fn large_json_is_compressed_and_nothing_else() {
        let world = TestApi::new().ready().await;
        for size in [40 << 10, 400 << 10] {
            let plain = "{\"a\":\"b\"}".repeat(size / 9);
            let (encoded, body) = answer(&world.api, "application/json", plain.clone()).await;
            assert!(encoded && body.len() * 10 < plain.len());
            let mut read = String::new();
            GzDecoder::new(&body[..]).read_to_string(&mut read).unwrap();
            assert_eq!(read, plain);
            let (encoded, body) = answer(&world.api, "text/plain", plain.clone()).await;
            assert!(!encoded && body == plain.as_bytes());
        }
        assert!(!answer(&world.api, "application/json", "{}".to_owned()).await.0);
    }
}
