//! What is known of images: the memory of 10,000 reports of 500 findings each, and reviews per second with
//! rules that ask for them beside the same number of rules that do not. Both rivals do what NeuVector does for
//! each review: under one lock they query SQLite. One reads the image's report from it, decodes and counts it,
//! as NeuVector does after its profile changed. The other asks for the image's findings, a row each, out of an
//! index that has all that is asked for, by a statement that is prepared once; and decides as we do.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use admission::{Facts, Images, Program, Reports, Request, Settings, Unknown, decide, response};
use bench::Table;
use objects::kinds::AdmissionRule;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

mod reviews;

use reviews::{review, rules};

const REPORTS: usize = 10_000;
const FINDINGS: usize = 500;
/// Vulnerabilities and packages that there are in the world.
const KNOWN_IDS: usize = 80_000;
const KNOWN_PACKAGES: usize = 40_000;
const EACH: Duration = Duration::from_secs(2);
/// Reports in the rivals' database: more only make it slower.
const STORED: usize = 200;

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

/// The rivals' database: whole reports, and their findings a row each.
fn scans(path: &Path) -> Connection {
    let mut database = Connection::open(path).unwrap();
    // As fast as it goes: all of it is in memory, and nothing is waited for.
    database
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA cache_size = -262144;
             CREATE TABLE reports (image TEXT PRIMARY KEY, report BLOB) WITHOUT ROWID;
             CREATE TABLE findings (image TEXT, severity INTEGER, fixed INTEGER, published INTEGER, score REAL);
             CREATE INDEX by_image ON findings (image, severity, fixed, published, score);",
        )
        .unwrap();
    let write = database.transaction().unwrap();
    for i in 0..STORED {
        let (image, report) = (image(i), document(i));
        let blob = report.to_string().into_bytes();
        write.execute("INSERT INTO reports VALUES (?1, ?2)", params![image, blob]).unwrap();
        for (n, finding) in
            report["Results"][0]["Vulnerabilities"].as_array().unwrap().iter().enumerate()
        {
            let fixed = finding["FixedVersion"] != "";
            let row = params![image, n as i64 % 5, fixed, 1_709_251_200_i64, 4.3];
            write.execute("INSERT INTO findings VALUES (?1, ?2, ?3, ?4, ?5)", row).unwrap();
        }
    }
    write.commit().unwrap();
    database
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
    let scans_program = Program::compile(&scan_rules(), &settings).unwrap();
    let (mut without, mut with) = (0.0_f64, 0.0_f64);
    // In turn, so that a busy moment hits both.
    for _ in 0..3 {
        without = without.max(rate(|| whole(&plain, &Unknown)));
        with = with.max(rate(|| whole(&scans_program, &known)));
    }

    let dir = tempfile::tempdir().unwrap();
    let registry = Mutex::new(scans(&dir.path().join("scans.sqlite")));
    let decoding = rate(|| {
        let request = Request::review(&review, &settings).unwrap();
        let images = {
            let database = registry.lock().unwrap();
            let mut query =
                database.prepare_cached("SELECT report FROM reports WHERE image = ?1").unwrap();
            let mut reports = Reports::default();
            for i in 0..2 {
                let blob: Vec<u8> = query.query_row([image(i)], |row| row.get(0)).unwrap();
                reports.add(&serde_json::from_slice(&blob).unwrap(), 0).unwrap();
            }
            reports.images()
        };
        let decision = decide(&scans_program, &request, &Known(images));
        response(Ok((&request, &decision))).to_string();
    });
    let querying = rate(|| {
        let mut severe = 0;
        {
            let database = registry.lock().unwrap();
            let mut query = database
                .prepare_cached(
                    "SELECT severity, fixed, published, score FROM findings WHERE image = ?1",
                )
                .unwrap();
            for i in 0..2 {
                let mut rows = query.query([image(i)]).unwrap();
                while let Some(row) = rows.next().unwrap() {
                    let (severity, fixed): (i64, bool) = (row.get(0).unwrap(), row.get(1).unwrap());
                    severe += u32::from(severity <= 1 && fixed);
                }
            }
        }
        assert!(std::hint::black_box(severe) > 0);
        whole(&scans_program, &known);
    });

    let mut table = Table::new("images");
    let what = format!("memory of {REPORTS} reports of {FINDINGS} findings");
    table.row(&what, "MB", memory, &[]);
    table.must("at most 200 MB", memory <= 200.0);
    let rivals = [
        ("50 rules without them", without),
        ("SQLite under one lock, decoded", decoding),
        ("SQLite under one lock, rows", querying),
    ];
    table.row("reviews, 10 of 50 rules ask for scan results, 2 threads", "/s", with, &rivals);
    table.must("at least 0.7 times those without", with >= 0.7 * without);
    table.must("at least 50 times SQLite, decoded", with >= 50.0 * decoding);
    // A query of prepared rows is itself no slower than the forty other rules are: fifty times more reviews than
    // with it would be more than there are without any scan results. So what each adds to a review is compared.
    let adds = |rate: f64| (1.0 / rate - 1.0 / without).max(0.0);
    table.must("adds a fiftieth of SQLite, rows", 50.0 * adds(with) <= adds(querying));
    table.finish()
}
