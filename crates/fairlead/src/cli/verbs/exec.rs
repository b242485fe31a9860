use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::json;

use crate::cli::client::{Answer, CHUNK, Change, IN_A_ROW, Route, Socket, Target, Told};
use crate::cli::table::printable;
use crate::cli::terminal::{self, Raw, Signals};
use crate::cli::verbs::logs::pod;
use crate::output::{self, Failure, NO};

// The first byte of each frame.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;

/// Run a command in a container
///
/// Examples:
///   fairlead exec web-0 -n shop -- ls /srv
///   fairlead exec -it web-0 -- sh
///   tar c . | fairlead exec -i web-0 -- tar x -C /srv
///
/// The exit code is that of the command.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Its name
    pod: String,
    /// The command and its arguments, behind `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Which container [default: the pod's default one]
    #[arg(short, long)]
    container: Option<String>,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Give the command a terminal
    #[arg(short, long)]
    tty: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    exit_code: Option<i32>,
    reason: Option<String>,
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    let tty = args.tty && std::io::stdin().is_terminal() && args.stdin;
    if args.tty && !tty {
        eprintln!("no terminal is given: -t needs -i, and standard input that is a terminal");
    }
    let server = args.target.open()?;
    let cluster = args.target.one(&server, Change::Yes)?;
    let route = Route::to(["clusters", &cluster, "resources", "pods", pod(&args.pod), "exec"])
        .with("namespace", args.target.namespace())
        .maybe("container", args.container.as_deref())
        .with("tty", tty)
        .with("stdin", args.stdin);
    let route = args.command.iter().fold(route, |route, word| route.with("command", word));
    let mut socket = Socket::open(&server, &route)?;
    let ended = if tty {
        // In this order: a signal in between finds the terminal as it was.
        let signals = Signals::new()?;
        let _raw = Raw::enter()?;
        converse(&mut socket, args.stdin, Some(&signals))
    } else {
        converse(&mut socket, args.stdin, None)
    };
    socket.close();
    ended
}

/// Until the command ends, the connection does, or a signal asks to leave. Every way out returns, so
/// that the terminal is given back.
fn converse(socket: &mut Socket, stdin: bool, signals: Option<&Signals>) -> Answer<ExitCode> {
    let mut input = stdin.then(rustix::stdio::stdin);
    if signals.is_some() {
        resize(socket)?;
    }
    loop {
        let ready = socket.wait(input, signals.map(AsFd::as_fd))?;
        if ready.signal
            && let Some(signals) = signals
        {
            let caught = signals.take();
            if let Some(signal) = caught.leave {
                return Ok(ExitCode::from(128_u8.wrapping_add(signal)));
            }
            if caught.resized {
                resize(socket)?;
            }
        }
        if ready.input {
            input = pass_on(socket, input)?;
        }
        for _ in 0..IN_A_ROW {
            match socket.receive()? {
                Told::Nothing => break,
                Told::Closed => {
                    return Err(Failure("the connection ended before the command did; whether it goes on is not known".to_owned()).into());
                }
                Told::Frame(frame) => match frame.split_first() {
                    Some((&STDOUT, bytes)) if output::heard(bytes)? => {}
                    Some((&STDOUT, _)) => return Ok(ExitCode::SUCCESS),
                    Some((&STDERR, bytes)) => {
                        let mut stderr = std::io::stderr().lock();
                        // Nobody can be told that stderr is gone.
                        let _ = stderr.write_all(bytes).and_then(|()| stderr.flush());
                    }
                    Some((&STATUS, status)) => return Ok(verdict(status)),
                    _ => {}
                },
            }
        }
    }
}

/// One chunk of input; at its end, the frame that says so.
fn pass_on<'fd>(
    socket: &mut Socket,
    input: Option<BorrowedFd<'fd>>,
) -> Result<Option<BorrowedFd<'fd>>, Failure> {
    let Some(fd) = input else { return Ok(None) };
    let mut frame = vec![STDIN; CHUNK + 1];
    match rustix::io::read(fd, &mut frame[1..]) {
        Ok(count) => {
            frame.truncate(count + 1);
            socket.send(frame)?;
            Ok((count > 0).then_some(fd))
        }
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(input),
        // A terminal that has gone away reads as an error.
        Err(_) => {
            socket.send(vec![STDIN])?;
            Ok(None)
        }
    }
}

fn resize(socket: &mut Socket) -> Result<(), Failure> {
    let Some((width, height)) = terminal::size() else { return Ok(()) };
    let mut frame = vec![RESIZE];
    frame.extend_from_slice(json!({ "width": width, "height": height }).to_string().as_bytes());
    socket.send(frame)
}

fn verdict(status: &[u8]) -> ExitCode {
    let status: Status = serde_json::from_slice(status).unwrap_or_default();
    if let Some(reason) = status.reason.as_deref().filter(|reason| !reason.is_empty()) {
        // The terminal may still be raw.
        eprint!("{}\r\n", printable(reason));
    }
    ExitCode::from(match status.exit_code {
        Some(code) => u8::try_from(code).unwrap_or(u8::MAX),
        None => NO,
    })
}
