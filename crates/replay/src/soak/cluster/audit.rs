//! Checks that the audit is complete: for every write that was acknowledged there is an entry, and for what
//! nobody asked for there is none.

use std::collections::BTreeMap;

use super::history::History;

/// By register: how many writes were acknowledged, and how many were tried.
pub(super) fn written(history: &History) -> BTreeMap<String, (u64, u64)> {
    let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for write in &history.writes {
        let (acknowledged, tried) = all.entry(write.register.clone()).or_default();
        *acknowledged += u64::from(write.acknowledged.is_some());
        *tried += 1;
    }
    all
}

/// `entries` are those of the audit that tell of a success, by register. An entry's outcome may be lost with
/// its process; the entry itself is on disk before the write is done, and is then one of the `open`.
pub(super) fn incomplete(
    written: &BTreeMap<String, (u64, u64)>,
    entries: &BTreeMap<String, u64>,
    open: u64,
) -> Vec<String> {
    let (mut broken, mut missing) = (Vec::new(), 0);
    for (register, (acknowledged, tried)) in written {
        let found = entries.get(register).copied().unwrap_or_default();
        missing += acknowledged.saturating_sub(found);
        if found > *tried {
            broken.push(format!("{register}: {tried} writes were tried, the audit has {found}"));
        }
    }
    if missing > open {
        broken.push(format!(
            "{missing} acknowledged writes have no entry of their success in the audit, which has {open} without an outcome"
        ));
    }
    broken
}

/// The register that an entry says was written: `ok: configmap/REGISTER in soak configured`.
pub(super) fn register_of(outcome: &str) -> Option<&str> {
    let (register, rest) =
        outcome.strip_prefix("ok")?.split_once("configmap/")?.1.split_once(" in soak ")?;
    ["created", "configured", "unchanged"].iter().any(|it| rest.starts_with(it)).then_some(register)
}

#[cfg(test)]
mod tests {
    use super::super::history::Write;
    use super::*;

    #[test]
    fn an_entry_of_a_success_names_its_register() {
        assert_eq!(
            register_of("ok: configmap/register-0-1 in soak configured"),
            Some("register-0-1")
        );
        assert_eq!(register_of("ok: configmap/register-0-1 in soak failed"), None);
        assert_eq!(register_of("ok"), None);
        assert_eq!(register_of("timeout"), None);
    }

    #[test]
    fn a_missing_entry_is_found_and_one_too_many() {
        let write =
            |value, acknowledged| Write { register: "r".to_owned(), value, from: 0, acknowledged };
        let history = History {
            writes: vec![write(1, Some(1)), write(2, Some(2)), write(3, None)],
            reads: Vec::new(),
        };
        let written = written(&history);
        assert_eq!(written["r"], (2, 3));
        let entries = |count| BTreeMap::from([("r".to_owned(), count)]);
        for count in [2, 3] {
            assert_eq!(incomplete(&written, &entries(count), 0), Vec::<String>::new());
        }
        assert_eq!(incomplete(&written, &entries(1), 0).len(), 1);
        assert_eq!(incomplete(&written, &BTreeMap::new(), 1).len(), 1);
        assert_eq!(
            incomplete(&written, &entries(1), 1),
            Vec::<String>::new(),
            "its process was killed"
        );
        assert_eq!(incomplete(&written, &entries(4), 9).len(), 1);
    }
}
