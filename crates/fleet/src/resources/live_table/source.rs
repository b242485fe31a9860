//! Where a table's lists and changes come from: one cluster, page by page.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use objects::watching::{Failure, Session, Source, WatchTiming};
use parking_lot::Mutex;
use stallproof::{Deadline, sentence};

use super::TableForm;
use super::writer::{TableWriter, TooLarge};
use crate::connection::Connection;
use crate::error::Error;
use crate::resources::events::EventRows;
use crate::resources::list::{ListQuery, Row, every_page, every_row};
use crate::resources::list_format::{ListFormat, Rows};
use crate::resources::watch::{failure, session};

/// How often a kind is listed that cannot be watched, such as the metrics of pods.
const POLL: Duration = Duration::from_secs(15);

pub(super) struct TableSource<C> {
    connect: C,
    query: ListQuery,
    form: TableForm,
    timing: WatchTiming,
    /// Takes each page as it comes. Nothing is waited for under its lock, and only one task takes it.
    writer: Arc<Mutex<TableWriter>>,
    /// The connection of the open session.
    current: Option<Connection>,
}

impl<C: Fn() -> Result<Connection, Error> + Send> TableSource<C> {
    pub(super) fn new(
        connect: C,
        query: ListQuery,
        form: TableForm,
        timing: WatchTiming,
        writer: Arc<Mutex<TableWriter>>,
    ) -> Self {
        Self { connect, query, form, timing, writer, current: None }
    }

    async fn first(
        &self,
        connection: &Connection,
    ) -> Result<(Result<(), TooLarge>, String), Error> {
        let mut fits = Ok(());
        let begin = || self.writer.lock().begin_list();
        let take = |columns, rows| {
            fits = self.writer.lock().page(columns, rows);
            fits.is_ok()
        };
        let patience = self.timing.page;
        let version = every_row(connection, &self.query, patience, begin, take).await?;
        Ok((fits, version))
    }

    async fn pages<F: ListFormat<Item = Row>>(
        &self,
        connection: &Connection,
    ) -> Result<(Result<(), TooLarge>, String), Error> {
        let (mut fits, mut version) = (Ok(()), String::new());
        self.writer.lock().begin_list();
        every_page::<F>(connection, &self.query, self.timing.page, |page| {
            if version.is_empty() {
                version.clone_from(&page.version);
            }
            fits = self.writer.lock().page(page.columns, page.items);
            fits.is_ok()
        })
        .await?;
        Ok((fits, version))
    }
}

impl<C: Fn() -> Result<Connection, Error> + Send + Sync> Source for TableSource<C> {
    /// The rows are in the table by then; whether they fit.
    type List = Result<(), TooLarge>;
    type Item = Row;

    async fn list(&mut self) -> Result<(Self::List, String), Failure> {
        let connection = (self.connect)().map_err(failure)?;
        let listed = match self.form {
            TableForm::Printed if self.writer.lock().is_empty() => self.first(&connection).await,
            TableForm::Printed => self.pages::<Rows>(&connection).await,
            TableForm::Events => self.pages::<EventRows>(&connection).await,
        };
        listed.map_err(failure)
    }

    async fn open(&mut self, version: &str, seconds: u32) -> Result<Session<Row>, Failure> {
        let connection = (self.connect)().map_err(failure)?;
        let deadline = Deadline::after(self.timing.open);
        let found = connection.find(&self.query.kind, deadline).await.map_err(failure)?;
        let (query, patience) = (&self.query, self.timing.open);
        let session = if !found.can("watch") {
            let listed_anew = async {
                tokio::time::sleep(POLL).await;
                Err(Failure::Forgotten)
            };
            stream::once(listed_anew).boxed()
        } else if self.form == TableForm::Events {
            session::<EventRows>(&connection, query, version, seconds, patience).await?
        } else {
            session::<Rows>(&connection, query, version, seconds, patience).await?
        };
        self.current = Some(connection);
        Ok(session)
    }

    fn is_current(&mut self) -> Result<bool, Failure> {
        let now = (self.connect)().map_err(failure)?;
        Ok(self.current.as_ref().is_some_and(|current| now.is_same_client(current)))
    }

    fn failed(&mut self, failure: &Failure, wait: Duration) {
        if failure.interrupts() {
            self.writer.lock().interrupted(sentence(failure), is_refusal(failure), wait);
        }
    }
}

/// Whether the API server answers, and does not let us.
fn is_refusal(failure: &Failure) -> bool {
    let error = match failure {
        Failure::Asking(error) => error.downcast_ref::<Error>(),
        other => other.source().and_then(|error| error.downcast_ref::<Error>()),
    };
    matches!(error, Some(Error::Refused { status, .. }) if matches!(status.code, 401 | 403))
}
