//! Collects the `Warning` headers of API servers, such as that a version is deprecated.
//!
//! ```text
//! listen(work) ── task local ──► work ──► client ──► Listening (records the headers of each response)
//! ```
//!
//! Contract:
//! - Only warnings of calls within [`listen`] are collected.
//! - At most [`MOST`] different warnings are kept for one call of [`listen`], each of at most
//!   [`LONGEST`] characters without control characters, in the order in which they came.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, Response, header};
use parking_lot::Mutex;
use tower::{Layer, Service};

/// API servers send few.
const MOST: usize = 20;
/// API servers cut the warnings of admission plugins at some hundred characters.
const LONGEST: usize = 500;

tokio::task_local! {
    static HEARD: Arc<Mutex<Vec<String>>>;
}

/// Does the work, and returns its result with the warnings that it caused.
pub async fn listen<T>(work: impl Future<Output = T>) -> (T, Vec<String>) {
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let done = HEARD.scope(Arc::clone(&heard), work).await;
    let warnings = std::mem::take(&mut *heard.lock());
    (done, warnings)
}

fn note(headers: &HeaderMap) {
    let values = headers.get_all(header::WARNING);
    if values.iter().next().is_none() {
        return;
    }
    // Outside of `listen` nobody wants the warnings.
    let _ = HEARD.try_with(|heard| {
        let mut heard = heard.lock();
        for value in &values {
            for warning in parse(&String::from_utf8_lossy(value.as_bytes())) {
                if heard.len() < MOST && !heard.contains(&warning) {
                    heard.push(warning);
                }
            }
        }
    });
}

/// Returns the texts of a header such as `299 - "text" "date", 299 - "text"`.
fn parse(header: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = header;
    while let Some((_, quoted)) = rest.split_once('"') {
        let (text, after) = unquote(quoted);
        texts.push(clean(&text));
        // A second quoted text before the comma is the date.
        rest = match after.split_once('"') {
            Some((between, date)) if between.trim().is_empty() => unquote(date).1,
            _ => after,
        };
    }
    texts.retain(|text| !text.is_empty());
    texts
}

/// Splits a quoted text from what follows it.
fn unquote(quoted: &str) -> (String, &str) {
    let mut text = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (text, &quoted[at + 1..]),
            '\\' => text.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => text.push(character),
        }
    }
    (text, "")
}

fn clean(text: &str) -> String {
    let plain = text.chars().map(|it| if it.is_control() { ' ' } else { it });
    let plain: String = plain.take(LONGEST).collect();
    plain.trim().to_owned()
}

/// Makes a client's service a [`Listening`] one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenLayer;

impl<S> Layer<S> for ListenLayer {
    type Service = Listening<S>;

    fn layer(&self, inner: S) -> Listening<S> {
        Listening { inner }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Listening<S> {
    inner: S,
}

impl<S, R, B> Service<R> for Listening<S>
where
    S: Service<R, Response = Response<B>>,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        Answering { inner: self.inner.call(request) }
    }
}

/// A pending response. Whoever waits for it polls it, which is within the scope of `listen`.
#[derive(Debug)]
pub(crate) struct Answering<F> {
    inner: F,
}

impl<F, B, E> Future for Answering<F>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.inner).poll(cx));
        if let Ok(answer) = &answer {
            note(answer.headers());
        }
        Poll::Ready(answer)
    }
}

#[cfg(test)]
mod tests;
