use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::TrackedMutex;

fn here(line: u32) -> String {
    format!("{}:{line}", file!())
}

/// What the panic of `work` says.
fn panic_of<T>(work: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(work()))).expect_err("it should panic");
    *panic.downcast::<String>().expect("the report is text")
}

#[test]
fn two_orders_panic_with_the_four_places() {
    let (a, b) = (TrackedMutex::new("order a", ()), TrackedMutex::new("order b", ()));
    let in_order = || {
        let _a = a.lock();
        let _b = b.lock();
    };
    in_order();
    in_order();
    let (a_first, b_then) = (line!() - 5, line!() - 4);
    let report = panic_of(|| {
        let _b = b.lock();
        let _a = a.lock();
    });
    let (b_first, a_then) = (line!() - 3, line!() - 2);
    for expected in [
        "`order b` and `order a` are taken in both orders".to_owned(),
        format!("now: `order b` taken at {}:", here(b_first)),
        format!("then `order a` at {}:", here(a_then)),
        format!("before: `order a` taken at {}:", here(a_first)),
        format!("then `order b` at {}:", here(b_then)),
    ] {
        assert!(report.contains(&expected), "no `{expected}` in: {report}");
    }
    // The panic let go of everything, and the good order is still good.
    in_order();
}

#[test]
fn a_circle_of_three_panics_with_its_path() {
    let [a, b, c] = ["circle a", "circle b", "circle c"].map(|class| TrackedMutex::new(class, ()));
    let nest = |outer: &TrackedMutex<()>, inner: &TrackedMutex<()>| {
        let _outer = outer.lock();
        let _inner = inner.lock();
    };
    nest(&a, &b);
    nest(&b, &c);
    let report = panic_of(|| nest(&c, &a));
    assert_eq!(report.lines().count(), 4, "{report}");
    assert!(report.contains("`circle c` and `circle a`"), "{report}");
}

#[test]
fn two_locks_of_one_class_at_once_panic() {
    let (one, two) = (TrackedMutex::new("same", ()), TrackedMutex::new("same", ()));
    let report = panic_of(|| (one.lock(), two.lock()));
    assert!(report.contains("two locks of class `same` at once"), "{report}");
    // One after the other is fine, and so is trying, which waits for nothing.
    drop(one.lock());
    let _two = two.lock();
    assert!(one.try_lock().is_some());
}

#[test]
fn locks_of_other_threads_make_no_order() {
    let (a, b) = (TrackedMutex::new("thread a", ()), TrackedMutex::new("thread b", ()));
    thread::scope(|scope| {
        let _a = a.lock();
        scope.spawn(|| drop(b.lock())).join().unwrap();
    });
    let _b = b.lock();
    drop(a.lock());
}
