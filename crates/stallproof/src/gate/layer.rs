//! A `Gate` before a tower service, for HTTP and gRPC alike.
//!
//! `poll_ready` is always ready and takes nothing, so a connection that waits for its peer's next
//! request holds no place. `call` asks the gate, readies a clone of the service, and calls it. The
//! place is held until the response is there; at the deadline the call is dropped and answered as
//! too late, so that a handler that hangs costs its place for no longer than its caller waits.

use std::future::poll_fn;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tower::{Layer, Service};

use super::{Gate, LoadSignal, Overloaded, Priority};
use crate::deadline::{Deadline, Expired};

/// Puts a gate before a service. What is protocol, the edge says:
/// - `classify: Fn(&Request) -> (Priority, Deadline)`
/// - `refuse: Fn(Overloaded) -> Response`
/// - `judge: Fn(&Response) -> LoadSignal`: whether the time it took says anything about the load. A
///   server error that came back at once does not.
#[derive(Clone, Debug)]
pub struct GateLayer<C, R, J> {
    gate: Gate,
    edge: Edge<C, R, J>,
}

#[derive(Clone, Debug)]
struct Edge<C, R, J> {
    classify: C,
    refuse: R,
    judge: J,
}

/// A service behind a gate.
#[derive(Clone, Debug)]
pub struct Gated<S, C, R, J> {
    inner: S,
    gate: Gate,
    edge: Edge<C, R, J>,
}

impl<C, R, J> GateLayer<C, R, J> {
    pub fn new(gate: Gate, classify: C, refuse: R, judge: J) -> Self {
        Self { gate, edge: Edge { classify, refuse, judge } }
    }
}

impl<S, C: Clone, R: Clone, J: Clone> Layer<S> for GateLayer<C, R, J> {
    type Service = Gated<S, C, R, J>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated { inner, gate: self.gate.clone(), edge: self.edge.clone() }
    }
}

impl<S, Req, C, R, J> Service<Req> for Gated<S, C, R, J>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    Req: Send + 'static,
    C: Fn(&Req) -> (Priority, Deadline),
    R: Fn(Overloaded) -> S::Response + Clone + Send + 'static,
    J: Fn(&S::Response) -> LoadSignal + Clone + Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (priority, deadline) = (self.edge.classify)(&request);
        let (refuse, judge) = (self.edge.refuse.clone(), self.edge.judge.clone());
        let (gate, mut inner) = (self.gate.clone(), self.inner.clone());
        Box::pin(async move {
            let mut permit = match gate.admit(priority, deadline).await {
                Ok(permit) => permit,
                Err(overloaded) => return Ok(refuse(overloaded)),
            };
            // Until there is a response: a caller that goes away, or an error, says nothing.
            permit.signal = LoadSignal::Ignored;
            let answered = deadline.bound(async {
                poll_fn(|cx| inner.poll_ready(cx)).await?;
                inner.call(request).await
            });
            match answered.await {
                Ok(Ok(response)) => {
                    permit.end(judge(&response));
                    Ok(response)
                }
                Ok(Err(error)) => Err(error),
                Err(Expired) => {
                    permit.fail();
                    Ok(refuse(gate.overran()))
                }
            }
        })
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
