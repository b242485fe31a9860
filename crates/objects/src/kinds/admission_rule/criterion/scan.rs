//! Criteria on what a scan of an image tells, and on its signatures.

use super::super::{Action, SubCriterion, versions};
use super::{Criterion, Name, Parsed, Problem, items, no_operator, not_boolean};

/// The severities that a count is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Severities {
    pub critical: bool,
    pub high: bool,
    pub medium: bool,
}

/// How many vulnerabilities of some severities there are: at least the value, or at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    pub name: Name,
    pub severities: Severities,
    /// Only those with a fix.
    pub fixed: bool,
    pub at_least: bool,
    pub value: f64,
    /// Only those that were published at least this many days ago.
    pub days: Option<f64>,
}

impl Name {
    pub(super) fn is_count(self) -> bool {
        self.counted().is_some()
    }

    /// What a count counts, and whether only what has a fix.
    fn counted(self) -> Option<(Severities, bool)> {
        let (critical, high, medium, fixed) = match self {
            Self::CveCriticalCount => (true, false, false, false),
            Self::CveHighCount => (true, true, false, false),
            Self::CveHighCountNoCritical => (false, true, false, false),
            Self::CveMediumCount => (false, false, true, false),
            Self::CveCriticalWithFixCount => (true, false, false, true),
            Self::CveHighWithFixCount => (true, true, false, true),
            Self::CveHighWithFixCountNoCritical => (false, true, false, true),
            _ => return None,
        };
        Some((Severities { critical, high, medium }, fixed))
    }

    pub(super) fn has_sub_criteria(self) -> bool {
        self.is_count()
            || matches!(self, Self::ResourceLimit | Self::CveScoreCount | Self::ImageScanned)
    }
}

/// An item of `modules`: a name, and perhaps an operator and a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleItem<'i> {
    pub name: &'i str,
    pub version: Option<(&'static str, &'i str)>,
}

impl<'i> ModuleItem<'i> {
    /// Looks for `=` first, then for `>` and `<`, then for `>=` and `<=`, each where it stands alone.
    pub fn new(item: &'i str) -> Self {
        let alone = |operator: &'static str| {
            let at = item.find(operator)?;
            let joined = match operator {
                "=" => item[..at].ends_with(['<', '>']),
                ">" | "<" => item[at + 1..].starts_with('='),
                _ => false,
            };
            (!joined).then_some((at, operator))
        };
        match ["=", ">", "<", ">=", "<="].into_iter().find_map(alone) {
            Some((at, operator)) => Self {
                name: item[..at].trim(),
                version: Some((operator, item[at + operator.len()..].trim())),
            },
            None => Self { name: item.trim(), version: None },
        }
    }
}

/// Refuses items that can never match.
pub(super) fn check_items(name: Name, items: &[String]) -> Result<(), String> {
    for item in items {
        match name {
            Name::Modules => check_module(item)?,
            Name::ImageVerifiers if !item.contains(['/', '*', '?']) => {
                return Err(format!(
                    "{item:?} can never match; a verifier is written root/verifier"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_module(item: &str) -> Result<(), String> {
    let ModuleItem { name, version } = ModuleItem::new(item);
    if name.is_empty() {
        return Err(format!("{item:?} has no name; write NAME, or NAME>=VERSION"));
    }
    match version {
        Some((_, "")) => Err(format!("{item:?} has no version; write NAME, or NAME>=VERSION")),
        Some((operator, version)) if operator != "=" && !versions::is_readable(version) => Err(
            format!("{version:?} cannot be compared as a version, so that {item:?} is never met"),
        ),
        _ => Ok(()),
    }
}

impl Criterion {
    /// Reads a criterion with sub-criteria on what a scan tells.
    pub(super) fn scan(&self, name: Name, value: &str) -> Result<Parsed, Problem> {
        let at_value = |problem| (".value", problem);
        let sub = |known: &'static str, op: &'static str| {
            self.one_sub_criterion(name, known, op).map_err(|problem| (".sub_criteria", problem))
        };
        match name {
            Name::ImageScanned => {
                let value = value.parse().map_err(|_| not_boolean(value))?;
                Ok(match sub("maxAgeDays", "<=")? {
                    None => Parsed::Flag(name, value),
                    Some(days) => Parsed::ScannedWithin { value, days },
                })
            }
            Name::CveScoreCount => {
                let score = number(value).map_err(at_value)?;
                if score > 10.0 {
                    return Err((".value", format!("{value:?} is above 10, the highest score")));
                }
                let count = sub("count", ">=")?.unwrap_or(1.0);
                if count == 0.0 {
                    return Err((".sub_criteria", always_met("count")));
                }
                // Bounded above, so that it fits.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let tenths = (score * 10.0).round() as u16;
                Ok(Parsed::Scores { tenths, count })
            }
            _ => {
                let at_least = self.op == ">=";
                let count = number(value).map_err(at_value)?;
                if at_least && count == 0.0 {
                    return Err((".value", always_met(&self.name)));
                }
                let days = sub("publishDays", ">=")?;
                let none = Severities { critical: false, high: false, medium: false };
                let (severities, fixed) = name.counted().unwrap_or((none, false));
                Ok(Parsed::Count(Count { name, severities, fixed, at_least, value: count, days }))
            }
        }
    }

    fn one_sub_criterion(
        &self,
        of: Name,
        known: &'static str,
        operator: &'static str,
    ) -> Result<Option<f64>, String> {
        match self.sub_criteria.as_slice() {
            [] => Ok(None),
            [SubCriterion { name, op, value }] if name == known => {
                if op != operator {
                    return Err(no_operator(name, op, &[operator]));
                }
                number(value.trim()).map(Some).map_err(|problem| format!("{name} {problem}"))
            }
            [SubCriterion { name, .. }] => {
                Err(format!("{of} has no sub-criterion {name:?}; it has {known}"))
            }
            _ => Err(format!("{of} has one sub-criterion at most, {known}")),
        }
    }

    /// Refuses what a criterion means nothing, or the wrong thing, for in a rule of this action.
    pub(in super::super) fn check_action(
        &self,
        parsed: &Parsed,
        action: Action,
    ) -> Result<(), Problem> {
        if !parsed.name().needs_scan() {
            return Ok(());
        }
        match (action, parsed) {
            (Action::Deny, Parsed::Count(Count { at_least: false, .. })) => {
                Err((".op", no_operator(&self.name, &self.op, &[">="]) + " in a deny rule"))
            }
            (Action::Allow, _) if !self.sub_criteria.is_empty() => {
                Err((".sub_criteria", "are for deny rules only".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Says what is hardly meant, of criteria on scan results.
    pub(super) fn scan_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let Ok(name) = Name::parse(&self.name) else { return warnings };
        let value = self.value.trim();
        if name.is_count() && value.parse().is_ok_and(|number: f64| number.fract() != 0.0) {
            warnings.push(format!("{value} is no whole number, and {name} counts"));
        }
        if name == Name::CveNames {
            for item in items(value) {
                if item.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
                    warnings.push(format!(
                        "{item:?} is compared with whole names such as CVE-2024-3094; write *{item}*"
                    ));
                }
            }
        }
        warnings
    }
}

fn always_met(name: &str) -> String {
    format!("{name} >= 0 is always true; write at least 1")
}

/// A finite decimal number that is not negative.
fn number(text: &str) -> Result<f64, String> {
    let digits = |b: u8| b.is_ascii_digit() || b".+-eE".contains(&b);
    let number = text.bytes().all(digits).then(|| text.parse::<f64>().ok()).flatten();
    number
        .filter(|number| number.is_finite() && *number >= 0.0 && !text.starts_with('-'))
        .ok_or_else(|| format!("{text:?} is not a number of zero or more"))
}
