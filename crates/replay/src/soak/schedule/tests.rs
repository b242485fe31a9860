use std::collections::HashSet;

use super::*;

const LENGTHS: [u64; 6] = [21, 25, 45, 60, 300, 3600];

/// Many seeds with each length.
fn all() -> impl Iterator<Item = (u64, Duration, Vec<Planned>)> {
    LENGTHS.into_iter().flat_map(|seconds| {
        let time = Duration::from_secs(seconds);
        (0..200).map(move |seed| (seed, time, schedule(seed, time)))
    })
}

#[test]
fn the_same_seed_is_the_same_schedule_and_another_is_another() {
    for (seed, time, planned) in all() {
        assert_eq!(schedule(seed, time), planned);
        assert_ne!(schedule(seed + 1, time), planned);
    }
}

#[test]
fn every_fault_of_every_job_comes() {
    for (seed, time, planned) in all() {
        let come: HashSet<Fault> = planned.iter().map(|planned| planned.fault).collect();
        for fault in Job::ALL.iter().flat_map(|job| job.faults()) {
            assert!(come.contains(fault), "{fault:?} in {time:?} of seed {seed}");
        }
    }
}

#[test]
fn a_job_has_one_fault_at_a_time() {
    for (seed, time, planned) in all() {
        for job in Job::ALL {
            let own: Vec<_> = planned.iter().filter(|planned| planned.job == job).collect();
            for pair in own.windows(2) {
                assert!(pair[0].until() < pair[1].at(), "{pair:?} in {time:?} of seed {seed}");
            }
        }
    }
}

#[test]
fn it_begins_when_the_load_stands_and_ends_in_time_for_a_recovery() {
    for (seed, time, planned) in all() {
        for planned in &planned {
            assert!(planned.at() >= CALM, "{planned:?} of seed {seed}");
            assert!(planned.until() + TAIL <= time, "{planned:?} in {time:?} of seed {seed}");
            assert!(planned.lasts_ms >= 1500, "{planned:?} of seed {seed}");
        }
    }
}

#[test]
fn it_comes_in_the_order_of_its_beginning() {
    for (.., planned) in all() {
        assert!(planned.is_sorted_by_key(|planned| planned.at_ms));
    }
}
