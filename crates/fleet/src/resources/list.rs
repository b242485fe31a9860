//! Lists objects of one cluster, as objects or as the API server's own table, which kubectl prints.
//!
//! Contract: pages are read until the list is complete, the query's limit is reached, or the deadline
//! passes. An incomplete list has a `continue_token`; nothing is cut silently. A deadline that passes
//! before the first page is an error.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use http::header::ACCEPT;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::core::{DynamicObject, Request};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stallproof::Deadline;

use super::list_format::{ListFormat, Objects, RawList, Rows, UnparsedTable, parsed_row, unparsed};
use crate::connection::Connection;
use crate::error::Error;

/// The page size of kubectl.
const PAGE: u32 = 500;
/// The first page of a list that is shown as it comes: as many as a screen has.
const FIRST_PAGE: usize = 100;
/// The longest list that is asked for at once, from the API server's memory: some tens of megabytes.
const AT_ONCE: i64 = 30_000;
/// Rows of such a list that are taken in one go: more would keep a worker from others.
const SLICE: usize = 500;
/// The default limit: so many rows are tens of megabytes.
const MOST: u32 = 10_000;

/// A query for objects. Selectors are written as in kubectl: `app=web,tier!=cache`, `status.phase=Running`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListQuery {
    /// Any word that [`Connection::find`] takes.
    pub kind: String,
    /// The namespace; `None` means all.
    pub namespace: Option<String>,
    pub labels: Option<String>,
    pub fields: Option<String>,
    /// The most objects; by default, and for zero, ten thousand.
    pub limit: Option<u32>,
    /// The token of an earlier list that was incomplete.
    pub continue_token: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The token to go on with, if the list is incomplete.
    pub continue_token: Option<String>,
    /// The number of further objects, if the server tells it.
    pub remaining: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// The token to go on with, if the list is incomplete.
    pub continue_token: Option<String>,
    /// The number of further objects, if the server tells it.
    pub remaining: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// `name` marks the object's name.
    #[serde(default)]
    pub format: String,
    /// Zero is always shown, a higher number only with `-o wide`.
    #[serde(default)]
    pub priority: i32,
}

/// One object: a cell for each column, and its identity.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    pub cells: Vec<Value>,
    pub name: String,
    pub namespace: Option<String>,
    pub uid: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub created: Option<Timestamp>,
    pub resource_version: Option<String>,
}

impl ListQuery {
    pub fn of(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..Self::default() }
    }

    #[must_use]
    pub fn within(mut self, namespace: Option<&str>) -> Self {
        self.namespace = namespace.map(ToOwned::to_owned);
        self
    }

    fn params(&self, limit: Option<u32>, continue_token: Option<String>) -> ListParams {
        ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit,
            continue_token,
            ..ListParams::default()
        }
    }
}

pub async fn list(
    connection: &Connection,
    query: &ListQuery,
    deadline: Deadline,
) -> Result<Page<DynamicObject>, Error> {
    Ok(gather::<Objects>(connection, query, deadline).await?.into())
}

pub async fn table(
    connection: &Connection,
    query: &ListQuery,
    deadline: Deadline,
) -> Result<Table, Error> {
    Ok(gather::<Rows>(connection, query, deadline).await?.into())
}

pub(super) async fn gather<F: ListFormat>(
    connection: &Connection,
    query: &ListQuery,
    deadline: Deadline,
) -> Result<RawList<F::Item>, Error> {
    let mut whole: Option<RawList<F::Item>> = None;
    let last = each_page::<F>(connection, query, deadline, |page| match &mut whole {
        Some(list) => list.extend(page),
        None => whole = Some(page),
    });
    last.await?;
    Ok(whole.expect("there is a first page, or an error"))
}

/// Calls `take` with every page of the whole list, however long it is, until it says no. Each page has
/// `patience`; one that is late fails the list, since a part of it must not be taken for all.
pub(super) async fn every_page<F: ListFormat>(
    connection: &Connection,
    query: &ListQuery,
    patience: Duration,
    mut take: impl FnMut(RawList<F::Item>) -> bool,
) -> Result<(), Error> {
    let (mut token, mut most) = (None, FIRST_PAGE);
    loop {
        let deadline = Deadline::after(patience);
        let page = fetch::<F>(connection, query, most, token, deadline).await?;
        most = PAGE as usize;
        token = page.continue_token.clone();
        if !take(page) || token.is_none() {
            return Ok(());
        }
    }
}

/// Calls `take` with every row of the first list of a table, as [`every_page`], and `begin` before: whenever
/// that is called again, the list is told anew. Returns the version to watch from.
///
/// The first page is what a screen has. The rest is asked for at once if it is not too long: an API server
/// has it in memory and returns it several times faster than page after page from etcd. Its memory may be
/// older than the page: then the page's rows stay, and whoever watches from the version that is returned is
/// told the rest. Lists after the first go page by page, so that nothing is seen as it was before.
pub(super) async fn every_row(
    connection: &Connection,
    query: &ListQuery,
    patience: Duration,
    begin: impl Fn(),
    mut take: impl FnMut(Vec<Column>, Vec<Row>) -> bool,
) -> Result<String, Error> {
    let (mut version, mut at_once, mut seen) = (String::new(), false, HashSet::new());
    begin();
    every_page::<Rows>(connection, query, patience, |page| {
        if version.is_empty() {
            at_once =
                page.remaining.is_some_and(|rest| (i64::from(PAGE)..=AT_ONCE).contains(&rest));
            version = page.version;
        }
        if at_once {
            seen.extend(page.items.iter().filter_map(|row| row.uid.clone()));
        }
        take(page.columns, page.items) && !at_once
    })
    .await?;
    if !at_once {
        return Ok(version);
    }
    let UnparsedTable { mut columns, rows, version: in_memory } =
        from_memory(connection, query, patience).await?;
    if rows.is_empty() {
        // Not a table: a server that prints none answers with whole objects, which pages know how to take.
        begin();
        let mut first = true;
        every_page::<Rows>(connection, query, patience, |page| {
            // A watch from the version of a later page would miss what changed between the pages.
            if std::mem::take(&mut first) {
                version.clone_from(&page.version);
            }
            take(page.columns, page.items)
        })
        .await?;
        return Ok(version);
    }
    if is_older(&in_memory, &version) {
        columns.clear();
    } else {
        // What the first page named may be gone by now.
        begin();
        seen.clear();
    }
    for slice in rows.chunks(SLICE) {
        let rows = slice.iter().filter_map(|row| parsed_row(row));
        let rows = rows.filter(|row| row.uid.as_ref().is_none_or(|uid| !seen.contains(uid)));
        if !take(std::mem::take(&mut columns), rows.collect()) {
            break;
        }
        tokio::task::yield_now().await;
    }
    Ok(in_memory)
}

/// Whether a version of a list is before another; both are etcd's, which counts.
fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}

/// The whole table as the API server has it in memory.
async fn from_memory(
    connection: &Connection,
    query: &ListQuery,
    patience: Duration,
) -> Result<UnparsedTable, Error> {
    let params = query.params(None, None).at("0");
    let deadline = Deadline::after(patience);
    let namespace = query.namespace.as_deref();
    connection
        .on(&query.kind, namespace, "listing", deadline, |api, _| {
            let request = Request::new(api.resource_url()).list(&params);
            async move {
                let mut request = request.map_err(kube::Error::BuildRequest)?;
                request.headers_mut().insert(ACCEPT, Rows::LIST);
                let text = api.into_client().request_text(request).await?;
                unparsed(&text).map_err(kube::Error::SerdeError)
            }
        })
        .await
}

/// Gathers the whole list, as [`every_page`].
pub(super) async fn gather_whole<F: ListFormat>(
    connection: &Connection,
    query: &ListQuery,
    patience: Duration,
) -> Result<RawList<F::Item>, Error> {
    let mut whole: Option<RawList<F::Item>> = None;
    let all = every_page::<F>(connection, query, patience, |page| {
        match &mut whole {
            Some(list) => list.extend(page),
            None => whole = Some(page),
        }
        true
    });
    all.await?;
    Ok(whole.expect("there is a first page, or an error"))
}

/// Calls `take` with every page, and returns whether the list is complete.
pub(super) async fn each_page<F: ListFormat>(
    connection: &Connection,
    query: &ListQuery,
    deadline: Deadline,
    mut take: impl FnMut(RawList<F::Item>),
) -> Result<bool, Error> {
    let mut left = query.limit.filter(|limit| *limit > 0).unwrap_or(MOST) as usize;
    let mut token = query.continue_token.clone();
    let mut is_first = true;
    loop {
        let page = match fetch::<F>(connection, query, left, token, deadline).await {
            Err(Error::TooLate { .. }) if !is_first => return Ok(false),
            page => page?,
        };
        is_first = false;
        left = left.saturating_sub(page.items.len());
        token = page.continue_token.clone();
        take(page);
        if token.is_none() || left == 0 {
            return Ok(token.is_none());
        }
    }
}

/// Fetches one page of at most `most` objects.
async fn fetch<F: ListFormat>(
    connection: &Connection,
    query: &ListQuery,
    most: usize,
    continue_token: Option<String>,
    deadline: Deadline,
) -> Result<RawList<F::Item>, Error> {
    let limit = u32::try_from(most).unwrap_or(u32::MAX).clamp(1, PAGE);
    let params = query.params(Some(limit), continue_token);
    let namespace = query.namespace.as_deref();
    connection
        .on(&query.kind, namespace, "listing", deadline, |api, found| {
            let request = Request::new(api.resource_url()).list(&params);
            async move {
                let mut request = request.map_err(kube::Error::BuildRequest)?;
                request.headers_mut().insert(ACCEPT, F::LIST);
                let text = api.into_client().request_text(request).await?;
                F::parse(&found, &text).map_err(kube::Error::SerdeError)
            }
        })
        .await
}

impl From<RawList<DynamicObject>> for Page<DynamicObject> {
    fn from(list: RawList<DynamicObject>) -> Self {
        Self { items: list.items, continue_token: list.continue_token, remaining: list.remaining }
    }
}

impl<T> From<RawList<T>> for Vec<T> {
    fn from(list: RawList<T>) -> Self {
        list.items
    }
}

impl From<RawList<Row>> for Table {
    fn from(list: RawList<Row>) -> Self {
        Self {
            columns: list.columns,
            rows: list.items,
            continue_token: list.continue_token,
            remaining: list.remaining,
        }
    }
}
