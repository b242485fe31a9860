//! What is known of images: the memory of 10,000 reports of 500 findings each, and reviews per second with
//! rules that ask for them beside the same number of rules that do not. The rival does what NeuVector does
//! for each review: under one lock it reads the image's report from an embedded database, decodes it and
//! counts. Its database is redb, which keeps pages in memory as SQLite does and parses no SQL: the real one
//! is slower.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use admission::{Facts, Images, Program, Reports, Request, Settings, Unknown, decide, response};
use bench::Table;
use objects::kinds::AdmissionRule;
use redb::{Database, ReadableDatabase as _, TableDefinition};
use serde_json::{Value, json};

mod reviews;

use reviews::{review, rules};

const REPORTS: usize = 10_000;
const FINDINGS: usize = 500;
/// Vulnerabilities and packages that there are in the world.
const KNOWN_IDS: usize = 80_000;
const KNOWN_PACKAGES: usize = 40_000;
const EACH: Duration = Duration::from_secs(2);
const BLOBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("reports");

struct Known(Images);

impl Facts for Known {
    fn images(&self) -> Option<&Images> {
        Some(&self.0)
    }
}

/// The image of report `i`; the first two are those of the review.
fn image(i: usize) -> String {
    match i {
        0 => "harbor.acme.io/web/cart:v2.14.1".to_owned(),
        1 => "harbor.acme.io/ops/log:1".to_owned(),
        i => format!("harbor.acme.io/team-{}/service-{i}:v{}", i % 50, i % 7),
    }
}

fn document(i: usize) -> Value {
    let severity = ["CRITICAL", "HIGH", "MEDIUM", "LOW", "LOW"];
    let finding = |n: usize| {
        // Spread without a pattern, and the same in every run.
        let mixed = (i * FINDINGS + n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let (id, package) = (mixed % KNOWN_IDS, mixed / 7 % KNOWN_PACKAGES);
        json!({"VulnerabilityID": format!("CVE-{}-{id}", 2000 + id % 25),
               "PkgName": format!("package-{}", package / 4), "InstalledVersion": format!("1.{package}.0"),
               "PkgIdentifier": {"PURL": format!("pkg:deb/debian/package-{}@1.{package}.0", package / 4)},
               "FixedVersion": if n.is_multiple_of(2) { format!("1.{package}.1") } else { String::new() },
               "Severity": severity[n % 5], "PublishedDate": "2024-03-01T00:00:00Z",
               "Title": "what a scanner says besides", "CVSS": {"nvd": {"V3Score": 4.3}}})
    };
    let digest = format!("harbor.acme.io/x@sha256:{i:064x}");
    json!({"SchemaVersion": 2, "ArtifactName": image(i), "CreatedAt": "2026-01-01T00:00:00Z",
           "Metadata": {"OS": {"Family": "debian", "Name": "12"}, "RepoDigests": [digest]},
           "Results": [{"Vulnerabilities": (0..FINDINGS).map(finding).collect::<Vec<_>>()}]})
}

/// The same fifty rules, ten of which ask for scan results; none matches.
fn scan_rules() -> Vec<AdmissionRule> {
    let mut rules = rules();
    for (i, rule) in rules.iter_mut().enumerate().filter(|(i, _)| i % 5 == 0) {
        let criteria = match i / 5 % 5 {
            0 => json!([{"name": "cveHighCount", "op": ">=", "value": "1000"}]),
            1 => json!([{"name": "cveHighWithFixCount", "op": ">=", "value": "1000",
                         "sub_criteria": [{"name": "publishDays", "op": ">=", "value": "30"}]}]),
            2 => json!([{"name": "cveScoreCount", "op": ">=", "value": "9"}]),
            3 => json!([{"name": "imageScanned", "op": "=", "value": "false"}]),
            _ => json!([{"name": "imageNoOS", "op": "=", "value": "true"}]),
        };
        rule.spec.criteria = serde_json::from_value(criteria).unwrap();
    }
    rules
}

/// How often a second `work` is done by two threads.
fn rate(work: impl Fn() + Sync) -> f64 {
    let began = Instant::now();
    let done: u64 = std::thread::scope(|scope| {
        let one = || {
            let mut done = 0;
            while began.elapsed() < EACH {
                work();
                done += 1;
            }
            done
        };
        let running: Vec<_> = (0..2).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    done as f64 / began.elapsed().as_secs_f64()
}

/// Memory of this process, in bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0
}

fn main() -> ExitCode {
    let before = resident();
    let mut reports = Reports::default();
    for i in 0..REPORTS {
        reports.add(&document(i), 0).unwrap();
    }
    // Reports and what is published of them, as a running process has both.
    let known = Known(reports.images());
    let memory = (resident() - before) / 1e6;
    assert_eq!(known.0.len(), REPORTS);

    let (review, settings) = (review(), Settings::new(true));
    let whole = |program: &Program, facts: &dyn Facts| {
        let request = Request::review(&review, &settings).unwrap();
        let decision = decide(program, &request, facts);
        assert!(decision.allowed, "{decision:?}");
        response(Ok((&request, &decision))).to_string();
    };
    let plain = Program::compile(&rules(), &settings).unwrap();
    let scans = Program::compile(&scan_rules(), &settings).unwrap();
    let (mut without, mut with) = (0.0_f64, 0.0_f64);
    // In turn, so that a busy moment hits both.
    for _ in 0..3 {
        without = without.max(rate(|| whole(&plain, &Unknown)));
        with = with.max(rate(|| whole(&scans, &known)));
    }

    let dir = tempfile::tempdir().unwrap();
    let database = Database::create(dir.path().join("scans.redb")).unwrap();
    let write = database.begin_write().unwrap();
    {
        let mut table = write.open_table(BLOBS).unwrap();
        for i in 0..2 {
            table.insert(image(i).as_str(), document(i).to_string().as_bytes()).unwrap();
        }
    }
    write.commit().unwrap();
    let registry = Mutex::new(database);
    let rival = rate(|| {
        let request = Request::review(&review, &settings).unwrap();
        let images = {
            let database = registry.lock().unwrap();
            let read = database.begin_read().unwrap();
            let table = read.open_table(BLOBS).unwrap();
            let mut reports = Reports::default();
            for i in 0..2 {
                let blob = table.get(image(i).as_str()).unwrap().unwrap();
                let report: Value = serde_json::from_slice(blob.value()).unwrap();
                reports.add(&report, 0).unwrap();
            }
            reports.images()
        };
        let decision = decide(&scans, &request, &Known(images));
        response(Ok((&request, &decision))).to_string();
    });

    let mut table = Table::new("images");
    let what = format!("memory of {REPORTS} reports of {FINDINGS} findings");
    table.row(&what, "MB", memory, &[]);
    table.must("at most 200 MB", memory <= 200.0);
    let rivals = [("50 rules without them", without), ("a database under one lock", rival)];
    table.row("reviews, 10 of 50 rules ask for scan results, 2 threads", "/s", with, &rivals);
    table.must("at least 0.7 times those without", with >= 0.7 * without);
    table.must("at least 50 times the database", with >= 50.0 * rival);
    table.finish()
}
