//! jemalloc, started with profiling built in but switched off.

use std::io::{self, BufReader};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, TryLockError};

use tikv_jemalloc_ctl::raw;

use super::Error;
use crate::symbols::SymbolTables;

pub use tikv_jemallocator::Jemalloc as Allocator;

/// Read by jemalloc before `main`. A thin pointer to bytes that end in zero, which is what it takes
/// for a `const char *`.
///
/// A thread of jemalloc's own gives back what was freed ten seconds ago. Without it that is done by whoever
/// allocates next from the same arena, and after a burst nobody may.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub(super) static OPTIONS: &[u8; 94] =
    b"prof:true,prof_active:false,lg_prof_sample:19,background_thread:true,max_background_threads:1\0";

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Starts sampling. For the life of the process.
pub fn enable() -> Result<(), Error> {
    // Keeps the options in the binary: the linker takes nothing from a library that nobody names.
    std::hint::black_box(OPTIONS);
    // SAFETY: "opt.prof" and "prof.active" are documented as bool.
    let there = unsafe { raw::read::<bool>(b"opt.prof\0") }.unwrap_or(false);
    if !there {
        return Err(Error::NotThere);
    }
    // SAFETY: as above.
    unsafe { raw::write(b"prof.active\0", true) }.map_err(|_| Error::NotThere)
}

/// What is allocated now and was sampled, by who allocated it.
pub fn profile() -> Result<Vec<u8>, Error> {
    let _one = match ONE_AT_A_TIME.try_lock() {
        Ok(one) => one,
        Err(TryLockError::Poisoned(one)) => one.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(Error::Busy),
    };
    // SAFETY: "prof.active" is documented as bool.
    let active = unsafe { raw::read::<bool>(b"prof.active\0") }.unwrap_or(false);
    if !active {
        return Err(Error::Off);
    }
    // In memory: a container's file system may be read-only.
    let file = rustix::fs::memfd_create("heap", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|error| Error::Dump(error.into()))?;
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    // SAFETY: "prof.dump" takes a C string; this one ends in zero and outlives the call.
    unsafe { raw::write(b"prof.dump\0", path.as_ptr()) }
        .map_err(|error| Error::Dump(io::Error::other(error.to_string())))?;
    let reader = BufReader::new(std::fs::File::from(file));
    let profile = pprof_util::parse_jeheap(reader, mappings::MAPPINGS.as_deref())
        .map_err(|error| Error::Parse(format!("{error:#}")))?;
    let _tables = SymbolTables;
    Ok(profile.to_pprof(("inuse_space", "bytes"), ("space", "bytes"), None))
}
