//! The command line: one verb a file in [`verbs`], and what verbs share: the server's client, tables,
//! listings, the terminal.

pub(crate) mod client;
pub(crate) mod event_tail;
pub(crate) mod listing;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod values;
pub(crate) mod verbs;
