use jiff::Timestamp;

use super::*;
use crate::report::*;

/// A report in which every text is an attack.
fn hostile() -> Report {
    let evil = || "<script>alert(1)</script>\x1b[2J`|\" onload='x' @all".to_owned();
    let evidence = || Evidence { input: evil(), line: Some(3), text: evil() };
    let finding = Finding {
        id: evil(),
        class: FaultClass::HeldAcrossIo,
        severity: Severity::Critical,
        title: evil(),
        resource: Resource {
            kind: ResourceKind::RwMutex,
            name: evil(),
            sites: vec![evil()],
            ..Resource::default()
        },
        held: Some(Held { mode: HeldMode::Read, why: evil(), evidence: vec![evidence()] }),
        waiters: Waiters {
            total: 190_114,
            readers: 140_038,
            writers: 50_076,
            by_entry: vec![EntryCount {
                kind: EntryKind::Grpc,
                name: evil(),
                function: evil(),
                count: 128_846,
            }],
            by_path: vec![PathCount {
                count: 5,
                wants: evil(),
                frames: vec![evil()],
                evidence: Some(evidence()),
            }],
        },
        since: Some(Since { at: Some(Timestamp::UNIX_EPOCH), text: evil(), ..Since::default() }),
        holders: vec![Holder {
            goroutine: Some(7),
            frame: evil(),
            blocked_on: Some(evil()),
            frames: vec![evil()],
            ..Holder::default()
        }],
        cycle: vec![CycleStep {
            holds: evil(),
            waits_for: evil(),
            frame: evil(),
            ..CycleStep::default()
        }],
        blast_radius: vec![Blast { what: evil(), count: 3, why: evil() }],
        remedy: evil(),
        collect_next: vec![evil()],
        evidence: vec![evidence()],
        details: vec![evil()],
        ..Finding::default()
    };
    let node =
        |id: &str, kind| GraphNode { id: id.into(), kind, label: evil(), count: 3, finding: None };
    let edge = |from: &str, to: &str, kind| GraphEdge {
        from: from.into(),
        to: to.into(),
        kind,
        count: 3,
        ..GraphEdge::default()
    };
    Report {
        inputs: vec![InputSummary {
            name: evil(),
            taken_for: vec![evil()],
            read: vec![evil()],
            refused: vec![Refusal { line: Some(1), why: evil() }],
            size: 5,
        }],
        findings: vec![finding],
        timeline: vec![TimelineEvent {
            at: Some(Timestamp::UNIX_EPOCH),
            text: evil(),
            count: 2,
            ..TimelineEvent::default()
        }],
        comparisons: vec![Comparison {
            first: evil(),
            second: evil(),
            stuck_paths: vec![PathCount { frames: vec![evil()], ..PathCount::default() }],
            ..Comparison::default()
        }],
        graph: WaitGraph {
            nodes: vec![
                node("a", NodeKind::Goroutines),
                node("r", NodeKind::Resource),
                node("s", NodeKind::Resource),
            ],
            edges: vec![
                edge("a", "r", EdgeKind::WaitsFor),
                edge("r", "a", EdgeKind::HeldBy),
                edge("a", "s", EdgeKind::WaitsFor),
            ],
        },
        parked: vec![PathCount { count: 4, wants: evil(), frames: vec![evil()], evidence: None }],
        notes: vec![Note { text: evil(), input: None }],
    }
}

#[test]
fn nothing_from_an_input_is_markup_or_moves_the_cursor() {
    let report = hostile();
    let page = html(&report);
    assert!(!page.contains("<script") && !page.contains("onload='") && !page.contains('\x1b'));
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("style="), "a strict policy forbids styles of single elements");
    for style in [Style::default(), Style { width: 40, colour: false }] {
        let text = text(&report, style);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
    }
    let ticket = markdown(&report);
    assert!(!ticket.contains('\x1b'));
    // What is left without escapes, fences and code.
    let ticket = ticket.replace("\\<", "").replace("\\`", "");
    let outside: String = ticket.split("```").step_by(2).collect();
    let unquoted: String = outside.split('`').step_by(2).collect();
    assert!(!unquoted.contains("<script") && !unquoted.contains("@all"), "{unquoted}");
}

#[test]
fn a_page_keeps_to_its_width() {
    let report = hostile();
    for width in [40, 80, 120] {
        for line in text(&report, Style { width, colour: false }).lines() {
            // A place to look at is never cut.
            assert!(line.chars().count() <= width.max(100), "{line}");
        }
    }
}

#[test]
fn colour_only_when_told() {
    let report = hostile();
    assert!(!text(&report, Style::default()).contains('\x1b'));
    assert!(text(&report, Style { colour: true, ..Style::default() }).contains("\x1b[1;31m"));
}

#[test]
fn json_is_the_report_itself() {
    let report = hostile();
    assert_eq!(serde_json::from_str::<Report>(&json(&report)).unwrap(), report);
}

#[test]
fn tags_of_the_page_are_balanced() {
    let page = html(&hostile());
    for tag in ["article", "section", "details", "table", "svg", "dl", "dd", "ol", "g", "main"] {
        let open =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(open, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn nothing_found_is_said_in_every_form() {
    let report = Report::default();
    for out in [text(&report, Style::default()), markdown(&report), html(&report)] {
        assert!(out.contains("no stall found"), "{out}");
    }
}
