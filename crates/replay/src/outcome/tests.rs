use super::*;

#[test]
fn a_requirement_holds_on_its_limit_and_not_beyond_it() {
    use Relation::{AtLeast, AtMost, Exactly};
    for (relation, value, ok) in [
        (AtMost, 5.0, true),
        (AtMost, 5.1, false),
        (AtLeast, 5.0, true),
        (AtLeast, 4.9, false),
        (Exactly, 5.0, true),
        (Exactly, 6.0, false),
        (AtMost, f64::NAN, false),
        (AtLeast, f64::NAN, false),
        (Exactly, f64::NAN, false),
    ] {
        assert_eq!(Requirement::new("x", Some(value), relation, 5.0, "").ok, ok, "{relation:?}");
    }
}

#[test]
fn what_was_not_measured_does_not_hold() {
    let ended = Ended::default();
    let mut judge = Judge::of(&ended);
    judge.at_most("a", "absent", 1.0, "");
    judge.named_within("named", 1000.0);
    let oks: Vec<bool> = judge.requirements().iter().map(|r| r.ok).collect();
    assert_eq!(oks, [true, false, false]);
}

#[test]
fn a_stall_that_is_named_without_its_step_is_not_named() {
    let named = Named { what: "pod".to_owned(), step: String::new(), after_ms: 1.0 };
    let mut ended = Ended { named: Some(named), ..Ended::default() };
    let holds = |ended: &Ended| {
        let mut judge = Judge::of(ended);
        judge.named_within("named", 1000.0);
        judge.requirements().pop().unwrap().ok
    };
    assert!(!holds(&ended));
    ended.named.as_mut().unwrap().step = "configure-pod".to_owned();
    assert!(holds(&ended));
    ended.named.as_mut().unwrap().after_ms = 1001.0;
    assert!(!holds(&ended));
}

#[test]
fn a_long_timeline_is_thinned_and_keeps_its_end() {
    let all: Vec<_> = (0..5000).map(|at_ms| Sample { at_ms, ..Sample::default() }).collect();
    let thinned = thin(all);
    assert!(thinned.len() <= SAMPLES && thinned.len() > SAMPLES / 3, "{}", thinned.len());
    assert_eq!((thinned[0].at_ms, thinned.last().unwrap().at_ms), (0, 4999));
    assert!(thinned.windows(2).all(|pair| pair[0].at_ms < pair[1].at_ms));
}
