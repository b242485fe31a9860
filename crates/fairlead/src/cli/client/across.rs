//! Work across clusters: a fan-out that the server does, and work that it does with one cluster at
//! a time, done here with several at once. A dead cluster costs its own line.

use std::process::ExitCode;

use futures::StreamExt;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Access, Body, ClientError, ClientResult, Object, Problem, Route, Server, Target, decode,
};
use crate::cli::listing::items;
use crate::cli::terminal::Progress;
use crate::output::{self, FAILED, NO, texts};

/// How many clusters are worked with at once: enough that waiting for dead ones hides behind the
/// others, few enough for the server's gate.
const AT_ONCE: usize = 16;

/// One cluster's part in a fan-out: whether it answered, or why not.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClusterOutcome {
    pub(crate) name: String,
    pub(crate) ok: bool,
    pub(crate) took_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<Problem>,
    /// The cluster has more than was asked for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
}

/// The clusters' parts in the answer to a fan-out.
pub(crate) fn outcomes(answer: &Value) -> ClientResult<Vec<ClusterOutcome>> {
    items(answer, "clusters").iter().map(decode).collect()
}

/// Asks several clusters through the server: the whole answer, once the last one is in or late.
pub(crate) async fn fan_out(server: &Server, route: &Route) -> ClientResult<Value> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct All {
        clusters: Vec<String>,
    }
    let mut events = server.events(Method::GET, route, Body::None).await?;
    let mut progress = Progress::new();
    let (mut total, mut waiting, mut answered) = (None, Vec::new(), 0);
    loop {
        let event = events.next_before("every cluster had answered").await?;
        match event.name.as_str() {
            "asked" => {
                waiting = event.json::<All>()?.clusters;
                total = Some(waiting.len());
            }
            "cluster" => {
                let one: ClusterOutcome = event.json()?;
                waiting.retain(|name| *name != one.name);
                answered += 1;
            }
            "done" => return event.json(),
            // A newer server may send other events.
            _ => {}
        }
        progress.show(|| waited_for(answered, total, &waiting));
    }
}

fn waited_for(answered: usize, total: Option<usize>, waiting: &[String]) -> String {
    const NAMED: usize = 3;
    let Some(total) = total else {
        return format!("{answered} clusters answered");
    };
    let mut text = format!("{answered} of {total} clusters answered");
    if !waiting.is_empty() {
        let names = &waiting[..waiting.len().min(NAMED)];
        text.push_str(&format!(", waiting for {}", names.join(", ")));
    }
    if waiting.len() > NAMED {
        text.push_str(&format!(" and {} more", waiting.len() - NAMED));
    }
    text
}

/// Names on stderr the clusters that did not answer, and returns the exit code for them: 1 when some
/// did not, 2 when none did.
pub(crate) fn report_missing(clusters: &[ClusterOutcome]) -> ExitCode {
    for cluster in clusters {
        if !cluster.ok {
            eprintln!("{}", missing(cluster));
        } else if cluster.truncated {
            eprintln!("{}: has more than is shown; raise --limit", cluster.name);
        }
    }
    exit_code(clusters)
}

fn missing(cluster: &ClusterOutcome) -> String {
    match &cluster.problem {
        Some(problem) => line(&cluster.name, &problem.sentence()),
        None => line(&cluster.name, "did not answer"),
    }
}

/// `prod-eu: why`. Most sentences begin with the cluster's name themselves.
fn line(name: &str, sentence: &str) -> String {
    if sentence.starts_with(name) { sentence.to_owned() } else { format!("{name}: {sentence}") }
}

fn exit_code(clusters: &[ClusterOutcome]) -> ExitCode {
    ExitCode::from(match clusters.iter().filter(|cluster| !cluster.ok).count() {
        0 => 0,
        failed if failed < clusters.len() => NO,
        _ => FAILED,
    })
}

/// Does the same with several clusters at once and hands each result to `done` as it comes. The exit
/// code is that of the worst.
pub(crate) async fn each<T>(
    names: &[String],
    work: impl AsyncFn(&str) -> ClientResult<T>,
    mut done: impl FnMut(&str, T) -> ClientResult<u8>,
) -> ClientResult<ExitCode> {
    // What goes wrong with the only cluster goes wrong with the verb.
    if let [name] = names {
        return done(name, work(name).await?).map(ExitCode::from);
    }
    let work = &work;
    let results = names.iter().map(|name| async move { (name, work(name).await) });
    let mut results = futures::stream::iter(results).buffer_unordered(AT_ONCE);
    let mut worst = 0;
    while let Some((name, result)) = results.next().await {
        let code = result.and_then(|value| done(name, value)).unwrap_or_else(|error| {
            let sentence = match &error {
                ClientError::Refused(problem) => problem.sentence(),
                ClientError::Failed(failure) => failure.to_string(),
            };
            eprintln!("{}", line(name, &sentence));
            error.exit_code()
        });
        worst = worst.max(code);
    }
    Ok(ExitCode::from(worst))
}

/// Changes one object in every chosen cluster: sends what `request` makes of the object's route, and
/// prints the object with what `outcome` says of the answer.
pub(crate) async fn change_object(
    object: &Object,
    target: &Target,
    request: impl Fn(Route) -> (Method, Route, Value),
    outcome: impl Fn(&Value) -> String,
) -> ClientResult<ExitCode> {
    object.named()?;
    let server = target.open()?;
    let names = target.names(&server, Access::Write).await?;
    let work = async |name: &str| {
        let route = object.route(name)?.with("namespace", target.namespace());
        let (method, route, body) = request(route);
        let body = if body.is_null() { Body::None } else { Body::Json(&body) };
        server.request::<Value>(method, &route, body).await
    };
    each(&names, work, |name, answer| {
        let prefix = prefix(&names, name);
        output::warn(&prefix, &texts(&answer["warnings"]));
        output::line(&format!("{prefix}{object} {}", outcome(&answer)))?;
        Ok(0)
    })
    .await
}

/// Names the cluster at the beginning of a line, where there are several.
pub(crate) fn prefix(names: &[String], name: &str) -> String {
    if names.len() > 1 { format!("{name}: ") } else { String::new() }
}

#[cfg(test)]
mod tests;
