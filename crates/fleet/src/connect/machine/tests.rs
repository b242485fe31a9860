use proptest::prelude::*;

use super::*;
use crate::failure::Reason;

fn timing() -> Timing {
    Timing { probe: Duration::from_secs(10), retry: Duration::from_secs(30), ..Timing::default() }
}

fn failure(reason: Reason) -> Failure {
    Failure::new(reason, format!("because of {}", reason.label()))
}

fn states(machine: &mut HealthMachine, events: &[Event<'_>]) -> Vec<State> {
    events.iter().map(|event| machine.on(event, 0.5).state).collect()
}

#[test]
fn one_failure_degrades_a_ready_cluster_and_a_second_in_a_row_takes_it_away() {
    let (silent, mut machine) = (failure(Reason::Timeout), HealthMachine::new(&timing()));
    let events = [
        Event::Answered,
        Event::Failed(&silent),
        Event::Failed(&silent),
        Event::Failed(&silent),
        Event::Answered,
        Event::Failed(&silent),
    ];
    use State::*;
    let seen = states(&mut machine, &events);
    assert_eq!(seen, [Ready, Degraded, Unreachable, Unreachable, Ready, Degraded]);
}

#[test]
fn a_cluster_that_never_answered_is_what_its_first_failure_says() {
    for reason in Reason::ALL {
        let mut machine = HealthMachine::new(&timing());
        let failure = failure(reason);
        let verdict = machine.on(&Event::Failed(&failure), 0.5);
        assert_eq!(verdict.state, reason.state());
        assert_eq!(verdict.why, Some(failure.why));
    }
}

#[test]
fn a_slow_answer_ends_ready_without_counting_as_a_failure() {
    let mut machine = HealthMachine::new(&timing());
    machine.on(&Event::Answered, 0.5);
    let verdict = machine.on(&Event::Slow(Duration::from_secs(2)), 0.5);
    assert_eq!(verdict.state, State::Degraded);
    assert_eq!(verdict.why.as_deref(), Some("it has not answered for 2 s"));
    assert_eq!(verdict.next, None);
    assert_eq!(machine.failures(), 0);
    assert_eq!(machine.on(&Event::Answered, 0.5).state, State::Ready);
}

#[test]
fn bad_new_credentials_leave_the_cluster_usable_and_say_so() {
    let mut machine = HealthMachine::new(&timing());
    machine.on(&Event::Answered, 0.5);
    let refused = failure(Reason::Unauthorised);
    for _ in 0..5 {
        let verdict = machine.on(&Event::Kept(&refused), 0.5);
        assert_eq!(verdict.state, State::Degraded);
        assert!(verdict.why.is_some_and(|why| why.ends_with(&refused.why)));
    }
}

proptest! {
    #[test]
    fn only_an_answer_makes_ready_and_there_always_is_a_next_try(
        events in prop::collection::vec((0..5_u8, 0..Reason::ALL.len(), 0.0..1.0), 1..60),
    ) {
        let mut machine = HealthMachine::new(&timing());
        for (kind, reason, chance) in events {
            let failure = failure(Reason::ALL[reason]);
            let event = match kind {
                0 => Event::Answered,
                1 => Event::Unwell("etcd is gone"),
                2 => Event::Slow(Duration::from_secs(2)),
                3 => Event::Failed(&failure),
                _ => Event::Kept(&failure),
            };
            let verdict = machine.on(&event, chance);
            prop_assert_eq!(verdict.state == State::Ready, matches!(event, Event::Answered));
            prop_assert_eq!(verdict.why.is_none(), verdict.state == State::Ready);
            match (event, verdict.next) {
                (Event::Slow(_), next) => prop_assert_eq!(next, None),
                (Event::Answered | Event::Unwell(_), Some(next)) => {
                    let range = Duration::from_millis(7500)..=Duration::from_millis(12_500);
                    prop_assert!(range.contains(&next));
                }
                (_, Some(next)) => prop_assert!(
                    next >= Duration::from_millis(500) && next <= Duration::from_secs(30)
                ),
                (_, None) => prop_assert!(false, "no next try"),
            }
        }
    }
}
