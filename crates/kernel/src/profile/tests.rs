use std::io::Read;

use prost::Message;

use super::*;

/// The parts of pprof's message that are looked at.
#[derive(Message)]
struct Profile {
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

#[derive(Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

impl Profile {
    fn decode_gzip(bytes: &[u8]) -> Self {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        Self::decode(&*plain).unwrap()
    }

    /// CPU time under any function whose name contains `part`.
    fn under(&self, part: &str) -> Duration {
        let is_it = |function: &Function| self.string_table[function.name as usize].contains(part);
        let functions: Vec<u64> = self.function.iter().filter(|f| is_it(f)).map(|f| f.id).collect();
        let locations: Vec<u64> = self
            .location
            .iter()
            .filter(|l| l.line.iter().any(|line| functions.contains(&line.function_id)))
            .map(|l| l.id)
            .collect();
        let samples =
            self.sample.iter().filter(|s| s.location_id.iter().any(|id| locations.contains(id)));
        Duration::from_nanos(samples.map(|s| s.value[0] as u64).sum())
    }
}

/// There is one profiler per process, and `cargo test` runs tests side by side in one.
static ALONE: Mutex<()> = Mutex::new(());

/// Lets the busy threads go even if the test fails, which would otherwise wait for them for ever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[inline(never)]
fn busy_here(stop: &AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !stop.load(SeqCst) {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
    }
    sum
}

#[test]
fn a_busy_function_is_found_with_its_callers_and_a_second_profile_is_refused_meanwhile() {
    let _alone = ALONE.lock();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| busy_here(&stop));
        let profiles = scope.spawn(|| cpu(Duration::from_secs(2)));
        while !ACTIVE.load(SeqCst) {
            thread::yield_now();
        }
        assert!(matches!(cpu(Duration::ZERO), Err(Error::Busy)));
        let profile = Profile::decode_gzip(&profiles.join().unwrap().unwrap());
        assert!(profile.under("busy_here") >= PERIOD * 5, "{:?}", profile.under("busy_here"));
        let deepest = profile.sample.iter().map(|s| s.location_id.len()).max();
        assert!(deepest >= Some(3), "callers are there too: {deepest:?}");

        // The next one starts from nothing.
        let empty = Profile::decode_gzip(&cpu(Duration::ZERO).unwrap());
        assert!(empty.sample.len() <= 1, "{} samples", empty.sample.len());
    });
}

#[test]
fn threads_that_allocate_and_unwind_survive_being_profiled() {
    let _alone = ALONE.lock();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    let held = vec![0_u8; 4096];
                    // Unwinding, without a word from the panic hook.
                    let _ = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(held)));
                }
            });
        }
        cpu(Duration::from_secs(1)).unwrap();
    });
}

#[test]
fn too_long_is_refused_at_once() {
    assert!(matches!(cpu(LONGEST + Duration::from_secs(1)), Err(Error::TooLong)));
}
