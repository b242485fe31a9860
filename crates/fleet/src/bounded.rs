//! Answers of clusters have an end: a cluster is another's machine, and may be a hostile one that somebody
//! imported. What is read as a whole is cut off at [`MOST`] bytes. Watches and logs are read line by line as
//! they come; they are cut off when a line is longer than that.

use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryFutureExt};
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use tower::{BoxError, Service};

/// A page of a list has some megabytes, and so has the largest schema.
pub(crate) const MOST: usize = 256 << 20;

#[derive(Debug, thiserror::Error)]
#[error("the cluster's answer has no end that could be waited for: more than {0} bytes")]
struct Endless(usize);

#[derive(Clone, Debug)]
pub(crate) struct Bounded<S> {
    pub(crate) inner: S,
    pub(crate) most: usize,
}

impl<S, Q, B> Service<Request<Q>> for Bounded<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (most, lines) = (self.most, is_read_by_lines(request.uri()));
        let bound = move |response: Response<B>| response.map(|body| bounded(body, most, lines));
        self.inner.call(request).map_ok(bound).boxed()
    }
}

fn bounded<B>(body: B, most: usize, lines: bool) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut left = most;
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame.map_err(Into::into)?;
        let data = frame.data_ref().map_or(&[][..], |data| &data[..]);
        let end = if lines { data.iter().rposition(|byte| *byte == b'\n') } else { None };
        if end.is_some() {
            left = most;
        }
        let more = data.len() - end.map_or(0, |end| end + 1);
        left = left.checked_sub(more).ok_or(Endless(most))?;
        Ok(frame)
    });
    StreamBody::new(frames).boxed_unsync()
}

fn is_read_by_lines(uri: &Uri) -> bool {
    let mut asked = uri.query().unwrap_or_default().split('&');
    uri.path().ends_with("/log") || asked.any(|part| matches!(part, "watch=true" | "watch=1"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body::Frame;
    use tower::{ServiceExt, service_fn};

    use super::*;

    /// How many bytes of these parts come through.
    async fn read(path: &str, parts: Vec<&'static [u8]>) -> Option<usize> {
        let answer = service_fn(move |_: Request<()>| {
            let parts = parts.clone().into_iter().map(Bytes::from_static).map(Frame::data);
            let body = StreamBody::new(futures::stream::iter(parts.map(Ok::<_, Infallible>)));
            std::future::ready(Ok::<_, Infallible>(Response::new(body)))
        });
        let service = Bounded { inner: answer, most: 8 };
        let request = Request::get(path).body(()).unwrap();
        let body = service.oneshot(request).await.unwrap().into_body();
        body.collect().await.ok().map(|body| body.to_bytes().len())
    }

    #[tokio::test]
    async fn what_is_read_as_a_whole_has_an_end() {
        let list = "/api/v1/pods?limit=500";
        assert_eq!(read(list, vec![b"1234", b"5678"]).await, Some(8));
        assert_eq!(read(list, vec![b"1234", b"5678", b"9"]).await, None);
        assert_eq!(read(list, vec![b"123\n", b"567\n", b"9"]).await, None);
        assert_eq!(read("/api/v1/pods?nowatch=true", vec![b"123\n", b"567\n", b"9"]).await, None);
    }

    #[tokio::test]
    async fn what_is_read_by_lines_may_go_on_and_a_line_may_not() {
        for path in ["/api/v1/pods?limit=5&watch=true", "/api/v1/namespaces/a/pods/b/log"] {
            let lines: Vec<&[u8]> = vec![b"1234567\n", b"1234", b"567\n1", b"234567\n"];
            assert_eq!(read(path, lines).await, Some(24), "{path}");
            assert_eq!(read(path, vec![b"1234567\n", b"12345", b"6789"]).await, None, "{path}");
        }
    }
}
