use super::{header, parse};

#[test]
fn headers_of_all_versions_are_read() {
    let cases: [(&str, u64, &str, u32, bool); 9] = [
        ("goroutine 7 [semacquire]:", 7, "semacquire", 0, false),
        ("goroutine 7 [semacquire, 31 minutes]:", 7, "semacquire", 31, false),
        ("goroutine 7 [syscall, 5 minutes, locked to thread]:", 7, "syscall", 5, false),
        ("goroutine 40 [select (no cases) (leaked)]:", 40, "select (no cases)", 0, true),
        ("goroutine 1 gp=0xc0000061c0 m=nil [IO wait, 2 minutes]:", 1, "IO wait", 2, false),
        ("Jan 26 13:09:02 n p[1]: goroutine 9 [running]:", 9, "running", 0, false),
        ("goroutine 9 [chan receive (nil chan)]:", 9, "chan receive (nil chan)", 0, false),
        ("goroutine 9 [chan receive, 3 minutes] {\"k\": \"v]:\"}:", 9, "chan receive", 3, false),
        ("goroutine 9 [select, 4 minutes, labels:{\"k\":\"v\"}]:", 9, "select", 4, false),
    ];
    for (line, id, state, minutes, leaked) in cases {
        let header = header(line.as_bytes()).expect(line);
        assert_eq!(
            (header.id, header.state, header.minutes, header.leaked),
            (id, state.as_bytes(), minutes, leaked),
            "{line}"
        );
    }
    for line in
        ["goroutine profile: total 3", "created by a.B in goroutine 7", "goroutine 7 is [odd]"]
    {
        assert!(header(line.as_bytes()).is_none(), "{line}");
    }
}

/// Before 1.17 arguments were passed on the stack, so the semaphore's address is exact and lies at
/// a known offset in its lock.
#[test]
fn the_lock_is_found_through_its_semaphore_in_old_versions() {
    let text = "goroutine 5 [semacquire]:
sync.runtime_SemacquireMutex(0xc00001200c, 0x0, 0x0)
\t/usr/lib/go-1.15/src/runtime/sema.go:71 +0x47
sync.(*RWMutex).RLock(...)
\t/usr/lib/go-1.15/src/sync/rwmutex.go:50
main.(*Cache).Get(0xc000012000, 0x4c1b2a, 0x1, 0x0)
\t/src/main.go:23 +0x9a
created by main.main
\t/src/main.go:42 +0x16e
";
    let dump = parse("x", text.as_bytes()).remove(0);
    assert_eq!(dump.goroutines[0].lock(), 0xc0_0001_2000);
    let receivers = dump.receivers(&dump.goroutines[0]);
    assert_eq!((receivers[0].address(), receivers[0].exact()), (0xc0_0001_2000, true));
}

/// 1.17 passes arguments in registers and does not mark the stale ones.
#[test]
fn unmarked_registers_are_not_trusted() {
    let text = "goroutine 5 [semacquire]:
sync.runtime_SemacquireMutex(0x0, 0x0, 0x0)
\t/s/sema.go:71 +0x47
sync.(*RWMutex).RLock(...)
\t/s/rwmutex.go:50
main.(*Cache).Get(0xc000012000, {0x4c1b2a, 0x1})
\t/src/main.go:23 +0x9a
";
    let dump = parse("x", text.as_bytes()).remove(0);
    assert!(!dump.receivers(&dump.goroutines[0])[0].exact());
}

#[test]
fn a_cut_dump_and_a_missing_stack_are_gaps() {
    let text = "goroutine 1 [running]:
\tgoroutine running on other thread; stack unavailable

goroutine 2 [select]:
main.a(0x1)
\t/src/main.go:2 +0x1
main.b(0x1)";
    let dump = parse("x", text.as_bytes()).remove(0);
    assert_eq!(dump.gaps.len(), 2, "{:?}", dump.gaps);
}

#[test]
fn two_dumps_in_one_file_are_two() {
    let text = std::fs::read_to_string("tests/vectors/go1.21.13.debug2.txt").expect("fixture");
    let twice = format!("{text}\n{text}");
    let dumps = parse("x", twice.as_bytes());
    assert_eq!(dumps.iter().map(crate::goroutine::Dump::shown).collect::<Vec<_>>(), [27, 27]);
    assert!(dumps[0].first_line < dumps[1].first_line);
}
