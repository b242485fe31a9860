//! A process of its own: heap profiling is switched on once and for all.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Read;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: kernel::heap::Allocator = kernel::heap::Allocator;

#[inline(never)]
fn hoards_here() -> Vec<Vec<u8>> {
    (0..64).map(|_| vec![1_u8; 1 << 20]).collect()
}

#[test]
fn a_hoard_is_found_once_profiling_is_enabled() {
    assert!(matches!(kernel::heap::profile(), Err(kernel::heap::Error::Off)));
    kernel::heap::enable().unwrap();
    let hoard = hoards_here();
    let bytes = kernel::heap::profile().unwrap();
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut plain).unwrap();
    let name = b"hoards_here";
    assert!(plain.windows(name.len()).any(|window| window == name), "not among the functions");
    drop(hoard);
}

/// What of this process is in memory, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
}

#[test]
fn what_was_freed_is_given_back_although_nobody_allocates() {
    let hoard = hoards_here();
    let before = resident();
    drop(hoard);
    // It decays within ten seconds. To look allocates, but far too little to have others give anything back.
    let until = Instant::now() + Duration::from_secs(90);
    while resident() + (48 << 20) > before {
        assert!(Instant::now() < until, "{} of {before} bytes stay", resident());
        std::thread::sleep(Duration::from_secs(1));
    }
}
