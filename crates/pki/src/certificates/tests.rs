use proptest::prelude::*;

use super::*;

const SHORT: Lifetimes = Lifetimes {
    authority: Duration::from_secs(3000),
    certificate: Duration::from_secs(300),
    overlap: Duration::from_secs(30),
};

fn names() -> Vec<String> {
    vec!["webhook.fairlead.svc".to_owned(), "127.0.0.1".to_owned()]
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + Duration::from_secs(second)
}

fn step(kept: Option<&Kept>, trusted: bool, second: u64) -> Option<Kept> {
    next(kept, &names(), SHORT, trusted, at(second)).unwrap()
}

#[test]
fn a_certificate_is_renewed_by_the_same_authority_and_for_new_names() {
    let first = step(None, true, 0).unwrap();
    assert_eq!(step(Some(&first), true, 199), None);
    let second = step(Some(&first), true, 200).unwrap();
    assert_eq!(second.bundle(), first.bundle());
    assert_ne!(second.serving, first.serving);
    let named = next(Some(&second), &["other".to_owned()], SHORT, true, at(201)).unwrap().unwrap();
    assert_eq!(named.serving.names, ["other"]);
    assert_eq!(named.bundle(), first.bundle());
}

#[test]
fn a_new_authority_is_trusted_before_it_is_served_and_the_old_one_stays_a_while() {
    let mut kept = step(None, true, 0).unwrap();
    kept.serving = kept.newest().sign(WHOSE, &names(), SHORT, at(1990)).unwrap();
    let old = kept.serving.by.clone();
    // Two thirds of its time are over.
    let kept = step(Some(&kept), true, 2000).unwrap();
    assert_eq!((kept.authorities.len(), &kept.serving.by), (2, &old));
    assert_eq!(step(Some(&kept), true, 2029), None, "not before the overlap");
    assert_eq!(step(Some(&kept), false, 2040), None, "nor before everybody has it");
    let taken = step(Some(&kept), true, 2040).unwrap();
    assert_ne!(taken.serving.by, old);
    assert_eq!(taken.bundle(), kept.bundle(), "who has the old certificate is still trusted");
    assert_eq!(step(Some(&taken), true, 2069), None);
    let done = step(Some(&taken), true, 2070).unwrap();
    assert_eq!(done.authorities.len(), 1);
    assert_eq!(done.serving, taken.serving);
    assert_eq!(step(Some(&done), true, 2071), None);
}

#[test]
fn an_api_server_that_is_away_holds_up_a_rotation_only_so_long() {
    let mut kept = step(None, true, 0).unwrap();
    let old = kept.serving.by.clone();
    let mut second = 0;
    while kept.serving.by == old {
        second += 10;
        assert!(second < 3000, "the old authority has ended");
        kept = step(Some(&kept), false, second).unwrap_or(kept);
        assert!(kept.serving.until > at(second), "what is served holds");
    }
    assert_eq!(second, 2700, "nine tenths");
}

#[test]
fn what_has_ended_or_cannot_be_read_is_made_anew() {
    let first = step(None, true, 0).unwrap();
    let again = step(Some(&first), true, 3001).unwrap();
    assert_ne!(again.bundle(), first.bundle());
    assert!(first.is_whole());
    assert!(!Kept { authorities: vec![], ..first }.is_whole());
}

#[test]
fn no_private_key_is_shown() {
    let kept = step(None, true, 0).unwrap();
    let shown = format!("{kept:?}");
    assert!(!shown.contains("PRIVATE KEY"), "{shown}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// At every moment, what any replica serves (the newest, or what it read up to an overlap ago) is
    /// trusted by any API server, whose bundle may be as old; as long as everybody can be reached.
    #[test]
    fn what_is_served_is_always_trusted(steps in proptest::collection::vec(1..29_u64, 1..120)) {
        let mut second = 0;
        let mut kept: Option<Kept> = None;
        let mut history: Vec<(u64, Kept)> = Vec::new();
        for wait in steps.into_iter().cycle().take(300) {
            while let Some(made) = step(kept.as_ref(), true, second) {
                history.push((second, made.clone()));
                kept = Some(made);
            }
            // What was current at some time of the last overlap.
            let recent = |i: usize| {
                history.get(i + 1).is_none_or(|(until, _)| until + 30 > second)
            };
            let recent: Vec<_> = (0..history.len()).filter(|i| recent(*i)).map(|i| &history[i].1).collect();
            for served in &recent {
                for asked in &recent {
                    let trusted = asked.authorities.iter().any(|a| a.name == served.serving.by);
                    prop_assert!(trusted, "at {second}");
                }
            }
            second += wait;
        }
    }
}
