//! Logins in the audit: each one that succeeds, and those that fail, folded.

use std::net::IpAddr;

use access::audit::LoginFailure;
use access::{AuthMethod, Identity, LoginError, OpenedSession};

use super::{Api, Problem};

/// How somebody logs in.
pub(crate) fn method(by_link: bool) -> &'static str {
    if by_link { "link" } else { "password" }
}

/// Records how a login went. One that cannot be recorded is undone, and the caller is told to come back; that
/// of a failure never is.
pub(crate) fn record(
    api: &Api,
    from: IpAddr,
    method: &'static str,
    user: Option<&str>,
    opened: &Result<OpenedSession, LoginError>,
) -> Result<(), Problem> {
    let opened = match opened {
        Ok(opened) => opened,
        Err(why) => {
            let outcome = match why {
                LoginError::Wrong => "wrong",
                LoginError::BadCode => "bad_code",
                LoginError::Limited { .. } => "limited",
                _ => "refused",
            };
            // People type passwords into the wrong field: only a name that somebody has is written down.
            let user = user.filter(|user| api.access.has_user(user)).map(ToOwned::to_owned);
            api.audit.failed_login(LoginFailure { outcome, from: Some(from), user });
            return Ok(());
        }
    };
    let who = Identity { user: opened.user.clone(), via: AuthMethod::Session(opened.id) };
    api.audit.login(&who, from, method, None).inspect_err(|_| {
        api.access.logout(opened.cookie.expose());
    })?;
    Ok(())
}
