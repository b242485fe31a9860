use std::cell::RefCell;

use super::*;

/// A process that answers these paths, and 404 to the rest.
#[derive(Debug)]
struct Process {
    answers: &'static [(&'static str, u16, &'static str)],
    asked: RefCell<Vec<String>>,
}

const ADDRESS: &str = "http://daemon:6060";

impl Process {
    fn new(answers: &'static [(&'static str, u16, &'static str)]) -> Self {
        Self { answers, asked: RefCell::default() }
    }

    fn ask(&self, address: &str) -> Collected {
        let live = Live { pause: Duration::ZERO, fetch: self };
        ask(address, Some(live), &mut |url| self.asked.borrow_mut().push(url.to_owned()))
    }
}

impl Fetch for Process {
    fn get(&self, url: &str) -> Result<(u16, Vec<u8>), String> {
        let path = url.strip_prefix(ADDRESS).unwrap();
        let found = self.answers.iter().find(|(p, ..)| *p == path);
        Ok(found.map_or((404, Vec::new()), |(_, status, body)| (*status, body.as_bytes().to_vec())))
    }
}

/// A process that nobody can reach.
#[derive(Debug)]
struct Nobody;

impl Fetch for Nobody {
    fn get(&self, _: &str) -> Result<(u16, Vec<u8>), String> {
        Err("connection refused".to_owned())
    }
}

fn names(answers: &Collected) -> Vec<String> {
    answers.pieces.iter().map(|(name, _)| name.replace(ADDRESS, "")).collect()
}

#[test]
fn dumps_and_metrics_are_taken_twice_and_the_rest_once() {
    let process = Process::new(&[
        ("/debug/pprof/goroutine?debug=2", 200, "goroutine 1 [running]:\n"),
        ("/metrics", 200, "up 1\n"),
        ("/debug/inflight?format=json", 200, "{}"),
    ]);
    let answers = process.ask(&format!("{ADDRESS}/debug/pprof/"));
    assert_eq!(
        names(&answers),
        [
            "/metrics",
            "/debug/pprof/goroutine?debug=2",
            "/debug/inflight?format=json",
            "/debug/pprof/goroutine?debug=2 (after 0 s)",
            "/metrics (after 0 s)"
        ]
    );
    assert!(answers.refused.is_empty(), "{:?}", answers.refused);
    assert_eq!(process.asked.borrow().len(), 10, "each URL is told before it is asked");
}

#[test]
fn a_redirect_is_not_followed() {
    let answers = Process::new(&[("/metrics", 302, "")]).ask(ADDRESS);
    assert!(answers.pieces.is_empty());
    assert!(answers.refused[0].1.contains("redirects"), "{:?}", answers.refused);
    let answers = Process::new(&[("/metrics", 500, "")]).ask(ADDRESS);
    assert!(answers.refused[0].1.contains("answers 500"), "{:?}", answers.refused);
}

#[test]
fn nobody_there_is_one_refusal() {
    let live = Live { pause: Duration::ZERO, fetch: &Nobody };
    let answers = ask(ADDRESS, Some(live), &mut |_| {});
    assert!(answers.pieces.is_empty());
    assert_eq!(answers.refused.len(), 1, "{:?}", answers.refused);
    let answers = Process::new(&[]).ask(ADDRESS);
    assert!(answers.refused[0].1.contains("net/http/pprof"));
    let answers = ask(ADDRESS, None, &mut |_| {});
    assert!(answers.refused[0].1.contains("cannot be asked from here"));
}
