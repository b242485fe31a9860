//! Dumps with known truth: programs of our own (`corpus/*.go.txt`), 28 stalls and 15 healthy
//! daemons, built with two versions of Go and dumped in every form. Of the first twenty numbers even
//! ones are the half on which rules are tuned, odd ones judge; those from 20 on were written after
//! the rules. `corpus/truth.tsv` says what each stall is; a mode
//! that is not in it is healthy.
//!
//! `cargo nextest run -p doctor --test corpus --no-capture` prints the figures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use doctor::report::{Finding, Holder, Level, Report, Severity};

/// A stall, as `truth.tsv` knows it. Each is one of `a|b`.
struct Truth {
    class: String,
    lock: String,
    /// None: nobody holds it.
    holder: Option<String>,
}

/// The forms in which a mode is looked at.
const FORMS: [&str; 9] = ["d0", "d1", "d2", "late", "pair", "quit", "traces", "transcript", "text"];

#[derive(Default, Clone, Copy)]
struct Figures {
    /// Findings above minor on healthy inputs, by input.
    alarms: u32,
    stalls: u32,
    found: u32,
    holders: (u32, u32),
    classes: (u32, u32),
    healthy: u32,
    findings: u32,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.stalls += other.stalls;
        self.found += other.found;
        self.holders = (self.holders.0 + other.holders.0, self.holders.1 + other.holders.1);
        self.classes = (self.classes.0 + other.classes.0, self.classes.1 + other.classes.1);
        self.healthy += other.healthy;
        self.findings += other.findings;
        self.alarms += other.alarms;
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "lock {} of {}, holder {} of {}, class {} of {}, findings on healthy {} of {}, above minor {}",
            self.found,
            self.stalls,
            self.holders.0,
            self.holders.1,
            self.classes.0,
            self.classes.1,
            self.findings,
            self.healthy,
            self.alarms
        )
    }
}

#[test]
fn the_corpus_gets_the_right_lock_holder_and_class_and_the_healthy_no_alarm() {
    let truth = truth();
    let mut by_form: BTreeMap<(&str, String, &str), Figures> = BTreeMap::new();
    let (mut said, mut faults) = (String::new(), String::new());
    for version in ["go1.19.8", "go1.26.5"] {
        let files = files(version);
        let modes: BTreeSet<&str> = files.keys().filter_map(|f| f.split('.').next()).collect();
        assert_eq!(modes.len(), 43, "{version}: the corpus is whole");
        for mode in modes {
            let number: u32 = mode[1..3].parse().expect("a mode has a number");
            let half = match number {
                20.. => "unseen",
                even if even.is_multiple_of(2) => "tuned",
                _ => "judged",
            };
            for form in FORMS {
                let Some(inputs) = inputs(&files, mode, form) else { continue };
                let report =
                    doctor::examine_all(inputs.iter().map(|(n, b)| (n.as_str(), b.as_slice())));
                let at = format!("{version} {mode} {form}");
                let entry = by_form.entry((half, version.to_owned(), form)).or_default();
                let figures = match truth.get(mode) {
                    Some(truth) => stall(&report, truth, form, &at, &mut said, &mut faults),
                    None => healthy(&report, &at, &mut said, &mut faults),
                };
                entry.add(figures);
            }
        }
    }
    let mut halves: BTreeMap<&str, Figures> = BTreeMap::new();
    for ((half, version, form), figures) in &by_form {
        println!("{half} {version} {form}: {figures}");
        halves.entry(half).or_default().add(*figures);
    }
    println!("{said}");
    for (half, figures) in &halves {
        println!("{half}: {figures}");
    }
    assert!(faults.is_empty(), "\n{faults}");
    for (half, figures) in halves {
        assert_eq!(figures.found, figures.stalls, "{half}: the right lock");
        assert!(figures.holders.0 * 10 >= figures.holders.1 * 9, "{half}: the right holder");
        assert!(figures.classes.0 * 100 >= figures.classes.1 * 85, "{half}: the right class");
    }
}

fn stall(
    report: &Report,
    truth: &Truth,
    form: &str,
    at: &str,
    said: &mut String,
    faults: &mut String,
) -> Figures {
    let mut figures = Figures { stalls: 1, ..Figures::default() };
    let right = report.findings.iter().find(|f| is_any_of(&resource(f), &truth.lock));
    figures.found = u32::from(right.is_some());
    if right.is_none() {
        let titles: Vec<&str> = report.findings.iter().map(|f| f.title.as_str()).collect();
        writeln!(said, "{at}: no finding on {}, but {titles:?}", truth.lock).expect("memory");
    }
    let holder = truth.holder.as_deref().unwrap_or_default();
    for finding in &report.findings {
        for wrong in confident(finding).filter(|h| !is_any_of(&stack(h), holder)) {
            writeln!(faults, "{at}: a confident wrong holder, {}", wrong.frame).expect("memory");
        }
    }
    // A table has no stacks: it names the lock.
    if form == "text" {
        return figures;
    }
    let class = right.map(class).unwrap_or_default();
    let is_right = truth.class.split('|').any(|c| c == class);
    figures.classes = (u32::from(is_right), 1);
    if !is_right {
        writeln!(said, "{at}: class {class}, not {}", truth.class).expect("memory");
    }
    if truth.holder.is_some() {
        let first = right.and_then(|f| f.holders.first());
        let in_cycle = right.is_some_and(|f| {
            f.cycle.iter().any(|s| is_any_of(&s.frame, holder) || is_any_of(&s.holds, holder))
        });
        let is_right = in_cycle || first.is_some_and(|h| is_any_of(&stack(h), holder));
        figures.holders = (u32::from(is_right), 1);
        if !is_right {
            let name = first.map_or("nobody", |h| &h.frame);
            writeln!(said, "{at}: holder {name}, not {holder}").expect("memory");
        }
    }
    figures
}

fn healthy(report: &Report, at: &str, said: &mut String, faults: &mut String) -> Figures {
    for finding in &report.findings {
        let told = format!(
            "{at}: {:?}, {} ({:?}): {}",
            finding.severity,
            class(finding),
            finding.confidence.level,
            finding.title
        );
        writeln!(said, "{told}").expect("memory");
        if finding.severity == Severity::Critical {
            writeln!(faults, "{told}").expect("memory");
        }
        let sure = finding.confidence.level != Level::Possible;
        if sure && class(finding) == "lost_unlock" {
            writeln!(faults, "{told}").expect("memory");
        }
    }
    let findings = u32::from(!report.findings.is_empty());
    let alarms = u32::from(report.findings.iter().any(|f| f.severity != Severity::Minor));
    Figures { healthy: 1, findings, alarms, ..Figures::default() }
}

fn truth() -> BTreeMap<String, Truth> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let table = std::fs::read_to_string(directory.join("truth.tsv")).expect("the truth is there");
    table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split('\t').map(str::to_owned);
            let mut word = || words.next().expect("four columns");
            let (mode, class, lock, holder) = (word(), word(), word(), word());
            (mode, Truth { class, lock, holder: Some(holder).filter(|h| h != "-") })
        })
        .collect()
}

/// The members of a version's archive.
fn files(version: &str) -> BTreeMap<String, Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let packed = std::fs::File::open(directory.join(format!("{version}.tar.gz")));
    let mut archive =
        tar::Archive::new(flate2::read::GzDecoder::new(packed.expect("the corpus is there")));
    let mut files = BTreeMap::new();
    for entry in archive.entries().expect("a tar") {
        let mut entry = entry.expect("a member");
        let name = entry.path().expect("a name").to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("a member is whole");
        files.insert(name, bytes);
    }
    files
}

/// What a form consists of; `None`: the mode has no such dump.
fn inputs(
    files: &BTreeMap<String, Vec<u8>>,
    mode: &str,
    form: &str,
) -> Option<Vec<(String, Vec<u8>)>> {
    let file = |suffix: &str| {
        let name = format!("{mode}.{suffix}");
        files.get(&name).map(|bytes| (name, bytes.clone()))
    };
    Some(match form {
        "d0" => vec![file("d0.pb.gz")?],
        "pair" => vec![file("d2.txt")?, file("d2b.txt")?],
        "transcript" => {
            let (name, bytes) = file("traces.txt")?;
            vec![(name, transcript(&String::from_utf8_lossy(&bytes)).into_bytes())]
        }
        form => vec![file(&format!("{form}.txt"))?],
    })
}

/// The traces as somebody pastes them: with prompts, remarks, and what `top` said before.
fn transcript(traces: &str) -> String {
    let total: u64 = traces
        .lines()
        .filter_map(|l| l.split_whitespace().next().filter(|_| l.starts_with(' ')))
        .filter_map(|word| word.parse::<u64>().ok())
        .sum();
    format!(
        "We took this while it hung:\n\n$ go tool pprof daemon goroutine.pb.gz\n{}Entering interactive \
         mode (type \"help\" for commands, \"o\" for options)\n(pprof) top 1\nShowing nodes accounting \
         for {total}, 100% of {total} total\nShowing top 1 nodes out of 30\n      flat  flat%   sum%        \
         cum   cum%\n{total:>10}   100%   100% {total:>10}   100%  runtime.gopark\n(pprof) traces\n{traces}\
         (pprof) quit\n$ echo thanks for looking\n",
        traces.lines().take(3).map(|l| format!("{l}\n")).collect::<String>(),
    )
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
    let mut said = format!("{} {:?} {:?} {:?} ", r.name, r.type_name, r.field, r.variable);
    for site in &r.sites {
        said += site;
        said += " ";
        // `main.(*Store).Get` is of `main.Store`.
        said += &site.replace("(*", "").replace(')', "");
        said += " ";
    }
    said
}

fn class(finding: &Finding) -> String {
    let json = serde_json::to_string(&finding.class).expect("a class is a word");
    json.trim_matches('"').to_owned()
}

fn stack(holder: &Holder) -> String {
    format!("{} {}", holder.frame, holder.frames.join(" "))
}
