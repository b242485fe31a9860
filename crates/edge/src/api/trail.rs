//! `Trail`: what the audit says of one request, and what its handler adds to that.
//!
//! Contract:
//! - Of a route that changes something, the pipeline writes the intent before the handler runs: who, what, and
//!   those fields of the query and the body that the route names. Nothing else of a body is recorded, so that
//!   no secret is.
//! - The handler adds what was before and is after. It may take the record over, as a shell does, whose outcome
//!   is known when it ends; otherwise the pipeline writes the outcome with the answer.
//! - A read of a Secret or a log is noted before it is done, and not waited for.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use access::Verb;
use access::audit::{Entry, Pending};
use axum::extract::Request;
use serde::Serialize;
use serde_json::{Map, Value};

use super::pipeline::RequestId;
use super::{Api, Caller, Problem};
use crate::serve::Peer;

/// The resource whose reads are noted.
const SECRETS: &str = "secrets";

/// The audit's record of one request. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail {
    pub(crate) from: Option<IpAddr>,
    pub(crate) request_id: Option<String>,
    /// Of a route that changes something. Written by the pipeline, taken by it or by the handler.
    pending: Arc<Mutex<Option<Pending>>>,
}

impl Trail {
    pub(crate) fn of(request: &Request) -> Self {
        let peer = request.extensions().get::<Peer>();
        let id = request.extensions().get::<RequestId>();
        Self {
            from: peer.map(|Peer(address)| address.ip()),
            request_id: id.map(|id| id.as_str().to_owned()),
            pending: Arc::default(),
        }
    }

    pub(crate) fn begin(&self, pending: Pending) {
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = Some(pending);
    }

    /// The record, for whoever reports the outcome.
    pub(crate) fn take(&self) -> Option<Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn with(&self, add: impl FnOnce(&mut Pending)) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pending) = pending.as_mut() {
            add(pending);
        }
    }

    /// Names what was made.
    pub(crate) fn named(&self, name: &str) {
        self.with(|pending| pending.name(name));
    }

    /// Says what the subject was before.
    pub(crate) fn before(&self, value: &impl Serialize) {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.with(|pending| pending.before(value));
    }

    /// Says what the subject is now.
    pub(crate) fn after(&self, value: &impl Serialize) {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.with(|pending| pending.after(value));
    }

    /// Adds a fact.
    pub(crate) fn detail(&self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        self.with(|pending| pending.detail(key, value));
    }
}

impl Caller {
    /// Notes a read of this one resource, before it is done.
    pub(crate) fn note_read(
        &self,
        api: &Api,
        verb: Verb,
        (cluster, namespace): (&str, Option<&str>),
        (resource, name): (&str, Option<&str>),
        details: Map<String, Value>,
    ) -> Result<(), Problem> {
        let entry = Entry {
            who: self.who.clone(),
            from: self.trail.from,
            verb,
            cluster: cluster.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            resource: resource.to_owned(),
            name: name.map(ToOwned::to_owned),
            request_id: self.trail.request_id.clone(),
            dry_run: false,
            details,
        };
        Ok(api.audit.note(entry, "ok")?)
    }

    /// As `note_read`, if the resource is one whose reads are noted.
    pub(crate) fn note_secret(
        &self,
        api: &Api,
        verb: Verb,
        within: (&str, Option<&str>),
        (resource, name): (&str, Option<&str>),
    ) -> Result<(), Problem> {
        if resource != SECRETS {
            return Ok(());
        }
        self.note_read(api, verb, within, (resource, name), Map::new())
    }
}

/// Those fields of a body that a route records, and the name of its subject.
pub(super) fn of_body(
    body: &[u8],
    named_by: &str,
    fields: &[&str],
) -> (Option<String>, Map<String, Value>) {
    let Ok(Value::Object(mut body)) = serde_json::from_slice(body) else {
        return Default::default();
    };
    let name = body.get(named_by).and_then(Value::as_str).map(ToOwned::to_owned);
    let recorded = fields.iter().filter_map(|key| Some(((*key).to_owned(), body.remove(*key)?)));
    (name, recorded.collect())
}

/// Those parameters of a query that a route records. One that is repeated is a list.
pub(super) fn of_query(query: Option<&str>, keys: &[&str]) -> Map<String, Value> {
    let mut recorded = Map::new();
    for key in keys {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let mut values: Vec<Value> = pairs
            .filter(|(name, _)| name == key)
            .map(|(_, value)| value.into_owned().into())
            .collect();
        match values.len() {
            0 => {}
            1 if *key != "command" => drop(recorded.insert((*key).to_owned(), values.remove(0))),
            _ => drop(recorded.insert((*key).to_owned(), values.into())),
        }
    }
    recorded
}

#[cfg(test)]
mod tests;
