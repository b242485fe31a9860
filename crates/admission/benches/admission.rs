//! Reviews decided per second with 50 rules (globs and regexes, all kinds of criteria), from the bytes
//! that an API server sends to the bytes of the answer; and the decision alone. The rival does what a
//! design without a compiled program does: it reads the same rules for each review, under one lock.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use admission::{Admission, LOCAL_CLUSTER, Program, Request, Settings, Unknown, decide, response};
use bench::Table;
use objects::{Expected, Objects};
use serde_json::Value;
use stallproof::{Readiness, Tasks};

mod reviews;

use reviews::{RULES, review, rules};

const EACH: Duration = Duration::from_secs(2);

/// How often a second `work` is done by two threads.
fn rate(work: impl Fn() + Sync) -> f64 {
    let threads = 2;
    let began = Instant::now();
    let done: u64 = std::thread::scope(|scope| {
        let one = || {
            let mut done = 0;
            while began.elapsed() < EACH {
                for _ in 0..16 {
                    work();
                }
                done += 16;
            }
            done
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    done as f64 / began.elapsed().as_secs_f64()
}

fn main() -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.unwrap();
    let _entered = runtime.enter();
    let (rules, review) = (rules(), review());
    let settings = Settings::new(true);

    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("bench");
    let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
    let admission =
        Admission::start(&objects, settings.clone(), vec![], &Readiness::default(), &tasks);
    runtime.block_on(async {
        let soon = || stallproof::Deadline::after(Duration::from_secs(30));
        for rule in &rules {
            objects.apply(rule, Expected::Any, soon()).await.unwrap();
        }
        while admission.rules().list().len() < RULES {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let answer = admission.review(LOCAL_CLUSTER, &review).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["allowed"], true, "{answer}");

    let program = Program::compile(&rules, &settings).unwrap();
    let request = Request::review(&review, &settings).unwrap();
    let looked_at = decide(&program, &request, &Unknown);
    assert!(looked_at.passed.is_none(), "passed without a look: {:?}", looked_at.passed);
    let decided = rate(|| {
        assert!(decide(&program, &request, &Unknown).allowed);
    });
    let read = rate(|| {
        Request::review(&review, &settings).unwrap();
    });
    let whole = rate(|| {
        admission.review(LOCAL_CLUSTER, &review).unwrap();
    });
    // Rules as they were written, behind the one lock that everything else takes too.
    let rival = Arc::new(Mutex::new(rules));
    let rival = rate(|| {
        let request = Request::review(&review, &settings).unwrap();
        let rules = rival.lock().unwrap();
        let program = Program::compile(&rules, &settings).unwrap();
        let decision = decide(&program, &request, &Unknown);
        response(Ok((&request, &decision))).to_string();
    });
    tasks.stop("done");
    let mut table = Table::new("admission");
    let what = |what: &str| format!("{what}, {RULES} rules, {} bytes, 2 threads", review.len());
    table.row(&what("reviews decided"), "/s", decided, &[]);
    table.must("at least 250,000/s", decided >= 250_000.0);
    table.row(&what("reviews read"), "/s", read, &[]);
    table.row(&what("bytes to answer"), "/s", whole, &[("rules read each time, one lock", rival)]);
    table.must("at least 50 times", whole >= 50.0 * rival);
    let dropped = admission.dropped() as f64;
    table.row("decisions that the audit dropped", "", dropped, &[]);
    table.finish()
}
