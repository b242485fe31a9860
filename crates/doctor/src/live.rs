//! A running process: its profiles twice some seconds apart, its metrics, and our own ledger.
//!
//! Only GET, only the address given: a redirect is not followed. Every answer is bounded in bytes
//! and time. What is not there is passed over; what is there and fails is said.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use ureq::Agent;
use ureq::tls::TlsConfig;

/// How a process may be asked.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// Between the two dumps.
    pub pause: Duration,
    /// For one answer, connecting included.
    pub timeout: Duration,
    /// Take any certificate.
    pub insecure: bool,
    /// A file with a bearer token.
    pub token_file: Option<PathBuf>,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self {
            pause: Duration::from_secs(5),
            // A quarter of a million goroutines take some ten seconds to print.
            timeout: Duration::from_secs(60),
            insecure: false,
            token_file: None,
        }
    }
}

/// More than this is no answer to a question of ours.
const MOST_BYTES: u64 = 1 << 30;

const STACKS: &str = "/debug/pprof/goroutine?debug=2";
const COUNTED: &str = "/debug/pprof/goroutine";
const METRICS: &str = "/metrics";
/// Ours answer people with a table unless asked for JSON.
const ONCE: [&str; 5] = [
    "/debug/pprof/mutex?debug=1",
    "/debug/pprof/block?debug=1",
    "/debug/inflight?format=json",
    "/debug/stalls?format=json",
    "/debug/locks?format=json",
];

/// Whether an argument is an address rather than a path.
pub fn is_address(argument: &str) -> bool {
    argument.starts_with("http://") || argument.starts_with("https://")
}

/// An answer, or why there is none; `None`: the process has no such endpoint.
type Answer = Option<Result<Vec<u8>, String>>;

/// What a process answered: names and bytes; and what it failed to answer: names and why.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) pieces: Vec<(String, Vec<u8>)>,
    pub(crate) refused: Vec<(String, String)>,
}

impl Answers {
    fn take(&mut self, name: String, answer: Answer) -> bool {
        match answer {
            Some(Ok(bytes)) => self.pieces.push((name, bytes)),
            Some(Err(why)) => self.refused.push((name, why)),
            None => return false,
        }
        true
    }
}

/// Asks the process at `address`. `tell` hears what is asked next.
pub(crate) fn ask(address: &str, options: &LiveOptions, tell: &mut dyn FnMut(&str)) -> Answers {
    let mut answers = Answers::default();
    // Whoever copies the address from a browser copies the path too.
    let base = address.split("/debug/").next().unwrap_or(address);
    let base = base.trim_end_matches('/').trim_end_matches("/metrics");
    let asker = match Asker::new(options) {
        Ok(asker) => asker,
        Err(why) => {
            answers.refused.push((address.to_owned(), why));
            return answers;
        }
    };
    let mut get = |path: &str, shown: &str, answers: &mut Answers| {
        let url = format!("{base}{path}");
        tell(&url);
        answers.take(format!("{url}{shown}"), asker.get(&url))
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
    std::thread::sleep(options.pause);
    let again = format!(" (after {} s)", options.pause.as_secs());
    if answers.pieces.iter().any(|(name, _)| name.ends_with(form)) {
        get(form, &again, &mut answers);
    }
    if metrics {
        get(METRICS, &again, &mut answers);
    }
    answers
}

struct Asker {
    agent: Agent,
    token: Option<String>,
}

impl Asker {
    fn new(options: &LiveOptions) -> Result<Self, String> {
        let token = match &options.token_file {
            Some(path) => {
                let text = fs::read_to_string(path)
                    .map_err(|e| format!("the token file {}: {e}", path.display()))?;
                Some(text.trim().to_owned())
            }
            None => None,
        };
        let config = Agent::config_builder()
            .timeout_global(Some(options.timeout))
            .timeout_connect(Some(options.timeout.min(Duration::from_secs(10))))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .proxy(None)
            .tls_config(TlsConfig::builder().disable_verification(options.insecure).build())
            .build();
        Ok(Self { agent: config.into(), token })
    }

    fn get(&self, url: &str) -> Answer {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(e) => return Some(Err(e.to_string())),
        };
        let status = response.status();
        if matches!(status.as_u16(), 404 | 405 | 501) {
            return None;
        }
        if status.is_redirection() {
            return Some(Err(format!(
                "it redirects ({status}), which is not followed: give the address itself"
            )));
        }
        if !status.is_success() {
            return Some(Err(format!("it answers {status}")));
        }
        let mut bytes = Vec::new();
        let body = response.into_body().into_with_config().limit(MOST_BYTES).reader();
        Some(match body.take(MOST_BYTES).read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(e) => Err(e.to_string()),
        })
    }
}

#[cfg(test)]
mod tests;
