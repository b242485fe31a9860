use super::*;
use crate::outcome::Requirement;

fn line(line: &Line) -> Line {
    serde_json::from_str(&serde_json::to_string(line).unwrap()).unwrap()
}

fn told(lines: Vec<Line>) -> Result<Side, Option<String>> {
    let (send, receive) = sync_channel(16);
    for line in lines {
        send.send(line).unwrap();
    }
    drop(send);
    listen(&receive, Duration::from_secs(5), &mut |_| {})
}

#[test]
fn what_a_design_says_arrives_whole() {
    let sample = Sample { at_ms: 200, in_flight: 3, p99_ms: Some(1.5), ..Sample::default() };
    let ended = Ended { answered: 9, stopped: Some("at a limit".to_owned()), ..Ended::default() };
    let said = [Line::Sample(sample), Line::Ended(Box::new(ended))];
    let side = told(said.iter().map(line).collect()).unwrap();
    assert_eq!(side.timeline, [sample]);
    assert_eq!((side.ended.answered, side.ended.stopped.as_deref()), (9, Some("at a limit")));
}

#[test]
fn a_design_that_cannot_run_or_dies_has_no_outcome() {
    assert_eq!(told(vec![Line::Cannot("no root".to_owned())]).unwrap_err().unwrap(), "no root");
    assert_eq!(told(vec![Line::Sample(Sample::default())]).unwrap_err(), None);
}

#[test]
fn a_design_that_falls_silent_is_reported_as_stopped() {
    let (send, receive) = sync_channel(16);
    send.send(Line::Sample(Sample { in_flight: 7, ..Sample::default() })).unwrap();
    let side = listen(&receive, Duration::from_millis(50), &mut |_| {}).unwrap();
    assert!(side.ended.stopped.unwrap().contains("too long"));
    assert_eq!(side.ended.in_flight, 7);
}

#[test]
fn an_outcome_is_ok_only_if_all_holds_and_something_was_shown() {
    let requirement =
        |value| Requirement::new("x", Some(value), crate::outcome::Relation::Exactly, 0.0, "");
    let (met, unmet, void) = (requirement(0.0), requirement(1.0), "nothing was shown".to_owned());
    assert!(is_ok(std::slice::from_ref(&met), None));
    assert!(!is_ok(&[met.clone(), unmet], None));
    assert!(!is_ok(&[met], Some(&void)));
    assert!(!is_ok(&[], None));
}
