use super::*;

fn read(text: &str) -> Vec<ThreadDump> {
    let mut reader = Reader::default();
    for (number, line) in (1..).zip(text.lines()) {
        reader.line("dump", number, line.as_bytes());
    }
    reader.finish()
}

#[test]
fn a_number_that_comes_again_begins_the_next_dump() {
    let text = "TID 7:\n#0  0x1 recv\nTID 8:\n#0  0x1 recv\nTID 7:\n#0  0x1 recv\n";
    let dumps = read(text);
    assert_eq!(dumps.iter().map(|d| d.threads.len()).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn a_dump_in_a_log_is_read_behind_the_logs_own_words() {
    let text = "2026-11-17T14:27:48Z Full thread dump OpenJDK 64-Bit Server VM (17 mixed mode):\n\
                2026-11-17T14:27:48Z \n\
                2026-11-17T14:27:48Z \"worker\" #12 prio=5 cpu=1.50ms tid=0x0000000000000abc nid=0x1 runnable\n\
                2026-11-17T14:27:48Z    java.lang.Thread.State: BLOCKED (on object monitor)\n\
                2026-11-17T14:27:48Z \tat app.Store.get(Store.java:3)\n\
                2026-11-17T14:27:48Z \t- waiting to lock <0x00000000fc1838b8> (a app.Store)\n";
    let dumps = read(text);
    assert_eq!(dumps.len(), 1);
    let dump = &dumps[0];
    let thread = &dump.threads[0];
    assert_eq!((&*thread.name, thread.id, thread.cpu), ("worker", 0xabc, Some(1500)));
    assert_eq!(thread.wait, wait::Wait::Lock(wait::Lock::Mutex));
    assert_eq!(dump.text(thread.on.expect("a lock").type_name), "app.Store");
}

#[test]
fn a_waiter_on_a_monitor_does_not_hold_it() {
    let text = "\"a\" #1 prio=5 tid=0x01 nid=0x1 in Object.wait()\n\
                \x20  java.lang.Thread.State: WAITING (on object monitor)\n\
                \tat java.lang.Object.wait(java.base@17/Native Method)\n\
                \t- waiting on <0x0f> (a app.Feed)\n\
                \tat app.Feed.next(Feed.java:1)\n\
                \t- locked <0x0f> (a app.Feed)\n";
    let dumps = read(text);
    assert!(dumps[0].threads[0].holds.is_empty());
}

#[test]
fn lines_of_other_things_are_left_to_others() {
    let mut reader = Reader::default();
    for line in ["hello", "Thread of thought (idle hands)", "#12 is fixed", "\"quoted\" text", "T"]
    {
        assert!(!reader.line("log", 1, line.as_bytes()), "{line}");
    }
    assert!(reader.finish().is_empty());
}

/// Each thread waits for a lock of its own and is inside a method of the same type, ten thousand times:
/// every thread is a candidate for every lock.
#[test]
fn a_lock_for_each_thread_costs_no_square() {
    let mut text = String::new();
    for i in 0..10_000 {
        use std::fmt::Write as _;
        write!(
            text,
            "\"session-{i}\" #1 prio=5 tid=0x{:x} nid=0x1 waiting\n   java.lang.Thread.State: BLOCKED\n\
             \tat app.Session.send(Session.java:9)\n\t- waiting to lock <0x{:x}> (a app.Session)\n\
             \tat app.Session.flush{}(Session.java:4)\n\t- locked <0x{:x}> (a app.Other)\n\n",
            i + 1,
            i + 1,
            i,
            0x10_0000 + (i + 1) % 10_000,
        )
        .expect("memory");
    }
    let report = crate::examine("sessions.txt", text.as_bytes());
    assert!(report.findings.len() <= 300, "{} findings", report.findings.len());
    assert_eq!(report.inputs[0].read, ["10,000 threads in 10,000 stacks"]);
}
