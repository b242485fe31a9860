//! `CapturedStack`: a thread's registers and the top of its stack, as a signal handler found them.
//!
//! A handler may run at any instruction, also where the platform's unwinder fails: an exception that is
//! just replacing the stack leads the unwinder to read unmapped memory. So a handler does not unwind. It
//! copies the stack through a system call that answers "not mapped" where a read would end the process;
//! the frames are found in the copy, later, outside the handler.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use crate::unwind::Registers;

const PAGE: usize = 4096;
/// The largest part of a stack that is kept. A handler may run on an alternate stack of 8 KiB, and uses
/// more of it the larger this is.
const LARGEST: usize = 256 << 10;

/// One handler writes it, then one thread reads it; whoever shares it hands it over between them.
#[derive(Debug)]
pub(crate) struct CapturedStack(UnsafeCell<Inner>);

#[derive(Debug)]
struct Inner {
    registers: Registers,
    /// The bytes from the stack pointer upwards.
    stack: Box<[u8]>,
    copied: usize,
}

// SAFETY: both methods ask their caller to be the only one.
unsafe impl Sync for CapturedStack {}

impl CapturedStack {
    pub(crate) fn new(stack: usize) -> Self {
        let stack = vec![0; stack.min(LARGEST)].into_boxed_slice();
        Self(UnsafeCell::new(Inner { registers: Registers::default(), stack, copied: 0 }))
    }

    /// Copies the stack that a handler has interrupted. Allocates nothing, takes no lock, and reads no
    /// memory that may not be there.
    ///
    /// # Safety
    /// `context` is what the kernel passed to the handler that is calling, and nobody else uses
    /// this capture meanwhile.
    pub(crate) unsafe fn take(&self, context: *mut c_void) {
        // SAFETY: by contract the only use.
        let inner = unsafe { &mut *self.0.get() };
        // SAFETY: by contract this is the handler's context, which the kernel keeps on the stack.
        inner.registers = Registers::of(unsafe { &*context.cast::<libc::ucontext_t>() });
        inner.copied = copy(inner.registers.stack_pointer(), &mut inner.stack);
    }

    /// Returns the registers, and the stack from the stack pointer upwards as far as it was copied.
    ///
    /// # Safety
    /// Nobody writes this capture meanwhile.
    pub(crate) unsafe fn read(&self) -> (&Registers, &[u8]) {
        // SAFETY: by contract nobody writes.
        let inner = unsafe { &*self.0.get() };
        (&inner.registers, inner.stack.get(..inner.copied).unwrap_or_default())
    }
}

/// Copies memory from `from` upwards; returns how many bytes could be read.
fn copy(from: usize, into: &mut [u8]) -> usize {
    const NONE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    // A piece is copied whole or not at all, and a page is there or not: a piece for each page.
    let mut pieces = [NONE; LARGEST / PAGE + 1];
    let (mut next, mut left, mut used) = (from, into.len(), 0);
    for piece in &mut pieces {
        let length = (PAGE - next % PAGE).min(left);
        if length == 0 {
            break;
        }
        *piece = libc::iovec { iov_base: next as *mut c_void, iov_len: length };
        next = next.wrapping_add(length);
        left -= length;
        used += 1;
    }
    let target = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the kernel writes at most `into.len()` bytes to `into`, and reads this process' memory
    // only where it is mapped. A process may always read itself; where even that is forbidden the
    // stack is empty and the program counter all there is.
    let copied =
        unsafe { libc::process_vm_readv(libc::getpid(), &target, 1, pieces.as_ptr(), used, 0) };
    usize::try_from(copied).unwrap_or(0)
}

#[cfg(test)]
mod tests;
