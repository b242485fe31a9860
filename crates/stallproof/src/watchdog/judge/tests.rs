use proptest::prelude::*;

use super::*;

const TICK: Duration = Duration::from_millis(500);

fn owing(count: u64) -> Progress {
    Progress { owed: true, count }
}

fn idle(count: u64) -> Progress {
    Progress { owed: false, count }
}

/// Looks every tick for `time` and returns what was said, with the time it was said at.
fn watch(
    patience: &mut Patience,
    start: Instant,
    time: Duration,
    severity: Severity,
    mut progress: impl FnMut(u32) -> Progress,
) -> Vec<(Duration, Verdict)> {
    let limits = WatchdogLimits::default();
    (1..)
        .take_while(|n| TICK * *n <= time)
        .filter_map(|n| {
            let at = TICK * n;
            patience.look(start + at, progress(n), severity, &limits).map(|verdict| (at, verdict))
        })
        .collect()
}

#[test]
fn owing_without_moving_is_named_within_5_s_and_a_critical_one_fails_within_30_s() {
    let start = Instant::now();
    let mut patience = Patience::new(start);
    let said =
        watch(&mut patience, start, Duration::from_secs(120), Severity::Critical, |_| owing(0));
    let [(named, Verdict::Named), (failed, Verdict::Failed)] = said[..] else {
        panic!("said {said:?}")
    };
    assert!(named <= Duration::from_secs(5), "named after {named:?}");
    assert!(failed <= Duration::from_secs(26), "no time left for the evidence after {failed:?}");
}

#[test]
fn a_noted_one_never_fails_the_process() {
    let start = Instant::now();
    let mut patience = Patience::new(start);
    let said =
        watch(&mut patience, start, Duration::from_secs(3600), Severity::Noted, |_| owing(0));
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn idle_is_never_an_alarm() {
    let start = Instant::now();
    let mut patience = Patience::new(start);
    let said =
        watch(&mut patience, start, Duration::from_secs(3600), Severity::Critical, |_| idle(7));
    assert_eq!(said, []);
}

#[test]
fn work_that_arrives_after_a_long_rest_gets_its_full_time() {
    let start = Instant::now();
    let mut patience = Patience::new(start);
    watch(&mut patience, start, Duration::from_secs(600), Severity::Critical, |_| idle(0));
    let start = start + Duration::from_secs(600);
    let said =
        watch(&mut patience, start, Duration::from_secs(3), Severity::Critical, |_| owing(0));
    assert_eq!(said, []);
}

#[test]
fn slow_is_not_stuck() {
    let start = Instant::now();
    let mut patience = Patience::new(start);
    // One step every 3.5 s, for an hour.
    let said = watch(&mut patience, start, Duration::from_secs(3600), Severity::Critical, |n| {
        owing(u64::from(n / 7))
    });
    assert_eq!(said, []);
}

#[test]
fn recovery_says_how_long_it_took_and_the_next_stall_is_named_again() {
    let start = Instant::now();
    let mut patience = Patience::new(start);
    let said = watch(&mut patience, start, Duration::from_secs(20), Severity::Critical, |n| {
        owing(u64::from(n >= 20))
    });
    assert_eq!(said[0].1, Verdict::Named);
    assert_eq!(said[1].1, Verdict::Recovered { after: Duration::from_secs(10) });
    assert_eq!(said[2].1, Verdict::Named);
}

#[test]
fn forgiven_time_is_held_against_no_one() {
    let start = Instant::now();
    let limits = WatchdogLimits::default();
    let mut patience = Patience::new(start);
    let pause = Duration::from_secs(3600);
    assert_eq!(patience.look(start + TICK, owing(0), Severity::Critical, &limits), None);
    patience.forgive(pause);
    let now = start + pause + TICK * 2;
    assert_eq!(patience.look(now, owing(0), Severity::Critical, &limits), None);
    // But the stall that began before the pause is still a stall.
    let later = now + limits.name_after;
    assert_eq!(patience.look(later, owing(0), Severity::Critical, &limits), Some(Verdict::Named));
}

proptest! {
    /// Whatever happens: named exactly when it owed and stood still for `name_after`, failed only
    /// after being named, and every alarm ends in exactly one recovery.
    #[test]
    fn verdicts_follow_from_what_was_seen(
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 1_u64..3_000), 1..200),
        critical: bool,
    ) {
        let limits = WatchdogLimits::default();
        let severity = if critical { Severity::Critical } else { Severity::Noted };
        let start = Instant::now();
        let mut patience = Patience::new(start);
        let (mut now, mut count, mut still_since) = (start, 0, start);
        let mut stage = Stage::Fine;
        for (owed, moved, millis) in steps {
            now += Duration::from_millis(millis);
            count += u64::from(moved);
            let progress = Progress { owed, count };
            let verdict = patience.look(now, progress, severity, &limits);
            let still = now - still_since;
            if !owed || moved {
                still_since = now;
                let expected =
                    (stage != Stage::Fine).then_some(Verdict::Recovered { after: still });
                prop_assert_eq!(verdict, expected);
                stage = Stage::Fine;
            } else if stage == Stage::Fine && still >= limits.name_after {
                prop_assert_eq!(verdict, Some(Verdict::Named));
                stage = Stage::Named;
            } else if stage == Stage::Named && critical && still >= limits.fail_after {
                prop_assert_eq!(verdict, Some(Verdict::Failed));
                stage = Stage::Failed;
            } else {
                prop_assert_eq!(verdict, None);
            }
            prop_assert_eq!(patience.stage(), stage);
        }
    }
}
