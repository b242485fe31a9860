//! The frames that the socket sends.

use std::fmt::Write as _;

use fleet::resources::Column;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::api::Problem;
use crate::api::problem::ProblemBody;

/// The beginning of a frame, up to and with its type.
pub(super) fn head(id: Option<u64>, cluster: Option<&str>, kind: &str) -> String {
    let mut text = String::from("{");
    if let Some(id) = id {
        let _ = write!(text, "\"id\":{id},");
    }
    if let Some(cluster) = cluster {
        let _ = write!(text, "\"cluster\":{},", Value::from(cluster));
    }
    let _ = write!(text, "\"type\":\"{kind}\"");
    text
}

#[derive(Serialize)]
struct End {
    problem: ProblemBody,
}

/// The last frame of a subscription, or of one cluster's part.
pub(super) fn end(id: Option<u64>, cluster: Option<&str>, problem: &Problem) -> String {
    with(head(id, cluster, "end"), &End { problem: problem.body() })
}

/// The last frame of what has come to its own end.
pub(super) fn complete(id: u64) -> String {
    head(Some(id), None, "end") + "}"
}

#[derive(Serialize)]
struct Columns<'a> {
    columns: &'a [Column],
}

pub(super) fn columns(id: u64, cluster: &str, columns: &[Column]) -> String {
    with(head(Some(id), Some(cluster), "columns"), &Columns { columns })
}

pub(super) fn reset(id: u64, cluster: &str) -> String {
    head(Some(id), Some(cluster), "reset") + "}"
}

pub(super) fn synced(id: u64, cluster: &str, count: usize, resume: &str) -> String {
    let head = head(Some(id), Some(cluster), "synced");
    format!("{head},\"count\":{count},\"resume\":\"{resume}\"}}")
}

/// How it stands with a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterState {
    pub(super) state: &'static str,
    pub(super) since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_try_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_ms: Option<f64>,
}

pub(super) fn state(id: u64, cluster: &str, state: &ClusterState) -> String {
    with(head(Some(id), Some(cluster), "state"), state)
}

#[derive(Serialize)]
struct Data<'a, T> {
    data: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<&'a str>,
}

pub(super) fn data(id: u64, data: impl Serialize, resume: Option<&str>) -> String {
    with(head(Some(id), None, "data"), &Data { data, resume })
}

/// The frame with the fields of `rest`.
pub(super) fn with(mut head: String, rest: &impl Serialize) -> String {
    let rest = serde_json::to_string(rest).unwrap_or_default();
    match rest.strip_prefix('{').filter(|rest| *rest != "}") {
        Some(rest) => {
            head.push(',');
            head.push_str(rest);
        }
        None => head.push('}'),
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ErrorCode;

    #[test]
    fn every_frame_is_json_whatever_the_names_are() {
        let odd = "a\"b\\\u{7}";
        let state_of = ClusterState {
            state: "live",
            since: Timestamp::UNIX_EPOCH,
            why: Some(odd.to_owned()),
            next_try_at: None,
            latency_ms: Some(41.5),
        };
        for frame in [
            end(None, None, &Problem::new(ErrorCode::Invalid, odd)),
            end(Some(1), Some(odd), &Problem::new(ErrorCode::Invalid, odd)),
            complete(1),
            columns(1, odd, &[]),
            reset(1, odd),
            synced(1, odd, 3, "a.b.c"),
            state(1, odd, &state_of),
            data(1, odd, None),
            with(head(Some(1), None, "lines"), &serde_json::json!({})),
        ] {
            let read: Value = serde_json::from_str(&frame).unwrap_or_else(|_| panic!("{frame}"));
            assert!(read["type"].is_string(), "{frame}");
            assert!(read["cluster"].is_null() || read["cluster"] == odd, "{frame}");
        }
    }
}
