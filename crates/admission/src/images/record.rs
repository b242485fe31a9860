//! What is known of one content of an image, laid out so that a count is a search in sorted numbers.

use std::collections::BTreeMap;

use objects::kinds::admission_rule::Severities;
use rustc_hash::FxHashMap;

use super::read::{Module, Report, Severity, Vulnerability};
use super::strings::Strings;

/// The parts of a record while they are gathered, each from the newest report that has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts<'r> {
    newest: i64,
    vulnerabilities: Option<(&'r [Vulnerability], i64)>,
    modules: Option<&'r [Module]>,
    os: Option<&'r str>,
    secrets: Option<usize>,
    set_id: Option<usize>,
    config: Option<&'r ImageConfig>,
    verifiers: Option<&'r [String]>,
}

impl<'r> Parts<'r> {
    pub(super) fn fill(&mut self, report: &'r Report) {
        self.newest = self.newest.max(report.scanned_at);
        let vulnerabilities = report.vulnerabilities.as_deref();
        self.vulnerabilities =
            self.vulnerabilities.or(vulnerabilities.map(|found| (found, report.scanned_at)));
        self.modules = self.modules.or(report.modules.as_deref());
        self.os = self.os.or(report.os.as_deref());
        self.secrets = self.secrets.or(report.secrets);
        self.set_id = self.set_id.or(report.set_id);
        self.config = self.config.or(report.config.as_ref());
        self.verifiers = self.verifiers.or(report.verifiers.as_deref());
    }
}

/// What an image says of the containers that are made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageConfig {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) runs_as_root: bool,
}

/// One content of an image. A part that is none is not known.
#[derive(Clone, Debug)]
pub(crate) struct ImageRecord {
    /// When the newest report of any part was made, in seconds.
    newest: i64,
    /// When the vulnerabilities were found; none if nobody looked for any.
    pub(crate) scanned_at: Option<i64>,
    pub(crate) vulnerabilities: Option<Findings>,
    pub(crate) modules: Option<Vec<FoundModule>>,
    /// The operating system; empty if there is none.
    pub(crate) os: Option<Box<str>>,
    /// Secrets and programs that run as their owner, as far as they were looked for.
    pub(crate) compliance_issues: Option<usize>,
    pub(crate) config: Option<ImageConfig>,
    pub(crate) verifiers: Option<Vec<String>>,
}

/// The vulnerabilities of an image, each once for each package.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    all: Vec<Finding>,
    aliases: Vec<u32>,
    /// When those of critical, high and medium severity were published, in order; then those of them
    /// that have a fix.
    published: [Vec<u32>; 6],
    /// Scores in tenths, in order.
    scores: Vec<u8>,
}

/// One vulnerability of one package.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finding {
    pub(crate) id: u32,
    pub(crate) package: u32,
    aliases: (u32, u16),
    pub(crate) severity: Severity,
    pub(crate) has_fix: bool,
    /// In tenths; zero if unknown.
    pub(crate) score: u8,
    /// In seconds; zero if unknown, which is older than anything.
    pub(crate) published: u32,
}

/// A package that was found: every name it goes by, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundModule {
    pub(crate) names: Vec<u32>,
    pub(crate) version: u32,
}

impl ImageRecord {
    pub(super) fn new(
        parts: &Parts<'_>,
        strings: &mut Strings,
        silenced: impl Fn(&Vulnerability) -> bool,
    ) -> Self {
        let found = parts.vulnerabilities.map(|(found, _)| {
            Findings::new(found.iter().filter(|vulnerability| !silenced(vulnerability)), strings)
        });
        let modules = parts.modules.map(|modules| {
            let module = |module: &Module| FoundModule {
                names: module.names.iter().map(|name| strings.add(name)).collect(),
                version: strings.add(&module.version),
            };
            modules.iter().map(module).collect()
        });
        let issues = match (parts.secrets, parts.set_id) {
            (None, None) => None,
            (secrets, set_id) => Some(secrets.unwrap_or(0) + set_id.unwrap_or(0)),
        };
        Self {
            newest: parts.newest,
            scanned_at: parts.vulnerabilities.map(|(_, at)| at),
            vulnerabilities: found,
            modules,
            os: parts.os.map(Into::into),
            compliance_issues: issues,
            config: parts.config.cloned(),
            verifiers: parts.verifiers.map(<[String]>::to_vec),
        }
    }

    /// When it was scanned, or else when its newest report was made.
    pub(super) fn known_since(&self) -> i64 {
        self.scanned_at.unwrap_or(self.newest)
    }
}

impl Findings {
    fn new<'v>(found: impl Iterator<Item = &'v Vulnerability>, strings: &mut Strings) -> Self {
        let mut findings = Self::default();
        let mut at: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let mut aliases: Vec<Vec<u32>> = Vec::new();
        for vulnerability in found {
            let id = strings.add(&vulnerability.id.to_uppercase());
            let package = strings.add(&vulnerability.package);
            let of: Vec<u32> =
                vulnerability.aliases.iter().map(|a| strings.add(&a.to_uppercase())).collect();
            let new = Finding {
                id,
                package,
                aliases: (0, 0),
                severity: vulnerability.severity,
                has_fix: vulnerability.has_fix,
                score: vulnerability.score,
                published: vulnerability.published,
            };
            match at.get(&(id, package)) {
                Some(at) => {
                    let finding = &mut findings.all[*at];
                    finding.severity = finding.severity.max(new.severity);
                    finding.has_fix |= new.has_fix;
                    finding.score = finding.score.max(new.score);
                    finding.published = finding.published.min(new.published);
                    aliases[*at].extend(of);
                }
                None => {
                    at.insert((id, package), findings.all.len());
                    findings.all.push(new);
                    aliases.push(of);
                }
            }
        }
        for (finding, mut of) in findings.all.iter_mut().zip(aliases) {
            of.sort_unstable();
            of.dedup();
            // A finding with more names than this is no finding; the first ones are kept.
            of.truncate(usize::from(u16::MAX));
            let start = u32::try_from(findings.aliases.len()).unwrap_or(u32::MAX);
            finding.aliases = (start, u16::try_from(of.len()).unwrap_or(u16::MAX));
            findings.aliases.extend(of);
            findings.scores.push(finding.score);
            let column = match finding.severity {
                Severity::Critical => 0,
                Severity::High => 1,
                Severity::Medium => 2,
                Severity::Low => continue,
            };
            findings.published[column].push(finding.published);
            if finding.has_fix {
                findings.published[column + 3].push(finding.published);
            }
        }
        findings.scores.sort_unstable();
        findings.published.iter_mut().for_each(|column| column.sort_unstable());
        findings
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Finding> + Clone {
        self.all.iter()
    }

    /// The id of a finding, then its aliases.
    pub(crate) fn names(&self, finding: &Finding) -> impl Iterator<Item = u32> + Clone {
        let (start, len) = (finding.aliases.0 as usize, usize::from(finding.aliases.1));
        let aliases = self.aliases.get(start..start + len).unwrap_or_default();
        std::iter::once(finding.id).chain(aliases.iter().copied())
    }

    /// How many there are of some severities, with a fix if asked for, published until `latest`.
    pub(crate) fn count(&self, severities: Severities, fixed: bool, latest: Option<u32>) -> usize {
        let chosen = [severities.critical, severities.high, severities.medium];
        let from = if fixed { 3 } else { 0 };
        let columns = self.published[from..from + 3].iter().zip(chosen);
        let columns = columns.filter(|(_, chosen)| *chosen).map(|(column, _)| column);
        columns
            .map(|column| match latest {
                None => column.len(),
                Some(latest) => column.partition_point(|published| *published <= latest),
            })
            .sum()
    }

    /// How many have a score of at least this many tenths.
    pub(crate) fn scored(&self, tenths: u16) -> usize {
        self.scores.len() - self.scores.partition_point(|score| u16::from(*score) < tenths)
    }
}

impl Finding {
    pub(crate) fn is_of(&self, severities: Severities) -> bool {
        match self.severity {
            Severity::Critical => severities.critical,
            Severity::High => severities.high,
            Severity::Medium => severities.medium,
            Severity::Low => false,
        }
    }
}
