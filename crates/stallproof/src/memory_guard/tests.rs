// clippy takes a module for a test only under a plain `cfg(test)`.
#![allow(clippy::unwrap_used)]

use std::fs;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// A made-up file system: what matters of `/proc` and `/sys/fs/cgroup`.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(cgroup: &str, mountinfo: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("proc/self/cgroup", cgroup);
        machine.write("proc/self/mountinfo", mountinfo);
        machine.write("proc/self/status", "Name:\tfairlead\nVmRSS:\t  102400 kB\n");
        machine.write("proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\n");
        machine
    }

    fn v2(path: &str) -> Self {
        Self::new(
            &format!("0::{path}\n"),
            "22 1 8:1 / / rw - ext4 /dev/sda rw\n\
             30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
        )
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn group_v2(&self, path: &str, max: &str, used: u64, cache: u64) {
        let dir = format!("sys/fs/cgroup{path}");
        self.write(&format!("{dir}/memory.max"), &format!("{max}\n"));
        self.write(&format!("{dir}/memory.high"), "max\n");
        self.write(&format!("{dir}/memory.current"), &format!("{used}\n"));
        let stat = format!("anon 1\nfile 2\ninactive_anon 3\ninactive_file {cache}\n");
        self.write(&format!("{dir}/memory.stat"), &stat);
    }

    fn guard(&self, configured: Option<u64>) -> MemoryGuard {
        MemoryGuard::below(self.0.path(), configured, None)
    }

    fn usage(&self, configured: Option<u64>) -> Usage {
        (self.guard(configured).reading)().unwrap()
    }
}

#[test]
fn v2_counts_what_is_used_without_the_cache_that_can_go() {
    let machine = Machine::v2("/kubepods/pod/container");
    machine.group_v2("/kubepods/pod/container", "104857600", 60 * MIB, 20 * MIB);
    assert_eq!(machine.usage(None), Usage { used: 40 * MIB, limit: 100 * MIB });
}

#[test]
fn v2_high_is_a_limit_too() {
    let machine = Machine::v2("/a");
    machine.group_v2("/a", "max", 60 * MIB, 0);
    machine.write("sys/fs/cgroup/a/memory.high", &format!("{}\n", 80 * MIB));
    assert_eq!(machine.usage(None), Usage { used: 60 * MIB, limit: 80 * MIB });
}

#[test]
fn the_closest_limit_up_the_tree_counts_with_the_usage_of_its_level() {
    let machine = Machine::v2("/pod/container");
    machine.group_v2("/pod/container", &(100 * MIB).to_string(), 10 * MIB, 0);
    // A sibling has nearly filled the pod.
    machine.group_v2("/pod", &(200 * MIB).to_string(), 190 * MIB, 0);
    assert_eq!(machine.usage(None), Usage { used: 190 * MIB, limit: 200 * MIB });
}

#[test]
fn in_a_cgroup_namespace_the_mount_is_our_own_group() {
    let machine = Machine::v2("/");
    machine.group_v2("", &(100 * MIB).to_string(), 10 * MIB, 0);
    assert_eq!(machine.usage(None), Usage { used: 10 * MIB, limit: 100 * MIB });
}

#[test]
fn v1_is_read_where_memory_is_mounted_even_beside_v2() {
    let machine = Machine::new(
        "5:devices:/\n4:cpu,memory:/docker/abc\n0::/\n",
        "30 22 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
         31 22 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,cpu,memory\n",
    );
    let dir = "sys/fs/cgroup/memory";
    machine.write(&format!("{dir}/memory.limit_in_bytes"), &(100 * MIB).to_string());
    machine.write(&format!("{dir}/memory.usage_in_bytes"), &(60 * MIB).to_string());
    let stat = format!("inactive_file 1\ntotal_inactive_file {}\n", 20 * MIB);
    machine.write(&format!("{dir}/memory.stat"), &stat);
    assert_eq!(machine.usage(None), Usage { used: 40 * MIB, limit: 100 * MIB });
}

#[test]
fn v1_without_a_limit_falls_back_to_the_machine() {
    let machine = Machine::new(
        "4:memory:/\n",
        "31 22 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    );
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
    assert_eq!(machine.usage(None), Usage { used: 100 * MIB, limit: 1024 * MIB });
}

#[test]
fn a_configured_limit_is_measured_by_our_own_resident_memory() {
    let machine = Machine::v2("/a");
    machine.group_v2("/a", "max", 900 * MIB, 0);
    assert_eq!(machine.usage(Some(200 * MIB)), Usage { used: 100 * MIB, limit: 200 * MIB });
}

#[test]
fn a_limit_that_is_changed_while_we_run_is_seen() {
    let machine = Machine::v2("/a");
    machine.group_v2("/a", &(100 * MIB).to_string(), 50 * MIB, 0);
    let guard = machine.guard(None);
    guard.check();
    assert_eq!(guard.level(), Pressure::Normal);
    machine.group_v2("/a", &(60 * MIB).to_string(), 50 * MIB, 0);
    guard.check();
    assert_eq!(guard.level(), Pressure::Shedding);
}

#[test]
fn garbage_is_no_reading_and_no_panic() {
    let machine = Machine::new("nonsense", "also - nonsense\n - \n");
    machine.write("proc/self/status", "VmRSS:\n");
    machine.write("proc/meminfo", "");
    let guard = machine.guard(Some(0));
    guard.check();
    assert_eq!(guard.level(), Pressure::Normal);
}

#[test]
fn this_process_is_measured() {
    let usage = Places::find(Path::new("/"), None).measure().unwrap();
    assert!(usage.used > 0 && usage.limit > 0, "{usage:?}");
}

#[test]
fn subscribers_hear_each_change_once_and_an_episode_is_saved_once() {
    let evidence = tempfile::tempdir().unwrap();
    let used = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&used);
    let reading = move || Some(Usage { used: read.load(Relaxed), limit: 100 });
    let guard = MemoryGuard::of(reading, Some(Evidence::new(evidence.path())));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    guard.on_change(move |level| hears.lock().push(level));
    let mut firsts = 0;
    for percent in [10, 85, 85, 95, 90, 95, 75, 95, 10, 95] {
        used.store(percent, Relaxed);
        let before = guard.episode.lock().saved;
        guard.check();
        firsts += u32::from(!before && guard.episode.lock().saved);
    }
    use Pressure::{Critical, Normal, Shedding};
    assert_eq!(
        *heard.lock(),
        [Shedding, Critical, Shedding, Critical, Normal, Critical],
        "90 % is still critical, having been above 92 %"
    );
    assert_eq!(firsts, 2);
}

proptest! {
    /// From any level: far below is normal, far above is critical, and a share that wobbles less
    /// than the gap between entering and leaving changes the level at most once.
    #[test]
    fn levels_do_not_flap(start in 0_u64..=100, wobble in prop::collection::vec(0_u64..7, 1..50)) {
        let usage = |share| Usage { used: share, limit: 100 };
        let mut level = next(Pressure::Normal, usage(start));
        let mut changes = 0;
        for w in wobble {
            let new = next(level, usage(start + w));
            changes += u32::from(new != level);
            level = new;
        }
        prop_assert!(changes <= 1, "{} changes", changes);
        prop_assert_eq!(next(level, usage(0)), Pressure::Normal);
        prop_assert_eq!(next(level, usage(100)), Pressure::Critical);
    }
}
