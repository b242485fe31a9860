//! What has been collected so far, from whatever source; concluded, it is the report.

use crate::analysis;
use crate::goroutine::{Dump, Form};
use crate::metrics::{self, Rising};
use crate::report::{EventKind, Evidence, Finding, InputSummary, Note, Report, TimelineEvent};
use crate::threads::{self, ThreadDump};
use crate::words::goroutines;

/// Evidence of one examination. Readers add to it in any order.
#[derive(Debug, Default)]
pub struct Case {
    /// What was read.
    pub inputs: Vec<InputSummary>,
    /// Goroutine, mutex and block profiles; of one process, earlier ones first.
    pub dumps: Vec<Dump>,
    /// Thread dumps of Java, Python and native programs; of one process, earlier ones first.
    pub threads: Vec<ThreadDump>,
    /// What grew from one scrape of the metrics to the next.
    pub(crate) rising: Vec<Rising>,
    /// Findings from logs, metrics and Fairlead's own endpoints.
    pub findings: Vec<Finding>,
    /// Events from logs and metrics.
    pub timeline: Vec<TimelineEvent>,
    /// Remarks of the readers.
    pub notes: Vec<Note>,
}

impl Case {
    /// Examines the dumps, and puts everything in order.
    pub fn conclude(self) -> Report {
        let Self { inputs, mut dumps, threads, rising, mut findings, mut timeline, mut notes } =
            self;
        // Dumps that say when they were taken are compared in that order; a stable sort keeps the
        // others where they were given.
        if dumps.iter().all(|d| d.taken.is_some()) {
            dumps.sort_by_key(|d| d.taken);
        }
        let mut diagnosis = analysis::diagnose(&dumps);
        threads::diagnose(&threads, &mut diagnosis);
        findings.extend(diagnosis.findings);
        notes.extend(diagnosis.notes);
        metrics::weigh(&mut findings, &rising);
        // A cause holds up its own queue and those behind it, so it comes before them.
        let affected =
            |f: &Finding| f.waiters.total + f.blast_radius.iter().map(|b| b.count).sum::<u64>();
        findings.sort_by(|a, b| {
            (a.severity, affected(b), a.class, &a.id).cmp(&(
                b.severity,
                affected(a),
                b.class,
                &b.id,
            ))
        });
        number_twins(&mut findings);
        timeline.extend(dumps.iter().filter_map(event));
        // What has no time comes last.
        timeline.sort_by_key(|e| (e.at.is_none(), e.at));
        let graph = analysis::graph(&findings);
        Report {
            inputs,
            findings,
            timeline,
            comparisons: diagnosis.comparisons,
            parked: diagnosis.parked,
            graph,
            notes,
        }
    }
}

/// The same lock in two processes is two findings.
fn number_twins(findings: &mut [Finding]) {
    let mut seen = rustc_hash::FxHashMap::default();
    for finding in findings {
        let count = seen.entry(finding.id.clone()).and_modify(|n| *n += 1).or_insert(1u32);
        if *count > 1 {
            finding.id = format!("{}#{count}", finding.id);
        }
    }
}

fn event(dump: &Dump) -> Option<TimelineEvent> {
    let total = dump.stated_total.unwrap_or_else(|| dump.shown());
    Some(TimelineEvent {
        at: Some(dump.taken?),
        kind: EventKind::Dump,
        text: format!("{} of {} taken", dump.kind, goroutines(total)),
        count: 1,
        value: Some(total as f64),
        unit: Some("goroutines".to_owned()),
        evidence: Some(Evidence {
            input: dump.input.clone(),
            line: (dump.form != Form::Protobuf).then_some(u64::from(dump.first_line)),
            text: dump.taken_for(),
        }),
        ..TimelineEvent::default()
    })
}
