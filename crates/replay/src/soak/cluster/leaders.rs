//! Checks that one leads at a time, and that what a leader wrote is not written over by an earlier one.
//!
//! Each controller is asked again and again whether it leads. A process that was stopped tells what it
//! believed for a moment after it goes on, and that is no second leader: its writes are fenced. So two are
//! found when both say it several times while the other does, and the fence is checked by itself: the term
//! in the annotation of an object never falls from one version of the object to a later one.

use std::collections::BTreeMap;

use super::scope::Ms;

/// As often both must have said it, in turn.
const SAID: usize = 3;

/// One answer of a controller.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) who: String,
    pub(super) at: Ms,
    pub(super) leads: bool,
    /// How many terms it has begun.
    pub(super) terms: u64,
}

/// What one replica said without a break: it leads, in one term.
#[derive(Debug)]
struct Reign<'a> {
    who: &'a str,
    said: Vec<Ms>,
}

fn reigns(claims: &[Claim]) -> Vec<Reign<'_>> {
    let mut all: Vec<Reign<'_>> = Vec::new();
    let mut open: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
    for claim in claims {
        let who = claim.who.as_str();
        if !claim.leads {
            open.remove(who);
            continue;
        }
        match open.get(who) {
            Some((terms, at)) if *terms == claim.terms => all[*at].said.push(claim.at),
            _ => {
                open.insert(who, (claim.terms, all.len()));
                all.push(Reign { who, said: vec![claim.at] });
            }
        }
    }
    all
}

/// Pairs that led at once.
pub(super) fn two_at_once(claims: &[Claim]) -> Vec<String> {
    let reigns = reigns(claims);
    let mut broken = Vec::new();
    for (place, one) in reigns.iter().enumerate() {
        for other in reigns[place + 1..].iter().filter(|other| other.who != one.who) {
            let (Some(first), Some(last)) =
                (one.said.first().max(other.said.first()), one.said.last().min(other.said.last()))
            else {
                continue;
            };
            let within = |reign: &Reign<'_>| {
                reign.said.iter().filter(|at| (first..=last).contains(at)).count()
            };
            if first < last && within(one).min(within(other)) >= SAID {
                broken
                    .push(format!("{} and {} both led from {first} to {last}", one.who, other.who));
            }
        }
    }
    broken
}

/// The newest version that was seen of each object, and the term that it was written in.
#[derive(Debug, Default)]
pub(super) struct Fences {
    seen: BTreeMap<String, (u64, u64)>,
    pub(super) looked: u64,
}

impl Fences {
    /// A version of an object with the term that its fence names.
    pub(super) fn see(&mut self, object: &str, version: u64, term: u64) -> Option<String> {
        self.looked += 1;
        let before = self.seen.get(object).copied();
        match before {
            Some((seen, _)) if seen >= version => None,
            Some((_, earlier)) if earlier > term => Some(format!(
                "{object} was written in term {term}, after it had been in term {earlier}"
            )),
            _ => {
                self.seen.insert(object.to_owned(), (version, term));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(who: &str, at: Ms, leads: bool, terms: u64) -> Claim {
        Claim { who: who.to_owned(), at, leads, terms }
    }

    #[test]
    fn one_after_the_other_is_well_and_so_is_one_who_wakes_up() {
        let mut claims: Vec<_> = (0..5).map(|n| claim("a", n * 1000, true, 1)).collect();
        // It is stopped; the next leads; it says once what it believed.
        claims.extend((20..30).map(|n| claim("b", n * 1000, true, 1)));
        claims.push(claim("a", 25_500, true, 1));
        claims.push(claim("a", 26_500, false, 1));
        claims.sort_by_key(|claim| claim.at);
        assert_eq!(two_at_once(&claims), Vec::<String>::new());
        // It leads again, in another term, when the other has ended.
        claims.push(claim("b", 30_500, false, 1));
        claims.extend((31..40).map(|n| claim("a", n * 1000, true, 2)));
        assert_eq!(two_at_once(&claims), Vec::<String>::new());
    }

    #[test]
    fn two_leaders_are_found() {
        let mut claims = Vec::new();
        for n in 0..6 {
            claims.push(claim("a", n * 1000, true, 1));
            claims.push(claim("b", n * 1000 + 300, n > 1, 1));
        }
        let broken = two_at_once(&claims);
        assert_eq!(broken.len(), 1, "{broken:?}");
        assert!(broken[0].contains("a and b"), "{broken:?}");
    }

    #[test]
    fn a_write_of_an_earlier_term_is_found() {
        let mut fences = Fences::default();
        assert_eq!(fences.see("pool/a", 10, 1), None);
        assert_eq!(fences.see("pool/a", 12, 2), None);
        assert_eq!(fences.see("pool/a", 10, 1), None, "an old list");
        assert_eq!(fences.see("pool/b", 13, 1), None);
        assert!(fences.see("pool/a", 14, 1).is_some());
    }
}
