//! A request of the Kubernetes API, passed on to the cluster as its client wrote it.
//!
//! Contract:
//! - It is a call like any other: in the cluster's queue, behind its breaker, on the ledger, as the user
//!   where users act under their own names. The deadline is for the answer to begin.
//! - The answer is the server's, refusals included. Only a refusal of Fairlead's own account (its credentials,
//!   or its right to act as somebody) is an error: that is not the client's.
//! - Whoever reads the answer keeps the connection, and with it the client's credentials.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::core::Status;
use stallproof::Deadline;

use crate::actor;
use crate::{Connection, Error};

/// A refusal is a sentence.
const REFUSAL: usize = 1 << 20;

/// Passes a request on. Its address is a path with a query; the rest of it is the cluster's.
pub async fn pass_on(
    connection: &Connection,
    request: Request<Bytes>,
    deadline: Deadline,
) -> Result<Response<Body>, Error> {
    let acting = connection.is_acting();
    connection
        .call("passing a request on", deadline, |client| async move {
            let request = request.map(Body::from);
            let response = client.send(request).await?;
            let own = match response.status() {
                StatusCode::UNAUTHORIZED => true,
                StatusCode::FORBIDDEN => acting,
                _ => false,
            };
            if !own {
                return Ok(response);
            }
            let (head, body) = response.into_parts();
            let read = Limited::new(body, REFUSAL).collect().await;
            let body = read.map_err(kube::Error::Service)?.to_bytes();
            let status = refusal(head.status, &body);
            if status.code == 401 || actor::is_refusal(&status) {
                return Err(kube::Error::Api(status.boxed()));
            }
            Ok(Response::from_parts(head, Body::from(body)))
        })
        .await
}

/// A refusal in whichever form it was asked for.
fn refusal(code: StatusCode, body: &[u8]) -> Status {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        Status::failure(&text, code.canonical_reason().unwrap_or_default()).with_code(code.as_u16())
    })
}
