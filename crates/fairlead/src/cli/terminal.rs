//! The terminal: colours only where one is, progress only where one is, raw mode that is always
//! given back, secrets read without an echo.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use tokio::net::UnixStream;

use crate::output::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Cyan,
    Dim,
}

/// Colours text, or leaves it alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Colours for stdout: on a terminal, unless it should stay plain (<https://no-color.org>).
    pub(crate) fn stdout() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: std::io::stdout().is_terminal() && !plain }
    }

    #[cfg(test)]
    pub(crate) fn always(on: bool) -> Self {
        Self { on }
    }

    pub(crate) fn paint(self, colour: Colour, text: impl Display) -> String {
        if !self.on {
            return text.to_string();
        }
        let code = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Cyan => 36,
            Colour::Dim => 2,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// A line on stderr that is overwritten, on a terminal only, once waiting takes long enough to
/// wonder. Gone when dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    /// When the line may be drawn next.
    due: Instant,
    shown: bool,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let due = Instant::now() + Duration::from_millis(300);
        Self { due, shown: false, terminal: std::io::stderr().is_terminal() }
    }

    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.terminal && now >= self.due {
            self.shown = true;
            self.due = now + Duration::from_millis(100);
            eprint!("\r\x1b[K{}", text());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// Columns and rows of stdout's terminal.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Stdin in raw mode, as it was before when dropped: on return, on `?` and on a panic. A signal
/// must lead to one of these (see `verbs/exec.rs`).
#[derive(Debug)]
pub(crate) struct RawMode {
    before: Termios,
}

impl RawMode {
    pub(crate) fn enter() -> Result<Self, Failure> {
        let stdin = rustix::stdio::stdin();
        let refused = |e| Failure(format!("the terminal cannot be set to raw mode: {e}"));
        let before = tcgetattr(stdin).map_err(refused)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw).map_err(refused)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that has gone away.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// The signals that matter while a terminal is raw, as something to wait for: none of them ends the
/// process by itself any more.
#[derive(Debug)]
pub(crate) struct Signals {
    woken: UnixStream,
    resized: Arc<AtomicBool>,
    /// The last one that asked to leave; 0 for none.
    leave: Arc<AtomicUsize>,
    /// Given back when dropped.
    registered: Vec<SigId>,
}

/// The signals since the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedSignals {
    /// The size of the terminal has changed.
    pub(crate) resized: bool,
    /// The number of a signal that asks to leave.
    pub(crate) leave: Option<u8>,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let (woken, wake) = std::os::unix::net::UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let woken = UnixStream::from_std(woken)?;
        let (resized, leave) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut registered = vec![
            // What happened is noted before the wait ends: actions run in this order.
            signal_hook::flag::register(SIGWINCH, resized.clone())?,
            signal_hook::low_level::pipe::register(SIGWINCH, wake.try_clone()?)?,
        ];
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            let number = usize::try_from(signal).expect("signals are numbered from 1");
            let noted = signal_hook::flag::register_usize(signal, leave.clone(), number)?;
            let woken = signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
            registered.extend([noted, woken]);
        }
        Ok(Self { woken, resized, leave, registered })
    }

    pub(crate) async fn next(&self) -> Result<ReceivedSignals, Failure> {
        self.woken.readable().await?;
        let mut bytes = [0; 64];
        while self.woken.try_read(&mut bytes).is_ok_and(|count| count > 0) {}
        let leave = self.leave.load(Ordering::SeqCst);
        Ok(ReceivedSignals {
            resized: self.resized.swap(false, Ordering::SeqCst),
            leave: u8::try_from(leave).ok().filter(|signal| *signal > 0),
        })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// A password that is asked for, or the first line of standard input.
pub(crate) fn password(whose: &str) -> Result<String, Failure> {
    if std::io::stdin().is_terminal() {
        return secret(&format!("Password for {whose}: "));
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// A new password: asked for twice without an echo, or one line of stdin when that is no terminal.
pub(crate) fn new_password(whose: &str) -> Result<String, Failure> {
    let password = if std::io::stdin().is_terminal() {
        let first = secret(&format!("New password for {whose}: "))?;
        if secret("Once more: ")? != first {
            return Err(Failure("the two are not the same; nothing was changed".to_owned()));
        }
        first
    } else {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        line.trim_end_matches(['\n', '\r']).to_owned()
    };
    if password.is_empty() {
        return Err(Failure("no password was given; nothing was changed".to_owned()));
    }
    Ok(password)
}

/// Asks a question on the terminal; only `y` and `yes` are a yes.
pub(crate) fn confirm(question: &str) -> Result<bool, Failure> {
    eprint!("{question}");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// One line of the terminal, whatever stdin is, without an echo.
fn secret(prompt: &str) -> Result<String, Failure> {
    struct Quiet(File, Termios);
    impl Drop for Quiet {
        fn drop(&mut self) {
            let _ = tcsetattr(&self.0, OptionalActions::Now, &self.1);
        }
    }

    let refused = |e: std::io::Error| Failure(format!("the terminal cannot be asked: {e}"));
    let terminal = File::options().read(true).write(true).open("/dev/tty").map_err(refused)?;
    let before = tcgetattr(&terminal).map_err(|e| refused(e.into()))?;
    let mut quiet = before.clone();
    quiet.local_modes -= LocalModes::ECHO;
    tcsetattr(&terminal, OptionalActions::Flush, &quiet).map_err(|e| refused(e.into()))?;
    let guard = Quiet(terminal, before);
    (&guard.0).write_all(prompt.as_bytes()).map_err(refused)?;
    let mut line = String::new();
    BufReader::new(&guard.0).read_line(&mut line).map_err(refused)?;
    (&guard.0).write_all(b"\n").map_err(refused)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests;
