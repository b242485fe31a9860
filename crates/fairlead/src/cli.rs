//! The command line: one verb a file in [`verbs`]. Beside it is what verbs share: the client of a
//! running server over HTTP, input files, tables, the terminal.

pub(crate) mod admin_token;
pub(crate) mod client;
pub(crate) mod event_tail;
pub(crate) mod files;
pub(crate) mod http;
pub(crate) mod listing;
pub(crate) mod pod_command;
pub(crate) mod registry;
pub(crate) mod runtime;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod verbs;
