//! `Pairs`: who carries packets between each two clusters, and how a pair gets from one data plane to the
//! other without a gap.
//!
//! Two clusters use our own data plane between them when both are to have it, else Kilo's. Where the other
//! one's peers are still there, the pair moves, by what is observed alone:
//!
//! ```text
//!             Kilo ──► ToWireguard ──────► LeavingKilo ─────► Wireguard
//! Kilo's peers   ✓         ✓                removed               –
//! ours           –    TakeOver: each node   TakeOver           Always
//!                     when its tunnel answers
//!                     until every node has
//!
//!        Wireguard ──► Yielding ──► ToKilo ──► LeavingWireguard ──► Kilo
//! Kilo's peers   –        –        written           ✓               ✓
//! ours        Always   TakeOver    TakeOver       Standby         removed
//!                     until every node has       until every node does
//! ```
//!
//! A peer of either kind is removed when no node sends by it any more, at both ends. `Yielding` comes first
//! because Kilo replaces routes of the main table: ours must have left it.

use std::collections::BTreeMap;

use objects::kinds::{ClusterMeshSpec, DataPlane, WireguardRouting};

/// Who carries packets between two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairState {
    Kilo,
    Wireguard,
    ToWireguard,
    LeavingKilo,
    Yielding,
    ToKilo,
    LeavingWireguard,
}

/// Two clusters in the order of their names.
pub(crate) type Pair = (String, String);

/// The state of each pair of clusters.
pub(crate) type Pairs = BTreeMap<Pair, PairState>;

pub(crate) fn pair(one: &str, another: &str) -> Pair {
    let (first, second) = if one <= another { (one, another) } else { (another, one) };
    (first.to_owned(), second.to_owned())
}

/// The data plane that two clusters are to have between them.
pub(crate) fn wanted(spec: &ClusterMeshSpec, (one, another): &Pair) -> DataPlane {
    let plane = |name: &String| {
        let cluster = spec.clusters.iter().find(|cluster| cluster.name == *name);
        cluster.map_or(spec.data_plane, |cluster| spec.data_plane_of(cluster))
    };
    match (plane(one), plane(another)) {
        (DataPlane::Wireguard, DataPlane::Wireguard) => DataPlane::Wireguard,
        _ => DataPlane::Kilo,
    }
}

/// What is observed of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PairFacts {
    /// Whether one of the two clusters has peers of the other, or may have.
    pub(crate) has_kilo: bool,
    pub(crate) has_wireguard: bool,
    /// Whether both have all Kilo's peers of each other.
    pub(crate) kilo_complete: bool,
    /// What is missing until every node of both sends by our tunnels; none if every one does.
    pub(crate) not_taken_over: Option<String>,
    /// What is missing until no node of either does.
    pub(crate) not_standing_by: Option<String>,
}

/// The next state of a pair, whatever it was in.
pub(crate) fn next(wanted: DataPlane, facts: &PairFacts) -> PairState {
    let PairFacts { has_kilo, has_wireguard, kilo_complete, .. } = *facts;
    let taken_over = facts.not_taken_over.is_none();
    match wanted {
        DataPlane::Wireguard if !has_kilo => PairState::Wireguard,
        DataPlane::Wireguard if taken_over => PairState::LeavingKilo,
        DataPlane::Wireguard => PairState::ToWireguard,
        DataPlane::Kilo if !has_wireguard => PairState::Kilo,
        DataPlane::Kilo if kilo_complete && facts.not_standing_by.is_none() => PairState::Kilo,
        DataPlane::Kilo if kilo_complete => PairState::LeavingWireguard,
        DataPlane::Kilo if taken_over || has_kilo => PairState::ToKilo,
        DataPlane::Kilo => PairState::Yielding,
    }
}

impl PairState {
    pub(crate) fn settled(wanted: DataPlane) -> Self {
        match wanted {
            DataPlane::Kilo => Self::Kilo,
            DataPlane::Wireguard => Self::Wireguard,
        }
    }

    /// When packets are sent to the pair's peers of a data plane; none if it is to have none.
    pub(crate) fn routing(self, plane: DataPlane) -> Option<WireguardRouting> {
        match (plane, self) {
            (
                DataPlane::Kilo,
                Self::Kilo | Self::ToWireguard | Self::ToKilo | Self::LeavingWireguard,
            )
            | (DataPlane::Wireguard, Self::Wireguard) => Some(WireguardRouting::Always),
            (
                DataPlane::Wireguard,
                Self::ToWireguard | Self::LeavingKilo | Self::Yielding | Self::ToKilo,
            ) => Some(WireguardRouting::TakeOver),
            (DataPlane::Wireguard, Self::LeavingWireguard) => Some(WireguardRouting::Standby),
            (DataPlane::Kilo, Self::Wireguard | Self::LeavingKilo | Self::Yielding)
            | (DataPlane::Wireguard, Self::Kilo) => None,
        }
    }

    /// Says what is going on between two clusters, and what it waits for; none if nothing is.
    pub(crate) fn describe(self, (one, another): &Pair, facts: &PairFacts) -> Option<String> {
        let because =
            |why: &Option<String>| why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let (to, step) = match self {
            Self::Kilo | Self::Wireguard => return None,
            Self::ToWireguard => (
                "wireguard",
                format!("waiting for every node to take over{}", because(&facts.not_taken_over)),
            ),
            Self::LeavingKilo => ("wireguard", "Kilo's peers are being removed".to_owned()),
            Self::Yielding => (
                "kilo",
                format!("waiting for every node to make room{}", because(&facts.not_taken_over)),
            ),
            Self::ToKilo => ("kilo", "Kilo's peers are being written".to_owned()),
            Self::LeavingWireguard => (
                "kilo",
                format!("waiting for every node to stand by{}", because(&facts.not_standing_by)),
            ),
        };
        Some(format!("{one} and {another} are moved to {to}: {step}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(kilo: bool, wireguard: bool) -> PairFacts {
        let missing = || Some("a/n".to_owned());
        PairFacts {
            has_kilo: kilo,
            has_wireguard: wireguard,
            kilo_complete: kilo,
            not_taken_over: missing(),
            not_standing_by: missing(),
        }
    }

    /// Follows a pair as a cluster would: what a state wants is there at the next look.
    fn walk(wanted: DataPlane, mut facts: PairFacts) -> Vec<PairState> {
        let mut states = Vec::new();
        // A peer that packets were always sent to is sent them while it answers, whoever takes over.
        let mut was_ours = facts.has_wireguard && !facts.has_kilo;
        for _ in 0..20 {
            let state = next(wanted, &facts);
            if states.last() != Some(&state) {
                states.push(state);
            }
            // Somebody sends by a plane whenever packets are to go: no step removes what is in use.
            let ours = state.routing(DataPlane::Wireguard);
            let kilo = state.routing(DataPlane::Kilo).is_some();
            let is_ours = match ours {
                Some(WireguardRouting::Always) => true,
                Some(WireguardRouting::TakeOver) => was_ours || facts.not_taken_over.is_none(),
                Some(WireguardRouting::Standby) | None => false,
            };
            assert!(kilo || is_ours, "{state:?}");
            was_ours = is_ours;
            assert!(ours.is_some() || !facts.has_wireguard || facts.not_standing_by.is_none());
            (facts.has_kilo, facts.kilo_complete) = (kilo, kilo);
            facts.has_wireguard = ours.is_some();
            facts.not_taken_over =
                Some("a/n".to_owned()).filter(|_| ours != Some(WireguardRouting::TakeOver));
            facts.not_standing_by =
                Some("a/n".to_owned()).filter(|_| ours != Some(WireguardRouting::Standby));
        }
        states
    }

    #[test]
    fn a_pair_moves_step_by_step_and_back_and_a_new_one_is_there_at_once() {
        use PairState as S;
        let there = walk(DataPlane::Wireguard, facts(true, false));
        assert_eq!(there, [S::ToWireguard, S::LeavingKilo, S::Wireguard]);
        let back = walk(DataPlane::Kilo, facts(false, true));
        assert_eq!(back, [S::Yielding, S::ToKilo, S::LeavingWireguard, S::Kilo]);
        assert_eq!(walk(DataPlane::Wireguard, facts(false, false)), [S::Wireguard]);
        assert_eq!(walk(DataPlane::Kilo, facts(false, false)), [S::Kilo]);
    }

    #[test]
    fn a_move_that_is_called_off_goes_back_from_wherever_it_is() {
        for (kilo, wireguard) in [(true, true), (true, false), (false, true)] {
            for plane in [DataPlane::Kilo, DataPlane::Wireguard] {
                let states = walk(plane, facts(kilo, wireguard));
                assert_eq!(states.last(), Some(&PairState::settled(plane)), "{states:?}");
            }
        }
    }
}
