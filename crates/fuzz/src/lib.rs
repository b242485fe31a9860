//! Every parser of bytes that come from outside, as a fuzz target.
//!
//! ```text
//! crates/*/src/**/fuzz.rs   a target beside its parser: any bytes in, a panic if the parser's contract breaks
//! TARGETS                   all of them, with their bounds
//! corpus/NAME.txt           the inputs that reach all code that was ever reached, one escaped input a line
//! make fuzz                 runs targets under libFuzzer      (docs/endurance.md)
//! tests/corpus.rs           runs every input of every corpus  (in CI, without a fuzzer)
//! ```
//!
//! Contract of a target, which [`Target::check`] holds: it returns for any bytes, and allocates no more at once
//! than its bound for an input of that length.

pub mod corpus;
mod targets;

use peak_alloc::PeakAlloc;

pub use targets::TARGETS;

/// Counts what is allocated, so that a length field that is believed too early shows.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// What any target may allocate, however short its input is: room for a frame of a WebSocket, which has 1 MiB at
/// most, is reserved once the frame says its length, beside the buffer that it is read into.
const BASE: usize = (1 << 20) + (256 << 10);

/// A parser of outside bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    /// Panics if the parser breaks its contract.
    pub run: fn(&[u8]),
    /// The longest input that is tried.
    pub longest: usize,
    /// The most bytes that may be allocated at once for each byte of input.
    pub memory: usize,
}

impl Target {
    /// Runs the target, and panics if it allocated more than it may.
    pub fn check(&self, bytes: &[u8]) {
        HEAP.reset_peak_usage();
        let before = HEAP.current_usage();
        (self.run)(bytes);
        let peak = HEAP.peak_usage().saturating_sub(before);
        let most = BASE + self.memory * bytes.len();
        assert!(
            peak <= most,
            "{}: {peak} bytes were allocated for an input of {}, and {most} are the most",
            self.name,
            bytes.len()
        );
    }
}

/// Finds a target while the program is compiled, so that only its code is linked: the fuzzer looks at every
/// counter after every input.
pub const fn target(name: &str) -> Target {
    let mut at = 0;
    while at < TARGETS.len() {
        if is_same(TARGETS[at].name.as_bytes(), name.as_bytes()) {
            return TARGETS[at];
        }
        at += 1;
    }
    panic!("there is no such target: crates/fuzz/src/targets.rs has all of them")
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}
