//! A process of its own: heap profiling is switched on once and for all.

use std::io::Read;

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
