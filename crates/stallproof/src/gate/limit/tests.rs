use super::*;

const KNEE: usize = 16;
const SERVICE: f64 = 0.010;

/// A gate that is always full, before a backend that serves `KNEE` at once: more only share.
struct Backend {
    limit: Limit,
    now: Instant,
    /// Rounds, less the part of the backend that was left idle in each.
    used: f64,
}

impl Backend {
    fn new(initial: usize) -> Self {
        let now = Instant::now();
        let limit = Limit::new(InFlightLimits { min: 2, initial, max: 1000 }, now);
        Self { limit, now, used: 0.0 }
    }

    /// Serves `rounds` times as many as are let in, each taking its share times `noise`.
    fn serve(&mut self, rounds: usize, service: f64, mut noise: impl FnMut() -> f64) {
        for _ in 0..rounds {
            let n = self.limit.get();
            let latency = service * (n as f64 / KNEE as f64).max(1.0);
            let began = self.now;
            self.now += Duration::from_secs_f64(latency);
            for _ in 0..n {
                // The end is what moves, so that a noisy answer does not seem to begin too early.
                let ended = began + Duration::from_secs_f64(latency * noise());
                self.limit.observe(began, LoadSignal::Done, n, ended);
            }
            self.used += (n as f64 / KNEE as f64).min(1.0);
        }
    }

    fn get(&self) -> usize {
        self.limit.get()
    }
}

fn steady() -> f64 {
    1.0
}

#[test]
fn it_grows_to_the_knee_and_not_far_beyond_wherever_it_begins() {
    for initial in [2, 16, 200, 1000] {
        let mut backend = Backend::new(initial);
        backend.serve(5_000, SERVICE, steady);
        assert!((KNEE..4 * KNEE).contains(&backend.get()), "{initial} came to {}", backend.get());
    }
}

#[test]
fn steady_overload_does_not_make_it_creep_up() {
    let mut backend = Backend::new(32);
    for _ in 0..20 {
        backend.serve(5_000, SERVICE, steady);
        assert!(backend.get() < 4 * KNEE, "{}", backend.get());
    }
}

#[test]
fn a_backend_that_is_slower_for_good_keeps_its_limit() {
    let mut backend = Backend::new(32);
    backend.serve(5_000, SERVICE, steady);
    backend.serve(5_000, SERVICE * 5.0, steady);
    assert!((KNEE..4 * KNEE).contains(&backend.get()), "{}", backend.get());
}

#[test]
fn a_limit_that_has_fallen_grows_back() {
    let mut backend = Backend::new(32);
    backend.serve(2_000, SERVICE, steady);
    for _ in 0..200 {
        let (now, n) = (backend.now, backend.get());
        backend.now += SHORTEST;
        for _ in 0..2 * n.max(FEWEST) {
            backend.limit.observe(now, LoadSignal::Failed, n, backend.now);
        }
    }
    assert!(backend.get() < KNEE / 2, "failures lower it: {}", backend.get());
    backend.serve(2_000, SERVICE, steady);
    assert!(backend.get() >= KNEE, "{}", backend.get());
}

#[test]
fn what_is_ignored_changes_nothing_and_what_is_idle_does_not_grow() {
    let now = Instant::now();
    let mut limit = Limit::new(InFlightLimits { min: 2, initial: 32, max: 1000 }, now);
    for nth in 0..10_000 {
        let at = now + Duration::from_millis(10 * nth);
        limit.observe(at, LoadSignal::Ignored, 32, at);
    }
    assert_eq!(limit.get(), 32);
    let mut limit = Limit::new(InFlightLimits { min: 2, initial: 32, max: 1000 }, now);
    for nth in 0..10_000 {
        let at = now + Duration::from_millis(10 * nth);
        limit.observe(at, LoadSignal::Done, 3, at + Duration::from_millis(1));
    }
    assert_eq!(limit.get(), 32, "never more than three were in flight, so nothing was learned");
}

/// One answer in ten takes twenty times as long, the others vary by a factor of six.
#[test]
fn noise_costs_little_and_does_not_make_it_collapse() {
    for seed in 0..32u64 {
        let mut dice = seed;
        let mut random = move || {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (dice >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut backend = Backend::new(32);
        backend.serve(3_000, SERVICE, || {
            let usual = 0.3 + 1.5 * random();
            if random() < 0.1 { 20.0 * usual } else { usual }
        });
        let idle = 1.0 - backend.used / 3_000.0;
        println!("seed {seed}: {idle:.3}");
        assert!(idle < 0.1, "seed {seed}: {idle:.3} of the backend was left idle");
    }
}
