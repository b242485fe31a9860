//! Paths of hosts as they are compared: `/var/run//docker.sock`, `/var/./run/docker.sock/` and
//! `/var/run/../run/docker.sock` are one path. Links on a host are not known here.

use std::borrow::Cow;

/// A path without empty, `.` and `..` parts and without a slash at its end.
pub(super) fn clean(path: &str) -> Cow<'_, str> {
    without_detours(path, |_| true)
}

/// A glob on such paths, likewise. What a part with `*` or `?` stands for is not known, so that `..`
/// behind one stays.
pub(super) fn clean_glob(glob: &str) -> Cow<'_, str> {
    without_detours(glob, |part| !part.contains(['*', '?']))
}

fn without_detours(path: &str, may_go_back: impl Fn(&str) -> bool) -> Cow<'_, str> {
    let rooted = path.starts_with('/');
    let inner = path.strip_prefix('/').unwrap_or(path);
    let is_clean =
        inner.is_empty() || inner.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if is_clean {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&str> = Vec::new();
    for part in inner.split('/') {
        match part {
            "" | "." => {}
            ".." => match kept.last() {
                Some(&last) if last != ".." && may_go_back(last) => {
                    kept.pop();
                }
                None if rooted => {}
                _ => kept.push(part),
            },
            part => kept.push(part),
        }
    }
    let joined = kept.join("/");
    Cow::Owned(if rooted { format!("/{joined}") } else { joined })
}

#[cfg(test)]
mod tests;
