//! The command line against a stand-in for the server: what is asked, what is printed, how it exits.

#![allow(clippy::unwrap_used, reason = "tests")]

mod access;
mod clusters;
mod exec;
mod faults;
mod forward;
mod operations;
mod resources;
mod stand_in;

use std::time::Duration;

use serde_json::{Value, json};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Two clusters of a fleet, as the server lists them.
pub(crate) fn clusters() -> Value {
    json!({"generation": 7, "clusters": [
        {"name": "dev", "state": "ready", "since": "2026-01-01T00:00:00Z", "version": "v1.30.1",
         "nodes": 3, "latencyMs": 12, "source": "~/.kube/config"},
        {"name": "prod", "state": "unreachable", "since": "2026-01-01T00:00:00Z",
         "why": "10.0.0.1:6443 does not answer", "source": "imported"},
    ]})
}

/// A table of pods, as the server answers it.
pub(crate) fn pods(names: &[&str]) -> Value {
    let row = |name: &&str| json!({"name": name, "namespace": "default", "cells": [name, "1/1"]});
    json!({"columns": [{"name": "Name"}, {"name": "Ready"}],
           "rows": names.iter().map(row).collect::<Vec<_>>()})
}
