use std::thread;

use prometheus_client::registry::Registry;

use super::*;

const LONG: Duration = Duration::from_secs(3600);

fn view(class: &str) -> LockView {
    locks()
        .into_iter()
        .find(|view| view.class == class)
        .expect("a class is listed once it was used")
}

fn here(line: u32) -> String {
    format!("{}:{line}", file!())
}

#[test]
fn the_holder_is_known_while_it_holds() {
    let mutex = TrackedMutex::new("holder", 1);
    assert_eq!(view("holder").held, []);
    let mut guard = mutex.lock();
    let line = line!() - 1;
    *guard += 1;
    assert_eq!(view("holder").held[0].holder, here(line));
    assert!(mutex.try_lock().is_none());
    drop(guard);
    assert_eq!(view("holder").held, []);
    assert_eq!(*mutex.try_lock().unwrap(), 2);
    assert_eq!(view("holder").acquisitions, 2);
}

#[test]
fn a_lock_that_is_gone_stays_in_the_counts() {
    let mutexes: Vec<_> = (0..5).map(|n| TrackedMutex::new("gone", n)).collect();
    for mutex in &mutexes {
        drop(mutex.lock());
    }
    assert_eq!((view("gone").instances, view("gone").acquisitions), (5, 5));
    drop(mutexes);
    assert_eq!((view("gone").instances, view("gone").acquisitions), (0, 5));
}

#[test]
fn a_wait_ends_at_its_deadline_and_names_the_holder() {
    let mutex = TrackedMutex::new("stuck", ());
    let guard = mutex.lock();
    let line = line!() - 1;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.lock_until(Deadline::after(Duration::ZERO)).map(drop));
        let stuck = waiter.join().unwrap().unwrap_err();
        assert_eq!((stuck.class, stuck.holder.unwrap().line()), ("stuck", line));
        let said = stuck.to_string();
        assert!(said.starts_with("lock `stuck` is stuck: held for "), "{said}");
        assert!(said.ends_with(&here(line)), "{said}");
    });
    drop(guard);
    assert!(mutex.lock_until(Deadline::after(Duration::ZERO)).is_ok());
    assert_eq!(view("stuck").contended, 1);
}

#[test]
fn who_waits_is_listed_until_it_has_the_lock() {
    let mutex = TrackedMutex::new("waited for", ());
    let guard = mutex.lock();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(mutex.lock()));
        let line = line!() - 1;
        // It is counted at once and listed after a while.
        let held = loop {
            let held = view("waited for").held.remove(0);
            if held.waiter.is_some() {
                break held;
            }
            thread::yield_now();
        };
        assert_eq!(held.waiting, 1);
        assert_eq!(held.waiter, Some(here(line)));
        assert!(held.held_ms.is_some(), "the first to wait starts the clock");
        assert_eq!(view("waited for").waiting, 1);
        drop(guard);
        waiter.join().unwrap();
    });
    let view = view("waited for");
    assert_eq!((view.waiting, view.contended, view.held), (0, 1, vec![]));
    assert_eq!(mutex.watch.class.wait.count(), 1);
}

#[test]
fn a_long_wait_names_the_holder_once_per_hold() {
    let mutex = TrackedMutex::new("named", ());
    let wait_in_vain = || {
        let until = Some(Instant::now());
        thread::scope(|scope| {
            let wait = || mutex.wait(Location::caller(), until, Duration::ZERO).is_none();
            assert!(scope.spawn(wait).join().unwrap());
        });
    };
    let named = || mutex.watch.named.load(Relaxed);
    for hold in 1..3 {
        let _guard = mutex.lock();
        wait_in_vain();
        assert_eq!(named(), hold);
        wait_in_vain();
        assert_eq!(named(), hold);
    }
}

#[test]
fn one_hold_in_a_sample_is_timed() {
    let mutex = TrackedMutex::new("sampled", ());
    for _ in 0..3 * SAMPLE {
        drop(mutex.lock());
    }
    assert_eq!(mutex.watch.class.hold.count(), 3);
    assert_eq!(mutex.watch.class.wait.count(), 0);
}

#[test]
fn the_lock_protects_and_counts_under_contention() {
    let mutex = TrackedMutex::new("contended", 0_u64);
    thread::scope(|scope| {
        for n in 0..4 {
            let mutex = &mutex;
            scope.spawn(move || {
                for _ in 0..2000 {
                    let deadline = Deadline::after(LONG);
                    let mut guard =
                        if n % 2 == 0 { mutex.lock() } else { mutex.lock_until(deadline).unwrap() };
                    *guard += 1;
                }
            });
        }
    });
    assert_eq!(*mutex.lock(), 8000);
    let view = view("contended");
    assert_eq!((view.acquisitions, view.waiting, view.held.len()), (8001, 0, 0));
    assert_eq!(view.contended, mutex.watch.class.wait.count());
}

#[test]
fn metrics_are_by_class() {
    let mutex = TrackedMutex::new("measured", ());
    drop(mutex.lock());
    let mut registry = Registry::default();
    register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "locks_waiting{class=\"measured\"} 0",
        "locks_acquired_total{class=\"measured\"} 1",
        "locks_contended_total{class=\"measured\"} 0",
        "lock_wait_seconds_count{class=\"measured\"} 0",
        "lock_hold_seconds_count{class=\"measured\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "no line `{line}` in\n{text}");
    }
}
