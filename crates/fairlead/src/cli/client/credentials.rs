//! What a client shows, and what it trusts: the token and the authorities, from their files.

use std::io::Read;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::config::{ConfigFlags, Sources};
use crate::output::Failure;

/// A token is a line; what is larger is the wrong file.
const LARGEST_TOKEN: u64 = 4096;

pub(super) fn default_token_file() -> Result<PathBuf, Failure> {
    let resolved = Sources::of_this_process(&ConfigFlags::default()).resolve();
    let resolved = resolved.map_err(|problems| {
        Failure(format!(
            "the configuration that says where the token is cannot be read ({}); name the token with --token-file",
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        ))
    })?;
    Ok(resolved.config.data.join("token"))
}

pub(super) fn read_token(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Failure(format!(
            "there is no token at {shown}; is `fairlead up` running? If its --data is elsewhere, set --token-file DATA/token (or FAIRLEAD_TOKEN_FILE)"
        )),
        std::io::ErrorKind::PermissionDenied => Failure(format!(
            "the token at {shown} may not be read by you: only by whoever runs `fairlead up`; ask for a token of your own (`fairlead tokens create`) and name it with --token-file"
        )),
        _ => Failure(format!("the token at {shown} cannot be read: {e}")),
    };
    let open = std::fs::File::open(file).map_err(failed)?;
    let mut text = String::new();
    open.take(LARGEST_TOKEN + 1).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim();
    let fits = text.len() as u64 <= LARGEST_TOKEN && token.bytes().all(|b| b.is_ascii_graphic());
    if token.is_empty() || !fits {
        return Err(Failure(format!(
            "{shown} does not hold a token: expected one line of letters"
        )));
    }
    Ok(token.to_owned())
}

pub(super) fn read_authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let shown = file.display();
    let wrong = |why: String| Failure(format!("--ca-file {shown} {why}"));
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file)
        .map_err(|e| wrong(format!("cannot be read: {e}")))?
        .collect();
    let found = found.map_err(|e| wrong(format!("is not PEM: {e}")))?;
    if found.is_empty() {
        return Err(wrong("holds no certificate".to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
