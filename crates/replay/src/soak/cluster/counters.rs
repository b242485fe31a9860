//! Checks what was counted of conversations against what pods did.
//!
//! Never more than there was. Not less either, but for connections that ended while the agents of their two
//! nodes were away: nobody saw those, and the documentation says so.

/// Connections between two nodes' pods on the open port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    /// Those that pods say were answered.
    pub(super) answered: u64,
    /// Those that were begun: one without an answer may have been seen or not.
    pub(super) begun: u64,
    /// Those of the answered ones that were over while an agent may have been away.
    pub(super) unseen: u64,
}

pub(super) fn wrong(what: &str, made: Made, counted: u64) -> Option<String> {
    let Made { answered, begun, unseen } = made;
    if counted > begun {
        return Some(format!("{what}: {begun} connections were begun, {counted} are counted"));
    }
    let least = answered.saturating_sub(unseen);
    (counted < least).then(|| {
        format!(
            "{what}: {least} connections were made while agents were there, {counted} are counted"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_counted_twice_is_found_and_one_not_counted() {
        let made = Made { answered: 100, begun: 104, unseen: 10 };
        for counted in [90, 100, 104] {
            assert_eq!(wrong("1 to 2", made, counted), None);
        }
        assert!(wrong("1 to 2", made, 105).is_some());
        assert!(wrong("1 to 2", made, 89).is_some());
    }
}
