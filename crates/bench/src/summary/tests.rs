use super::*;

fn run(ours: f64, rival: f64, holds: bool) -> Table {
    let mut table = Table::new("store");
    table.row("writes", "/s", ours, &[("a commit each", rival)]);
    table.must("more", holds);
    table.row("a lookup", "ns", 20.0, &[]);
    table
}

#[test]
fn a_ratio_is_of_one_run_and_the_median_of_all() {
    let runs = [run(200.0, 100.0, true), run(900.0, 300.0, true), run(40.0, 10.0, true)];
    let summary = Summary::of(&runs);
    let rival = summary.lines[0].rival.as_ref().unwrap();
    assert_eq!(rival.times, Spread { median: 3.0, least: 2.0, most: 4.0 });
    assert_eq!((summary.lines[0].runs, rival.noise), (3, false));
    assert_eq!(summary.lines[1].rival, None);
}

#[test]
fn less_is_better_of_times_and_more_of_rates() {
    let mut table = Table::new("stallproof");
    table.row("a lock", "ns", 10.0, &[("theirs", 30.0)]);
    let summary = Summary::of([&table]);
    assert_eq!(summary.lines[0].rival.as_ref().unwrap().times.median, 3.0);
}

#[test]
fn runs_that_do_not_agree_on_who_is_better_are_noise() {
    let summary = Summary::of(&[run(90.0, 100.0, true), run(110.0, 100.0, true)]);
    assert!(summary.lines[0].rival.as_ref().unwrap().noise);
    assert!(summary.markdown().contains("0.90× to 1.10×: **noise**"), "{}", summary.markdown());
}

#[test]
fn a_limit_must_hold_in_most_runs() {
    let held = |holds: [bool; 3]| {
        let runs = holds.map(|holds| run(2.0, 1.0, holds));
        Summary::of(&runs)
    };
    assert_eq!(held([true, false, true]).broken().count(), 0);
    assert!(held([true, false, true]).markdown().contains("more: in 2 of 3 runs"));
    assert_eq!(held([false, false, true]).broken().count(), 1);
    assert!(held([false; 3]).markdown().contains("more: **NO**"));
}
