use super::*;

#[test]
fn what_is_mapped_is_copied_and_what_is_not_ends_the_copy() {
    // SAFETY: a fresh mapping of two pages, the second of which is then taken away.
    let base = unsafe {
        let base = libc::mmap(
            std::ptr::null_mut(),
            2 * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(base, libc::MAP_FAILED);
        std::ptr::write_bytes(base.cast::<u8>(), 7, PAGE);
        assert_eq!(libc::munmap(base.byte_add(PAGE), PAGE), 0);
        base as usize
    };
    let mut into = vec![0; 2 * PAGE];
    assert_eq!(copy(base + 100, &mut into), PAGE - 100);
    assert!(into[..PAGE - 100].iter().all(|byte| *byte == 7));
    assert_eq!(copy(base + PAGE, &mut into), 0);
    assert_eq!(copy(0, &mut into), 0);
    assert_eq!(copy(usize::MAX - 8, &mut into), 0);
    // SAFETY: the page that is left.
    unsafe { libc::munmap(base as *mut c_void, PAGE) };
}
