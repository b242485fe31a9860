//! `ListFormat`: the form in which the API server returns objects: whole, their metadata alone, or the rows
//! of the table that kubectl prints. A server that does not know a form returns whole objects, which are
//! converted.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use http::HeaderValue;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::{DynamicObject, TypeMeta};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::warn;

use super::list::{Column, Row};
use crate::discovery::ServedKind;

/// The content of one answer to a list request.
#[derive(Debug)]
pub(super) struct RawList<T> {
    /// The columns of a table; empty for objects.
    pub(super) columns: Vec<Column>,
    pub(super) items: Vec<T>,
    pub(super) continue_token: Option<String>,
    pub(super) remaining: Option<i64>,
    pub(super) version: String,
}

/// A changed item, and its new version.
pub(super) type Changed<T> = (T, Option<String>);

pub(super) trait ListFormat: Send + Sync + 'static {
    type Item: Send + 'static;
    /// The `Accept` headers of a list and of a watch.
    const LIST: HeaderValue;
    const WATCH: HeaderValue;

    fn parse(found: &ServedKind, text: &str) -> Result<RawList<Self::Item>, serde_json::Error>;

    /// Reads what changed from one line of a watch.
    fn changed(
        found: &ServedKind,
        line: &str,
    ) -> Result<Vec<Changed<Self::Item>>, serde_json::Error>;
}

#[derive(Debug)]
pub(super) enum Objects {}
#[derive(Debug)]
pub(super) enum Metadata {}
#[derive(Debug)]
pub(super) enum Rows {}
/// Whole objects of a type, parsed once. One that cannot be parsed is logged and left out.
#[derive(Debug)]
pub(super) struct Typed<T>(PhantomData<fn() -> T>);

/// One line of a watch.
#[derive(Deserialize)]
pub(super) struct WireEvent<T> {
    pub(super) object: T,
}

#[derive(Deserialize)]
struct WireList<T> {
    #[serde(default)]
    metadata: WireListMeta,
    /// Some servers write null for an empty list.
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    continue_token: String,
    remaining_item_count: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "R: Deserialize<'de>"))]
struct WireTable<R = WireRow> {
    #[serde(default)]
    metadata: WireListMeta,
    /// Only the first change of a watch has them.
    #[serde(default)]
    column_definitions: Option<Vec<Column>>,
    #[serde(default)]
    rows: Option<Vec<R>>,
}

#[derive(Deserialize)]
struct WireRow {
    cells: Vec<Value>,
    object: Option<WireObject>,
}

#[derive(Deserialize)]
struct WireObject {
    #[serde(default)]
    metadata: WireMeta,
}

/// The metadata that a row keeps. The rest, managed fields above all, is not even parsed.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMeta {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Timestamp>,
    resource_version: Option<String>,
}

#[derive(Deserialize)]
struct WireKind {
    #[serde(default)]
    kind: String,
}

impl<T> RawList<T> {
    fn new(metadata: WireListMeta, columns: Vec<Column>, items: Vec<T>) -> Self {
        Self {
            columns,
            items,
            continue_token: Some(metadata.continue_token).filter(|token| !token.is_empty()),
            remaining: metadata.remaining_item_count,
            version: metadata.resource_version,
        }
    }

    /// Appends the next page.
    pub(super) fn extend(&mut self, next: Self) {
        self.items.extend(next.items);
        self.continue_token = next.continue_token;
        self.remaining = next.remaining;
        // All pages of a list have the version of the first.
    }
}

impl ListFormat for Objects {
    type Item = DynamicObject;
    const LIST: HeaderValue = HeaderValue::from_static("application/json");
    const WATCH: HeaderValue = HeaderValue::from_static("application/json");

    fn parse(found: &ServedKind, text: &str) -> Result<RawList<DynamicObject>, serde_json::Error> {
        let list: WireList<DynamicObject> = serde_json::from_str(text)?;
        let items = list.items.into_iter().flatten().map(|object| typed(found, object)).collect();
        Ok(RawList::new(list.metadata, Vec::new(), items))
    }

    fn changed(
        found: &ServedKind,
        line: &str,
    ) -> Result<Vec<Changed<DynamicObject>>, serde_json::Error> {
        let event: WireEvent<DynamicObject> = serde_json::from_str(line)?;
        let object = typed(found, event.object);
        let version = object.metadata.resource_version.clone();
        Ok(vec![(object, version)])
    }
}

impl ListFormat for Metadata {
    type Item = DynamicObject;
    const LIST: HeaderValue = HeaderValue::from_static(
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    );
    const WATCH: HeaderValue = HeaderValue::from_static(
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    );

    fn parse(found: &ServedKind, text: &str) -> Result<RawList<DynamicObject>, serde_json::Error> {
        Objects::parse(found, text)
    }

    fn changed(
        found: &ServedKind,
        line: &str,
    ) -> Result<Vec<Changed<DynamicObject>>, serde_json::Error> {
        Objects::changed(found, line)
    }
}

impl<T: DeserializeOwned + ResourceExt + Send + 'static> ListFormat for Typed<T> {
    type Item = T;
    const LIST: HeaderValue = Objects::LIST;
    const WATCH: HeaderValue = Objects::WATCH;

    fn parse(_: &ServedKind, text: &str) -> Result<RawList<T>, serde_json::Error> {
        if let Ok(WireList { metadata, items }) = serde_json::from_str::<WireList<T>>(text) {
            return Ok(RawList::new(metadata, Vec::new(), items.unwrap_or_default()));
        }
        let list: WireList<Value> = serde_json::from_str(text)?;
        let items = list.items.into_iter().flatten();
        let items = items.filter_map(|object| parsed(serde_json::from_value(object))).collect();
        Ok(RawList::new(list.metadata, Vec::new(), items))
    }

    fn changed(_: &ServedKind, line: &str) -> Result<Vec<Changed<T>>, serde_json::Error> {
        let event: Option<WireEvent<T>> = parsed(serde_json::from_str(line));
        let changed = event.map(|WireEvent { object }| {
            let version = object.resource_version();
            (object, version)
        });
        Ok(changed.into_iter().collect())
    }
}

fn parsed<T>(result: Result<T, serde_json::Error>) -> Option<T> {
    result.inspect_err(|error| warn!(%error, "an object cannot be parsed and is left out")).ok()
}

impl ListFormat for Rows {
    type Item = Row;
    const LIST: HeaderValue =
        HeaderValue::from_static("application/json;as=Table;g=meta.k8s.io;v=v1,application/json");
    const WATCH: HeaderValue = Self::LIST;

    fn parse(found: &ServedKind, text: &str) -> Result<RawList<Row>, serde_json::Error> {
        if serde_json::from_str::<WireKind>(text)?.kind != "Table" {
            let list = Objects::parse(found, text)?;
            let items = list.items.iter().map(plain_row).collect();
            return Ok(RawList {
                columns: plain_columns(),
                items,
                continue_token: list.continue_token,
                remaining: list.remaining,
                version: list.version,
            });
        }
        let table: WireTable = serde_json::from_str(text)?;
        let rows = table.rows.unwrap_or_default().into_iter().map(row).collect();
        Ok(RawList::new(table.metadata, table.column_definitions.unwrap_or_default(), rows))
    }

    fn changed(found: &ServedKind, line: &str) -> Result<Vec<Changed<Row>>, serde_json::Error> {
        if serde_json::from_str::<WireEvent<WireKind>>(line)?.object.kind != "Table" {
            let changed = Objects::changed(found, line)?;
            let row = |(object, version)| (plain_row(&object), version);
            return Ok(changed.into_iter().map(row).collect());
        }
        let table = serde_json::from_str::<WireEvent<WireTable>>(line)?.object;
        let rows = table.rows.unwrap_or_default().into_iter();
        let version = |row: &WireRow| row.object.as_ref()?.metadata.resource_version.clone();
        Ok(rows
            .map(|wire| (version(&wire), wire))
            .map(|(version, wire)| (row(wire), version))
            .collect())
    }
}

/// A table with its rows as they were written: reading so much of a long one takes a few milliseconds, and
/// its rows can be parsed some at a time.
pub(super) struct UnparsedTable {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Box<RawValue>>,
    pub(super) version: String,
}

pub(super) fn unparsed(text: &str) -> Result<UnparsedTable, serde_json::Error> {
    let table: WireTable<Box<RawValue>> = serde_json::from_str(text)?;
    Ok(UnparsedTable {
        columns: table.column_definitions.unwrap_or_default(),
        rows: table.rows.unwrap_or_default(),
        version: table.metadata.resource_version,
    })
}

pub(super) fn parsed_row(text: &RawValue) -> Option<Row> {
    parsed(serde_json::from_str(text.get())).map(row)
}

/// Sets the type, which the items of a list do not have.
fn typed(found: &ServedKind, mut object: DynamicObject) -> DynamicObject {
    object.types = Some(TypeMeta {
        api_version: found.resource.api_version.clone(),
        kind: found.resource.kind.clone(),
    });
    object
}

fn row(wire: WireRow) -> Row {
    let metadata = wire.object.map(|object| object.metadata).unwrap_or_default();
    Row {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        labels: metadata.labels.unwrap_or_default(),
        created: metadata.creation_timestamp,
        resource_version: metadata.resource_version,
        cells: wire.cells,
    }
}

fn plain_columns() -> Vec<Column> {
    let column = |name: &str, format: &str| Column {
        name: name.to_owned(),
        kind: "string".to_owned(),
        format: format.to_owned(),
        priority: 0,
    };
    vec![column("Name", "name"), column("Created At", "")]
}

fn plain_row(object: &DynamicObject) -> Row {
    let name = object.metadata.name.clone().map_or(Value::Null, Value::String);
    let created = created(object).map(|created| Value::String(created.to_string()));
    row_of(object, vec![name, created.unwrap_or_default()])
}

/// The row of an object with these cells.
pub(super) fn row_of(object: &DynamicObject, cells: Vec<Value>) -> Row {
    let created = created(object);
    let metadata = object.metadata.clone();
    Row {
        cells,
        name: metadata.name.unwrap_or_default(),
        namespace: metadata.namespace,
        uid: metadata.uid,
        labels: metadata.labels.unwrap_or_default(),
        created,
        resource_version: metadata.resource_version,
    }
}

fn created(object: &DynamicObject) -> Option<Timestamp> {
    object.metadata.creation_timestamp.as_ref().map(|created| created.0)
}
