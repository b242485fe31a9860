//! The token that the admin endpoints of this machine want for `/debug`.

use crate::config::Config;

/// The token by which a process with this configuration knows its owner: of the environment, of
/// `admin.token-file`, or of the data directory. None where there is none to read: what needs one then says so.
pub(crate) fn admin_token(config: &Config) -> Option<String> {
    if let Some(token) = std::env::var("FAIRLEAD_TOKEN").ok().filter(|token| !token.is_empty()) {
        return Some(token.trim().to_owned());
    }
    let file = config.admin.token_file.clone().unwrap_or_else(|| config.data.join("token"));
    std::fs::read_to_string(file).ok().map(|token| token.trim().to_owned())
}
