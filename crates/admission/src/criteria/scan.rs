//! Criteria on what a scan of an image tells, and on its signatures.
//!
//! Contract: in an allow rule a criterion on a part that is not known is not met, whatever its operator:
//! what is unknown never helps anybody in. In a deny rule it is held against the empty value.

use objects::kinds::admission_rule::{Action, Count, List, ModuleItem, Name, versions};

use super::Judged;
use super::lists::holds;
use crate::glob::Glob;
use crate::images::{FindingAt, FoundModule};

const DAY: f64 = 24.0 * 60.0 * 60.0;
/// How many names are shown to a person.
const SHOWN: usize = 5;

#[derive(Clone, Debug)]
pub(crate) enum ScanTest {
    Count(Count),
    Scores { tenths: u16, count: f64 },
    Vulnerabilities(List, Vec<Glob>),
    Modules(List, Vec<ModuleTest>),
    Verifiers(List, Vec<Glob>),
    Scanned { value: bool, days: Option<f64> },
    Flag(Name, bool),
}

/// An item of `modules`.
#[derive(Clone, Debug)]
pub(crate) struct ModuleTest {
    name: Box<str>,
    version: Option<VersionTest>,
}

#[derive(Clone, Debug)]
enum VersionTest {
    Like(Glob),
    Ordered(&'static str, Box<str>),
}

impl ModuleTest {
    fn new(item: &str) -> Self {
        let ModuleItem { name, version } = ModuleItem::new(item);
        let version = version.map(|(operator, version)| match operator {
            "=" => VersionTest::Like(Glob::new(version)),
            operator => VersionTest::Ordered(operator, version.into()),
        });
        Self { name: name.into(), version }
    }

    fn matches<'n>(&self, mut names: impl Iterator<Item = &'n str>, version: &str) -> bool {
        names.any(|name| name == &*self.name)
            && match &self.version {
                None => true,
                Some(VersionTest::Like(glob)) => glob.matches(version),
                Some(VersionTest::Ordered(operator, than)) => {
                    let order = versions::compare(version, than);
                    order.is_some_and(|order| match *operator {
                        ">" => order.is_gt(),
                        "<" => order.is_lt(),
                        ">=" => order.is_ge(),
                        _ => order.is_le(),
                    })
                }
            }
    }
}

impl ScanTest {
    pub(super) fn vulnerabilities(op: List, items: &[String]) -> Self {
        let globs = items.iter().map(|item| Glob::new(&item.to_uppercase()));
        Self::Vulnerabilities(op, globs.collect())
    }

    pub(super) fn modules(op: List, items: &[String]) -> Self {
        Self::Modules(op, items.iter().map(|item| ModuleTest::new(item)).collect())
    }

    pub(super) fn verifiers(op: List, items: &[String]) -> Self {
        Self::Verifiers(op, items.iter().map(|item| Glob::new(item)).collect())
    }

    pub(super) fn met(&self, judged: &Judged<'_, '_>) -> bool {
        let known = match self {
            Self::Scanned { value, days } => return judged.is_scanned(*days) == *value,
            Self::Count(asked) => {
                let Some(count) = judged.count(asked) else { return false };
                return if asked.at_least { count >= asked.value } else { count <= asked.value };
            }
            Self::Scores { tenths, count } => {
                return judged.scored(*tenths).is_some_and(|found| found >= *count);
            }
            Self::Vulnerabilities(op, items) => judged.names_hold(*op, items),
            Self::Modules(op, items) => judged.modules_hold(*op, items),
            Self::Verifiers(op, items) => judged.record.and_then(|record| {
                let verifiers = record.verifiers.as_ref()?.iter().map(String::as_str);
                Some(holds(*op, items, verifiers, Glob::matches))
            }),
            Self::Flag(name, value) => judged.flag_of_scan(*name).map(|flag| flag == *value),
        };
        known.unwrap_or_else(|| judged.action == Action::Deny && self.is_met_by_nothing())
    }

    /// Whether the empty value meets it.
    fn is_met_by_nothing(&self) -> bool {
        match self {
            Self::Vulnerabilities(op, _) | Self::Modules(op, _) | Self::Verifiers(op, _) => {
                *op == List::NotAny
            }
            Self::Flag(Name::ImageNoOs, value) => *value,
            Self::Flag(_, value) => !*value,
            _ => false,
        }
    }

    /// What the image has there, for a person.
    pub(super) fn saw(&self, judged: &Judged<'_, '_>) -> String {
        let Some(record) = judged.record else { return "the image was not scanned".to_owned() };
        let unknown = || "not known of this image".to_owned();
        match self {
            Self::Scanned { .. } => record.scanned_at.map_or_else(
                || "no scan for vulnerabilities".to_owned(),
                |at| format!("scanned {} days ago", (judged.context.now - at).div_euclid(86_400)),
            ),
            Self::Count(asked) => {
                judged.count(asked).map_or_else(unknown, |count| format!("{count} of them"))
            }
            Self::Scores { tenths, .. } => {
                judged.scored(*tenths).map_or_else(unknown, |count| format!("{count} of them"))
            }
            Self::Vulnerabilities(..) => {
                let Some(findings) = &record.vulnerabilities else { return unknown() };
                shown(findings.iter().map(|finding| judged.text(finding.id)))
            }
            Self::Modules(..) => {
                let Some(modules) = &record.modules else { return unknown() };
                format!("{} packages", modules.len())
            }
            Self::Verifiers(..) => {
                let Some(verifiers) = &record.verifiers else { return unknown() };
                shown(verifiers.iter().map(String::as_str))
            }
            Self::Flag(Name::ImageNoOs, _) => match record.os.as_deref() {
                None => unknown(),
                Some("") => "no operating system".to_owned(),
                Some(os) => os.to_owned(),
            },
            Self::Flag(name, _) => {
                judged.flag_of_scan(*name).map_or_else(unknown, |f| f.to_string())
            }
        }
    }
}

fn shown<'t>(mut texts: impl Iterator<Item = &'t str>) -> String {
    let first: Vec<&str> = texts.by_ref().take(SHOWN).collect();
    match texts.count() {
        0 if first.is_empty() => "none".to_owned(),
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

impl Judged<'_, '_> {
    fn text(&self, at: u32) -> &str {
        self.context.images.map_or("", |images| images.text(at))
    }

    fn is_scanned(&self, days: Option<f64>) -> bool {
        let Some(at) = self.record.and_then(|record| record.scanned_at) else { return false };
        #[expect(clippy::cast_precision_loss, reason = "seconds of a lifetime are exact")]
        let age = (self.context.now - at) as f64;
        days.is_none_or(|days| age <= days * DAY)
    }

    /// How many vulnerabilities there are of some severities; none if that is not known.
    #[expect(clippy::cast_precision_loss, reason = "no image has that many")]
    fn count(&self, asked: &Count) -> Option<f64> {
        let Count { severities, fixed, days, .. } = *asked;
        let findings = self.record?.vulnerabilities.as_ref()?;
        let latest = days.map(|days| {
            let latest = (self.context.now as f64 - days * DAY).floor();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
            let latest = latest.clamp(0.0, f64::from(u32::MAX)) as u32;
            latest
        });
        let excepted = &self.context.excepted;
        let images = self.context.images.filter(|_| !excepted.is_empty());
        let Some(images) = images else {
            return Some(findings.count(severities, fixed, latest) as f64);
        };
        let counted = findings.iter().filter(|finding| {
            finding.is_of(severities)
                && (finding.has_fix() || !fixed)
                && latest.is_none_or(|latest| finding.published <= latest)
                && !excepted.takes(*finding, images)
        });
        Some(counted.count() as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "no image has that many")]
    fn scored(&self, tenths: u16) -> Option<f64> {
        let findings = self.record?.vulnerabilities.as_ref()?;
        let excepted = &self.context.excepted;
        let images = self.context.images.filter(|_| !excepted.is_empty());
        let Some(images) = images else { return Some(findings.scored(tenths) as f64) };
        let counted = findings.iter().filter(|finding| {
            u16::from(finding.score) >= tenths && !excepted.takes(*finding, images)
        });
        Some(counted.count() as f64)
    }

    fn names_hold(&self, op: List, items: &[Glob]) -> Option<bool> {
        let (findings, images) = (self.record?.vulnerabilities.as_ref()?, self.context.images?);
        let excepted = &self.context.excepted;
        let counts =
            |finding: &FindingAt<'_>| excepted.is_empty() || !excepted.takes(*finding, images);
        let mut counted = findings.iter().filter(counts);
        let is_named = |glob: &Glob, finding: FindingAt<'_>| {
            finding.names().any(|name| glob.matches(images.text(name)))
        };
        if op == List::OtherThan {
            return Some(counted.any(|finding| !items.iter().any(|item| is_named(item, finding))));
        }
        Some(holds(op, items, counted, is_named))
    }

    fn modules_hold(&self, op: List, items: &[ModuleTest]) -> Option<bool> {
        let modules = self.record?.modules.as_ref()?;
        let images = self.context.images?;
        let found = modules.iter().filter_map(|at| images.module(*at));
        let matches = |item: &ModuleTest, module: &FoundModule| {
            let names = module.names.iter().map(|name| images.text(*name));
            item.matches(names, images.text(module.version))
        };
        Some(holds(op, items, found, matches))
    }

    fn flag_of_scan(&self, name: Name) -> Option<bool> {
        let record = self.record?;
        match name {
            Name::ImageSigned => record.verifiers.as_ref().map(|verifiers| !verifiers.is_empty()),
            Name::ImageCompliance => record.compliance_issues().map(|issues| issues > 0),
            Name::ImageNoOs => record.os.as_ref().map(|os| os.is_empty()),
            _ => None,
        }
    }
}
