//! How many file descriptors this process may have open (`RLIMIT_NOFILE`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to the most that the process may set itself, and returns the limit that holds then.
///
/// Programs that are executed inherit it.
pub fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // A limit that cannot be raised is as it was.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    limit()
}

/// The limit that holds now.
pub fn limit() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
