//! What runs against the rules as `Report`s of `openreports.io`, one for each namespace.
//!
//! Contract: of a namespace in which nothing is found there is no report. One whose results are what they
//! were is not written, whoever wrote it; only the time at which a result was found may differ.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;
use objects::kinds::{OpenReport, OpenReportResult, OpenReportSummary, OpenReportTime};
use objects::{Error, Expected, Id, Objects, Within};
use stallproof::Deadline;

use super::{Outcome, RunningAudit, namespaces};

/// The name of every report, and what it is labelled with.
const NAME: &str = "fairlead-admission";
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "fairlead");
/// The most results of one report: an object of some hundred kilobytes.
const RESULTS: usize = 500;

/// Makes the reports of a cluster say what `audit` says. Answers whether the cluster serves them.
pub(super) async fn write(
    objects: &Objects,
    audit: &RunningAudit,
    deadline: Deadline,
) -> Result<bool, Error> {
    let labels = format!("{}={}", LABEL.0, LABEL.1).parse().ok();
    let within = Within { labels, ..Within::default() };
    let there = match objects.list::<OpenReport>(&within, deadline).await {
        Ok(listing) => listing.items,
        Err(error) if error.is_not_served() => return Ok(false),
        // Who may not read them may not write them either.
        Err(Error::Forbidden { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let there: BTreeMap<String, OpenReport> = there
        .into_iter()
        .filter(|report| report.name_any() == NAME)
        .map(|report| (report.namespace().unwrap_or_default(), report))
        .collect();
    let wanted = namespaces(audit);
    for namespace in &wanted {
        let report = report(namespace, audit);
        if there.get(*namespace).is_some_and(|there| says_the_same(there, &report)) {
            continue;
        }
        objects.apply(&report, Expected::Any, deadline).await?;
    }
    for namespace in there.keys().filter(|namespace| !wanted.contains(namespace.as_str())) {
        let id = Id::namespaced(namespace, NAME);
        match objects.delete::<OpenReport>(&id, Expected::Any, deadline).await {
            Ok(_) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn says_the_same(there: &OpenReport, report: &OpenReport) -> bool {
    let untimed = |results: &[OpenReportResult]| -> Vec<OpenReportResult> {
        let untimed = |one: &OpenReportResult| OpenReportResult {
            timestamp: Default::default(),
            ..one.clone()
        };
        results.iter().map(untimed).collect()
    };
    there.summary == report.summary && untimed(&there.results) == untimed(&report.results)
}

fn report(namespace: &str, audit: &RunningAudit) -> OpenReport {
    let found = audit.findings.iter().filter(|(key, _)| key.namespace == namespace);
    let mut summary = OpenReportSummary::default();
    let mut results = Vec::new();
    for (key, finding) in found {
        let denied = key.outcome == Outcome::Denied;
        let count = if denied { &mut summary.fail } else { &mut summary.warn };
        *count += 1;
        if results.len() >= RESULTS {
            continue;
        }
        let (kind, name) = key.owner.split_once('/').unwrap_or(("Pod", &key.owner));
        let properties = [
            ("container", key.container.clone()),
            ("image", key.image.clone()),
            ("pods", finding.pods.to_string()),
        ];
        results.push(OpenReportResult {
            source: "fairlead".to_owned(),
            policy: key.rule.clone(),
            category: "admission".to_owned(),
            result: if denied { "fail" } else { "warn" }.to_owned(),
            timestamp: time(finding.since),
            resources: vec![ObjectReference {
                kind: Some(kind.to_owned()),
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                ..ObjectReference::default()
            }],
            message: finding.why.clone(),
            properties: properties.map(|(key, value)| (key.to_owned(), value)).into(),
        });
    }
    let mut report =
        OpenReport { source: "fairlead".to_owned(), summary, results, ..OpenReport::default() };
    report.metadata.name = Some(NAME.to_owned());
    report.metadata.namespace = Some(namespace.to_owned());
    report.metadata.labels = Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into());
    report
}

fn time(at: Timestamp) -> OpenReportTime {
    OpenReportTime { seconds: at.as_second(), nanos: 0 }
}
