//! `Actor`: whom a request to a cluster is made as, where users act under their own names.
//!
//! Contract:
//! - Every name has the cluster's prefix, and its kind: `PREFIXuser`, `PREFIXrole:NAME`,
//!   `PREFIXgroup:NAME`. No user, role or group can have the name of another, nor one of the cluster's own.
//! - A connection as somebody makes every request as them: lists, watches, logs, shells, port-forwards and
//!   changes. It never falls back to Fairlead's own account: what that may not impersonate is refused.
//! - Only which kinds a cluster serves is asked for by Fairlead itself, and is the same for everybody.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderName, HeaderValue, Request, Response};
use kube::client::Body;
use objects::kinds::Impersonation;
use tower::{Layer, Service};

use crate::error::Error;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
/// A request has as many headers at most, and servers bound what all of them take.
const MOST_GROUPS: usize = 200;

/// A user of Fairlead, with the roles and groups of this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Actor {
    pub user: String,
    pub roles: Vec<String>,
    /// The groups that the user's identity provider names.
    pub groups: Vec<String>,
}

/// The headers of every request of an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActingAs(Arc<Vec<(HeaderName, HeaderValue)>>);

impl ActingAs {
    pub(crate) fn new(
        cluster: &str,
        impersonation: &Impersonation,
        actor: &Actor,
    ) -> Result<Self, Error> {
        let prefix = &impersonation.prefix;
        let refused = |why: String| Error::Impersonation { cluster: cluster.to_owned(), why };
        if actor.user.is_empty() {
            return Err(refused("nobody is named to act as".to_owned()));
        }
        if actor.groups.len() + actor.roles.len() > MOST_GROUPS {
            let count = actor.groups.len() + actor.roles.len();
            return Err(refused(format!(
                "{} has {count} roles and groups, and {MOST_GROUPS} can be sent; let the identity \
                 provider name fewer",
                actor.user
            )));
        }
        let user = [(USER, format!("{prefix}{}", actor.user))];
        let roles = actor.roles.iter().map(|role| (GROUP, format!("{prefix}role:{role}")));
        let groups = actor.groups.iter().map(|group| (GROUP, format!("{prefix}group:{group}")));
        let header = |(name, text): (HeaderName, String)| {
            // Header values are Latin-1 to some servers and UTF-8 to others: neither is guessed.
            let value = HeaderValue::from_str(&text).ok().filter(|value| value.to_str().is_ok());
            let value =
                value.ok_or_else(|| refused(format!("{text:?} cannot be sent in a header")))?;
            Ok((name, value))
        };
        let headers = user.into_iter().chain(roles).chain(groups).map(header);
        Ok(Self(Arc::new(headers.collect::<Result<_, Error>>()?)))
    }

    /// The same client, whose requests are the actor's.
    pub(crate) fn client(&self, client: &kube::Client) -> kube::Client {
        let service = Own(client.clone());
        let namespace = client.default_namespace().to_owned();
        kube::Client::new(ActingLayer(self.clone()).layer(service), namespace)
    }
}

/// Whether a server refuses Fairlead's own account to act as somebody.
pub(crate) fn is_refusal(status: &kube::core::Status) -> bool {
    status.code == 403 && status.message.contains("cannot impersonate")
}

#[derive(Clone)]
struct ActingLayer(ActingAs);

impl<S> Layer<S> for ActingLayer {
    type Service = Acting<S>;

    fn layer(&self, inner: S) -> Acting<S> {
        Acting { headers: self.0.clone(), inner }
    }
}

struct Acting<S> {
    headers: ActingAs,
    inner: S,
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Acting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> S::Future {
        // Nobody else says whom a request is made as.
        let headers = request.headers_mut();
        let others: Vec<_> = headers
            .keys()
            .filter(|name| name.as_str().starts_with("impersonate-"))
            .cloned()
            .collect();
        for name in others {
            headers.remove(name);
        }
        for (name, value) in &*self.headers.0 {
            headers.append(name.clone(), value.clone());
        }
        self.inner.call(request)
    }
}

/// A client as a service.
struct Own(kube::Client);

type Answer = std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, kube::Error>> + Send>>;

impl Service<Request<Body>> for Own {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        let client = self.0.clone();
        Box::pin(async move { client.send(request).await })
    }
}

#[cfg(test)]
mod tests;
