use super::*;

const HOUR: u64 = 60 * 60;

fn seconds(n: u64) -> Moment {
    Moment(n * 1000)
}

/// Looks every half minute.
fn live(lived: &mut SteadyClock, from: u64, to: u64) -> Moment {
    (from..=to).step_by(30).fold(Moment(0), |_, at| lived.advance(seconds(at)))
}

#[test]
fn time_passes_as_the_clock_does() {
    let mut lived = SteadyClock::default();
    let began = live(&mut lived, 1000, 1000);
    assert_eq!(live(&mut lived, 1000, 1000 + HOUR).since(began).as_secs(), HOUR);
    assert_eq!(lived.steady_for().as_secs(), HOUR);
}

#[test]
fn a_jump_and_its_undoing_count_for_nothing() {
    for jumped in [130 * HOUR, 60 * HOUR, 0] {
        let mut lived = SteadyClock::default();
        let began = live(&mut lived, 90 * HOUR, 90 * HOUR + 60);
        live(&mut lived, jumped, jumped + 60);
        assert_eq!(lived.steady_for().as_secs(), 60);
        let now = live(&mut lived, 90 * HOUR + 120, 90 * HOUR + 150);
        assert_eq!(now.since(began).as_secs(), 60 + 30, "jumped to {jumped}");
        assert_eq!(lived.steady_for().as_secs(), 30);
    }
}

#[test]
fn a_clock_that_is_put_right_by_little_has_not_jumped() {
    let mut lived = SteadyClock::default();
    let began = live(&mut lived, 1000, 2000);
    assert_eq!(live(&mut lived, 1980, 1980), began, "and time does not go back");
    assert!(lived.steady_for().as_secs() >= 900);
}

#[test]
fn it_goes_on_from_where_a_checkpoint_was_made() {
    let mut lived = SteadyClock::default();
    lived.resume(seconds(500));
    lived.resume(seconds(400));
    assert_eq!(lived.advance(seconds(90 * HOUR)), seconds(500));
    assert_eq!(lived.steady_for(), Duration::ZERO);
    lived.resume(Moment(u64::MAX));
    live(&mut lived, 90 * HOUR, 90 * HOUR + 60);
}
