//! Work on a cluster's resources. Every operation takes a [`Connection`](crate::Connection) and a
//! deadline, asks the connection's discovery what a word means, and answers plain values.

use crate::error::Error;

/// Refuses a name or namespace that would not stay one segment of a request's path. Permissions are
/// decided on names: `../../secrets` must not pass as one.
pub(crate) fn check_segment(what: &str, segment: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    if segment.is_empty() || segment == "." || segment == ".." || !segment.bytes().all(allowed) {
        return Err(Error::Invalid(format!("{segment:?} cannot be the name of a {what}")));
    }
    Ok(())
}
