//! `KindQuery`: which kind a word names. A word is a plural, singular, kind or short name, alone or
//! followed by its group (`deployments.apps`) or by its version and group (`deployments.v1.apps`,
//! `pods.v1.`), as in kubectl. No I/O.
//!
//! When several groups serve a word, core comes first, then the server's order of groups; in a group
//! its preferred version. In one list a plural wins over a singular, a kind and a short name.

use super::ServedKind;

/// A query for a kind: a user's word, or the type that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum KindQuery {
    /// The word in lower case.
    Word(String),
    Kind {
        api_version: String,
        kind: String,
    },
}

/// One way to read a query. `None` means any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interpretation<'a> {
    pub(super) name: &'a str,
    by_kind: bool,
    pub(super) group: Option<&'a str>,
    version: Option<&'a str>,
}

/// A group of the server with its versions, the preferred one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) versions: Vec<String>,
}

impl KindQuery {
    pub(super) fn word(word: &str) -> Self {
        Self::Word(word.trim().to_lowercase())
    }

    /// Returns the possible readings, the most likely first.
    pub(super) fn interpretations(&self) -> Vec<Interpretation<'_>> {
        let word = match self {
            Self::Word(word) => word,
            Self::Kind { api_version, kind } => {
                let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
                let (group, version) = (Some(group), Some(version));
                return vec![Interpretation { name: kind, by_kind: true, group, version }];
            }
        };
        let read = |name, version, group| Interpretation { name, by_kind: false, group, version };
        match word.split_once('.') {
            None => vec![read(word, None, None)],
            Some((name, group)) => match group.split_once('.') {
                None => vec![read(name, None, Some(group))],
                Some((version, rest)) => {
                    vec![read(name, Some(version), Some(rest)), read(name, None, Some(group))]
                }
            },
        }
    }
}

impl Interpretation<'_> {
    /// Whether it may name the core group.
    pub(super) fn takes_core(&self) -> bool {
        self.group.is_none_or(str::is_empty) && self.version.is_none_or(|version| version == "v1")
    }

    /// Returns the lists to search, in order, without that of the core group.
    pub(super) fn lists(&self, groups: &[Group]) -> Vec<String> {
        let wanted: Vec<_> = match self.group {
            None => groups.iter().collect(),
            Some("") => Vec::new(),
            Some(name) => {
                let exact: Vec<_> = groups.iter().filter(|group| group.name == name).collect();
                // A user may shorten a group: `autoscal` is `autoscaling`.
                let partly = |group: &&Group| !self.by_kind && group.name.starts_with(name);
                if exact.is_empty() { groups.iter().filter(partly).collect() } else { exact }
            }
        };
        let takes =
            |version: &&String| self.version.is_none_or(|wanted| wanted == version.as_str());
        let lists = wanted.into_iter().flat_map(|group| {
            group.versions.iter().filter(takes).map(|version| format!("{}/{version}", group.name))
        });
        lists.collect()
    }

    /// Returns the kind that fits best, if the list has one.
    pub(super) fn pick<'a>(&self, list: &'a [ServedKind]) -> Option<&'a ServedKind> {
        let rank = |found: &&ServedKind| self.rank(found);
        list.iter().filter(|found| rank(found).is_some()).min_by_key(rank)
    }

    fn rank(&self, found: &ServedKind) -> Option<u8> {
        if self.by_kind {
            return (found.resource.kind == self.name).then_some(0);
        }
        if found.resource.plural == self.name {
            Some(0)
        } else if found.singular == self.name {
            Some(1)
        } else if found.resource.kind.eq_ignore_ascii_case(self.name) {
            Some(2)
        } else if found.short_names.iter().any(|short| short == self.name) {
            Some(3)
        } else {
            None
        }
    }
}

/// Returns the names most similar to `word`, the most similar first.
pub(super) fn nearest(word: &str, names: &[String]) -> Vec<String> {
    /// Below this a name reads as another word, not as a typing error.
    const LIKE: f64 = 0.8;
    let word = word.split('.').next().unwrap_or(word);
    let mut likely: Vec<_> = names
        .iter()
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(like, _)| *like >= LIKE)
        .collect();
    likely.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(other.1)));
    let mut nearest: Vec<_> = likely.into_iter().map(|(_, name)| name.clone()).collect();
    nearest.dedup();
    nearest.truncate(3);
    nearest
}

#[cfg(test)]
mod tests;
