//! Names of a program's parts: hashes of what they mean, the same on every node and after every restart.
//!
//! They have 128 bits of a SHA-256, so that nobody who writes policies can make two meanings share one.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{Chain, Class, Direction, Program, Rule, TierKind, Verdict};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl $name {
            /// The name of what `meaning` describes; two descriptions of one meaning must be equal.
            pub fn of(meaning: &str) -> Self {
                Self(hash(meaning))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
    )*};
}

ids! {
    /// Of what a set means, not of its elements.
    SetId;
    /// Of a chain's direction, tiers and rules, all of it.
    ChainId;
    /// Of both chains.
    ClassId;
    /// Of a merged rule's verdict and sources: it stays while the sets that the rule names change.
    CounterId;
    /// Of everything in a program but its generation: two programs that decide alike in every part.
    Fingerprint;
}

fn hash(meaning: &str) -> u128 {
    let digest = Sha256::digest(meaning.as_bytes());
    digest.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

impl Chain {
    pub fn id(&self) -> ChainId {
        ChainId(hash(&format!("{self:?}")))
    }

    /// The counter of each rule, in the order of [`Chain::rules`].
    pub fn counters(&self) -> impl Iterator<Item = CounterId> {
        self.rules().map(|(tier, rule)| rule.counter(self.direction, tier))
    }
}

impl Class {
    pub fn id(&self) -> ClassId {
        ClassId(hash(&format!("{self:?}")))
    }
}

impl Rule {
    /// Under which its packets and bytes are counted. Several chains may have one counter: what they
    /// count adds up.
    pub fn counter(&self, direction: Direction, tier: TierKind) -> CounterId {
        // How a packet is denied may be set anew; the count goes on.
        let verdict = if self.verdict.is_deny() { Verdict::DROP } else { self.verdict };
        CounterId(hash(&format!("{direction:?} {tier:?} {verdict:?} {:?}", self.sources)))
    }
}

/// Takes text into a hash as it is written.
struct Hashing(Sha256);

impl fmt::Write for Hashing {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

impl Program {
    /// Says what the program decides, whichever controller made it and when. Costs as much as the program
    /// is large.
    pub fn fingerprint(&self) -> Fingerprint {
        use fmt::Write;
        let Self { generation: _, sets, chains, classes, pods, unsettled, notes } = self;
        let mut hashing = Hashing(Sha256::new());
        // A chain's id says all of it.
        let chains: Vec<_> = chains.keys().collect();
        // A hash takes every write.
        let _ = write!(hashing, "{sets:?} {chains:?} {classes:?} {pods:?} {unsettled:?} {notes:?}");
        let digest = hashing.0.finalize();
        Fingerprint(digest.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte)))
    }
}
