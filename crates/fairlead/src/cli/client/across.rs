//! Work across clusters: a fan-out of the server, told as it comes back; and work that the server
//! does with one cluster at a time, done with several at once. A dead cluster costs its own line.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, Body, Problem, Route, Server, Trouble};
use crate::cli::terminal::Progress;
use crate::output::{FAILED, NO};

/// How many clusters are worked with at once: enough that waiting for dead ones hides behind the
/// others, few enough for the server's gate.
const AT_ONCE: usize = 16;

/// What became of asking one cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) ok: bool,
    pub(crate) took_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<Problem>,
    /// It has more than was asked for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
}

/// Asks several clusters through the server: the whole answer, once the last one is in or late.
pub(crate) fn fan_out(server: &Server, route: &Route) -> Answer<Value> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct All {
        clusters: Vec<String>,
    }
    let mut events = server.events(&Method::GET, route, &Body::None)?;
    let mut progress = Progress::new();
    let (mut total, mut waiting, mut answered) = (None, Vec::new(), 0);
    loop {
        let event = events.expect("every cluster was heard")?;
        match event.name.as_str() {
            "asked" => {
                waiting = event.json::<All>()?.clusters;
                total = Some(waiting.len());
            }
            "cluster" => {
                let one: Asked = event.json()?;
                waiting.retain(|name| *name != one.name);
                answered += 1;
            }
            "done" => return event.json(),
            // A newer server may have more to tell.
            _ => {}
        }
        progress.tell(|| waited_for(answered, total, &waiting));
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

/// Says on stderr which clusters did not answer, and what that means for the exit code: 1 when some
/// did not, 2 when none did.
pub(crate) fn told(asked: &[Asked]) -> ExitCode {
    for one in asked {
        if !one.ok {
            eprintln!("{}", missing(one));
        } else if one.truncated {
            eprintln!("{}: has more than is shown; raise --limit", one.name);
        }
    }
    exit_code(asked)
}

fn missing(one: &Asked) -> String {
    match &one.problem {
        Some(problem) => line(&one.name, &problem.sentence()),
        None => line(&one.name, "did not answer"),
    }
}

/// `prod-eu: why`. Most sentences begin with the cluster's name themselves.
fn line(name: &str, sentence: &str) -> String {
    if sentence.starts_with(name) { sentence.to_owned() } else { format!("{name}: {sentence}") }
}

fn exit_code(asked: &[Asked]) -> ExitCode {
    ExitCode::from(match asked.iter().filter(|one| !one.ok).count() {
        0 => 0,
        failed if failed < asked.len() => NO,
        _ => FAILED,
    })
}

/// Does the same with several clusters at once and tells each outcome as it comes. The exit code is
/// that of the worst.
pub(crate) fn each<T: Send>(
    names: &[String],
    work: impl Fn(&str) -> Answer<T> + Sync,
    mut done: impl FnMut(&str, T) -> Answer<u8>,
) -> Answer<ExitCode> {
    // One cluster alone: its trouble is the verb's.
    if let [name] = names {
        return done(name, work(name)?).map(ExitCode::from);
    }
    let next = AtomicUsize::new(0);
    // Each worker has at most one outcome to tell; more would only be memory.
    let (sender, outcomes) = mpsc::sync_channel::<(usize, Answer<T>)>(AT_ONCE);
    let mut worst = 0;
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(names.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(name) = names.get(at) else { break };
                    if sender.send((at, work(name))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (at, outcome) in outcomes {
            let code =
                outcome.and_then(|value| done(&names[at], value)).unwrap_or_else(|trouble| {
                    eprintln!("{}", failed(&names[at], &trouble));
                    trouble.exit_code()
                });
            worst = worst.max(code);
        }
    });
    Ok(ExitCode::from(worst))
}

fn failed(name: &str, trouble: &Trouble) -> String {
    match trouble {
        Trouble::Said(problem) => line(name, &problem.sentence()),
        Trouble::Failed(failure) => line(name, &failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, code: Option<&str>) -> Asked {
        let problem = code.map(|code| Problem {
            code: code.to_owned(),
            detail: "no answer\n  within 5 s".to_owned(),
            ..Problem::default()
        });
        Asked { name: name.to_owned(), ok: problem.is_none(), problem, ..Asked::default() }
    }

    #[test]
    fn who_did_not_answer_is_one_line() {
        assert_eq!(
            missing(&asked("prod-eu", Some("unreachable"))),
            "prod-eu: no answer within 5 s"
        );
        let silent = Asked { name: "a".to_owned(), ..Asked::default() };
        assert_eq!(missing(&silent), "a: did not answer");
    }

    #[test]
    fn some_missing_is_one_and_all_missing_is_two() {
        let (up, down) = (asked("a", None), asked("b", Some("too-late")));
        assert_eq!(exit_code(&[]), ExitCode::SUCCESS);
        assert_eq!(exit_code(&[up.clone(), up.clone()]), ExitCode::SUCCESS);
        assert_eq!(exit_code(&[up, down.clone()]), ExitCode::from(NO));
        assert_eq!(exit_code(&[down.clone(), down]), ExitCode::from(FAILED));
    }

    #[test]
    fn progress_names_few_and_counts_the_rest() {
        let waiting = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        assert_eq!(
            waited_for(3, Some(4), &waiting(&["prod-eu"])),
            "3 of 4 clusters answered, waiting for prod-eu"
        );
        assert_eq!(
            waited_for(0, Some(5), &waiting(&["a", "b", "c", "d", "e"])),
            "0 of 5 clusters answered, waiting for a, b, c and 2 more"
        );
        assert_eq!(waited_for(2, Some(2), &[]), "2 of 2 clusters answered");
    }

    #[test]
    fn a_cluster_that_fails_holds_up_no_other() {
        let names: Vec<String> = (0..40).map(|i| format!("c{i}")).collect();
        let mut done = Vec::new();
        let code = each(
            &names,
            |name| match name {
                "c7" => Err(crate::output::Failure("broken".to_owned()).into()),
                _ => Ok(name.to_owned()),
            },
            |name, value| {
                assert_eq!(name, value);
                done.push(value);
                Ok(0)
            },
        );
        assert_eq!(code.unwrap(), ExitCode::from(FAILED));
        assert_eq!(done.len(), 39);
    }
}
