//! The objects of one kind in many clusters.

use access::Verb;
use axum::extract::{Path, State};
use axum::response::Response;
use fleet::Connection;
use fleet::fan::Reply;
use fleet::merge::{ClusterRow, Merged};
use fleet::resources::{self, Page};
use http::HeaderMap;
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use stallproof::Deadline;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{AskedCluster, ClusterAnswer, Merge, answer, chosen, share};
use crate::api::listing::{self, Column, ListForm, ListParams};
use crate::api::scope::resource;
use crate::api::{Api, Caller, Problem, Query, Route, Routes};

/// Objects in one answer, of all clusters together: some hundred megabytes at worst.
const MOST_OBJECTS: usize = 20_000;
/// Rows are a tenth of that.
const MOST_ROWS: usize = 50_000;

pub(super) fn routes() -> Routes {
    Routes::default().with(Route::list().fan_out(), routes!(list_across))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListAcrossParams {
    /// `a,b`; all that one may see unless said.
    clusters: Option<String>,
    /// All namespaces when none is named; of no matter to kinds that have none.
    namespace: Option<String>,
    /// A label selector: `app=web,tier!=cache`.
    labels: Option<String>,
    /// A field selector: `status.phase=Running`.
    fields: Option<String>,
    /// At most this many from each cluster; there are bounds for the whole, too.
    limit: Option<u32>,
    /// Objects unless said.
    #[serde(default, rename = "as")]
    form: ListForm,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = ListAcross)]
enum List {
    Objects { clusters: Vec<AskedCluster>, items: Vec<Item> },
    Table { clusters: Vec<AskedCluster>, columns: Vec<Column>, rows: Vec<listing::Row> },
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ItemAcross)]
struct Item {
    cluster: String,
    #[schema(value_type = Object)]
    object: DynamicObject,
}

/// Objects of one kind in many clusters
///
/// Answered as long as it could be asked: a cluster that did not answer says so in its row. With
/// `Accept: text/event-stream`: `asked` with the clusters' names, `cluster` with each row as it comes
/// in, `done` with the whole.
#[utoipa::path(
    get, path = "/resources/{kind}", tag = "across", params(ListAcrossParams),
    responses((status = 200, description = "What came in time", content(
        (List = "application/json"), (String = "text/event-stream")
    )))
)]
async fn list_across(
    State(api): State<Api>,
    caller: Caller,
    Path(kind): Path<String>,
    Query(asked): Query<ListAcrossParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let chosen = chosen(&api, &caller, asked.clusters.as_deref());
    let form = asked.form;
    let most = if form == ListForm::Object { MOST_OBJECTS } else { MOST_ROWS };
    let most = u32::try_from(share(most, chosen.len())).unwrap_or(u32::MAX);
    let listed = ListParams {
        namespace: asked.namespace,
        labels: asked.labels,
        fields: asked.fields,
        limit: Some(asked.limit.filter(|limit| *limit > 0).map_or(most, |limit| limit.min(most))),
        form,
        more: None,
        timeout: None,
    };
    let (asks, noting) = (caller.clone(), api.clone());
    match form {
        ListForm::Object => {
            let ask = move |connection: Connection, deadline| {
                let (api, caller, kind) = (noting.clone(), asks.clone(), kind.clone());
                let listed = listed.clone();
                async move { objects(&api, &connection, &caller, &kind, &listed, deadline).await }
            };
            answer(&api, &caller, &headers, chosen, Objects::default(), ask).await
        }
        _ => {
            let ask = move |connection: Connection, deadline| {
                let (api, caller, kind) = (noting.clone(), asks.clone(), kind.clone());
                let listed = listed.clone();
                async move { table(&api, &connection, &caller, &kind, &listed, deadline).await }
            };
            answer(&api, &caller, &headers, chosen, Table::default(), ask).await
        }
    }
}

async fn objects(
    api: &Api,
    connection: &Connection,
    caller: &Caller,
    kind: &str,
    asked: &ListParams,
    deadline: Deadline,
) -> ClusterAnswer<Page<DynamicObject>> {
    let found = connection.find(kind, deadline).await?;
    let scope = match asked.scope(caller, connection.cluster(), &found, Verb::List) {
        Ok(scope) => scope,
        Err(refused) => return Ok(Err(refused)),
    };
    let within = (connection.cluster(), asked.namespace.as_deref());
    let what = (&*resource(&found.resource), None);
    if let Err(refused) = caller.note_secret(api, Verb::List, within, what) {
        return Ok(Err(refused));
    }
    listing::objects(connection, &scope, &asked.query(&found), deadline).await.map(Ok)
}

async fn table(
    api: &Api,
    connection: &Connection,
    caller: &Caller,
    kind: &str,
    asked: &ListParams,
    deadline: Deadline,
) -> ClusterAnswer<resources::Table> {
    let found = connection.find(kind, deadline).await?;
    let scope = match asked.scope(caller, connection.cluster(), &found, Verb::List) {
        Ok(scope) => scope,
        Err(refused) => return Ok(Err(refused)),
    };
    let within = (connection.cluster(), asked.namespace.as_deref());
    let what = (&*resource(&found.resource), None);
    if let Err(refused) = caller.note_secret(api, Verb::List, within, what) {
        return Ok(Err(refused));
    }
    listing::table(connection, &scope, &asked.query(&found), asked.form, deadline).await.map(Ok)
}

#[derive(Default)]
struct Objects(Vec<Item>);

impl Merge for Objects {
    type Part = Page<DynamicObject>;
    type Merged = List;

    fn add(&mut self, cluster: &str, part: Self::Part) -> bool {
        let own = |object| Item { cluster: cluster.to_owned(), object };
        self.0.extend(part.items.into_iter().map(own));
        part.continue_token.is_some()
    }

    fn end(mut self, clusters: Vec<AskedCluster>) -> List {
        self.0.sort_by(|one, other| one.cluster.cmp(&other.cluster));
        List::Objects { clusters, items: self.0 }
    }
}

#[derive(Default)]
struct Table(Merged);

impl Merge for Table {
    type Part = resources::Table;
    type Merged = List;

    fn add(&mut self, cluster: &str, part: Self::Part) -> bool {
        let truncated = part.continue_token.is_some();
        let cluster = cluster.to_owned();
        self.0.add(Reply { cluster, took: std::time::Duration::ZERO, result: Ok(part) });
        truncated
    }

    fn end(mut self, clusters: Vec<AskedCluster>) -> List {
        self.0.sort();
        let row = |ClusterRow { cluster, row }| listing::Row::from(row).of(cluster);
        List::Table {
            clusters,
            columns: self.0.columns.into_iter().map(Column::from).collect(),
            rows: self.0.rows.into_iter().map(row).collect(),
        }
    }
}
