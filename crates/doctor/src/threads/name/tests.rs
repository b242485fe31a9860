use super::*;

#[test]
fn one_function_reads_alike_from_every_tool() {
    let name = "std::sys::sync::mutex::futex::Mutex::lock_contended";
    for printed in [
        "<std[e28293b1aa0f68bd]::sys::sync::mutex::futex::Mutex>::lock_contended",
        "_RNvMNtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync5mutex5futexNtB2_5Mutex14lock_contended",
        "std::sys::sync::mutex::futex::Mutex::lock_contended",
    ] {
        assert_eq!(demangled(printed), name, "{printed}");
    }
    assert_eq!(demangled("daemon::Store::get::h5841768b99e1c524"), "daemon::Store::get");
    assert_eq!(
        demangled(
            "std::sync::poison::mutex::Mutex<std::collections::HashMap<u32, u32>>::lock<u32>"
        ),
        "std::sync::poison::mutex::Mutex::lock"
    );
    assert_eq!(demangled("<daemon::Store as daemon::Get>::get"), "daemon::Store::get");
    assert_eq!(demangled("daemon::many::{closure#0}<fn() -> u32>"), "daemon::many::{closure#0}");
}

#[test]
fn a_method_belongs_to_its_type_and_a_closure_to_none() {
    assert_eq!(owner(Runtime::Java, "app.Store.get"), Some("app.Store"));
    assert_eq!(owner(Runtime::Java, "app.Daemon$$Lambda$3/0x00007f.run"), None);
    assert_eq!(owner(Runtime::Python, "Store.get"), Some("Store"));
    assert_eq!(owner(Runtime::Python, "get"), None);
    assert_eq!(owner(Runtime::Native, "daemon::Store::get"), Some("daemon::Store"));
    assert_eq!(owner(Runtime::Native, "daemon::main::{closure#1}"), None);
    assert_eq!(owner(Runtime::Native, "daemon::Hub::each::{closure#1}"), Some("daemon::Hub"));
}

#[test]
fn libraries_of_the_language_are_not_the_program() {
    let program = |runtime, function, place| is_program(runtime, function, place);
    assert!(program(Runtime::Java, "app.Store.get", "Store.java:1"));
    assert!(!program(Runtime::Java, "java.lang.Thread.run", "Thread.java:840"));
    assert!(program(Runtime::Python, "get", "/srv/app/queue.py:3"));
    assert!(!program(Runtime::Python, "Queue.get", "queue.py:171"));
    assert!(!program(Runtime::Python, "run", "/usr/lib/python3.11/threading.py:982"));
    assert!(program(Runtime::Python, "run", "/usr/lib/python3/dist-packages/django/db.py:9"));
    assert!(!program(Runtime::Python, "recv", "libc.so.6"));
    assert!(program(Runtime::Native, "daemon::Store::get", ""));
    assert!(!program(Runtime::Native, "std::thread::functions::park", ""));
    assert!(!program(Runtime::Native, "__libc_recv", "../sysdeps/unix/sysv/linux/recv.c:28"));
    assert!(program(Runtime::Native, "apply_rules", "rules.c:10"));
}

#[test]
fn a_name_that_refers_back_to_itself_stays_short() {
    // Each tuple has the one before it twice, by reference: 2^30 names if nobody stopped.
    let mut name = String::from("_RINvC1a1b");
    let mut last = String::from("h");
    for _ in 0..30 {
        let at = name.len() - 2;
        name.push('T');
        name.push_str(&last);
        name.push_str(&last);
        name.push('E');
        last = format!("B{}_", base_62(at));
    }
    name.push('E');
    assert!(demangled(&name).len() <= LONGEST);
}

/// A number as back references have it: zero is nothing, one is `0`.
fn base_62(n: usize) -> String {
    const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let Some(mut n) = n.checked_sub(1) else { return String::new() };
    let mut digits = Vec::new();
    loop {
        digits.push(DIGITS[n % 62]);
        n /= 62;
        if n == 0 {
            break;
        }
    }
    digits.reverse();
    String::from_utf8(digits).expect("digits are ASCII")
}
