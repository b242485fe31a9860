//! Watching the objects of one kind in one cluster: all of them, then what changes.
//!
//! Contract: what may not be seen is in no event. Who may no longer see what was opened is told so,
//! and the stream ends: what is shown never goes by permissions that are gone.

use access::Verb;
use axum::response::Response;
use axum::response::sse::Event;
use fleet::resources::{self, Change, ListQuery, Page};
use fleet::{Error, ServedKind};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::core::DynamicObject;
use serde_json::json;

use super::listing::{ColumnChoice, Item, ListForm, ListParams, Objects, Table, tidy};
use super::scope::{Scope, resource};
use super::{Api, Caller, Problem, Rights, sse};

pub(crate) async fn open(
    api: &Api,
    caller: &Caller,
    cluster: &str,
    found: &ServedKind,
    asked: &ListParams,
) -> Result<Response, Problem> {
    let scope = asked.scope(caller, cluster, found, Verb::Watch)?;
    let within = (cluster, asked.namespace.as_deref());
    caller.note_secret(api, Verb::Watch, within, (&resource(&found.resource), None))?;
    let place = sse::open(api, caller, "watch", resource(&found.resource), cluster.to_owned())?;
    let rights = {
        let scope = scope.clone();
        Rights::new(api, caller, move |permissions| scope.holds(permissions))
    };
    let events = Box::pin(events(api, caller, cluster, found, asked, scope)).await?;
    Ok(sse::respond(api, place, rights.guard_events(events)))
}

async fn events(
    api: &Api,
    caller: &Caller,
    cluster: &str,
    found: &ServedKind,
    asked: &ListParams,
    scope: Scope,
) -> Result<BoxStream<'static, Event>, Error> {
    // As the caller is at each session: a watch moves over to new groups, and is of one caller alone.
    let (all, asker, name) = (api.clone(), caller.clone(), cluster.to_owned());
    let connect = move || asker.connection(&all, &name);
    // A watch is of all there is.
    let query = ListQuery { limit: None, continue_token: None, ..asked.query(found) };
    let form = asked.form;
    if scope.is_empty() {
        return Ok(stream::iter([nothing(form)]).chain(stream::pending()).boxed());
    }
    Ok(match form {
        ListForm::Object => {
            let changes = Box::pin(resources::watch(connect, query, caller.deadline)).await?;
            changes.filter_map(move |change| std::future::ready(told(&scope, change))).boxed()
        }
        _ => {
            let changes = Box::pin(resources::watch_table(connect, query, caller.deadline)).await?;
            let mut width = ColumnChoice::default();
            let told = move |change| std::future::ready(told_row(&scope, form, &mut width, change));
            changes.filter_map(told).boxed()
        }
    })
}

/// The event for a namespace that does not exist.
fn nothing(form: ListForm) -> Event {
    match form {
        ListForm::Object => {
            let none = Page { items: Vec::new(), continue_token: None, remaining: None };
            sse::event("restarted", &Objects::from(none))
        }
        _ => sse::event("restarted", &Table::default()),
    }
}

/// A change of objects as an event, if it may be seen.
fn told(scope: &Scope, change: Change<Page<DynamicObject>, DynamicObject>) -> Option<Event> {
    match seen(scope, change)? {
        Change::Listed(mut page) => {
            page.items.iter_mut().for_each(tidy);
            Some(sse::event("restarted", &Objects::from(page)))
        }
        Change::Applied(mut object) => {
            tidy(&mut object);
            Some(sse::event("applied", &object))
        }
        Change::Deleted(mut object) => {
            tidy(&mut object);
            Some(sse::event("deleted", &object))
        }
        Change::Interrupted { why } => Some(interrupted(&why)),
        Change::Resumed => None,
    }
}

/// A change of rows as an event. `width` is that of the last list: a row does not say its columns.
fn told_row(
    scope: &Scope,
    form: ListForm,
    width: &mut ColumnChoice,
    change: Change<resources::Table, resources::Row>,
) -> Option<Event> {
    let narrowed = |width: &ColumnChoice, mut row| {
        width.narrow_row(&mut row);
        Table::from(row)
    };
    match seen(scope, change)? {
        Change::Listed(mut table) => {
            *width = ColumnChoice::of(&table.columns, form);
            width.narrow(&mut table);
            Some(sse::event("restarted", &Table::from(table)))
        }
        Change::Applied(row) => Some(sse::event("applied", &narrowed(width, row))),
        Change::Deleted(row) => Some(sse::event("deleted", &narrowed(width, row))),
        Change::Interrupted { why } => Some(interrupted(&why)),
        Change::Resumed => None,
    }
}

fn interrupted(why: &str) -> Event {
    sse::event("interrupted", &json!({ "why": why }))
}

/// A whole list, of which the caller may see some.
trait Listing {
    fn retain(&mut self, scope: &Scope);
}

impl Listing for Page<DynamicObject> {
    fn retain(&mut self, scope: &Scope) {
        self.items.retain(|object| object.is_in(scope));
        if !scope.is_whole() {
            (self.continue_token, self.remaining) = (None, None);
        }
    }
}

impl Listing for resources::Table {
    fn retain(&mut self, scope: &Scope) {
        self.rows.retain(|row| row.is_in(scope));
        if !scope.is_whole() {
            (self.continue_token, self.remaining) = (None, None);
        }
    }
}

/// The part of a change that the caller may see.
fn seen<L: Listing, T: Item>(scope: &Scope, change: Change<L, T>) -> Option<Change<L, T>> {
    match change {
        Change::Listed(mut all) => {
            all.retain(scope);
            Some(Change::Listed(all))
        }
        Change::Applied(item) => item.is_in(scope).then_some(Change::Applied(item)),
        Change::Deleted(item) => item.is_in(scope).then_some(Change::Deleted(item)),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests;
