//! Finds the frames in a copy of a stack, by the tables that the compiler wrote for exceptions, with
//! [framehop](https://docs.rs/framehop). Whatever the copy holds, the worst outcome is a stack cut short.

use std::ffi::{c_int, c_void};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};

/// The most frames of a stack.
const DEPTH: usize = 128;

/// The registers that unwinding starts from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registers {
    counter: u64,
    /// The registers in the architecture's own numbering.
    general: [u64; 32],
}

pub(crate) struct Unwinder {
    unwinder: UnwinderNative<&'static [u8], MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

impl Unwinder {
    /// Reads the tables of the objects that are loaded now.
    pub(crate) fn new() -> Self {
        let mut unwinder = UnwinderNative::new();
        // SAFETY: the callback has the signature asked for, and its argument outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut unwinder).cast()) };
        Self { unwinder, cache: CacheNative::new() }
    }

    /// Returns the return addresses, innermost first. The first is one past the program counter, so that
    /// all can be looked up alike.
    pub(crate) fn frames(&mut self, registers: &Registers, stack: &[u8]) -> Vec<usize> {
        let bottom = registers.stack_pointer() as u64;
        let mut read = |address: u64| {
            let at =
                address.checked_sub(bottom).and_then(|at| usize::try_from(at).ok()).ok_or(())?;
            stack
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|word| u64::from_ne_bytes(*word))
                .ok_or(())
        };
        let counter = registers.counter;
        let mut frames = vec![(counter as usize).wrapping_add(1)];
        let mut walk =
            self.unwinder.iter_frames(counter, registers.native(), &mut self.cache, &mut read);
        let _innermost = walk.next();
        while frames.len() < DEPTH
            && let Ok(Some(frame)) = walk.next()
        {
            frames.push(frame.address() as usize);
        }
        frames
    }
}

unsafe extern "C" fn add(
    object: *mut libc::dl_phdr_info,
    _: usize,
    unwinder: *mut c_void,
) -> c_int {
    // SAFETY: the loader's own description of an object that is loaded.
    let object = unsafe { &*object };
    // SAFETY: what `Unwinder::new` passed; nobody else has it.
    let unwinder =
        unsafe { &mut *unwinder.cast::<UnwinderNative<&'static [u8], MayAllocateDuringUnwind>>() };
    // SAFETY: the loader says where they are and how many.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    if let Some(module) = module(object.dlpi_addr, headers) {
        unwinder.add_module(module);
    }
    0
}

/// Returns none for an object without tables of the usual form.
fn module(base: u64, headers: &[libc::Elf64_Phdr]) -> Option<Module<&'static [u8]>> {
    let range = |header: &libc::Elf64_Phdr| header.p_vaddr..header.p_vaddr + header.p_memsz;
    let loaded = |address: &u64| {
        let is_it = |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && range(h).contains(address);
        headers.iter().find(is_it)
    };
    // SAFETY: within a loaded segment. It stays: code is running from this object, and nothing here
    // unloads any.
    let bytes = |range: &std::ops::Range<u64>| unsafe {
        std::slice::from_raw_parts(
            (base + range.start) as *const u8,
            (range.end - range.start) as usize,
        )
    };
    let header = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
    let index = range(header);
    loaded(&index.start)?;
    // Version 1, and the table's place as four signed bytes from where they stand: what all linkers
    // write.
    let [1, 0x1b, _, _, offset @ ..] = bytes(&index).first_chunk::<8>()? else { return None };
    let start = (index.start + 4).checked_add_signed(i32::from_ne_bytes(*offset).into())?;
    let table = start..range(loaded(&start)?).end;
    let code = headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0);
    let from = code.clone().map(|h| h.p_vaddr).min()?;
    let to = code.map(|h| range(h).end).max()?;
    let sections = ExplicitModuleSectionInfo {
        text_svma: Some(from..to),
        eh_frame_hdr: Some(bytes(&index)),
        eh_frame_hdr_svma: Some(index),
        eh_frame: Some(bytes(&table)),
        eh_frame_svma: Some(table),
        ..ExplicitModuleSectionInfo::default()
    };
    Some(Module::new(String::new(), base + from..base + to, base, sections))
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    pub(crate) fn of(context: &libc::ucontext_t) -> Self {
        // In the order of the tables: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, then r8 to r15.
        const ORDER: [c_int; 16] = [
            libc::REG_RAX,
            libc::REG_RDX,
            libc::REG_RCX,
            libc::REG_RBX,
            libc::REG_RSI,
            libc::REG_RDI,
            libc::REG_RBP,
            libc::REG_RSP,
            libc::REG_R8,
            libc::REG_R9,
            libc::REG_R10,
            libc::REG_R11,
            libc::REG_R12,
            libc::REG_R13,
            libc::REG_R14,
            libc::REG_R15,
        ];
        let saved = &context.uc_mcontext.gregs;
        let mut general = [0; 32];
        for (to, from) in general.iter_mut().zip(ORDER) {
            *to = saved[from as usize] as u64;
        }
        Self { counter: saved[libc::REG_RIP as usize] as u64, general }
    }

    pub(crate) fn stack_pointer(&self) -> usize {
        self.general[7] as usize
    }

    fn native(&self) -> UnwindRegsNative {
        use framehop::x86_64::Reg;
        const ORDER: [Reg; 16] = [
            Reg::RAX,
            Reg::RDX,
            Reg::RCX,
            Reg::RBX,
            Reg::RSI,
            Reg::RDI,
            Reg::RBP,
            Reg::RSP,
            Reg::R8,
            Reg::R9,
            Reg::R10,
            Reg::R11,
            Reg::R12,
            Reg::R13,
            Reg::R14,
            Reg::R15,
        ];
        let mut registers = UnwindRegsNative::new(self.counter, self.general[7], self.general[6]);
        for (register, value) in ORDER.into_iter().zip(self.general) {
            registers.set(register, value);
        }
        registers
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    pub(crate) fn of(context: &libc::ucontext_t) -> Self {
        let saved = &context.uc_mcontext;
        let mut general = [0; 32];
        general[..31].copy_from_slice(&saved.regs);
        general[31] = saved.sp;
        Self { counter: saved.pc, general }
    }

    pub(crate) fn stack_pointer(&self) -> usize {
        self.general[31] as usize
    }

    fn native(&self) -> UnwindRegsNative {
        UnwindRegsNative::new(self.general[30], self.general[31], self.general[29])
    }
}

#[cfg(test)]
mod tests;
