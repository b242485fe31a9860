//! The chart of this version: what it holds, and what it makes of values.

#![allow(clippy::unwrap_used, reason = "tests")]

mod files;
mod objects;
mod readme;
mod values;
