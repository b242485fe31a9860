//! Routes, each with how it is treated. A route can be declared in no other way, so that none is
//! without a door.

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
use super::door::{self, Passage};
use super::gates::Door;

/// Where the API is.
pub(crate) const BASE: &str = "/api/v1";

/// Nobody waits longer for an answer, whatever they ask for.
const MOST: Duration = Duration::from_secs(5 * 60);
/// For what is answered from here or by one short call.
const SHORT: Grant = Grant { unasked: Duration::from_secs(10), most: MOST };
/// For lists and for what changes something.
const LONG: Grant = Grant { unasked: Duration::from_secs(30), most: MOST };
/// Our own documents are a few lines.
const SMALL: usize = 64 << 10;

/// How a route is treated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) priority: Priority,
    pub(crate) grant: Grant,
    /// What it is in the audit; none changes nothing.
    pub(crate) writes: Option<Verb>,
    /// Through `Strangers` without saying who one is. A route with a `{cluster}` goes through that
    /// cluster's door instead, unless it is answered from `here`.
    pub(crate) door: Door<'static>,
    /// Names a cluster and does not ask it: its door may be full of those who wait for it, and that
    /// is when somebody wants to look at it, disable it or remove it.
    pub(crate) here: bool,
    /// Reads what only the leader has.
    pub(crate) at_leader: bool,
    /// Reads what every replica has a part of: the one that is asked asks the others.
    pub(crate) everywhere: bool,
    /// The resource in the audit, where the path has no `{kind}`.
    pub(crate) of: &'static str,
    /// The largest body, in bytes.
    pub(crate) body: usize,
}

impl Route {
    /// Changes nothing.
    pub(crate) const fn read() -> Self {
        Self {
            priority: Priority::Normal,
            grant: SHORT,
            writes: None,
            door: Door::Local,
            here: false,
            at_leader: false,
            everywhere: false,
            of: "-",
            body: SMALL,
        }
    }

    /// As `read`, and may take a while.
    pub(crate) const fn list() -> Self {
        Self { grant: LONG, ..Self::read() }
    }

    /// Changes something: it is in the audit as `verb` on `of`.
    pub(crate) const fn write(verb: Verb, of: &'static str) -> Self {
        Self { writes: Some(verb), grant: LONG, of, ..Self::read() }
    }

    /// For everybody.
    pub(crate) const fn open() -> Self {
        Self { door: Door::Strangers, ..Self::read() }
    }

    /// Asks many clusters at once.
    pub(crate) const fn across(self) -> Self {
        Self { door: Door::Across, ..self }
    }

    /// Does not ask the cluster that it names.
    pub(crate) const fn here(self) -> Self {
        Self { here: true, ..self }
    }

    /// Is answered by the leader, whichever replica is asked.
    pub(crate) const fn at_leader(self) -> Self {
        Self { at_leader: true, ..self }
    }

    /// Is answered by all replicas together, whichever is asked.
    pub(crate) const fn everywhere(self) -> Self {
        Self { everywhere: true, door: Door::Across, ..self }
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

    /// Each behind its door.
    pub(crate) fn router(self, api: &Api) -> Router<Api> {
        let routed =
            self.0.into_iter().fold(OpenApiRouter::default(), |router, (route, handler)| {
                let passage = Passage { api: api.clone(), route };
                router.routes(handler.map(|handler| {
                    handler
                        .route_layer(DefaultBodyLimit::max(route.body))
                        .route_layer(from_fn_with_state(passage, door::door))
                }))
            });
        routed.into()
    }

    /// What they say of themselves.
    pub(crate) fn document(&self) -> OpenApi {
        let handlers = self.0.iter().map(|(_, handler)| handler.clone());
        let described = handlers.fold(OpenApiRouter::new(), OpenApiRouter::routes);
        OpenApiRouter::<Api>::default().nest(BASE, described).into_openapi()
    }

    /// What is said of each type, by its name.
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
