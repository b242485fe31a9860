use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::{Args, Code, Error, is_identifier};
use crate::wire::AttachmentKey;

/// CNI's commands: the values of `CNI_COMMAND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

impl Command {
    pub const ALL: [Self; 6] =
        [Self::Add, Self::Del, Self::Check, Self::Gc, Self::Status, Self::Version];

    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A command, with the variables that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    Add {
        key: AttachmentKey,
        netns: PathBuf,
        args: Args,
    },
    /// A DEL must succeed where it can: arguments that cannot be read are as good as none.
    Del {
        key: AttachmentKey,
        args: Args,
    },
    Check {
        key: AttachmentKey,
        netns: PathBuf,
    },
    Gc,
    Status,
    Version,
}

impl Invocation {
    /// Reads the environment; one error names every variable that is missing or wrong.
    pub fn parse(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let text = |key: &str| variable(key).and_then(|value| value.into_string().ok());
        let given = text("CNI_COMMAND").unwrap_or_default();
        let Some(command) = Command::ALL.into_iter().find(|command| command.name() == given) else {
            let names = Command::ALL.map(Command::name).join(", ");
            return Err(invalid(format!("CNI_COMMAND is {given:?}"))
                .details(format!("it must be one of {names}")));
        };
        let mut wrong = Vec::new();
        let mut key = || AttachmentKey {
            container: take(&mut wrong, "CNI_CONTAINERID", text("CNI_CONTAINERID"), container),
            ifname: take(&mut wrong, "CNI_IFNAME", text("CNI_IFNAME"), interface),
        };
        let invocation = match command {
            Command::Version => return Ok(Self::Version),
            Command::Status => return Ok(Self::Status),
            Command::Gc => return Ok(Self::Gc),
            Command::Del => {
                let args = Args::parse(&text("CNI_ARGS").unwrap_or_default()).unwrap_or_default();
                Self::Del { key: key(), args }
            }
            Command::Add | Command::Check => {
                let key = key();
                let netns = variable("CNI_NETNS").filter(|path| !path.is_empty());
                if netns.is_none() {
                    wrong.push("CNI_NETNS is missing".to_owned());
                }
                let netns = PathBuf::from(netns.unwrap_or_default());
                match command {
                    Command::Add => {
                        let args = Args::parse(&text("CNI_ARGS").unwrap_or_default());
                        let args = args.unwrap_or_else(|error| {
                            wrong.push(error.to_string());
                            Args::default()
                        });
                        Self::Add { key, netns, args }
                    }
                    _ => Self::Check { key, netns },
                }
            }
        };
        if wrong.is_empty() { Ok(invocation) } else { Err(invalid(wrong.join("; "))) }
    }
}

fn take(
    wrong: &mut Vec<String>,
    variable: &str,
    value: Option<String>,
    check: impl FnOnce(&str) -> Result<(), &'static str>,
) -> String {
    let value = value.unwrap_or_default();
    if value.is_empty() {
        wrong.push(format!("{variable} is missing"));
    } else if let Err(why) = check(&value) {
        wrong.push(format!("{variable} is {value:?}: {why}"));
    }
    value
}

fn container(id: &str) -> Result<(), &'static str> {
    let good = is_identifier(id);
    good.then_some(())
        .ok_or("it must be of a-z, A-Z, 0-9, _, . and -, and begin with one of a-z, A-Z, 0-9")
}

/// Checks that the kernel takes this name for an interface.
fn interface(name: &str) -> Result<(), &'static str> {
    if name.len() > 15 {
        Err("it must have at most 15 characters")
    } else if matches!(name, "." | "..")
        || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
    {
        Err("it must not be . or .. and have no /, : or space")
    } else {
        Ok(())
    }
}

fn invalid(msg: String) -> Error {
    Error::new(Code::InvalidEnvironment, msg)
}
