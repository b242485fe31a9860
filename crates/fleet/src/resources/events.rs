//! Events of an object, of a namespace, or of the whole cluster, the latest first.
//!
//! They are read from the core group, which every server has. Writers of the newer `events.k8s.io` have
//! their times and counts in other fields of the same object; here they are in one place.

use std::cmp::Reverse;

use http::HeaderValue;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as WireEvent;
use kube::core::DynamicObject;
use serde::Serialize;
use serde_json::Value;
use stallproof::Deadline;

use super::list::{Column, ListQuery, Page, Row, list};
use super::list_format::{Changed, ListFormat, Objects, RawList, row_of};
use crate::connection::Connection;
use crate::discovery::ServedKind;
use crate::error::Error;

#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    Object(&'a DynamicObject),
    Namespace(&'a str),
    All,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    pub reason: String,
    pub message: String,
    pub namespace: Option<String>,
    /// `pod/web-0`.
    pub object: String,
    /// The component that reported it.
    pub source: String,
    pub first_seen: Option<Timestamp>,
    pub last_seen: Option<Timestamp>,
    pub count: i32,
}

/// Lists events, the latest of the page first.
pub async fn events(
    connection: &Connection,
    about: About<'_>,
    deadline: Deadline,
) -> Result<Page<Event>, Error> {
    let mut query = ListQuery::of("events.v1.");
    match about {
        About::All => {}
        About::Namespace(namespace) => query.namespace = Some(namespace.to_owned()),
        About::Object(object) => {
            // Events of objects without a namespace are in `default` or in any other.
            query.namespace = object.metadata.namespace.clone();
            query.fields = Some(selector(object));
        }
    }
    let page = list(connection, &query, deadline).await?;
    let wire = page.items.into_iter().filter_map(|item| item.try_parse::<WireEvent>().ok());
    let mut events: Vec<_> = wire.map(Event::from).collect();
    events.sort_by_key(|event| Reverse(event.last_seen));
    Ok(Page { items: events, continue_token: page.continue_token, remaining: page.remaining })
}

fn selector(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map(|types| types.kind.as_str());
    let metadata = &object.metadata;
    // A node's events have its name instead of its uid.
    let uid = metadata.uid.as_deref().filter(|_| metadata.namespace.is_some());
    [("name", metadata.name.as_deref()), ("kind", kind), ("uid", uid)]
        .into_iter()
        .filter_map(|(field, value)| Some(format!("involvedObject.{field}={}", escaped(value?))))
        .collect::<Vec<_>>()
        .join(",")
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

impl From<WireEvent> for Event {
    fn from(event: WireEvent) -> Self {
        let created = event.metadata.creation_timestamp.map(|time| time.0);
        let at = event.event_time.map(|time| time.0);
        let series = event.series.unwrap_or_default();
        let first = event.first_timestamp.map(|time| time.0).or(at).or(created);
        let last = series.last_observed_time.map(|time| time.0);
        let last = last.or(event.last_timestamp.map(|time| time.0)).or(at).or(first);
        let object = event.involved_object;
        let source = event.source.and_then(|source| source.component);
        let reporter = event.reporting_component;
        Self {
            kind: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
            namespace: event.metadata.namespace,
            object: format!(
                "{}/{}",
                object.kind.unwrap_or_default().to_lowercase(),
                object.name.unwrap_or_default()
            ),
            source: source
                .into_iter()
                .chain(reporter)
                .find(|who| !who.is_empty())
                .unwrap_or_default(),
            first_seen: first,
            last_seen: last,
            count: series.count.or(event.count).unwrap_or(1).max(1),
        }
    }
}

/// Events as the rows of a table whose times are times, so that whoever shows them computes their ages.
#[derive(Debug)]
pub(super) enum EventRows {}

impl ListFormat for EventRows {
    type Item = Row;
    const LIST: HeaderValue = Objects::LIST;
    const WATCH: HeaderValue = Objects::WATCH;

    fn parse(found: &ServedKind, text: &str) -> Result<RawList<Row>, serde_json::Error> {
        let list = Objects::parse(found, text)?;
        Ok(RawList {
            columns: columns(),
            items: list.items.iter().map(row).collect(),
            continue_token: list.continue_token,
            remaining: list.remaining,
            version: list.version,
        })
    }

    fn changed(found: &ServedKind, line: &str) -> Result<Vec<Changed<Row>>, serde_json::Error> {
        let changed = Objects::changed(found, line)?;
        Ok(changed.into_iter().map(|(object, version)| (row(&object), version)).collect())
    }
}

fn columns() -> Vec<Column> {
    let column = |(name, kind): (&str, &str)| Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: String::new(),
        priority: 0,
    };
    let all = [
        ("Last Seen", "date"),
        ("Type", "string"),
        ("Reason", "string"),
        ("Object", "string"),
        ("Message", "string"),
        ("Count", "integer"),
        ("Source", "string"),
        ("First Seen", "date"),
    ];
    all.into_iter().map(column).collect()
}

fn row(object: &DynamicObject) -> Row {
    // An event that cannot be read has its name and no more.
    let event: WireEvent = object.clone().try_parse().unwrap_or_default();
    let event = Event::from(event);
    let time = |at: Option<Timestamp>| at.map_or(Value::Null, |at| at.to_string().into());
    let cells = vec![
        time(event.last_seen),
        event.kind.into(),
        event.reason.into(),
        event.object.into(),
        event.message.into(),
        event.count.into(),
        event.source.into(),
        time(event.first_seen),
    ];
    row_of(object, cells)
}

#[cfg(test)]
mod tests;
