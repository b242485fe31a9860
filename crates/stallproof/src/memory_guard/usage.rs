//! Where the kernel says how much memory may be used, and how much is.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes. The limit is never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub used: u64,
    pub limit: u64,
}

impl Usage {
    pub fn percent(self) -> u64 {
        (u128::from(self.used) * 100 / u128::from(self.limit)).try_into().unwrap_or(u64::MAX)
    }
}

/// The cgroups to measure, found once at start. Limits are read each time, because they can be changed.
#[derive(Debug)]
pub(super) struct Places {
    /// From the process's own cgroup up to the top of what is mounted here.
    cgroups: Vec<PathBuf>,
    version: Version,
    proc: PathBuf,
    configured: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// cgroup v1 says "no limit" with the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 60;

impl Places {
    pub(super) fn find(root: &Path, configured: Option<u64>) -> Self {
        let proc = root.join("proc");
        let (version, cgroups) = cgroups(root, &proc).unwrap_or((Version::V2, Vec::new()));
        Self { cgroups, version, proc, configured: configured.filter(|limit| *limit > 0) }
    }

    /// Measured against the closest limit. None if the kernel does not say.
    pub(super) fn measure(&self) -> Option<Usage> {
        let of_cgroups = self.cgroups.iter().filter_map(|dir| self.version.measure(dir));
        let own = |limit| Some(Usage { used: self.resident()?, limit });
        let configured = self.configured.and_then(own);
        of_cgroups
            .chain(configured)
            .max_by_key(|usage| usage.percent())
            .or_else(|| own(kibibytes(&self.proc.join("meminfo"), "MemTotal:")?))
    }

    fn resident(&self) -> Option<u64> {
        kibibytes(&self.proc.join("self/status"), "VmRSS:")
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.measure() {
            Some(usage) => write!(f, "{} of {} bytes used", usage.used, usage.limit),
            None => f.write_str("unknown"),
        }
    }
}

impl Version {
    fn measure(self, dir: &Path) -> Option<Usage> {
        let read = |name| number(&fs::read_to_string(dir.join(name)).ok()?);
        let (limit, used, droppable) = match self {
            // Above `high` the kernel slows the process down until it looks dead.
            Self::V2 => (
                read("memory.max").into_iter().chain(read("memory.high")).min()?,
                read("memory.current")?,
                "inactive_file",
            ),
            Self::V1 => (
                read("memory.limit_in_bytes")?,
                read("memory.usage_in_bytes")?,
                "total_inactive_file",
            ),
        };
        let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        let cache = field(&stat, droppable).and_then(number).unwrap_or(0);
        (1..NO_LIMIT).contains(&limit).then(|| Usage { used: used.saturating_sub(cache), limit })
    }
}

/// The directories of our memory cgroup and its ancestors, as far as they are mounted here. In a
/// container the mount often begins at the container's own cgroup.
fn cgroups(root: &Path, proc: &Path) -> Option<(Version, Vec<PathBuf>)> {
    let ours = fs::read_to_string(proc.join("self/cgroup")).ok()?;
    let mounts = fs::read_to_string(proc.join("self/mountinfo")).ok()?;
    let path_of = |version| {
        ours.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let memory = controllers.split(',').any(|name| name == "memory");
            (if version == Version::V1 { memory } else { controllers.is_empty() }).then_some(path)
        })
    };
    let mount_of = |version| {
        mounts.lines().find_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(3);
            let (top, point) = (fields.next()?, fields.next()?);
            let mut filesystem = filesystem.split(' ');
            let kind = filesystem.next()?;
            let memory = filesystem.nth(1)?.split(',').any(|option| option == "memory");
            let ours = match version {
                Version::V1 => kind == "cgroup" && memory,
                Version::V2 => kind == "cgroup2",
            };
            ours.then_some((top, point))
        })
    };
    // On a machine with both, memory belongs to v1 if v1 lists it.
    [Version::V1, Version::V2].into_iter().find_map(|version| {
        let (top, point) = mount_of(version)?;
        let path = Path::new(path_of(version)?);
        let point = root.join(point.trim_start_matches('/'));
        let below = path.strip_prefix(top).unwrap_or(Path::new(""));
        let dirs = below.ancestors().map(|part| point.join(part)).filter(|dir| dir.is_dir());
        Some((version, dirs.collect()))
    })
}

/// None also for `max`.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The rest of the line that begins with `name` and a space.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', '\t']))
}

fn kibibytes(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    Some(number(field(&text, name)?.trim().strip_suffix("kB")?)? * 1024)
}
