//! Recordings of shells: listed and fetched by who may read the audit. Each replica keeps those of its own
//! shells, and asks the others for theirs.

use access::audit::recording::{RecordedShell, RecordingView};
use access::{AUDIT, Verb};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::api::leader::has_pass;
use crate::api::replicas::{self, MissingReplica, ReplicaQuery};
use crate::api::{Api, Caller, ErrorCode, Problem, Route, Routes};

const PATH: &str = "/audit/recordings";
const ASCIICAST: &str = "application/x-asciicast";

pub(super) fn routes() -> Routes {
    Routes::default()
        .with(Route::list().all_replicas(), routes!(recordings))
        .with(Route::list().all_replicas(), routes!(recording))
}

/// A shell that was recorded.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Recording {
    /// The `id` of the shell in the audit.
    id: String,
    /// RFC 3339.
    #[schema(value_type = String)]
    began: Timestamp,
    user: String,
    cluster: String,
    namespace: String,
    pod: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    command: Vec<String>,
    bytes: u64,
}

impl From<RecordingView> for Recording {
    fn from(view: RecordingView) -> Self {
        let RecordingView { id, shell, began, bytes } = view;
        let RecordedShell { user, cluster, namespace, pod, container, command } = shell;
        Self { id, began, user, cluster, namespace, pod, container, command, bytes }
    }
}

#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = ShellRecordings)]
struct RecordingList {
    /// Whether shells are recorded at the moment.
    recording: bool,
    recordings: Vec<Recording>,
    /// Replicas that could not be asked: their recordings are not in the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<MissingReplica>,
}

/// Recordings of shells, newest first
#[utoipa::path(
    get, path = "/audit/recordings", tag = "access",
    responses((status = 200, description = "Newest first", body = RecordingList))
)]
async fn recordings(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Json<RecordingList>, Problem> {
    caller.may_in_fleet(AUDIT, Verb::List)?;
    let own = api.audit.recordings(caller.deadline).await?;
    let mut all: Vec<_> = own.into_iter().map(Recording::from).collect();
    let mut missing = Vec::new();
    if let Some(replicas) = replicas::to_ask(&api, &headers) {
        let question = ReplicaQuery { path: PATH, query: Vec::new() };
        let others = replicas::ask::<RecordingList>(&api, replicas, &caller, &question).await;
        missing = others.missing;
        all.extend(others.told.into_iter().flat_map(|(_, part)| part.recordings));
        all.sort_by(|a, b| (b.began, &b.id).cmp(&(a.began, &a.id)));
    }
    let recording = api.recordings.is_some();
    Ok(Json(RecordingList { recording, recordings: all, missing }))
}

/// The recording of a shell, as asciicast v2
#[utoipa::path(
    get, path = "/audit/recordings/{id}", tag = "access",
    responses((status = 200, description = "To be played by asciinema", content(
        (String = "application/x-asciicast")
    )))
)]
async fn recording(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    caller.may_in_fleet(AUDIT, Verb::Get)?;
    let own = api.audit.recording(id.clone(), caller.deadline).await?;
    if has_pass(&headers) {
        let text = own.map(|cast| String::from_utf8_lossy(&cast).into_owned());
        return Ok(Json(text).into_response());
    }
    let mut cast = own;
    if cast.is_none()
        && let Some(replicas) = replicas::to_ask(&api, &headers)
    {
        let path = format!("{PATH}/{id}");
        let question = ReplicaQuery { path: &path, query: Vec::new() };
        let others = replicas::ask::<Option<String>>(&api, replicas, &caller, &question).await;
        cast = others.told.into_iter().find_map(|(_, part)| part).map(String::into_bytes);
    }
    let Some(cast) = cast else {
        let detail = format!(
            "there is no recording {id}; `fairlead audit recordings` shows those there are"
        );
        return Err(Problem::new(ErrorCode::NotFound, detail));
    };
    Ok(([(header::CONTENT_TYPE, ASCIICAST)], cast).into_response())
}
