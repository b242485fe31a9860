//! Operations on a cluster's resources. Each takes a [`Connection`](crate::Connection) and a deadline, and
//! returns plain values; the connection's discovery finds the kind that a word names.
//!
//! ```text
//! read     list, table, get ──► Connection::on ──► discovery ──► API server
//!          watch ──► list, then changes, until the stream is dropped
//!          live_table ──► one watch for all who look at the same table
//!          events, tree, related ──► list;  describe ──► get + events + tree
//!          table_all, search ──► fan ──► every chosen cluster at once
//! change   apply (diff, dry run), edit, delete, scale, restart ──► Target;  cordon, uncordon, drain
//!          rollout (revisions, rollback), cron (trigger, suspend)
//! sum      overview, usage, usage_history;  helm (releases, history, values, manifest, rollback)
//! stream   logs, log_tail, exec (shells: on a node, beside a pod's containers), forward ◄── backend (the pod behind a Service or a workload)
//! raw      passed_on ──► whatever a client of the Kubernetes API asks
//! ```
//!
//! A stream works while it is polled and owns all of its work: dropping it ends the work.

use crate::error::Error;

mod channels;
mod describe;
mod events;
mod get;
mod list;
mod list_format;
mod live_table;
mod progress;
mod search;
mod secret_values;
mod state;
mod target;
mod tree;
mod watch;

#[cfg(feature = "fuzzing")]
pub(crate) use watch::fuzz;

pub mod apply;
pub mod backend;
pub mod cron;
pub mod delete;
pub mod edit;
pub mod exec;
pub mod forward;
pub mod helm;
pub mod log_tail;
pub mod logs;
pub mod nodes;
pub mod overview;
pub mod passed_on;
pub mod related;
pub mod restart;
pub mod rollout;
pub mod scale;
pub mod shells;
pub mod usage;
pub mod usage_history;

pub use describe::{Description, describe};
pub use events::{About, Event, events};
pub use get::{get, yaml};
pub use list::{Column, ListQuery, Page, Row, Table, list, table};
pub use live_table::{
    Entry, LiveRow, Removal, TableForm, TableKey, TableState, TableSubscription, TableView,
};
pub use search::{Hit, SearchQuery, SearchResult, search};
pub use secret_values::mask;
pub use state::state;
pub use target::Target;
pub use tree::{Branch, Node, Tree, tree};
pub use watch::{Change, watch, watch_as, watch_table};

pub(crate) use live_table::LiveTables;
pub(crate) use watch::watch_metadata;

/// Our name in `managedFields`.
pub const FIELD_MANAGER: &str = "fairlead";

/// Refuses a name or namespace that is not one segment of a request's path. Permissions are decided by
/// names, so that `../../secrets` must not pass as one.
pub(crate) fn check_segment(what: &str, segment: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    if segment.is_empty() || segment == "." || segment == ".." || !segment.bytes().all(allowed) {
        return Err(Error::Invalid(format!("{segment:?} cannot be the name of a {what}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
