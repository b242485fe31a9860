use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::cli::client::{Access, CHUNK, ClientResult, FrameReceiver, FrameSender, Route, Target};
use crate::cli::table::printable;
use crate::cli::terminal::{self, RawMode, Signals};
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
    /// Name of the pod
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

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let tty = args.tty && std::io::stdin().is_terminal() && args.stdin;
    if args.tty && !tty {
        eprintln!("no terminal is given: -t needs -i, and standard input that is a terminal");
    }
    let server = args.target.open()?;
    let cluster = args.target.one(&server, Access::Write).await?;
    let route = Route::to(["clusters", &cluster, "resources", "pods", pod(&args.pod), "exec"])
        .with("namespace", args.target.namespace())
        .maybe("container", args.container.as_deref())
        .with("tty", tty)
        .with("stdin", args.stdin);
    let route = args.command.iter().fold(route, |route, word| route.with("command", word));
    let (mut sender, mut receiver) = server.socket(&route).await?;
    let ended = if tty {
        // In this order: a signal in between finds the terminal as it was.
        let signals = Signals::new()?;
        let _raw = RawMode::enter()?;
        converse(&mut sender, &mut receiver, args.stdin, Some(&signals)).await
    } else {
        converse(&mut sender, &mut receiver, args.stdin, None).await
    };
    sender.close(receiver).await;
    ended
}

/// Until the command ends, the connection does, or a signal asks to leave. Every way out returns, so
/// that the terminal is given back.
async fn converse(
    sender: &mut FrameSender,
    receiver: &mut FrameReceiver,
    stdin: bool,
    signals: Option<&Signals>,
) -> ClientResult<ExitCode> {
    let resized = Notify::new();
    if signals.is_some() {
        resized.notify_one();
    }
    let upload = async {
        let mut input = stdin.then(read_stdin);
        loop {
            let frame = tokio::select! {
                () = resized.notified() => window_size(),
                chunk = next_chunk(&mut input) => chunk,
            };
            if !frame.is_empty() {
                sender.send(frame).await?;
            }
        }
    };
    tokio::select! {
        ended = receive(receiver) => ended,
        failure = upload => failure,
        signal = leave(signals, &resized) => Ok(ExitCode::from(128_u8.wrapping_add(signal?))),
    }
}

async fn receive(receiver: &mut FrameReceiver) -> ClientResult<ExitCode> {
    while let Some(frame) = receiver.next().await? {
        match frame.split_first() {
            Some((&STDOUT, bytes)) if output::write_part(bytes)? => {}
            Some((&STDOUT, _)) => return Ok(ExitCode::SUCCESS),
            Some((&STDERR, bytes)) => {
                let mut stderr = std::io::stderr().lock();
                // Nobody can be told that stderr is gone.
                let _ = stderr.write_all(bytes).and_then(|()| stderr.flush());
            }
            Some((&STATUS, status)) => return Ok(exit_code(status)),
            _ => {}
        }
    }
    let why = "the connection ended before the command did; whether it goes on is not known";
    Err(Failure(why.to_owned()).into())
}

/// Waits for a signal that asks to leave, and passes on that the window has another size.
async fn leave(signals: Option<&Signals>, resized: &Notify) -> Result<u8, Failure> {
    let Some(signals) = signals else { return std::future::pending().await };
    loop {
        let received = signals.next().await?;
        if let Some(signal) = received.leave {
            return Ok(signal);
        }
        if received.resized {
            resized.notify_one();
        }
    }
}

/// Standard input as frames. It is read by a thread of its own, which nobody waits for: a read of a
/// terminal ends only when somebody types. No more is read than the connection takes.
fn read_stdin() -> mpsc::Receiver<Vec<u8>> {
    // One chunk is under way while the next one is read.
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        loop {
            let mut frame = vec![STDIN; CHUNK + 1];
            let count = match std::io::stdin().lock().read(&mut frame[1..]) {
                Ok(count) => count,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                // A terminal that has gone away reads as an error.
                Err(_) => 0,
            };
            // A frame without bytes says that no more will come.
            frame.truncate(count + 1);
            if sender.blocking_send(frame).is_err() || count == 0 {
                return;
            }
        }
    });
    receiver
}

async fn next_chunk(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Vec<u8> {
    if let Some(chunks) = input {
        if let Some(chunk) = chunks.recv().await {
            return chunk;
        }
        *input = None;
    }
    std::future::pending().await
}

/// The frame that tells the size of the window; empty where there is none.
fn window_size() -> Vec<u8> {
    let Some((width, height)) = terminal::size() else { return Vec::new() };
    let size = json!({ "width": width, "height": height }).to_string();
    [&[RESIZE], size.as_bytes()].concat()
}

fn exit_code(status: &[u8]) -> ExitCode {
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    if let Some(reason) = status["reason"].as_str().filter(|reason| !reason.is_empty()) {
        // The terminal may still be raw.
        eprint!("{}\r\n", printable(reason));
    }
    let code = status["exitCode"].as_i64();
    ExitCode::from(code.map_or(NO, |code| u8::try_from(code).unwrap_or(u8::MAX)))
}
