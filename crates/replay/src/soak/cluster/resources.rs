//! Checks that no process grows: memory, file descriptors, threads, and what it keeps on disk.
//!
//! Each life of a process is judged by itself, without its first minute: the median of its last third
//! against that of its first. A life that is too short to tell is not judged, and that is counted.

use super::scope::Ms;

/// Until caches are filled and connections made.
const WARM: Ms = 60_000;
/// After that, so long at least.
const LIFE: Ms = 180_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at: Ms,
    pub(super) memory: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
    pub(super) disk: u64,
}

/// One thing that must be flat: its name, how it is read, and what it may grow by: a share and an amount.
type Figure = (&'static str, fn(&Sample) -> u64, f64, u64);

const FIGURES: [Figure; 4] = [
    ("memory", |it| it.memory, 0.25, 24 << 20),
    ("descriptors", |it| it.descriptors, 0.25, 32),
    ("threads", |it| it.threads, 0.25, 8),
    // Audits and histories are kept by size; what a run of hours writes is far below that.
    ("disk", |it| it.disk, 1.0, 64 << 20),
];

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// None if the life is too short to tell.
pub(super) fn grown(who: &str, samples: &[Sample]) -> Option<Vec<String>> {
    let begins = samples.first()?.at + WARM;
    let warm: Vec<Sample> = samples.iter().filter(|it| it.at >= begins).copied().collect();
    let life = warm.last()?.at - warm.first()?.at;
    if life < LIFE || warm.len() < 9 {
        return None;
    }
    let third = warm.len() / 3;
    let (first, last) = (&warm[..third], &warm[warm.len() - third..]);
    let grown = FIGURES.into_iter().filter_map(|(name, read, share, amount)| {
        let of = |part: &[Sample]| median(part.iter().map(read).collect());
        let (before, after) = (of(first), of(last));
        let most = before + (before as f64 * share) as u64 + amount;
        let minutes = life / 60_000;
        (after > most)
            .then(|| format!("{who}: {name} grew from {before} to {after} in {minutes} minutes"))
    });
    Some(grown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(minutes: u64, change: impl Fn(u64, &mut Sample)) -> Vec<Sample> {
        let samples = (0..minutes * 12).map(|n| {
            let mut sample = Sample {
                at: 1_000_000 + n * 5000,
                memory: 60 << 20,
                descriptors: 40,
                threads: 12,
                disk: 1 << 20,
            };
            change(n, &mut sample);
            sample
        });
        samples.collect()
    }

    #[test]
    fn a_flat_life_holds_and_a_short_one_is_not_judged() {
        // It warms up, and breathes.
        let flat = life(10, |n, it| it.memory = if n < 12 { n << 20 } else { (60 + n % 9) << 20 });
        assert_eq!(grown("agent", &flat), Some(Vec::new()));
        assert_eq!(grown("agent", &life(3, |_, _| {})), None);
        assert_eq!(grown("agent", &[]), None);
    }

    #[test]
    fn each_leak_is_found() {
        type Leak = fn(u64, &mut Sample);
        let leaks: [(&str, Leak); 4] = [
            ("memory", |n, it| it.memory += n << 20),
            ("descriptors", |n, it| it.descriptors += n),
            ("threads", |n, it| it.threads += n / 3),
            ("disk", |n, it| it.disk += n << 21),
        ];
        for (name, leak) in leaks {
            let broken = grown("agent", &life(10, leak)).unwrap();
            assert_eq!(broken.len(), 1, "{name}: {broken:?}");
            assert!(broken[0].contains(name), "{broken:?}");
        }
    }
}
