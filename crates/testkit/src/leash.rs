//! Leash: what must not outlive this process, however this process ends.
//!
//! A shell in a process group of its own holds the reading end of a pipe whose writing end only we
//! have. A return, a panic, an abort and `kill -9` all close that end, and the shell does its last
//! duty: it kills the program it ran, or cleans up. `PR_SET_PDEATHSIG` would not do: it fires when
//! the *thread* that spawned ends, and cleans up nothing.
//!
//! Dropping a leash waits until the duty is done.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Ends with the program, or ends it when the pipe closes.
const RUN: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- & program=$!
{ read -r _; kill -KILL "$program"; } <&3 & watch=$!
wait "$program"; status=$?
kill "$watch"
exit "$status"
"#;

#[derive(Debug)]
pub(crate) struct Leash {
    shell: Child,
}

impl Leash {
    /// Runs `command`, with its output in `log`, until the leash is dropped. Of the command counts
    /// the program, its arguments, its directory and what it adds to the environment.
    pub(crate) fn run(command: &Command, log: File) -> io::Result<Self> {
        let mut shell = shell(RUN);
        shell.arg(command.get_program()).args(command.get_args());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(dir) = command.get_current_dir() {
            shell.current_dir(dir);
        }
        shell.stdout(log.try_clone()?).stderr(log);
        Ok(Self { shell: shell.spawn()? })
    }

    /// Runs the shell script `duty`, with `args` as its `$1`…, when the leash is dropped.
    pub(crate) fn finally(duty: &str, args: &[&str]) -> io::Result<Self> {
        let mut shell = shell(&format!("read -r _\n{duty}"));
        // Inherited output would keep open the pipes on which a test runner waits.
        shell.args(args).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { shell: shell.spawn()? })
    }

    /// How the program ended, if it did.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.shell.try_wait()
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

fn shell(script: &str) -> Command {
    let mut shell = Command::new("sh");
    // Its own group: a runner that signals the test's group must not end the one who cleans up.
    shell.args(["-c", script, "leash"]).stdin(Stdio::piped()).process_group(0);
    shell
}

#[cfg(test)]
mod tests;
