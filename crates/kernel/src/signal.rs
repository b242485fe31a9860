//! Signal handlers that stay installed, and that the interrupted code does not notice.

use std::ffi::{c_int, c_void};
use std::io;

pub(crate) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs a handler for the life of the process: the default action of a signal that comes late would
/// end the process.
pub(crate) fn install(signal: c_int, handler: Handler) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value to fill in.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // Interrupted calls resume; a thread near the end of its stack uses its alternate one.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: `action` is fully initialised and the handler has the signature SA_SIGINFO asks for.
    if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Runs the body of a handler so that the interrupted code finds `errno` as it left it.
pub(crate) fn keeping_errno(body: impl FnOnce()) {
    // SAFETY: the pointer is to this thread's own errno, valid as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    body();
    // SAFETY: as above.
    unsafe { *errno = saved };
}
