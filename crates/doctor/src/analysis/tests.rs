//! One program with known stalls, in every form and version: what each form can carry is found,
//! what it cannot is refused.

use crate::Case;
use crate::goroutine::parse;
use crate::report::{
    EntryKind, FaultClass, Finding, HeldMode, Level, Report, ResourceKind, Severity,
};

macro_rules! vector {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../tests/vectors/", $name)).as_slice())
    };
}

macro_rules! stall {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../tests/stalls/", $name)).as_slice())
    };
}

const WITH_ADDRESSES: [(&str, &[u8]); 5] = [
    vector!("go1.19.8.debug2.txt"),
    vector!("go1.21.13.debug2.txt"),
    vector!("go1.25.14.debug2.txt"),
    vector!("go1.27.0.debug2.txt"),
    vector!("go1.27.0.leak2.txt"),
];

/// `traces` here and `text` below were printed by `go tool pprof` from the protobufs.
const WITHOUT_ADDRESSES: [(&str, &[u8]); 12] = [
    vector!("go1.19.8.debug0.pb.gz"),
    vector!("go1.21.13.debug0.pb.gz"),
    vector!("go1.25.14.debug0.pb.gz"),
    vector!("go1.27.0.debug0.pb.gz"),
    vector!("go1.19.8.debug1.txt"),
    vector!("go1.21.13.debug1.txt"),
    vector!("go1.25.14.debug1.txt"),
    vector!("go1.27.0.debug1.txt"),
    vector!("go1.19.8.traces.txt"),
    vector!("go1.21.13.traces.txt"),
    vector!("go1.25.14.traces.txt"),
    vector!("go1.27.0.traces.txt"),
];

const SUMS: [(&str, &[u8]); 4] = [
    vector!("go1.19.8.text.txt"),
    vector!("go1.21.13.text.txt"),
    vector!("go1.25.14.text.txt"),
    vector!("go1.27.0.text.txt"),
];

fn examine(inputs: &[(&str, &[u8])]) -> Report {
    let mut case = Case::default();
    for (name, bytes) in inputs {
        case.dumps.extend(parse(name, bytes));
    }
    case.conclude()
}

fn lock<'r>(report: &'r Report, name: &str, mode: HeldMode, class: FaultClass) -> &'r Finding {
    report
        .findings
        .iter()
        .find(|f| {
            f.resource.name == name
                && f.class == class
                && f.held.as_ref().is_some_and(|h| h.mode == mode)
        })
        .unwrap_or_else(|| panic!("no {class:?} on {name}, {mode:?}: {:#?}", report.findings))
}

fn first_holder(finding: &Finding) -> (&str, Level) {
    let holder = finding.holders.first().expect("a candidate");
    (&holder.frame, holder.confidence.level)
}

#[test]
fn with_addresses_each_lock_is_told_apart() {
    for vector in WITH_ADDRESSES {
        let report = examine(&[vector]);
        let count = |f: &Finding| (f.waiters.total, f.waiters.readers, f.waiters.writers);

        let written = lock(&report, "main.Cache", HeldMode::Write, FaultClass::HeldAcrossChannel);
        assert_eq!(count(written), (4, 2, 2), "{}", vector.0);
        assert_eq!(written.resource.field.as_deref(), Some("+0x18"));
        assert_eq!(first_holder(written), ("main.(*Cache).PutSlow", Level::Possible));
        assert!(written.no_holder.is_some(), "two candidates: it must say that none is proven");

        let read = lock(&report, "main.Cache", HeldMode::Read, FaultClass::HeldAcrossIo);
        assert_eq!(count(read), (4, 2, 2), "{}", vector.0);
        assert_eq!(first_holder(read), ("main.(*Cache).ScanSlow", Level::Possible));
        assert_ne!(read.resource.address, written.resource.address);

        let again = lock(&report, "main.Cache", HeldMode::Read, FaultClass::RecursiveReadLock);
        assert_eq!(count(again), (2, 1, 1), "{}", vector.0);
        assert_eq!(first_holder(again), ("main.(*Cache).Outer", Level::Likely));
        assert_eq!(again.cycle.len(), 2);
    }
}

#[test]
fn an_inversion_is_a_cycle_of_two_goroutines() {
    for vector in WITH_ADDRESSES {
        let report = examine(&[vector]);
        let found = lock(&report, "main.Reg", HeldMode::Write, FaultClass::LockOrderInversion);
        assert_eq!(found.confidence.level, Level::Likely, "{}", vector.0);
        let [a, b] = found.cycle.as_slice() else { panic!("{:?}", found.cycle) };
        assert_eq!((&a.holds, &a.waits_for), (&b.waits_for, &b.holds));
        assert_ne!(a.goroutine, b.goroutine);
    }
}

#[test]
fn without_addresses_what_cannot_be_known_is_refused() {
    for vector in WITHOUT_ADDRESSES {
        let report = examine(&[vector]);
        let queue = lock(&report, "main.Cache", HeldMode::Unknown, FaultClass::Queue);
        assert_eq!(queue.waiters.total, 10, "{}", vector.0);
        assert!(queue.holders.iter().all(|h| h.confidence.level == Level::Possible));
        assert!(queue.no_holder.is_some());
        assert!(queue.collect_next.iter().any(|c| c.contains("debug=2")));
        let held = queue.held.as_ref().expect("a lock");
        assert!(held.why.contains("at least 2 locks"), "{}", held.why);

        let again = lock(&report, "main.Cache", HeldMode::Unknown, FaultClass::RecursiveReadLock);
        assert_eq!(first_holder(again), ("main.(*Cache).Outer", Level::Possible));
        let inversion = lock(&report, "main.Reg", HeldMode::Write, FaultClass::LockOrderInversion);
        assert_eq!(inversion.confidence.level, Level::Possible);
    }
}

#[test]
fn sums_name_no_holder_and_ask_for_stacks() {
    for vector in SUMS {
        let report = examine(&[vector]);
        let [finding] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
        assert!(finding.holders.is_empty());
        assert!(finding.no_holder.is_some());
        assert!(finding.collect_next.iter().any(|c| c.contains("-traces")));
    }
}

#[test]
fn a_once_is_held_by_who_runs_it() {
    for vector in WITH_ADDRESSES.into_iter().chain(WITHOUT_ADDRESSES) {
        let report = examine(&[vector]);
        let once = report.findings.iter().find(|f| {
            f.resource.kind == ResourceKind::Once && f.class == FaultClass::HeldAcrossChannel
        });
        let once = once.unwrap_or_else(|| panic!("no once in {}", vector.0));
        assert_eq!(once.waiters.total, 1);
        assert_eq!(once.holders[0].confidence.level, Level::Likely);
    }
}

#[test]
fn what_can_never_leave_a_lock_is_named_before_anybody_waits() {
    let report = examine(&[vector!("go1.27.0.debug2.txt")]);
    let stranded: Vec<_> =
        report.findings.iter().filter(|f| f.id.starts_with("stranded")).collect();
    assert_eq!(stranded.len(), 1);
    assert_eq!(stranded[0].holders[0].frame, "main.(*Reg).Hold");
}

#[test]
fn waits_that_nothing_proves_stuck_are_listed_but_are_no_findings() {
    for vector in &WITH_ADDRESSES[..4] {
        let report = examine(&[*vector]);
        let parked = |wants: &str| report.parked.iter().any(|p| p.wants.contains(wants));
        assert!(parked("Cond.Wait") && parked("chan send") && parked("chan receive"));
        let channels = |f: &&Finding| {
            matches!(f.resource.kind, ResourceKind::WaitGroup | ResourceKind::Condition)
        };
        assert_eq!(report.findings.iter().filter(channels).count(), 0, "{}", vector.0);
    }
}

#[test]
fn the_garbage_collector_proves_leaks() {
    for vector in [
        vector!("go1.27.0.leak0.pb.gz"),
        vector!("go1.27.0.leak1.txt"),
        vector!("go1.27.0.leak2.txt"),
    ] {
        let report = examine(&[vector]);
        let leaks: Vec<_> =
            report.findings.iter().filter(|f| f.class == FaultClass::Leak).collect();
        assert_eq!(leaks.iter().map(|f| f.waiters.total).sum::<u64>(), 12, "{}", vector.0);
        assert!(leaks.iter().all(|f| f.confidence.level == Level::Certain));
        for kind in [ResourceKind::WaitGroup, ResourceKind::Condition, ResourceKind::Channel] {
            assert!(leaks.iter().any(|f| f.resource.kind == kind), "{} {kind:?}", vector.0);
        }
    }
}

#[test]
fn the_first_seed_tells_one_lock_its_waiters_and_that_it_is_write_held() {
    let seed = include_bytes!("../../tests/seeds/controller-stall-1.txt");
    let report = examine(&[("report.md", seed)]);
    let [finding] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    assert_eq!(finding.resource.name, "cache.cacheMutex");
    assert_eq!(finding.resource.variable.as_deref(), Some("cacheMutex"));
    assert_eq!(finding.severity, Severity::Critical);
    assert_eq!(finding.waiters.total, 190_111);
    let entries: Vec<_> =
        finding.waiters.by_entry.iter().map(|e| (e.kind, e.name.as_str(), e.count)).collect();
    assert_eq!(
        entries,
        [
            (EntryKind::Grpc, "ReportConnections", 128_846),
            (EntryKind::Grpc, "RequestAdmission", 47_501),
            (EntryKind::Webhook, "rest.(*WebhookServer).serve", 9_832),
            (EntryKind::Timer, "cache.(*groupRemovalEvent).Expire", 2_573),
        ]
    );
    let held = finding.held.as_ref().expect("a lock");
    assert_eq!(held.mode, HeldMode::Write);
    assert!(held.evidence.iter().all(|e| e.line.is_some()));
    assert!(finding.holders.is_empty() && finding.no_holder.is_some());
    assert!(finding.waiters.by_path[0].frames.len() > 3, "the traces' call paths");
}

#[test]
fn a_report_without_a_profile_has_no_findings_here() {
    let seed = include_bytes!("../../tests/seeds/controller-stall-2.txt");
    assert!(examine(&[("report.md", seed)]).findings.is_empty());
}

#[test]
fn a_healthy_process_has_no_findings() {
    for dump in
        [stall!("healthy.debug0.pb.gz"), stall!("healthy.debug1.txt"), stall!("healthy.debug2.txt")]
    {
        let report = examine(&[dump]);
        assert!(report.findings.is_empty(), "{}: {:#?}", dump.0, report.findings);
    }
}

/// Class, resource and first candidate of a small program, the same in each form.
fn is_named(forms: [(&str, &[u8]); 3], class: FaultClass, resource: &str, holder: Option<&str>) {
    for form in forms {
        let report = examine(&[form]);
        let found = report
            .findings
            .iter()
            .find(|f| f.class == class && f.resource.name.contains(resource))
            .unwrap_or_else(|| {
                panic!("{}: no {class:?} on {resource}: {:#?}", form.0, report.findings)
            });
        assert_eq!(found.holders.first().map(|h| h.frame.as_str()), holder, "{}", form.0);
    }
}

macro_rules! forms {
    ($mode:literal) => {
        [
            (
                $mode,
                include_bytes!(concat!("../../tests/stalls/", $mode, ".debug0.pb.gz")).as_slice(),
            ),
            (
                $mode,
                include_bytes!(concat!("../../tests/stalls/", $mode, ".debug1.txt")).as_slice(),
            ),
            (
                $mode,
                include_bytes!(concat!("../../tests/stalls/", $mode, ".debug2.txt")).as_slice(),
            ),
        ]
    };
}

#[test]
fn nobody_inside_the_lock_means_a_lost_unlock() {
    is_named(forms!("lost-unlock"), FaultClass::LostUnlock, "main.Store", None);
}

#[test]
fn a_lock_taken_again_is_a_self_deadlock() {
    let twice = Some("main.(*Store).Twice");
    is_named(forms!("self-deadlock"), FaultClass::SelfDeadlock, "main.Store", twice);
    let upgrade = Some("main.(*Index).Upgrade");
    is_named(forms!("upgrade"), FaultClass::SelfDeadlock, "main.Index", upgrade);
}

#[test]
fn a_chain_ends_in_io() {
    let refresh = Some("main.(*Store).Refresh");
    is_named(forms!("held-across-io"), FaultClass::HeldAcrossIo, "main.Store", refresh);
    is_named(forms!("chain"), FaultClass::HeldAcrossIo, "main.Store", refresh);
    let lookup = Some("main.(*Index).Lookup");
    is_named(forms!("chain"), FaultClass::HeldAcrossLock, "main.Index", lookup);
}

#[test]
fn a_lock_held_while_waiting_for_those_who_need_it_is_a_deadlock() {
    let [.., debug2] = forms!("wait-group");
    let report = examine(&[debug2]);
    let found = lock(&report, "main.Store", HeldMode::Write, FaultClass::Deadlock);
    assert_eq!(found.cycle.len(), 2);
    assert_eq!(first_holder(found), ("main.(*Store).All", Level::Likely));
}

#[test]
fn senders_in_line_are_a_slow_consumer() {
    let [pb, _, debug2] = forms!("slow-consumer");
    for form in [pb, debug2] {
        let report = examine(&[form]);
        let [found] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
        // Of thirty senders the consumer took one before it went to sleep.
        assert_eq!((found.class, found.waiters.total), (FaultClass::SlowConsumer, 29));
    }
}

#[test]
fn a_crowd_at_an_acquire_is_an_exhausted_pool() {
    is_named(forms!("exhausted-pool"), FaultClass::ExhaustedPool, "TokenPool", None);
}

#[test]
fn a_report_survives_json() {
    let report = examine(&[vector!("go1.27.0.debug2.txt")]);
    let text = serde_json::to_string(&report).expect("serialises");
    let back: Report = serde_json::from_str(&text).expect("deserialises");
    assert_eq!(back, report);
}

#[test]
fn the_same_dump_twice_shows_who_did_not_move() {
    let bytes = include_bytes!("../../tests/vectors/go1.27.0.debug2.txt").as_slice();
    let report = examine(&[("first", bytes), ("second", bytes)]);
    let [comparison] = report.comparisons.as_slice() else { panic!("one comparison") };
    assert_eq!(
        (comparison.stuck, comparison.moved, comparison.arrived, comparison.left),
        (27, 0, 0, 0)
    );
    // One process, so each lock is told once.
    let alone = examine(&[("second", bytes)]);
    assert_eq!(report.findings.len(), alone.findings.len());
}

#[test]
fn dumps_of_two_processes_are_not_compared() {
    let report = examine(&[vector!("go1.27.0.debug2.txt"), stall!("healthy.debug2.txt")]);
    assert!(report.comparisons.is_empty());
}

/// A dump in which `waiters` goroutines wait in `Store.Get`, with whatever else is given.
fn waiting(waiters: u32, others: &str) -> String {
    let mut text = "goroutine 1 [select]:\nmain.main()\n\t/src/main.go:1 +0x1\n\n".to_owned();
    for id in 0..waiters {
        text.push_str(&format!(
            "goroutine {} [sync.Mutex.Lock]:
sync.runtime_SemacquireMutex(0x0?, 0x0?, 0x0?)
\t/go/src/runtime/sema.go:77 +0x25
sync.(*Mutex).lockSlow(0xc000012340)
\t/go/src/sync/mutex.go:171 +0x15d
sync.(*Mutex).Lock(...)
\t/go/src/sync/mutex.go:90
main.(*Store).Get(0xc000012340, {{0x1?, 0x1?}})
\t/src/store.go:10 +0x1
created by main.main in goroutine 1
\t/src/main.go:2 +0x1

",
            id + 100
        ));
    }
    text + others
}

#[test]
fn a_loop_that_waits_for_work_is_not_a_likely_holder() {
    for (state, outer) in [("chan receive", false), ("select", false), ("chan receive", true)] {
        let outer = if outer { "main.(*Store).outer(0x0?)\n\t/src/store.go:30 +0x1\n" } else { "" };
        let text = waiting(
            12,
            &format!(
                "goroutine 7 [{state}]:\nmain.(*Store).run(0x0?)\n\t/src/store.go:20 +0x1\n{outer}created by main.main in goroutine 1\n\t/src/main.go:3 +0x1\n"
            ),
        );
        let report = examine(&[("x", text.as_bytes())]);
        let holder = &report.findings[0].holders[0];
        let expected = if outer.is_empty() { Level::Possible } else { Level::Likely };
        assert_eq!(holder.confidence.level, expected, "{state} {outer}");
    }
}

#[test]
fn an_exact_receiver_of_another_value_is_no_candidate() {
    let text = waiting(
        12,
        "goroutine 7 [IO wait]:\nmain.(*Store).load(0xc000099990, 0x1)\n\t/src/store.go:20 +0x1\ncreated by main.main in goroutine 1\n\t/src/main.go:3 +0x1\n",
    );
    let report = examine(&[("x", text.as_bytes())]);
    assert_eq!(report.findings[0].class, FaultClass::LostUnlock);
    let text = text.replace("0xc000099990", "0xc000012340");
    let report = examine(&[("x", text.as_bytes())]);
    assert_eq!(report.findings[0].class, FaultClass::HeldAcrossIo);
    assert_eq!(first_holder(&report.findings[0]), ("main.(*Store).load", Level::Likely));
}

#[test]
fn an_incomplete_dump_proves_no_lost_unlock() {
    let text = waiting(12, "").replace("goroutine 1 [select]", "goroutine 2 [select]");
    let report = examine(&[("x", text.as_bytes())]);
    assert_eq!(report.findings[0].class, FaultClass::Queue);
    assert!(report.findings[0].no_holder.as_ref().is_some_and(|w| w.contains("goroutine 1")));
}

#[test]
fn a_moment_of_contention_is_no_finding_unless_it_lasts() {
    let text = waiting(1, "");
    assert!(examine(&[("x", text.as_bytes())]).findings.is_empty());
    // The same goroutine in the same place some time later.
    let report = examine(&[("x", text.as_bytes()), ("y", text.as_bytes())]);
    assert_eq!(report.findings.len(), 1);
    let text = text.replace("[sync.Mutex.Lock]", "[sync.Mutex.Lock, 3 minutes]");
    let report = examine(&[("x", text.as_bytes())]);
    assert_eq!(report.findings[0].since.as_ref().and_then(|s| s.minutes), Some(3));
}

#[test]
fn a_form_with_addresses_replaces_one_without() {
    let alone = examine(&[vector!("go1.27.0.debug2.txt")]).findings.len();
    for other in [vector!("go1.27.0.debug1.txt"), vector!("go1.27.0.traces.txt")] {
        for inputs in
            [[other, vector!("go1.27.0.debug2.txt")], [vector!("go1.27.0.debug2.txt"), other]]
        {
            let report = examine(&inputs);
            let caches = report.findings.iter().filter(|f| f.resource.name == "main.Cache");
            assert_eq!(caches.count(), 3, "{}", other.0);
            assert!(report.findings.len() <= alone + 1);
        }
    }
}

#[test]
fn a_mutex_profile_is_a_second_witness() {
    let profile = b"--- mutex:\ncycles/second=2399999000\nsampling period=5\n7325 12 @ 0x1 0x2\n#\t0x1\tsync.(*Mutex).Unlock+0x1\t/s/mutex.go:1\n#\t0x2\tmain.(*Store).Get+0x1\t/s/main.go:35\n";
    let text = waiting(12, "");
    let report = examine(&[("x", text.as_bytes()), ("mutex", profile)]);
    let details = &report.findings[0].details;
    assert!(details.iter().any(|d| d.contains("12 times") && d.contains("Get")), "{details:?}");
}

#[test]
fn wrappers_are_learned_by_shape() {
    let mut text = "goroutine 1 [select]:\nmain.main()\n\t/src/main.go:1 +0x1\n\n".to_owned();
    for (id, caller) in ["a.(*A).X", "b.(*B).Y", "c.Z", "d.(*D).W"].iter().enumerate() {
        text.push_str(&format!(
            "goroutine {} [sync.Mutex.Lock, 5 minutes]:\nsync.runtime_SemacquireMutex(0x0?, 0x0?, 0x0?)\n\t/go/sema.go:77 +0x25\nsync.(*Mutex).lockSlow(0xc000012340)\n\t/go/mutex.go:171 +0x15d\nx/state.enter()\n\t/src/state.go:10 +0x1\n{caller}(0x1?)\n\t/src/x.go:11 +0x1\ncreated by main.main in goroutine 1\n\t/src/main.go:2 +0x1\n\n",
            id + 10
        ));
    }
    let report = examine(&[("x", text.as_bytes())]);
    assert_eq!(report.findings[0].resource.sites, ["a.(*A).X", "b.(*B).Y", "c.Z", "d.(*D).W"]);
    assert_eq!(report.findings[0].resource.package.as_deref(), Some("x/state"));
}

#[test]
fn a_lock_held_while_sending_to_a_loop_that_needs_it_is_a_deadlock() {
    let looping = waiting(1, "").replace(
        "created by main.main in goroutine 1\n\t/src/main.go:2",
        "main.(*Store).run(0xc000012340)\n\t/src/store.go:40 +0x1\ncreated by main.main in goroutine 1\n\t/src/main.go:2",
    );
    let text = looping
        + "goroutine 7 [chan send]:\nmain.(*Store).publish(0xc000012340, 0x1)\n\t/src/store.go:20 +0x1\nmain.serve()\n\t/src/main.go:9 +0x1\n";
    let report = examine(&[("x", text.as_bytes())]);
    let found = lock(&report, "main.Store", HeldMode::Write, FaultClass::Deadlock);
    assert_eq!(found.cycle.len(), 2);
    assert_eq!(first_holder(found), ("main.(*Store).publish", Level::Likely));
}

/// Methods call methods: an outer frame on the same value is not yet a holder.
#[test]
fn a_caller_on_the_same_value_is_not_a_likely_holder() {
    let nested = waiting(1, "").replace(
        "created by main.main in goroutine 1\n\t/src/main.go:2",
        "main.(*Store).run(0xc000012340)\n\t/src/store.go:40 +0x1\ncreated by main.main in goroutine 1\n\t/src/main.go:2",
    );
    // Alone, it is a moment's contention.
    assert!(examine(&[("x", nested.as_bytes())]).findings.is_empty());
    let nested = nested.replace("[sync.Mutex.Lock]", "[sync.Mutex.Lock, 9 minutes]");
    let report = examine(&[("x", nested.as_bytes())]);
    assert!(report.findings.iter().all(|f| f.confidence.level == Level::Possible));
}

#[test]
fn a_loop_called_on_the_very_value_is_not_a_likely_holder() {
    for state in ["select", "chan receive"] {
        let text = waiting(
            12,
            &format!(
                "goroutine 7 [{state}]:\nmain.(*Store).run(0xc000012340)\n\t/src/store.go:20 +0x1\ncreated by main.main in goroutine 1\n\t/src/main.go:3 +0x1\n"
            ),
        );
        let report = examine(&[("x", text.as_bytes())]);
        assert_eq!(report.findings[0].holders[0].confidence.level, Level::Possible, "{state}");
    }
}

macro_rules! public {
    ($name:literal) => {
        crate::examine($name, include_bytes!(concat!("../../tests/public/", $name)))
    };
}

#[test]
fn locks_of_something_else_than_the_receiver_are_one_finding_without_a_holder() {
    let report = public!("istio-14611.txt");
    let [found] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    assert_eq!((found.waiters.total, found.resource.type_name.as_deref()), (20, None));
    assert!(found.holders.is_empty() && found.no_holder.is_some());
}

#[test]
fn readers_of_many_values_and_a_writer_of_another_type_share_one_lock() {
    let report = public!("cilium-38210.txt");
    let found = &report.findings[0];
    assert_eq!((found.waiters.readers, found.waiters.writers), (9, 1));
    assert_eq!(found.held.as_ref().map(|h| h.mode), Some(HeldMode::Read));
    assert_eq!(found.holders[0].goroutine, Some(1261));
    assert_eq!(found.details.len(), 2, "{:?}", found.details);
}

#[test]
fn a_pool_that_runs_dry_behind_a_lock_comes_after_it() {
    let report = public!("argo-cd-28928.txt");
    let classes: Vec<_> = report.findings.iter().map(|f| f.class).collect();
    assert_eq!(classes, [FaultClass::Deadlock, FaultClass::ExhaustedPool]);
}

#[test]
fn a_lone_waiter_of_unknown_age_is_only_possible() {
    let report = public!("consul-3700.txt");
    assert_eq!(report.findings[0].confidence.level, Level::Possible);
}

#[test]
fn only_a_call_that_should_be_prompt_is_stuck() {
    let report = public!("kubernetes-100178.txt");
    let [found] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    assert_eq!(found.class, FaultClass::StuckIo);
    let waits = include_str!("../../tests/public/kubernetes-100178.txt")
        .replace("fstatat", "wait4")
        .replace("syscall.Stat", "syscall.Wait4");
    assert!(crate::examine("waits.txt", waits.as_bytes()).findings.is_empty());
}
