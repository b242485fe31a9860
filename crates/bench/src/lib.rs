//! Every claim a command, every number a ratio: what a benchmark measured beside its rival in one run
//! is a [`Table`]; the tables of several runs are one [`Summary`], which says what is noise.
//!
//! `make bench` runs all of them. Absolute figures stand beside the ratios only to give the scale of
//! this machine on this day.

mod pairs;
mod summary;
mod table;

pub use pairs::in_turn;
pub use summary::{Held, Line, Spread, Summary};
pub use table::{Limit, OUT, Row, Table};
