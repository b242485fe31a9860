//! `SymbolTables`: what naming frames takes of memory, for as long as frames are named.
//!
//! The crate `backtrace` maps the executable, reads its symbols and debug information as names are asked for, and
//! keeps all of it for the next time. At its peak a dump took 67 MB of a stripped build and 320 of one with line
//! numbers, each with what is computed on the way. Dumps and profiles are rare, so that the tables are read anew for each.

/// Held by whoever names frames; the tables are given back when it is dropped.
pub(crate) struct SymbolTables;

impl Drop for SymbolTables {
    fn drop(&mut self) {
        backtrace::clear_symbol_cache();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    /// How often the executable is mapped: its segments, and once more while its tables are read.
    fn mappings_of_the_executable() -> usize {
        let executable = std::env::current_exe().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.ends_with(executable.to_str().unwrap())).count()
    }

    #[test]
    fn the_tables_are_given_back_when_frames_are_named() {
        // Of other tests, which may name frames at the same time.
        let until = Instant::now() + Duration::from_secs(60);
        let before = mappings_of_the_executable();
        let named = crate::threads::stacks(Duration::from_secs(60)).unwrap();
        let frames = named.iter().filter_map(|thread| thread.frames.as_ref()).flatten();
        assert!(frames.into_iter().any(|frame| frame.contains(" at ")), "they were read");
        while mappings_of_the_executable() > before {
            assert!(Instant::now() < until, "{} > {before}", mappings_of_the_executable());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
