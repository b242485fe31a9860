//! Tunnels as the agents of their nodes see them.

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::listing::items;
use crate::cli::table::{Cell, Table, age};
use crate::cli::terminal::{Colour, Paint};

/// The table of all tunnels, and a line for each cluster of which not all is known.
pub(super) fn table(answer: &Value, now: Timestamp) -> String {
    let titles = [
        "FROM",
        "TO",
        "STATE",
        "CARRIES",
        "HANDSHAKE",
        "RECEIVED",
        "SENT",
        "LOSS",
        "ROUND TRIP",
        "MTU",
        "AT",
    ];
    let mut table = Table::new(titles);
    let mut notes = String::new();
    let mut any = false;
    for cluster in items(answer, "clusters") {
        let name = cluster["cluster"].as_str().unwrap_or_default();
        if let Some(why) = cluster["why"].as_str() {
            notes.push_str(&format!("\nnot all of {name} is known: {why}"));
        }
        for node in items(cluster, "nodes") {
            let from = format!("{name}/{}", node["node"].as_str().unwrap_or_default());
            if let Some(gateway) = node["status"]["gateway"].as_str() {
                notes.push_str(&format!("\n{from} sends to other clusters through {gateway}"));
            }
            let silent_since = node["silentSince"].as_str();
            if let Some(since) = silent_since {
                notes.push_str(&format!(
                    "\n{from}'s agent has said nothing of its tunnels since {since}: shown is what it said then"
                ));
            }
            for tunnel in items(&node["status"], "tunnels") {
                any = true;
                table.row(row(&from, tunnel, silent_since.is_some(), now));
            }
        }
    }
    let tunnels = if any { format!("\n{}", table.render(Paint::stdout())) } else { String::new() };
    format!("{tunnels}{notes}")
}

fn row(from: &str, tunnel: &Value, is_silent: bool, now: Timestamp) -> [Cell; 11] {
    let text = |field: &str| tunnel[field].as_str();
    let state = match text("state") {
        // What it was is not what it is.
        _ if is_silent => Cell::from("Silent"),
        Some("Up") => Cell::coloured("Up", Colour::Green),
        Some("Down") => Cell::coloured("Down", Colour::Red),
        other => Cell::from(other),
    };
    let loss = tunnel["lossPercent"].as_u64().map(|it| format!("{it}%"));
    let round_trip = tunnel["roundTripMicros"].as_u64().map(micros);
    let mtu = tunnel["mtu"].as_u64().map(|it| it.to_string());
    // Of networks that several gateways have: whether they are sent to this one.
    let carries = tunnel["carries"].as_bool().map(|it| if it { "yes" } else { "no" });
    [
        from.into(),
        text("peer").into(),
        state,
        carries.into(),
        age(text("lastHandshake"), now).into(),
        bytes(tunnel["receivedBytes"].as_u64()).as_deref().into(),
        bytes(tunnel["sentBytes"].as_u64()).as_deref().into(),
        loss.as_deref().into(),
        round_trip.as_deref().into(),
        mtu.as_deref().into(),
        text("endpoint").into(),
    ]
}

fn micros(micros: u64) -> String {
    format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
}

fn bytes(bytes: Option<u64>) -> Option<String> {
    let mut left = bytes?;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if left < 10_000 {
            return Some(format!("{left} {unit}"));
        }
        left /= 1024;
    }
    Some(format!("{left} TiB"))
}
