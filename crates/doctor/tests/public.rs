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
struct Known {
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
    /// Whether the stacks cannot show the holder, so that naming one is a guess.
    refuse_holder: bool,
    min_waiters: u64,
}

#[test]
fn public_dumps_get_the_diagnosis_that_their_projects_found() {
    let mut faults = String::new();
    let (mut holders_known, mut holders_right) = (0, 0);
    let (mut classes_known, mut classes_right) = (0, 0);
    for (name, known, report) in examined() {
        let Some(expect) = known.expect else { continue };
        let issue = known.issue.expect("a stall is somebody's issue");
        let Some(finding) = report.findings.first() else {
            writeln!(faults, "{issue} ({name}): nothing found").expect("memory");
            continue;
        };
        let mut fault = |what: String| {
            writeln!(faults, "{issue} ({name}): {what}").expect("memory");
        };
        if !is_any_of(&resource(finding), &expect.lock) {
            fault(format!(
                "lock {}, not {}",
                finding.resource.name, expect.lock
            ));
        }
        if finding.waiters.total < expect.min_waiters {
            fault(format!(
                "{} waiters, not {}",
                finding.waiters.total, expect.min_waiters
            ));
        }
        if finding.evidence.is_empty() {
            fault("no line of evidence".to_owned());
        }
        classes_known += 1;
        classes_right += u32::from(is_any_of(&class(finding), &expect.class));

        let holder = expect.holder.as_deref().unwrap_or("");
        let guessed = expect.holder.is_none() && !expect.refuse_holder;
        for named in finding
            .holders
            .iter()
            .filter(|h| h.confidence.level != Level::Possible)
        {
            if !guessed && !is_any_of(&stack(named), holder) {
                fault(format!("a confident wrong holder, {}", named.frame));
            }
        }
        let cycle = !finding.cycle.is_empty();
        if cycle && !expect.cycle && finding.confidence.level != Level::Possible {
            fault("a confident cycle where there is none".to_owned());
        }
        if expect.holder.is_some() {
            let first = finding.holders.first();
            let right = first.is_some_and(|first| is_any_of(&stack(first), holder))
                || (expect.cycle && cycle);
            holders_known += 1;
            holders_right += u32::from(right);
            if !right {
                let said = first.map_or("nobody", |first| &first.frame);
                eprintln!("{issue}: holder {said}, not {holder}");
            }
        }
        if !is_any_of(&class(finding), &expect.class) {
            eprintln!("{issue}: class {}, not {}", class(finding), expect.class);
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
    assert!(
        holders_right * 4 >= holders_known * 3,
        "the right holder or cycle in {holders_right} of {holders_known}"
    );
    assert!(
        classes_right * 4 >= classes_known * 3,
        "the right class in {classes_right} of {classes_known}"
    );
}

#[test]
fn a_healthy_process_yields_no_finding() {
    for (name, known, report) in examined() {
        if known.expect.is_none() {
            assert_eq!(report.findings, [], "{name}");
            assert!(
                !report.inputs[0].taken_for.is_empty(),
                "{name} was not recognised"
            );
        }
    }
}

fn examined() -> Vec<(String, Known, Report)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/public");
    let mut cases: Vec<_> = std::fs::read_dir(directory)
        .expect("the fixtures are there")
        .map(|entry| entry.expect("the fixtures are readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .map(|path| {
            let known = std::fs::read(&path).expect("a fixture is readable");
            let known: Known = serde_json::from_slice(&known).expect("what is known has this form");
            let text = path.with_extension("txt");
            let bytes = std::fs::read(&text).expect("each has its dump");
            let name = text
                .file_name()
                .expect("a file")
                .to_string_lossy()
                .into_owned();
            let report = doctor::examine(&name, &bytes);
            (name, known, report)
        })
        .collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(cases.len() >= 20, "fixtures are missing");
    cases
}

fn is_any_of(said: &str, alternatives: &str) -> bool {
    alternatives
        .split('|')
        .any(|a| !a.is_empty() && said.contains(a))
}

fn resource(finding: &Finding) -> String {
    let r = &finding.resource;
    let mut said = format!(
        "{} {:?} {:?} {:?}",
        r.name, r.type_name, r.field, r.variable
    );
    r.sites.iter().for_each(|site| said += site);
    said
}

fn class(finding: &Finding) -> String {
    serde_json::to_string(&finding.class).expect("a class is a word")
}

fn stack(holder: &Holder) -> String {
    format!("{} {}", holder.frame, holder.frames.join(" "))
}
