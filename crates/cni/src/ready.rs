//! The readiness mark beside the agent's socket: until when the agent counts as healthy without being
//! asked.
//!
//! An agent that is being replaced is away for a few seconds. A node whose STATUS fails meanwhile is
//! not ready, and an ADD that fails meanwhile is an event on a pod. So a healthy agent renews
//! this mark, and while the mark holds, the plugin answers STATUS with success and lets other
//! commands wait for the next agent.
//!
//! Contract:
//! - The mark names one boot and a time since that boot: a node that boots has no mark, whatever is left
//!   in the directory, and setting the wall clock changes nothing.
//! - It is written whole or not at all. A mark that does not parse, names another boot, or reaches
//!   further than [`LONGEST_GRACE`] does not hold.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long an agent may be away before its node is not ready: a DaemonSet's pod is replaced within
/// ten seconds where its image is there, and pulling an image takes a few times that. A kubelet that
/// is told nothing waits about as long (40 to 50 s) before its node is taken for lost.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(60);
pub const LONGEST_GRACE: Duration = Duration::from_secs(600);

/// Identifies the boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the path of the mark that belongs to a socket.
pub fn mark_path(socket: &Path) -> PathBuf {
    let mut name = socket.file_name().unwrap_or_default().to_owned();
    name.push(".ready");
    socket.with_file_name(name)
}

/// Marks the agent of this socket as healthy for the length of the grace.
pub fn mark(socket: &Path, grace: Duration) -> io::Result<()> {
    let until = since_boot() + grace.min(LONGEST_GRACE);
    let text = format!("{} {}\n", boot_id()?, until.as_millis());
    let path = mark_path(socket);
    let mut new = path.clone().into_os_string();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    // A file that was left there may have had another mode.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    fs::rename(&new, &path)
}

/// Removes the mark, if there is one.
pub fn unmark(socket: &Path) -> io::Result<()> {
    match fs::remove_file(mark_path(socket)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Says whether the agent of this socket was healthy so recently that it still counts as healthy.
pub fn holds(socket: &Path) -> bool {
    let Ok(text) = fs::read_to_string(mark_path(socket)) else { return false };
    let Ok(boot) = boot_id() else { return false };
    is_current(&text, &boot, since_boot())
}

fn is_current(mark: &str, boot: &str, now: Duration) -> bool {
    let Some((marked, until)) = mark.trim_end().split_once(' ') else { return false };
    let Ok(until) = until.parse().map(Duration::from_millis) else { return false };
    marked == boot && now < until && until - now <= LONGEST_GRACE
}

fn boot_id() -> io::Result<String> {
    let id = fs::read_to_string(BOOT_ID)?;
    Ok(id.trim_end().to_owned())
}

fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::from_secs(seconds)
        + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests;
