//! A running process: its profiles twice some seconds apart, its metrics, and our own ledger.
//!
//! What is asked is decided here; how HTTP is spoken is the caller's ([`Fetch`]): only GET, only the
//! address given, every answer bounded in bytes and time. An endpoint that is not there is passed
//! over; one that is there and fails is reported.

pub mod pod;

use std::fmt::Debug;
use std::time::Duration;

/// How an address is asked. A redirect is not followed.
pub trait Fetch: Debug {
    /// The status and the body of a GET, or a sentence that says why there is none.
    fn get(&self, url: &str) -> Result<(u16, Vec<u8>), String>;
}

/// How a running process is asked.
#[derive(Debug, Clone, Copy)]
pub struct Live<'a> {
    /// The time between the two dumps.
    pub pause: Duration,
    pub fetch: &'a dyn Fetch,
}

const STACKS: &str = "/debug/pprof/goroutine?debug=2";
const COUNTED: &str = "/debug/pprof/goroutine";
const METRICS: &str = "/metrics";
/// Ours answer people with a table unless asked for JSON.
const ONCE: [&str; 6] = [
    "/debug/pprof/mutex?debug=1",
    "/debug/pprof/block?debug=1",
    "/debug/inflight?format=json",
    "/debug/stalls?format=json",
    "/debug/locks?format=json",
    "/debug/stacks",
];

/// Whether an argument is an address rather than a path.
pub fn is_address(argument: &str) -> bool {
    argument.starts_with("http://") || argument.starts_with("https://")
}

/// An answer, or why there is none; `None`: the process has no such endpoint.
type Fetched = Option<Result<Vec<u8>, String>>;

/// What a process answered: names and bytes; and what it failed to answer: names and why.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) pieces: Vec<(String, Vec<u8>)>,
    pub(crate) refused: Vec<(String, String)>,
}

impl Collected {
    fn take(&mut self, name: String, answer: Fetched) -> bool {
        match answer {
            Some(Ok(bytes)) => self.pieces.push((name, bytes)),
            Some(Err(why)) => self.refused.push((name, why)),
            None => return false,
        }
        true
    }
}

/// Asks the process at `address`. `tell` is called with each URL before it is asked.
pub(crate) fn ask(address: &str, live: Option<Live<'_>>, tell: &mut dyn FnMut(&str)) -> Collected {
    let mut answers = Collected::default();
    let Some(Live { pause, fetch }) = live else {
        let why = "a running process cannot be asked from here";
        answers.refused.push((address.to_owned(), why.to_owned()));
        return answers;
    };
    // Whoever copies the address from a browser copies the path too.
    let base = address.split("/debug/").next().unwrap_or(address);
    let base = base.trim_end_matches('/').trim_end_matches("/metrics");
    let mut get = |path: &str, shown: &str, answers: &mut Collected| {
        let url = format!("{base}{path}");
        tell(&url);
        answers.take(format!("{url}{shown}"), interpret(fetch.get(&url)))
    };
    let metrics = get(METRICS, "", &mut answers);
    // A process that cannot print every stack in time can still count them.
    let before = answers.pieces.len();
    get(STACKS, "", &mut answers);
    let form = if answers.pieces.len() > before { STACKS } else { COUNTED };
    if form == COUNTED {
        get(COUNTED, "", &mut answers);
    }
    for path in ONCE {
        get(path, "", &mut answers);
    }
    if answers.pieces.is_empty() {
        if answers.refused.is_empty() {
            let why = "neither profiles nor metrics there: is it the port of net/http/pprof?";
            answers.refused.push((address.to_owned(), why.into()));
        }
        // The same error at every path is one error.
        answers.refused.dedup_by(|a, b| a.1 == b.1);
        return answers;
    }
    std::thread::sleep(pause);
    let again = format!(" (after {} s)", pause.as_secs());
    if answers.pieces.iter().any(|(name, _)| name.ends_with(form)) {
        get(form, &again, &mut answers);
    }
    if metrics {
        get(METRICS, &again, &mut answers);
    }
    answers
}

fn interpret(fetched: Result<(u16, Vec<u8>), String>) -> Fetched {
    let (status, body) = match fetched {
        Ok(answer) => answer,
        Err(why) => return Some(Err(why)),
    };
    match status {
        404 | 405 | 501 => None,
        200..300 => Some(Ok(body)),
        300..400 => Some(Err(format!(
            "it redirects ({status}), which is not followed: give the address itself"
        ))),
        _ => Some(Err(format!("it answers {status}"))),
    }
}

#[cfg(test)]
mod tests;
