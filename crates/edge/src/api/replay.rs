//! Results of `fairlead replay` that somebody has put into the data directory.
//!
//! Contract: each file `replay/NAME.json` there holds what `fairlead replay … -o json` printed, one result or a
//! list of them. Files are read when they are asked for, as many and as much of them as is bounded here; one
//! that cannot be read is named with the reason.

use std::path::Path;

use access::Verb;
use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{Api, Caller, ErrorCode, Problem, Route, Routes};

/// The resource in the cluster `-`.
const REPLAYS: &str = "replays.fairlead.dev";
/// There are five incidents.
const FILES: usize = 50;
/// A result has a timeline of some hundred samples.
const LARGEST: u64 = 4 << 20;

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::list(), routes!(replays))
}

#[derive(Debug, Serialize, ToSchema)]
struct Replays {
    /// By name.
    results: Vec<ReplayResult>,
}

/// A result that was kept.
#[derive(Debug, Serialize, ToSchema)]
struct ReplayResult {
    /// The name of its file, without `.json`.
    name: String,
    /// RFC 3339: when it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    at: Option<Timestamp>,
    /// As `fairlead replay -o json` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    result: Option<Value>,
    /// Why the file cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Results of replayed incidents that were kept
///
/// Of the files `replay/NAME.json` in the data directory, which somebody writes:
/// `fairlead replay cni-burst -o json > DATA/replay/cni-burst.json`.
#[utoipa::path(
    get, path = "/replay", tag = "about",
    responses((status = 200, description = "By name; none if none were kept", body = Replays))
)]
async fn replays(State(api): State<Api>, caller: Caller) -> Result<Json<Replays>, Problem> {
    caller.may_in_fleet(REPLAYS, Verb::List)?;
    let dir = api.audit.dir().parent().unwrap_or(api.audit.dir()).join("replay");
    let busy = |_| Problem::new(ErrorCode::Overloaded, "no thread was free for it in time");
    let read = api.tasks.spawn_blocking("replays", caller.deadline, move || kept(&dir)).await;
    let results = read.map_err(busy)?.await;
    let results = results.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    Ok(Json(Replays { results }))
}

fn kept(dir: &Path) -> Vec<ReplayResult> {
    let Ok(files) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut paths: Vec<_> = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    let mut results = Vec::new();
    for path in paths.into_iter().take(FILES) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let modified = std::fs::metadata(&path).and_then(|file| file.modified());
        let at = modified.ok().and_then(|time| Timestamp::try_from(time).ok());
        match read(&path) {
            Err(why) => results.push(ReplayResult { name, at, result: None, why: Some(why) }),
            Ok(Value::Array(all)) => results.extend(all.into_iter().map(|result| {
                let name = result["incident"].as_str().unwrap_or(&name).to_owned();
                ReplayResult { name, at, result: Some(result), why: None }
            })),
            Ok(result) => {
                results.push(ReplayResult { name, at, result: Some(result), why: None });
            }
        }
    }
    results
}

fn read(path: &Path) -> Result<Value, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > LARGEST {
        return Err(format!("it has {size} bytes, and {LARGEST} are read at most"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("it is not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::api::tests::test_api::TestApi;

    #[tokio::test]
    async fn what_was_kept_is_told_and_what_cannot_be_read_says_why() {
        let world = TestApi::with(&[], |data| {
            let dir = data.join("replay");
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("cni-burst.json"), r#"{"incident":"cni-burst","ok":true}"#)
                .unwrap();
            std::fs::write(dir.join("all.json"), r#"[{"incident":"late-crd","ok":true}]"#).unwrap();
            std::fs::write(dir.join("half.json"), r#"{"inc"#).unwrap();
            std::fs::write(dir.join("other.txt"), "nothing").unwrap();
        });
        let world = world.ready().await;
        let told = world.ask(Method::GET, "/replay", Value::Null).await.json();
        let results = told["results"].as_array().unwrap();
        let names: Vec<_> = results.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["late-crd", "cni-burst", "half"], "{told}");
        assert_eq!((&results[1]["result"]["ok"], results[1].get("why")), (&json!(true), None));
        assert!(results[2]["why"].as_str().unwrap().contains("not JSON"), "{told}");
        let eve = world.somebody("eve", &[["*", "*", "pods", "get"]]).await;
        assert_eq!(world.ask_as(&eve, Method::GET, "/replay", Value::Null).await.status, 403);
        let none = TestApi::new().ready().await.ask(Method::GET, "/replay", Value::Null).await;
        assert_eq!(none.json(), json!({ "results": [] }));
    }
}
