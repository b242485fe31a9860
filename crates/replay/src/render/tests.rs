use super::*;
use crate::outcome::{Ended, Named, Outcome, Parameters, Sample, Side};

fn outcome() -> Outcome {
    let timeline: Vec<Sample> = (0..40)
        .map(|i| Sample { at_ms: i * 200, in_flight: i, level: i as f64, ..Sample::default() })
        .collect();
    let stopped = Ended { stopped: Some("at its <limit>".to_owned()), ..Ended::default() };
    let named = Named { what: "pod <b>".to_owned(), step: "configure".to_owned(), after_ms: 12.5 };
    let named = Ended { named: Some(named), ..Ended::default() };
    Outcome {
        incident: "cni-burst".to_owned(),
        seed: 7,
        scale: 0.5,
        version: "0".to_owned(),
        parameters: Parameters::from([("pods".to_owned(), serde_json::json!(50))]),
        level: "pods".to_owned(),
        old: Side { ended: stopped, timeline: timeline.clone() },
        new: Side { ended: named, timeline },
        requirements: vec![
            Requirement::new("good", Some(1.0), Relation::AtMost, 2.0, "ms"),
            Requirement::new("bad & worse", None, Relation::Exactly, 0.0, "pods"),
        ],
        void: None,
        ok: false,
    }
}

/// Every element that is opened is closed, in order, and what was not ours to write is escaped.
fn well_formed(page: &str) {
    const VOID: [&str; 4] = ["meta", "!doctype", "line", "polyline"];
    let mut open = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "in {tag}");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_page_is_well_formed_fetches_nothing_and_runs_nothing() {
    let page = html(&[outcome(), outcome()]);
    well_formed(&page);
    assert!(page.contains("pod &lt;b&gt;") && page.contains("bad &amp; worse"));
    for foreign in ["<script", "http://", "https://", "url(", "src="] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert_eq!(page.matches("<polyline class=\"old\"").count(), 2 * 3);
    assert!(page.contains("✗") && page.contains("✓") && page.contains("not measured"));
}

#[test]
fn the_text_says_what_holds_and_what_does_not() {
    let mut outcome = outcome();
    let said = text(&outcome);
    assert!(said.contains("✓ good") && said.contains("✗ bad & worse") && said.contains("NOT MET"));
    assert!(said.contains("Fairlead named it after 12 ms: pod <b> in configure"), "{said}");
    outcome.void = Some("no load".to_owned());
    assert!(text(&outcome).contains("void: no load"));
}

#[test]
fn the_json_has_the_fields_that_scripts_rely_on() {
    let json = serde_json::to_value(outcome()).unwrap();
    for field in ["incident", "seed", "scale", "parameters", "old", "new", "requirements", "ok"] {
        assert!(json.get(field).is_some(), "{field}");
    }
    for field in ["name", "limit", "value", "ok"] {
        assert!(json["requirements"][0].get(field).is_some(), "{field}");
    }
    for field in ["stopped", "answered", "refused", "p50Ms", "p99Ms", "peakMemoryBytes", "timeline"]
    {
        assert!(json["old"].get(field).is_some(), "{field}");
    }
    assert_eq!(json["new"]["named"]["step"], "configure");
    assert_eq!(json["old"]["timeline"][1]["atMs"], 200);
}

#[test]
fn numbers_are_written_as_people_write_them() {
    assert_eq!(number(128_846.0), "128,846");
    assert_eq!(number(1.234), "1.23");
    assert_eq!(number(-1000.0), "-1,000");
    assert_eq!(time(Some(0.05)), "50 µs");
    assert_eq!(time(Some(12_340.0)), "12.3 s");
}
