use serde_json::json;

use super::*;
use crate::image::{DEFAULT_REGISTRIES, Image};

fn report(image: &str, ids: std::ops::Range<usize>) -> Report {
    let findings: Vec<_> = ids
        .map(|id| {
            json!({"VulnerabilityID": format!("CVE-{id}"), "PkgName": format!("package-{id}"),
                   "InstalledVersion": "1", "Severity": "HIGH"})
        })
        .collect();
    let document = json!({"SchemaVersion": 2, "ArtifactName": image,
        "CreatedAt": "2026-01-01T00:00:00Z", "Results": [{"Vulnerabilities": findings}]});
    super::super::read::report(&document, 0).unwrap()
}

fn ids(images: &Images, image: &str) -> Vec<String> {
    let image = Image::parse(image, &DEFAULT_REGISTRIES.map(str::to_owned).into());
    let found = images.find(&image);
    let findings = found.for_deny().first().and_then(|record| record.vulnerabilities.as_deref());
    let mut ids: Vec<_> = findings
        .into_iter()
        .flat_map(Findings::iter)
        .map(|finding| {
            let package = images.package(finding.package);
            format!("{} {}", images.text(finding.id), images.text(package.name))
        })
        .collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn tables_are_written_anew_and_reports_on_their_way_keep_their_texts() {
    let tasks = Tasks::new("images");
    let facts = ImageFacts::start(ImageLimits::default(), &tasks);
    let images = facts.of_cluster("local");
    let id = |name: &str| Id::cluster(name);
    let put = |name: &str, kept| {
        facts.take(None, "ImageReport", Event::Applied((id(name), Some(kept))));
    };
    put("a", facts.known(report("acme.io/a:1", 0..3)));
    // On its way while the tables are written anew.
    let late = facts.known(report("acme.io/late:1", 10..13));
    put("large", facts.known(report("acme.io/large:1", 100..GROWTH)));
    facts.take(None, "ImageReport", Event::Deleted((id("large"), None)));
    {
        let mut state = facts.0.state.lock();
        assert!(state.interner.len() > GROWTH);
        state.compact();
        assert!(state.interner.len() < 100, "{}", state.interner.len());
    }
    put("late", late);
    let patience = stallproof::Deadline::after(Duration::from_secs(30));
    while images.load().len() != 2 {
        assert!(!patience.has_passed(), "it is never published");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let known = images.load();
    assert_eq!(
        ids(&known, "acme.io/a:1"),
        ["CVE-0 package-0", "CVE-1 package-1", "CVE-2 package-2"]
    );
    let late = ["CVE-10 package-10", "CVE-11 package-11", "CVE-12 package-12"];
    assert_eq!(ids(&known, "acme.io/late:1"), late);
    tasks.stop("the test is over");
}

#[test]
fn what_its_source_withdrew_counts_for_a_while_and_what_is_too_old_never() {
    let mut state = State::default();
    let held = |state: &mut State| {
        let known = KnownReport::new(report("acme.io/a:1", 0..1), &mut state.interner);
        Kept::Report(Arc::clone(&state.epoch), Arc::new(known))
    };
    let kept = held(&mut state);
    state.put(Some("prod"), "VulnerabilityReport", Id::namespaced("n", "r"), Some(kept));
    state.withdraw(Some("prod"), "VulnerabilityReport", &Id::namespaced("n", "r"));
    let limits = ImageLimits { keep_gone: 60, ..ImageLimits::default() };
    state.sweep(&limits, now() + 30);
    assert_eq!(state.all().count(), 1);
    state.sweep(&limits, now() + 61);
    assert_eq!(state.all().count(), 0);

    let kept = held(&mut state);
    state.put(None, "ImageReport", Id::cluster("r"), Some(kept));
    let scanned = state.all().next().unwrap().report.scanned_at;
    let limits = ImageLimits { scan_age: Some(100), ..ImageLimits::default() };
    state.sweep(&limits, scanned + 100);
    assert_eq!(state.all().count(), 1);
    state.sweep(&limits, scanned + 101);
    assert_eq!(state.all().count(), 0);
}

#[test]
fn another_scan_that_cannot_be_read_leaves_the_last_good_one() {
    let mut state = State::default();
    let known = KnownReport::new(report("acme.io/a:1", 0..1), &mut state.interner);
    let kept = Kept::Report(Arc::clone(&state.epoch), Arc::new(known));
    let id = Id::namespaced("n", "r");
    state.put(Some("prod"), "VulnerabilityReport", id.clone(), Some(kept));
    state.put(Some("prod"), "VulnerabilityReport", id, None);
    assert_eq!(state.all().count(), 1);
}
