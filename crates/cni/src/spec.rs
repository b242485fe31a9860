//! The CNI specification's types, in the versions 0.3.1, 0.4.0, 1.0.0 and 1.1.0.
//!
//! - [`Invocation`]: the runtime's command, from the environment.
//! - [`Configuration`]: the network configuration, from stdin, checked for what the command needs.
//! - [`Success`] and [`Error`]: the results, rendered exactly as the version in use wants them.

mod args;
mod configuration;
mod error;
mod invocation;
mod success;
mod version;

pub use args::Args;
pub use configuration::{
    ANNOTATIONS, Configuration, DEFAULT_SOCKET, DEFAULT_TIMEOUT, FIXED_ADDRESSES, FIXED_MAC,
};
pub use error::{Code, Error};
pub use invocation::{Command, Invocation};
pub use success::{Dns, Interface, Ip, Prefix, Route, Success};
pub use version::Version;

/// CNI's rule for the names of networks and containers.
fn is_identifier(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

#[cfg(test)]
mod tests;
