//! What is known of one content of an image, laid out so that a count is a search in sorted numbers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use objects::kinds::admission_rule::Severities;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::read::{Reference, Report, Severity, Vulnerability};
use super::tables::{Interner, Tables};

/// What an image says of the containers that are made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ImageConfig {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) runs_as_root: bool,
}

/// What one report tells, with numbers for what occurs in many. A part that is none is not in it.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownReport {
    pub(super) references: Box<[Reference]>,
    pub(super) scanned_at: i64,
    /// The form of the report.
    pub(super) source: Box<str>,
    pub(super) findings: Option<Arc<Findings>>,
    pub(super) modules: Option<Arc<[u32]>>,
    os: Option<Box<str>>,
    secrets: Option<usize>,
    set_id: Option<usize>,
    config: Option<Arc<ImageConfig>>,
    verifiers: Option<Arc<[String]>>,
}

impl KnownReport {
    pub(super) fn new(report: Report, interner: &mut Interner) -> Self {
        let modules = report.modules.map(|modules| {
            modules.iter().map(|one| interner.module(&one.names, &one.version)).collect()
        });
        Self {
            references: report.references.into(),
            scanned_at: report.scanned_at,
            source: report.source.into(),
            findings: report.vulnerabilities.map(|found| Arc::new(Findings::new(&found, interner))),
            modules,
            os: report.os.map(Into::into),
            secrets: report.secrets,
            set_id: report.set_id,
            config: report.config.map(Arc::new),
            verifiers: report.verifiers.map(Into::into),
        }
    }

    /// What is known of signatures of the image with this digest.
    pub(super) fn of_signatures(digest: &str, verifiers: Vec<String>) -> Self {
        let reference = Reference { digest: Some(digest.to_owned()), ..Reference::default() };
        Self {
            references: [reference].into(),
            source: "signature".into(),
            verifiers: Some(verifiers.into()),
            ..Self::default()
        }
    }

    /// The same with the numbers of other tables.
    pub(super) fn moved(&self, from: &Tables, to: &mut Interner) -> Self {
        let modules = self.modules.as_ref();
        Self {
            findings: self.findings.as_ref().map(|found| Arc::new(found.moved(from, to))),
            modules: modules.map(|all| all.iter().map(|at| to.module_of(from, *at)).collect()),
            ..self.clone()
        }
    }

    pub(super) fn digests(&self) -> impl Iterator<Item = &str> + Clone {
        self.references.iter().filter_map(|reference| reference.digest.as_deref())
    }

    pub(super) fn count_findings(&self) -> usize {
        self.findings.as_ref().map_or(0, |findings| findings.all.len())
    }
}

/// One content of an image. A part that is none is not known.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageRecord {
    /// When the newest report of any part was made, in seconds.
    newest: i64,
    /// Names and digests under which it was scanned.
    pub(crate) references: Vec<String>,
    /// The forms of the reports that it is put together of.
    pub(crate) sources: Vec<Box<str>>,
    /// When the vulnerabilities were found; none if nobody looked for any.
    pub(crate) scanned_at: Option<i64>,
    pub(crate) vulnerabilities: Option<Arc<Findings>>,
    pub(crate) modules: Option<Arc<[u32]>>,
    /// The operating system; empty if there is none.
    pub(crate) os: Option<Box<str>>,
    secrets: Option<usize>,
    set_id: Option<usize>,
    pub(crate) config: Option<Arc<ImageConfig>>,
    pub(crate) verifiers: Option<Arc<[String]>>,
}

impl ImageRecord {
    /// Takes from a report the parts that no newer one had.
    pub(super) fn fill(&mut self, report: &KnownReport) {
        self.newest = self.newest.max(report.scanned_at);
        for reference in report.references.iter().map(ToString::to_string) {
            if !self.references.contains(&reference) {
                self.references.push(reference);
            }
        }
        if !self.sources.contains(&report.source) {
            self.sources.push(report.source.clone());
        }
        if self.vulnerabilities.is_none() && report.findings.is_some() {
            self.vulnerabilities.clone_from(&report.findings);
            self.scanned_at = Some(report.scanned_at);
        }
        fn fill<T: Clone>(have: &mut Option<T>, from: &Option<T>) {
            if have.is_none() {
                have.clone_from(from);
            }
        }
        fill(&mut self.modules, &report.modules);
        fill(&mut self.os, &report.os);
        fill(&mut self.secrets, &report.secrets);
        fill(&mut self.set_id, &report.set_id);
        fill(&mut self.config, &report.config);
        fill(&mut self.verifiers, &report.verifiers);
    }

    /// When it was scanned, or else when its newest report was made.
    pub(super) fn known_since(&self) -> i64 {
        self.scanned_at.unwrap_or(self.newest)
    }

    /// Secrets and programs that run as their owner, as far as they were looked for.
    pub(crate) fn compliance_issues(&self) -> Option<usize> {
        match (self.secrets, self.set_id) {
            (None, None) => None,
            (secrets, set_id) => Some(secrets.unwrap_or(0) + set_id.unwrap_or(0)),
        }
    }
}

/// The vulnerabilities of an image, each once for each package: the worst severity first, within one those
/// without a fix first, within that in the order of their publication.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    all: Box<[Finding]>,
    /// Other names of findings: the place of the finding, and the number of the name.
    aliases: Box<[(u32, u32)]>,
    /// Where each severity begins: without a fix, then with one.
    starts: [u32; 9],
    /// Scores in tenths, in order.
    scores: Box<[u8]>,
}

/// One vulnerability of one package. Texts and packages are numbers in the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finding {
    pub(crate) id: u32,
    pub(crate) package: u32,
    /// The version that has a fix; zero if there is none.
    pub(crate) fixed: u32,
    /// In seconds; zero if unknown, which is older than anything.
    pub(crate) published: u32,
    /// In tenths; zero if unknown.
    pub(crate) score: u8,
    pub(crate) severity: Severity,
    /// Whether the same vulnerability has a fix in another package of the image.
    pub(crate) fixed_elsewhere: bool,
    /// Whether it was published earlier, or nobody knows when, by what is said of another package.
    pub(crate) older_elsewhere: bool,
}

/// An image has hundreds, a cluster millions.
const _: () = assert!(size_of::<Finding>() == 20);

/// A finding and its place among the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FindingAt<'f> {
    findings: &'f Findings,
    at: usize,
}

impl std::ops::Deref for FindingAt<'_> {
    type Target = Finding;

    fn deref(&self) -> &Finding {
        &self.findings.all[self.at]
    }
}

impl FindingAt<'_> {
    /// The numbers of its id, then of its aliases.
    pub(crate) fn names(&self) -> impl Iterator<Item = u32> + Clone {
        let place = u32::try_from(self.at).unwrap_or(u32::MAX);
        let aliases = &self.findings.aliases;
        let from = aliases.partition_point(|(of, _)| *of < place);
        let own = aliases[from..].iter().take_while(move |(of, _)| *of == place);
        std::iter::once(self.id).chain(own.map(|(_, alias)| *alias))
    }
}

/// Where a finding stands: findings of one place are in the order of their publication.
fn place(severity: Severity, has_fix: bool) -> usize {
    let severity = match severity {
        Severity::Critical => 0,
        Severity::High => 1,
        Severity::Medium => 2,
        Severity::Low => 3,
    };
    severity * 2 + usize::from(has_fix)
}

impl Findings {
    fn new(found: &[Vulnerability], interner: &mut Interner) -> Self {
        let mut at: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let mut all: Vec<(Finding, Vec<u32>)> = Vec::with_capacity(found.len());
        for vulnerability in found {
            let id = interner.text(&vulnerability.id.to_uppercase());
            let Vulnerability { package, installed, purl, fixed, .. } = vulnerability;
            let name = interner.text(package);
            let package = interner.package(package, installed, purl);
            let aliases = vulnerability.aliases.iter();
            let aliases = aliases.map(|alias| interner.text(&alias.to_uppercase()));
            let aliases: Vec<u32> = aliases.collect();
            let new = Finding {
                id,
                package,
                fixed: match (vulnerability.has_fix, fixed.as_str()) {
                    (false, _) => 0,
                    (true, "") => interner.text("yes"),
                    (true, version) => interner.text(version),
                },
                published: vulnerability.published,
                score: vulnerability.score,
                severity: vulnerability.severity,
                fixed_elsewhere: false,
                older_elsewhere: false,
            };
            match at.get(&(id, name)) {
                Some(at) => {
                    let (finding, of) = &mut all[*at];
                    finding.severity = finding.severity.max(new.severity);
                    if finding.fixed == 0 {
                        finding.fixed = new.fixed;
                    }
                    finding.score = finding.score.max(new.score);
                    finding.published = finding.published.min(new.published);
                    of.extend(aliases);
                }
                None => {
                    at.insert((id, name), all.len());
                    all.push((new, aliases));
                }
            }
        }
        Self::of(all)
    }

    fn of(mut all: Vec<(Finding, Vec<u32>)>) -> Self {
        // Of each vulnerability: in how many packages it has a fix, and its earliest day.
        let mut of_id: FxHashMap<u32, (usize, u32)> = FxHashMap::default();
        for (finding, _) in &all {
            let (fixes, published) = of_id.entry(finding.id).or_insert((0, finding.published));
            *fixes += usize::from(finding.has_fix());
            *published = finding.published.min(*published);
        }
        for (finding, _) in &mut all {
            let (fixes, published) = of_id.get(&finding.id).copied().unwrap_or_default();
            finding.fixed_elsewhere = fixes > usize::from(finding.has_fix());
            finding.older_elsewhere = published < finding.published;
        }
        all.sort_by_key(|(finding, _)| {
            (place(finding.severity, finding.has_fix()), finding.published)
        });
        let mut findings = Self::default();
        let mut aliases = Vec::new();
        for (at, (finding, of)) in all.iter_mut().enumerate() {
            for start in &mut findings.starts[place(finding.severity, finding.has_fix()) + 1..] {
                *start += 1;
            }
            of.sort_unstable();
            of.dedup();
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            aliases.extend(of.iter().map(|alias| (at, *alias)));
        }
        findings.aliases = aliases.into();
        findings.all = all.into_iter().map(|(finding, _)| finding).collect();
        findings.scores = findings.all.iter().map(|finding| finding.score).collect();
        findings.scores.sort_unstable();
        findings
    }

    fn moved(&self, from: &Tables, to: &mut Interner) -> Self {
        let finding = |finding: &Finding, to: &mut Interner| Finding {
            id: to.text_of(from, finding.id),
            package: to.package_of(from, finding.package),
            fixed: to.text_of(from, finding.fixed),
            ..*finding
        };
        Self {
            all: self.all.iter().map(|one| finding(one, to)).collect(),
            aliases: self.aliases.iter().map(|(at, name)| (*at, to.text_of(from, *name))).collect(),
            starts: self.starts,
            scores: self.scores.clone(),
        }
    }

    /// Those that `counts` says count; none if all do.
    pub(super) fn without(&self, counts: impl Fn(FindingAt<'_>) -> bool) -> Option<Self> {
        if self.iter().all(&counts) {
            return None;
        }
        let counted = self.iter().filter(|finding| counts(*finding));
        Some(Self::of(counted.map(|at| (*at, at.names().skip(1).collect())).collect()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = FindingAt<'_>> + Clone {
        (0..self.all.len()).map(|at| FindingAt { findings: self, at })
    }

    fn range(&self, place: usize) -> Range<usize> {
        self.starts[place] as usize..self.starts[place + 1] as usize
    }

    /// How many there are of some severities, with a fix if asked for, published until `latest`.
    pub(crate) fn count(&self, severities: Severities, fixed: bool, latest: Option<u32>) -> usize {
        let chosen = [severities.critical, severities.high, severities.medium];
        let chosen = (0..3).filter(|severity| chosen[*severity]);
        let places = chosen.flat_map(|severity| {
            let from = severity * 2;
            if fixed { from + 1..from + 2 } else { from..from + 2 }
        });
        let counts = places.map(|place| {
            let findings = &self.all[self.range(place)];
            latest.map_or(findings.len(), |latest| {
                findings.partition_point(|finding| finding.published <= latest)
            })
        });
        counts.sum()
    }

    /// How many there are of each severity, the worst first.
    pub(crate) fn by_severity(&self) -> [usize; 4] {
        [0, 1, 2, 3]
            .map(|severity| self.range(severity * 2).len() + self.range(severity * 2 + 1).len())
    }

    /// How many have a score of at least this many tenths.
    pub(crate) fn scored(&self, tenths: u16) -> usize {
        self.scores.len() - self.scores.partition_point(|score| u16::from(*score) < tenths)
    }
}

impl Finding {
    pub(crate) fn has_fix(&self) -> bool {
        self.fixed != 0
    }

    pub(crate) fn is_of(&self, severities: Severities) -> bool {
        match self.severity {
            Severity::Critical => severities.critical,
            Severity::High => severities.high,
            Severity::Medium => severities.medium,
            Severity::Low => false,
        }
    }
}
