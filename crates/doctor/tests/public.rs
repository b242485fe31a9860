//! Public goroutine dumps whose cause was found by their projects: their facts carried over in the
//! same form, a few to a few dozen goroutines each, with the issue named. What the doctor says of
//! them must be what the issue established: the right lock in all, the right holder or cycle in
//! most, never a wrong one with confidence; and nothing of a healthy process.

use std::fmt::Write as _;
use std::path::Path;

use doctor::report::{Finding, Holder, Level, Report};
use serde::Deserialize;

/// What is known of a dump. Names are alternatives, `a|b`: parts of what the doctor may say.
#[derive(Debug, Deserialize)]
struct RuntimeCall {
    issue: Option<String>,
    /// None: the process is healthy.
    expect: Option<Expect>,
}

#[derive(Debug, Deserialize)]
struct Expect {
    /// The lock, by its type, variable, or a function that takes it.
    lock: String,
    class: String,
    /// A function of the goroutine that holds it. None: the issue does not establish it.
    holder: Option<String>,
    cycle: bool,
    min_waiters: u64,
}

#[test]
fn public_dumps_get_the_diagnosis_that_their_projects_found() {
    let mut faults = String::new();
    let (mut first, mut holders, mut classes) =
        (Score::default(), Score::default(), Score::default());
    for (name, known, report) in examined() {
        let Some(expect) = known.expect else { continue };
        let issue = known.issue.expect("a stall is somebody's issue");
        let mut fault = |what: String| {
            writeln!(faults, "{issue} ({name}): {what}").expect("memory");
        };
        let Some(at) = report.findings.iter().position(|f| is_any_of(&resource(f), &expect.lock))
        else {
            let said: Vec<&str> = report.findings.iter().map(|f| f.title.as_str()).collect();
            fault(format!("lock {} is not in {said:?}", expect.lock));
            continue;
        };
        let finding = &report.findings[at];
        first.count(at == 0, || format!("{issue}: first is {}", report.findings[0].title));
        // Of the locks of a deadlock any may come first; the queue may be at another.
        let right = report.findings.iter().filter(|f| is_any_of(&resource(f), &expect.lock));
        let waiters = right.map(|f| f.waiters.total).max().unwrap_or_default();
        if waiters < expect.min_waiters {
            fault(format!("{waiters} waiters, not {}", expect.min_waiters));
        }
        if finding.evidence.is_empty() {
            fault("no line of evidence".to_owned());
        }
        classes.count(is_any_of(&class(finding), &expect.class), || {
            format!("{issue}: class {}, not {}", class(finding), expect.class)
        });
        let holder = expect.holder.as_deref().unwrap_or_default();
        for wrong in report.findings.iter().flat_map(confident) {
            if !is_any_of(&stack(wrong), holder) {
                fault(format!("a confident wrong holder, {}", wrong.frame));
            }
        }
        let deadlocked = !finding.cycle.is_empty();
        if deadlocked && !expect.cycle && finding.confidence.level != Level::Possible {
            fault("a confident cycle where there is none".to_owned());
        }
        if expect.holder.is_some() {
            let named = finding.holders.first();
            let right = named.is_some_and(|named| is_any_of(&stack(named), holder));
            holders.count(right || (deadlocked && expect.cycle), || {
                let said = named.map_or("nobody", |named| &named.frame);
                format!("{issue}: holder {said}, not {holder}")
            });
        }
    }
    println!("first finding {first}\nholder or cycle {holders}\nclass {classes}");
    assert!(faults.is_empty(), "\n{faults}");
    for score in [first, holders, classes] {
        assert!(score.right * 4 >= score.all * 3, "right in {score}");
    }
}

#[test]
fn a_healthy_process_yields_no_finding() {
    for (name, known, report) in examined() {
        if known.expect.is_none() {
            assert_eq!(report.findings, [], "{name}");
            assert!(!report.inputs[0].taken_for.is_empty(), "{name} was not recognised");
        }
    }
}

fn examined() -> Vec<(String, RuntimeCall, Report)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/public");
    let mut cases: Vec<_> = std::fs::read_dir(directory)
        .expect("the fixtures are there")
        .map(|entry| entry.expect("the fixtures are readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .map(|path| {
            let known = std::fs::read(&path).expect("a fixture is readable");
            let known: RuntimeCall =
                serde_json::from_slice(&known).expect("what is known has this form");
            let text = path.with_extension("txt");
            let bytes = std::fs::read(&text).expect("each has its dump");
            let name = text.file_name().expect("a file").to_string_lossy().into_owned();
            let report = doctor::examine(&name, &bytes);
            (name, known, report)
        })
        .collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(cases.len() >= 20, "fixtures are missing");
    cases
}

/// How many are right, and what was said instead in the others.
#[derive(Default)]
struct Score {
    right: usize,
    all: usize,
    others: Vec<String>,
}

impl Score {
    fn count(&mut self, right: bool, instead: impl FnOnce() -> String) {
        self.all += 1;
        self.right += usize::from(right);
        if !right {
            self.others.push(instead());
        }
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}; else {:#?}", self.right, self.all, self.others)
    }
}

/// The holders that are named with more confidence than "it may be".
fn confident(finding: &Finding) -> impl Iterator<Item = &Holder> {
    finding.holders.iter().filter(|h| h.confidence.level != Level::Possible)
}

fn is_any_of(said: &str, alternatives: &str) -> bool {
    alternatives.split('|').any(|a| !a.is_empty() && said.contains(a))
}

fn resource(finding: &Finding) -> String {
    let r = &finding.resource;
    let mut said = format!("{} {:?} {:?} {:?}", r.name, r.type_name, r.field, r.variable);
    r.sites.iter().for_each(|site| said += site);
    said
}

fn class(finding: &Finding) -> String {
    serde_json::to_string(&finding.class).expect("a class is a word")
}

fn stack(holder: &Holder) -> String {
    format!("{} {}", holder.frame, holder.frames.join(" "))
}
