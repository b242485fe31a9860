//! Lists as they are answered: pages of objects, or of the table that kubectl would print.
//!
//! Contract: what may not be seen is left out before anything is counted or cut. Where only some of
//! a list may be seen, the API server's own way to go on would name what may not: its token holds the
//! last name that it has read. Such a list is read from its beginning each time, and goes on after
//! the last object that was shown.

use std::collections::BTreeMap;

use access::Verb;
use fleet::resources::{self, ListQuery, Page};
use fleet::{Connection, Error, ServedKind};
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stallproof::Deadline;
use utoipa::{IntoParams, ToSchema};

use super::scope::Scope;
use super::{Caller, Problem};

/// The page size of a list of which the caller may see some only.
const PAGE: u32 = 500;
/// The most that is answered at once: objects of ten kilobytes make this a hundred megabytes.
const MOST: u32 = 10_000;

/// How objects are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = As)]
pub(crate) enum ListForm {
    #[default]
    Object,
    /// As kubectl prints them.
    Table,
    /// As kubectl prints them with `-o wide`.
    Wide,
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// One, or several: `a,b`. All namespaces when none is named; of no matter to kinds that have none.
    pub(crate) namespace: Option<String>,
    /// A label selector: `app=web,tier!=cache`.
    pub(crate) labels: Option<String>,
    /// A field selector: `status.phase=Running`.
    pub(crate) fields: Option<String>,
    /// At most this many; 10,000 unless said, and no more than that.
    pub(crate) limit: Option<u32>,
    /// Where an earlier list stopped.
    #[serde(rename = "continue")]
    pub(crate) more: Option<String>,
    /// Objects unless said.
    #[serde(default, rename = "as")]
    pub(crate) form: ListForm,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    pub(crate) timeout: Option<String>,
}

impl ListParams {
    pub(crate) fn query(&self, found: &ServedKind) -> ListQuery {
        ListQuery {
            kind: exact(found),
            // Of several, all are read and some are shown.
            namespace: self.namespace.clone().filter(|named| !named.contains(',')),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            limit: self.limit.map(|limit| limit.min(MOST)),
            continue_token: self.more.clone(),
        }
    }

    pub(crate) fn scope(
        &self,
        caller: &Caller,
        cluster: &str,
        found: &ServedKind,
        verb: Verb,
    ) -> Result<Scope, Problem> {
        let named = self.namespace.as_deref().unwrap_or_default().split(',').map(str::trim);
        let named: Vec<_> = named.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
        Scope::list_among(caller, cluster, found, &named, verb)
    }
}

/// The word that means this kind and no other: what was decided on is what is asked for.
pub(crate) fn exact(found: &ServedKind) -> String {
    let kind = &found.resource;
    format!("{}.{}.{}", kind.plural, kind.version, kind.group)
}

/// One page of objects.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Objects {
    #[schema(value_type = Vec<Object>)]
    items: Vec<DynamicObject>,
    /// Where to go on, if this is not all.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    more: Option<String>,
    /// How many there are beyond these, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<i64>,
}

/// One page of what kubectl would print.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
    /// Where to go on, if this is not all.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    more: Option<String>,
    /// How many there are beyond these, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<i64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Column {
    name: String,
    /// `string`, `integer`, `date`…
    #[serde(rename = "type")]
    kind: String,
    /// `name` marks the object's name.
    format: String,
    /// Above zero: of the wide form.
    priority: i32,
}

/// One object, a cell for each column.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    #[schema(value_type = Vec<Object>)]
    cells: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    /// RFC 3339: when the object was created; its age is computed where it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    created: Option<Timestamp>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
}

impl Row {
    pub(crate) fn of(mut self, cluster: String) -> Self {
        self.cluster = Some(cluster);
        self
    }
}

impl From<Page<DynamicObject>> for Objects {
    fn from(page: Page<DynamicObject>) -> Self {
        Self { items: page.items, more: page.continue_token, remaining: page.remaining }
    }
}

impl From<resources::Table> for Table {
    fn from(table: resources::Table) -> Self {
        Self {
            columns: table.columns.into_iter().map(Column::from).collect(),
            rows: table.rows.into_iter().map(Row::from).collect(),
            more: table.continue_token,
            remaining: table.remaining,
        }
    }
}

impl From<resources::Row> for Table {
    fn from(row: resources::Row) -> Self {
        Self { rows: vec![row.into()], ..Self::default() }
    }
}

impl From<resources::Column> for Column {
    fn from(column: resources::Column) -> Self {
        let resources::Column { name, kind, format, priority } = column;
        Self { name, kind, format, priority }
    }
}

impl From<resources::Row> for Row {
    fn from(row: resources::Row) -> Self {
        Self {
            cluster: None,
            namespace: row.namespace,
            name: row.name,
            cells: row.cells,
            uid: row.uid,
            created: row.created,
            labels: row.labels,
        }
    }
}

/// The objects of a list that the caller may see.
pub(crate) async fn objects(
    connection: &Connection,
    scope: &Scope,
    query: &ListQuery,
    deadline: Deadline,
) -> Result<Page<DynamicObject>, Error> {
    let (_, mut page) = seen::<DynamicObject>(connection, scope, query, deadline).await?;
    page.items.iter_mut().for_each(tidy);
    Ok(page)
}

/// Removes the managed fields, which nobody reads and which are often most of an object, and hides the
/// values of a Secret.
pub(crate) fn tidy(object: &mut DynamicObject) {
    object.metadata.managed_fields = None;
    resources::mask(object);
}

/// The rows of a table that the caller may see, with the columns that they want.
pub(crate) async fn table(
    connection: &Connection,
    scope: &Scope,
    query: &ListQuery,
    form: ListForm,
    deadline: Deadline,
) -> Result<resources::Table, Error> {
    let (columns, page) = seen::<resources::Row>(connection, scope, query, deadline).await?;
    let Page { items: rows, continue_token, remaining } = page;
    let mut table = resources::Table { columns, rows, continue_token, remaining };
    ColumnChoice::of(&table.columns, form).narrow(&mut table);
    Ok(table)
}

/// Which columns of a table are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnChoice(Vec<bool>);

impl ColumnChoice {
    pub(crate) fn of(columns: &[resources::Column], form: ListForm) -> Self {
        let shown = |column: &resources::Column| form != ListForm::Table || column.priority == 0;
        Self(columns.iter().map(shown).collect())
    }

    pub(crate) fn narrow(&self, table: &mut resources::Table) {
        keep(&mut table.columns, &self.0);
        table.rows.iter_mut().for_each(|row| self.narrow_row(row));
    }

    pub(crate) fn narrow_row(&self, row: &mut resources::Row) {
        keep(&mut row.cells, &self.0);
    }
}

fn keep<T>(all: &mut Vec<T>, shown: &[bool]) {
    let mut shown = shown.iter();
    all.retain(|_| shown.next().copied().unwrap_or(true));
}

type Columns = Vec<resources::Column>;

/// An element of a list: an object, or a row of a table.
pub(crate) trait Item: Sized + Send {
    /// A page of all there is.
    fn read(
        connection: &Connection,
        query: &ListQuery,
        deadline: Deadline,
    ) -> impl Future<Output = Result<(Columns, Page<Self>), Error>> + Send;

    fn is_in(&self, scope: &Scope) -> bool;

    /// Its place in the order of the list, which is that of the store behind an API server.
    fn place(&self) -> String;
}

impl Item for DynamicObject {
    async fn read(
        connection: &Connection,
        query: &ListQuery,
        deadline: Deadline,
    ) -> Result<(Columns, Page<Self>), Error> {
        Ok((Columns::new(), resources::list(connection, query, deadline).await?))
    }

    fn is_in(&self, scope: &Scope) -> bool {
        scope.has_object(self)
    }

    fn place(&self) -> String {
        place(self.metadata.namespace.as_deref(), self.metadata.name.as_deref())
    }
}

impl Item for resources::Row {
    async fn read(
        connection: &Connection,
        query: &ListQuery,
        deadline: Deadline,
    ) -> Result<(Columns, Page<Self>), Error> {
        let table = resources::table(connection, query, deadline).await?;
        let resources::Table { columns, rows: items, continue_token, remaining } = table;
        Ok((columns, Page { items, continue_token, remaining }))
    }

    fn is_in(&self, scope: &Scope) -> bool {
        scope.has(self.namespace.as_deref(), &self.name)
    }

    fn place(&self) -> String {
        place(self.namespace.as_deref(), Some(&self.name))
    }
}

fn place(namespace: Option<&str>, name: Option<&str>) -> String {
    format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

/// A page of the elements that the caller may see.
async fn seen<T: Item>(
    connection: &Connection,
    scope: &Scope,
    query: &ListQuery,
    deadline: Deadline,
) -> Result<(Columns, Page<T>), Error> {
    if scope.is_whole() {
        return T::read(connection, query, deadline).await;
    }
    let (mut shown, mut columns) = (VisiblePage::<T>::new(scope, query), Columns::new());
    if scope.is_empty() {
        return Ok((columns, shown.page));
    }
    let mut next = ListQuery { limit: Some(PAGE), continue_token: None, ..query.clone() };
    loop {
        let (named, page) = match T::read(connection, &next, deadline).await {
            // What there is by then is an answer, if there is any.
            Err(Error::TooLate { .. }) if !shown.page.items.is_empty() => {
                shown.cut();
                break;
            }
            page => page?,
        };
        columns = if columns.is_empty() { named } else { columns };
        next.continue_token = shown.take(page);
        if next.continue_token.is_none() {
            break;
        }
    }
    Ok((columns, shown.page))
}

/// A page of what may be seen, as it fills.
struct VisiblePage<'a, T> {
    scope: &'a Scope,
    /// The last that was shown before.
    after: Option<&'a str>,
    most: usize,
    page: Page<T>,
}

impl<'a, T: Item> VisiblePage<'a, T> {
    fn new(scope: &'a Scope, query: &'a ListQuery) -> Self {
        let most = query.limit.filter(|limit| *limit > 0).unwrap_or(MOST) as usize;
        let page = Page { items: Vec::new(), continue_token: None, remaining: None };
        Self { scope, after: query.continue_token.as_deref(), most, page }
    }

    /// Takes from a page of all there is; says where to read on, if that is needed.
    fn take(&mut self, page: Page<T>) -> Option<String> {
        for item in page.items {
            let is_next = self.after.is_none_or(|after| *item.place() > *after);
            if is_next && item.is_in(self.scope) {
                if self.page.items.len() == self.most {
                    self.cut();
                    return None;
                }
                self.page.items.push(item);
            }
        }
        page.continue_token
    }

    /// There is more, after the last one.
    fn cut(&mut self) {
        self.page.continue_token = self.page.items.last().map(Item::place);
    }
}

#[cfg(test)]
mod tests;
