//! Thread dumps with known truth: programs of our own in Java, Python and Rust
//! (`corpus/threads/*.txt`), stalls and healthy daemons, dumped in every form. Even numbers are the
//! half on which rules are tuned, odd ones judge. `corpus/threads/truth.tsv`, written before the dumps
//! were looked at, says what each stall is; a mode that is not in it is healthy.
//!
//! `cargo nextest run -p doctor --test threads --no-capture` prints the figures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use doctor::report::{Finding, Holder, Level, Report, Severity};

struct Truth {
    class: String,
    lock: String,
    holder: Option<String>,
}

/// A language's archives and the forms in them, each with the files it consists of.
type Forms = &'static [(&'static str, &'static [&'static str])];
const LANGUAGES: [(&str, &[&str], Forms); 3] = [
    (
        "java",
        &["java17", "java25"],
        &[
            ("Thread.print", &["print.txt"]),
            ("Thread.print -l", &["locks.txt"]),
            ("jstack -l", &["jstack.txt"]),
            ("dump_to_file json", &["json"]),
            ("dump_to_file plain", &["plain.txt"]),
            ("two dumps", &["locks.txt", "locks2.txt"]),
        ],
    ),
    (
        "python",
        &["python3.11", "python3.9"],
        &[
            ("py-spy dump", &["spy.txt"]),
            ("py-spy --locals", &["locals.txt"]),
            ("py-spy --native", &["native.txt"]),
            ("py-spy --json", &["spy.json"]),
            ("faulthandler", &["fault.txt"]),
            ("two dumps", &["spy.txt", "spy2.txt"]),
        ],
    ),
    (
        "rust",
        &["rust-debug", "rust-release"],
        &[
            ("gdb", &["gdb.txt"]),
            ("eu-stack", &["eu.txt"]),
            ("/debug/stacks", &["own.txt"]),
            ("two dumps", &["gdb.txt", "gdb2.txt"]),
        ],
    ),
];

#[derive(Default, Clone, Copy)]
struct Figures {
    stalls: u32,
    found: u32,
    holders: (u32, u32),
    classes: (u32, u32),
    healthy: u32,
    findings: u32,
    alarms: u32,
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
fn thread_dumps_get_the_right_lock_holder_and_class_and_the_healthy_no_alarm() {
    let truth = truth();
    let only = std::env::var("DOCTOR_HALF").ok();
    let mut by_form: BTreeMap<(&str, &str, &str), Figures> = BTreeMap::new();
    let (mut said, mut faults) = (String::new(), String::new());
    for (language, versions, forms) in LANGUAGES {
        for version in versions {
            let files = files(version);
            let modes: BTreeSet<&str> = files.keys().filter_map(|f| f.split('.').next()).collect();
            assert!(modes.len() >= 25, "{version}: the corpus is whole");
            for mode in modes {
                let number: u32 = mode[1..3].parse().expect("a mode has a number");
                let half = if number.is_multiple_of(2) { "tuned" } else { "judged" };
                if only.as_deref().is_some_and(|only| only != half) {
                    continue;
                }
                for (form, suffixes) in forms {
                    let inputs: Option<Vec<(String, &[u8])>> = suffixes
                        .iter()
                        .map(|suffix| format!("{mode}.{suffix}"))
                        .map(|name| files.get(&name).map(|bytes| (name, bytes.as_slice())))
                        .collect();
                    let Some(inputs) = inputs else { continue };
                    // Only the plain and JSON forms have virtual threads.
                    if mode.starts_with('v') && !form.starts_with("dump_to_file") {
                        continue;
                    }
                    let report = doctor::examine_all(inputs.iter().map(|(n, b)| (n.as_str(), *b)));
                    let at = format!("{version} {mode} {form}");
                    let figures = match truth.get(&(language.to_owned(), mode.to_owned())) {
                        Some(truth) => stall(&report, truth, &at, &mut said, &mut faults),
                        None => healthy(&report, &at, &mut said, &mut faults),
                    };
                    by_form.entry((language, half, form)).or_default().add(figures);
                }
            }
        }
    }
    let mut halves: BTreeMap<(&str, &str), Figures> = BTreeMap::new();
    for ((language, half, form), figures) in &by_form {
        println!("{language} {half} {form}: {figures}");
        halves.entry((language, half)).or_default().add(*figures);
    }
    println!("{said}");
    for ((language, half), figures) in &halves {
        println!("{language} {half}: {figures}");
    }
    assert!(faults.is_empty(), "\n{faults}");
    for ((language, half), figures) in &halves {
        let at = format!("{language} {half}: {figures}");
        assert!(figures.found * 100 >= figures.stalls * 97, "the right lock, {at}");
        assert!(figures.holders.0 * 10 >= figures.holders.1 * 9, "the right holder, {at}");
        assert!(figures.alarms * 20 <= figures.healthy, "alarms on the healthy, {at}");
    }
    // Python's other forms do not show what a call waits for.
    for ((language, half, form), figures) in &by_form {
        if *language == "python" && *form != "py-spy --native" {
            continue;
        }
        let least = if form.starts_with("dump_to_file") { 70 } else { 80 };
        let right = figures.classes.0 * 100 >= figures.classes.1 * least;
        assert!(right, "the right class, {language} {half} {form}: {figures}");
    }
}

fn stall(
    report: &Report,
    truth: &Truth,
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
    let class = right.map(class).unwrap_or_default();
    let is_right = truth.class.split('|').any(|c| c == class);
    figures.classes = (u32::from(is_right), 1);
    if !is_right {
        writeln!(said, "{at}: class {class}, not {}", truth.class).expect("memory");
    }
    if truth.holder.is_some() {
        let first = right.and_then(|f| f.holders.first());
        let in_cycle = right.is_some_and(|f| f.cycle.iter().any(|s| is_any_of(&s.frame, holder)));
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
        let sure = finding.confidence.level != Level::Possible;
        if finding.severity == Severity::Critical || (sure && class(finding) == "lost_unlock") {
            writeln!(faults, "{told}").expect("memory");
        }
    }
    let findings = u32::from(!report.findings.is_empty());
    let alarms = u32::from(report.findings.iter().any(|f| f.severity != Severity::Minor));
    assert!(report.inputs.iter().all(|i| !i.taken_for.is_empty()), "{at} was not read");
    Figures { healthy: 1, findings, alarms, ..Figures::default() }
}

fn directory() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/threads")
}

fn truth() -> BTreeMap<(String, String), Truth> {
    let table = std::fs::read_to_string(directory().join("truth.tsv")).expect("the truth is there");
    table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split('\t').map(str::to_owned);
            let mut word = || words.next().expect("five columns");
            let (language, mode, class, lock, holder) = (word(), word(), word(), word(), word());
            let holder = Some(holder).filter(|h| h != "-");
            ((language, mode), Truth { class, lock, holder })
        })
        .collect()
}

/// The members of an archive.
fn files(version: &str) -> BTreeMap<String, Vec<u8>> {
    let packed = std::fs::File::open(directory().join(format!("{version}.tar.gz")));
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

fn confident(finding: &Finding) -> impl Iterator<Item = &Holder> {
    finding.holders.iter().filter(|h| h.confidence.level != Level::Possible)
}

fn is_any_of(said: &str, alternatives: &str) -> bool {
    alternatives.split('|').any(|a| !a.is_empty() && said.contains(a))
}

fn resource(finding: &Finding) -> String {
    let r = &finding.resource;
    format!("{} {:?} {}", r.name, r.type_name, r.sites.join(" "))
}

fn class(finding: &Finding) -> String {
    let json = serde_json::to_string(&finding.class).expect("a class is a word");
    json.trim_matches('"').to_owned()
}

fn stack(holder: &Holder) -> String {
    format!("{} {}", holder.frame, holder.frames.join(" "))
}
