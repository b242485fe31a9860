//! Signal handlers that unwind the thread they interrupt.
//!
//! The unwinder is the platform's own, through `backtrace`. With glibc 2.35 or newer it finds its
//! tables without a lock (`_dl_find_object`), so it may run in a handler whatever the thread was
//! doing; [`install`] has it do its one-time set-up before the first signal can arrive.

use std::ffi::{c_int, c_void};
use std::io;

pub(crate) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Handlers stay for the life of the process: the default action of a signal that comes late would
/// end it.
pub(crate) fn install(signal: c_int, handler: Handler) -> io::Result<()> {
    let mut first = 0;
    // SAFETY: the caveat is that nobody else may use the unwinder's symbol cache at the same time;
    // unwinding alone does not touch it.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            first = frame.ip() as usize;
            true
        });
    }
    std::hint::black_box(first);
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

/// Gives `each` the frames of the interrupted code, innermost first, until it answers false.
///
/// # Safety
/// `context` is what the kernel passed to the handler that is calling.
pub(crate) unsafe fn unwind(context: *mut c_void, mut each: impl FnMut(usize) -> bool) {
    // SAFETY: by contract this is the handler's context, which the kernel keeps on the stack.
    let interrupted = unsafe { program_counter(&*context.cast::<libc::ucontext_t>()) };
    let mut reached = false;
    // SAFETY: see the module's first lines.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let ip = frame.ip() as usize;
            // The handler's own frames come first and are of no interest.
            reached |= ip == interrupted;
            // A null address marks the outermost end.
            !reached || (ip != 0 && each(ip))
        });
    }
    if !reached {
        each(interrupted);
    }
}

#[cfg(target_arch = "x86_64")]
fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

#[cfg(target_arch = "aarch64")]
fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}
