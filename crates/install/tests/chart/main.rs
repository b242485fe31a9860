//! The chart of this version: what it holds, and what it makes of values.

#![allow(clippy::unwrap_used, reason = "tests")]

mod files;
mod helm;
mod kube;
mod objects;
mod permissions;
mod readme;
mod values;
