//! Watches: a full list, then changes, for as long as somebody listens.
//!
//! Contract, beside that of [`objects::watching`], which is the loop behind it:
//! - Opening takes a deadline and fails as a list does. After that the stream ends only when it is
//!   dropped.
//! - The connection is asked for anew at every session and every half minute, so that a watch moves
//!   over to new credentials, and ends with its cluster. A connection that is dead is found by the
//!   kernel within half a minute.

use std::future::ready;
use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use futures::{AsyncBufReadExt, Stream, StreamExt};
use http::HeaderValue;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use kube::ResourceExt;
use kube::api::WatchParams;
use kube::core::{DynamicObject, Request, Status};
pub use objects::watching::Change;
use objects::watching::{self, Failure, Line, Session, Source, WatchTiming};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stallproof::Deadline;
use stallproof::backoff::Curve;

use super::list::{ListQuery, Page, Row, Table, gather_whole};
use super::list_format::{ListFormat, Metadata, Objects, RawList, Rows, Typed, WireEvent};
use crate::connection::Connection;
use crate::discovery::ServedKind;
use crate::error::Error;

/// A cluster that is away is asked less often than our own store.
const RETRY: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(20) };

/// Watches objects. `connect` is asked for the connection at every session.
pub async fn watch(
    connect: impl Fn() -> Result<Connection, Error> + Send + 'static,
    query: ListQuery,
    deadline: Deadline,
) -> Result<impl Stream<Item = Change<Page<DynamicObject>, DynamicObject>> + Send, Error> {
    open::<Objects, Page<_>>(connect, query, deadline, timing()).await
}

/// Watches objects of a type. One that cannot be parsed as that type is logged and left out.
pub async fn watch_as<T: DeserializeOwned + ResourceExt + Send + 'static>(
    connect: impl Fn() -> Result<Connection, Error> + Send + 'static,
    query: ListQuery,
    deadline: Deadline,
) -> Result<impl Stream<Item = Change<Vec<T>, T>> + Send, Error> {
    open::<Typed<T>, Vec<T>>(connect, query, deadline, timing()).await
}

/// Watches rows of the table that kubectl would print.
pub async fn watch_table(
    connect: impl Fn() -> Result<Connection, Error> + Send + 'static,
    query: ListQuery,
    deadline: Deadline,
) -> Result<impl Stream<Item = Change<Table, Row>> + Send, Error> {
    open::<Rows, Table>(connect, query, deadline, timing()).await
}

/// Watches objects of which only the metadata matters.
pub(crate) async fn watch_metadata(
    connect: impl Fn() -> Result<Connection, Error> + Send + 'static,
    query: ListQuery,
    deadline: Deadline,
) -> Result<impl Stream<Item = Change<Page<DynamicObject>, DynamicObject>> + Send, Error> {
    open::<Metadata, Page<_>>(connect, query, deadline, timing()).await
}

fn timing() -> WatchTiming {
    WatchTiming { retry: RETRY, ..WatchTiming::default() }
}

async fn open<F: ListFormat, L: From<RawList<F::Item>> + Send + 'static>(
    connect: impl Fn() -> Result<Connection, Error> + Send + 'static,
    query: ListQuery,
    deadline: Deadline,
    timing: WatchTiming,
) -> Result<impl Stream<Item = Change<L, F::Item>> + Send, Error> {
    // The whole list, however long; each page within what the caller has left.
    let whole = async {
        gather_whole::<F>(&connect()?, &query, deadline.remaining().min(timing.page)).await
    };
    let first = deadline.bound(whole).await.map_err(|_| Error::TooLate {
        cluster: connect().map(|it| it.cluster().to_owned()).unwrap_or_default(),
        doing: "listing".to_owned(),
    })??;
    let first = Some((first.version.clone(), first.into()));
    let form = PhantomData::<F>;
    let source = ClusterSource { connect, query, timing, first, current: None, form };
    Ok(watching::watch(source, None, timing))
}

/// What a query selects of one cluster, in one form.
struct ClusterSource<F, L, C> {
    connect: C,
    query: ListQuery,
    timing: WatchTiming,
    /// The list that was read when the watch was opened, until it is told.
    first: Option<(String, L)>,
    /// The connection of the open session.
    current: Option<Connection>,
    form: PhantomData<F>,
}

impl<F: ListFormat, L, C> Source for ClusterSource<F, L, C>
where
    L: From<RawList<F::Item>> + Send,
    C: Fn() -> Result<Connection, Error> + Send,
{
    type List = L;
    type Item = F::Item;

    async fn list(&mut self) -> Result<(L, String), Failure> {
        if let Some((version, list)) = self.first.take() {
            return Ok((list, version));
        }
        let connection = (self.connect)().map_err(failure)?;
        let list = gather_whole::<F>(&connection, &self.query, self.timing.page);
        let list = list.await.map_err(failure)?;
        let version = list.version.clone();
        Ok((list.into(), version))
    }

    async fn open(&mut self, version: &str, seconds: u32) -> Result<Session<F::Item>, Failure> {
        let connection = (self.connect)().map_err(failure)?;
        let session =
            session::<F>(&connection, &self.query, version, seconds, self.timing.open).await?;
        self.current = Some(connection);
        Ok(session)
    }

    fn is_current(&mut self) -> Result<bool, Failure> {
        let now = (self.connect)().map_err(failure)?;
        Ok(self.current.as_ref().is_some_and(|current| now.is_same_client(current)))
    }
}

/// Opens one session of what a query selects.
pub(super) async fn session<F: ListFormat>(
    connection: &Connection,
    query: &ListQuery,
    version: &str,
    seconds: u32,
    patience: Duration,
) -> Result<Session<F::Item>, Failure> {
    let params = WatchParams {
        label_selector: query.labels.clone(),
        field_selector: query.fields.clone(),
        timeout: Some(seconds),
        ..WatchParams::default()
    };
    let (namespace, deadline) = (query.namespace.as_deref(), Deadline::after(patience));
    let session = connection
        .on(&query.kind, namespace, "opening a watch", deadline, |api, found| {
            let request = Request::new(api.resource_url()).watch(&params, version);
            async move {
                let mut request = request.map_err(kube::Error::BuildRequest)?;
                request.headers_mut().insert(ACCEPT, F::WATCH);
                // Newer servers compress each change on its own, which the client cannot undo.
                let identity = HeaderValue::from_static("identity");
                request.headers_mut().insert(ACCEPT_ENCODING, identity);
                let lines = api.into_client().request_stream(request).await?.lines();
                let lines = lines.take_while(|line| ready(!is_end(line)));
                Ok(lines.map(move |line| read::<F>(&found, line)).boxed())
            }
        })
        .await;
    session.map_err(failure)
}

/// Some servers end a session in the middle of a chunk.
fn is_end(line: &io::Result<String>) -> bool {
    line.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
}

#[derive(Deserialize)]
struct EventType {
    #[serde(rename = "type")]
    kind: String,
}

fn read<F: ListFormat>(
    found: &ServedKind,
    line: io::Result<String>,
) -> Result<Line<F::Item>, Failure> {
    let line = line.map_err(|error| Failure::Cut(error.into()))?;
    parse::<F>(found, &line).map_err(|error| Failure::Cut(error.into()))
}

fn parse<F: ListFormat>(
    found: &ServedKind,
    line: &str,
) -> Result<Line<F::Item>, serde_json::Error> {
    let EventType { kind } = serde_json::from_str(line)?;
    Ok(match kind.as_str() {
        "ERROR" => {
            let status = serde_json::from_str::<WireEvent<Status>>(line);
            Line::Error(status.map(|event| Box::new(event.object)).unwrap_or_default())
        }
        "BOOKMARK" => {
            let object = serde_json::from_str::<WireEvent<Value>>(line)?.object;
            let at = |path| object.pointer(path).and_then(Value::as_str);
            let version = at("/metadata/resourceVersion").filter(|version| !version.is_empty());
            let version = version.or_else(|| at("/rows/0/object/metadata/resourceVersion"));
            Line::Bookmark(version.map(ToOwned::to_owned))
        }
        "DELETED" => Line::Deleted(F::changed(found, line)?),
        _ => Line::Applied(F::changed(found, line)?),
    })
}

pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::Refused { status, .. } if status.code == 410 => Failure::Forgotten,
        error => Failure::Asking(error.into()),
    }
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
