//! Routes, each with how it is treated. A route can be declared in no other way, so that every request
//! passes the pipeline.

use std::time::Duration;

use access::Verb;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use stallproof::Priority;
use stallproof::deadline::Grant;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

use super::Api;
use super::gates::RouteGate;
use super::pipeline::{self, RouteContext};

/// Where the API is.
pub(crate) const BASE: &str = "/api/v1";

/// The longest that a caller may wait for an answer.
const MOST: Duration = Duration::from_secs(5 * 60);
/// For answers from memory, or by one short call.
const SHORT: Grant = Grant { unasked: Duration::from_secs(10), most: MOST };
/// For lists and for what changes something.
const LONG: Grant = Grant { unasked: Duration::from_secs(30), most: MOST };
/// The largest of our own documents, which have a few lines.
const SMALL: usize = 64 << 10;

/// How a route is treated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) priority: Priority,
    pub(crate) grant: Grant,
    /// The verb in the audit; none for a route that changes nothing.
    pub(crate) writes: Option<Verb>,
    /// `Anonymous` and `Provider` let callers in without a login. A route with a `{cluster}` goes through that
    /// cluster's gate instead, unless it is `local`.
    pub(crate) gate: RouteGate<'static>,
    /// The route names a cluster and does not call it. The cluster's gate may be full of requests that
    /// wait for it, and that is when somebody wants to look at it, disable it or remove it.
    pub(crate) local: bool,
    /// Reads or changes what only the leader has.
    pub(crate) at_leader: bool,
    /// Reads what every replica has a part of: the one that is asked asks the others.
    pub(crate) all_replicas: bool,
    /// Changes what one replica has: that which `replica` of the query names, whichever is asked.
    pub(crate) at_replica: bool,
    /// Is asked with a body, by POST, and changes nothing.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test lists those that are"))]
    pub(crate) question: bool,
    /// The resource in the audit, where the path has no `{kind}`.
    pub(crate) resource: &'static str,
    /// The fields of the body or the query that the audit records; none of them is secret.
    pub(crate) recorded: &'static [&'static str],
    /// The field of the body that names the subject, where the path does not.
    pub(crate) named_by: &'static str,
    /// The largest body, in bytes.
    pub(crate) body: usize,
    /// Passes on what a client of the Kubernetes API asks: takes tokens of kubeconfigs and no cookies, and is
    /// in the audit as what the path says.
    pub(crate) kubernetes: bool,
}

impl Route {
    /// Changes nothing.
    pub(crate) const fn read() -> Self {
        Self {
            priority: Priority::Normal,
            grant: SHORT,
            writes: None,
            gate: RouteGate::Local,
            local: false,
            at_leader: false,
            all_replicas: false,
            at_replica: false,
            question: false,
            resource: "-",
            recorded: &[],
            named_by: "",
            body: SMALL,
            kubernetes: false,
        }
    }

    /// As `read`, for what may take a while.
    pub(crate) const fn list() -> Self {
        Self { grant: LONG, ..Self::read() }
    }

    /// Changes something, and is in the audit as `verb` on `resource`.
    pub(crate) const fn write(verb: Verb, resource: &'static str) -> Self {
        Self { writes: Some(verb), grant: LONG, resource, ..Self::read() }
    }

    /// Needs no login. Bodies of strangers are here before they are at a gate, so they are small.
    pub(crate) const fn open() -> Self {
        Self { gate: RouteGate::Anonymous, body: 8 << 10, ..Self::read() }
    }

    /// Needs no login, and waits for an identity provider.
    pub(crate) const fn open_at_provider() -> Self {
        Self { gate: RouteGate::Provider, ..Self::open() }
    }

    /// Asks many clusters at once.
    pub(crate) const fn fan_out(self) -> Self {
        Self { gate: RouteGate::FanOut, ..self }
    }

    /// Does not ask the cluster that it names.
    pub(crate) const fn local(self) -> Self {
        Self { local: true, ..self }
    }

    /// Is answered by the leader, whichever replica is asked.
    pub(crate) const fn at_leader(self) -> Self {
        Self { at_leader: true, ..self }
    }

    /// Is answered by all replicas together, whichever is asked.
    pub(crate) const fn all_replicas(self) -> Self {
        Self { all_replicas: true, gate: RouteGate::FanOut, ..self }
    }

    /// Is done by the replica that the query names.
    pub(crate) const fn at_replica(self) -> Self {
        Self { at_replica: true, ..self }
    }

    /// Is a POST that changes nothing.
    pub(crate) const fn question(self) -> Self {
        Self { question: true, ..self }
    }

    /// Has the audit record these fields of the body or the query. None of them may be secret.
    pub(crate) const fn recording(self, recorded: &'static [&'static str]) -> Self {
        Self { recorded, ..self }
    }

    /// Names its subject by this field of the body.
    pub(crate) const fn named_by(self, named_by: &'static str) -> Self {
        Self { named_by, ..self }
    }

    /// Is given so long by who does not say how long they wait.
    pub(crate) const fn unasked(self, unasked: Duration) -> Self {
        Self { grant: Grant { unasked, most: MOST }, ..self }
    }

    /// Passes on what a client of the Kubernetes API asks.
    pub(crate) const fn kubernetes(self) -> Self {
        Self { kubernetes: true, ..self }
    }

    /// Takes bodies of up to `body` bytes.
    pub(crate) const fn body(self, body: usize) -> Self {
        Self { body, ..self }
    }
}

/// Declared routes.
#[derive(Default)]
pub(crate) struct Routes(Vec<(Route, UtoipaMethodRouter<Api>)>);

impl Routes {
    /// Declares one: `with(Route::read(), routes!(handler))`.
    #[must_use]
    pub(crate) fn with(mut self, route: Route, handler: UtoipaMethodRouter<Api>) -> Self {
        self.0.push((route, handler));
        self
    }

    #[must_use]
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Builds the router, each route behind the pipeline.
    pub(crate) fn router(self, api: &Api) -> Router<Api> {
        let routed =
            self.0.into_iter().fold(OpenApiRouter::default(), |router, (route, handler)| {
                let context = RouteContext { api: api.clone(), route };
                router.routes(handler.map(|handler| {
                    handler
                        .route_layer(DefaultBodyLimit::max(route.body))
                        .route_layer(from_fn_with_state(context, pipeline::pipeline))
                }))
            });
        routed.into()
    }

    /// The OpenAPI document of all routes.
    pub(crate) fn document(&self) -> OpenApi {
        let handlers = self.0.iter().map(|(_, handler)| handler.clone());
        let described = handlers.fold(OpenApiRouter::new(), OpenApiRouter::routes);
        let mut document = OpenApiRouter::<Api>::default().nest(BASE, described).into_openapi();
        // A parameter that takes the rest of a path is one like any other to who reads this.
        let paths = std::mem::take(&mut document.paths.paths).into_iter();
        document.paths.paths = paths.map(|(path, item)| (path.replace("{*", "{"), item)).collect();
        document
    }

    /// Each type's schema, by its name.
    #[cfg(test)]
    pub(crate) fn schemas(&self) -> Vec<(String, serde_json::Value)> {
        let all = self.0.iter().flat_map(|(_, (schemas, _, _))| schemas);
        let written = |schema| serde_json::to_value(schema).unwrap_or_default();
        all.map(|(name, schema)| (name.clone(), written(schema))).collect()
    }

    /// Each method of each path, with how it is treated.
    #[cfg(test)]
    pub(crate) fn facts(&self) -> Vec<(http::Method, String, Route)> {
        let each = self.0.iter().flat_map(|(route, (_, paths, _))| {
            paths.paths.iter().flat_map(move |(path, item)| {
                operations(item).map(move |(method, _)| (method, path.clone(), *route))
            })
        });
        each.collect()
    }
}

/// The operations of a path, by method.
#[cfg(test)]
pub(crate) fn operations(
    item: &utoipa::openapi::PathItem,
) -> impl Iterator<Item = (http::Method, &utoipa::openapi::path::Operation)> {
    let all = [
        (http::Method::GET, &item.get),
        (http::Method::PUT, &item.put),
        (http::Method::POST, &item.post),
        (http::Method::PATCH, &item.patch),
        (http::Method::DELETE, &item.delete),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}
