//! Commands in containers: pipes, terminals, signals.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use crate::stand_in::{Reply, StandIn, Stream, ok, problem, said};
use crate::{PATIENCE, clusters};

/// Answers what stdin says, in capitals, then ends with 7.
fn shout(mut socket: WebSocket<Box<dyn Stream>>) {
    let mut heard = Vec::new();
    loop {
        let Message::Binary(frame) = socket.read().unwrap() else { continue };
        match (frame[0], frame.len()) {
            (0, 1) => break,
            (0, _) => heard.extend_from_slice(&frame[1..]),
            _ => {}
        }
    }
    let send = |socket: &mut WebSocket<Box<dyn Stream>>, channel: u8, bytes: &[u8]| {
        let mut frame = vec![channel];
        frame.extend_from_slice(bytes);
        socket.send(Message::Binary(frame.into())).unwrap();
    };
    for chunk in heard.to_ascii_uppercase().chunks(1000) {
        send(&mut socket, 1, chunk);
    }
    send(&mut socket, 2, b"bye\n");
    send(&mut socket, 3, br#"{"exitCode":7}"#);
    let _ = socket.close(None);
    while socket.read().is_ok() {}
}

fn exec_piped(server: &StandIn) {
    // More than any buffer on the way takes at once.
    let input = "abc\n".repeat(500_000);
    let mut exec =
        server.command(&["exec", "-i", "web", "--cluster", "dev", "--", "tr", "a-z", "A-Z"]);
    let mut exec =
        exec.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = exec.stdin.take().unwrap();
    let text = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).unwrap());
    let (code, out, err) = said(&exec.wait_with_output().unwrap());
    writer.join().unwrap();
    assert_eq!((code, err.as_str()), (7, "bye\n"));
    assert!(out == input.to_uppercase(), "{} of {} bytes", out.len(), input.len());
    assert_eq!(
        server.paths()[0],
        "GET /api/v1/clusters/dev/resources/pods/web/exec?namespace=default&tty=false&stdin=true&command=tr&command=a-z&command=A-Z"
    );
}

#[test]
fn exec_passes_stdin_on_and_exits_as_the_command_did() {
    exec_piped(&StandIn::start(|_| Reply::Socket(shout)));
}

#[test]
fn exec_and_lists_work_over_tls_and_only_with_its_authority() {
    let server = StandIn::start_tls(|request| match request.path.as_str() {
        "/api/v1/clusters" => ok(clusters()),
        _ => Reply::Socket(shout),
    });
    exec_piped(&server);
    assert_eq!(server.run("clusters list").0, 0);
    for line in [&["clusters", "list"][..], &["exec", "web", "--cluster", "dev", "--", "true"]] {
        let (code, _, err) =
            said(&server.command(line).env_remove("FAIRLEAD_CA_FILE").output().unwrap());
        assert_eq!(code, 2);
        assert!(err.contains("--ca-file"), "{err}");
    }
}

#[test]
fn exec_that_cannot_begin_says_why() {
    let server = StandIn::start(|_| problem(404, "not-found", "pods web is not there"));
    let (code, _, err) = server.run("exec web --cluster dev -- true");
    assert_eq!((code, err.as_str()), (1, "error: pods web is not there\n"));
    let broken = StandIn::start(|_| Reply::Socket(drop));
    let (code, _, err) = broken.run("exec web --cluster dev -- true");
    assert_eq!(code, 2);
    assert!(err.contains("ended before the command did"), "{err}");
}

/// Tells the size of the window, then echoes until told to end.
fn terminal(mut socket: WebSocket<Box<dyn Stream>>) {
    while let Ok(message) = socket.read() {
        let Message::Binary(frame) = message else { continue };
        let mut answer = vec![1];
        match frame[0] {
            4 => {
                let size: Value = serde_json::from_slice(&frame[1..]).unwrap();
                answer.extend_from_slice(
                    format!("[{}x{}]", size["width"], size["height"]).as_bytes(),
                );
            }
            _ if frame[1..].contains(&b'q') => answer = br#"3{"exitCode":3}"#.to_vec(),
            _ => answer.extend_from_slice(&frame[1..]),
        }
        if answer[0] == b'3' {
            answer[0] = 3;
        }
        socket.send(Message::Binary(answer.into())).unwrap();
    }
}

fn resize(terminal: &OwnedFd, width: u16, height: u16) {
    let size =
        rustix::termios::Winsize { ws_col: width, ws_row: height, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal, size).unwrap();
}

/// A terminal of our own, and the binary on it.
struct OnTerminal {
    ours: std::fs::File,
    theirs: OwnedFd,
    child: Child,
    seen: String,
}

impl OnTerminal {
    fn start(server: &StandIn, line: &[&str]) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let open = || std::fs::File::options().read(true).write(true).open(&name).unwrap();
        let theirs: OwnedFd = open().into();
        resize(&theirs, 80, 24);
        let mut command = server.command(line);
        let child = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        Self { ours: ours.into(), theirs, child, seen: String::new() }
    }

    /// Until it has told the size of its window, what is typed is echoed by the kernel.
    fn begun(&mut self) {
        self.wait_for("[80x24]");
    }

    fn resize(&self, width: u16, height: u16) {
        resize(&self.theirs, width, height);
        // Not its controlling terminal, so that the kernel does not tell it.
        self.signal("-WINCH");
    }

    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            let mut fds = [PollFd::new(&self.ours, PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
            assert!(Instant::now() < until, "{text:?} does not come: {:?}", self.seen);
            if fds[0].revents().is_empty() {
                continue;
            }
            let mut bytes = [0; 256];
            let count = self.ours.read(&mut bytes).unwrap();
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    fn is_cooked(&self) -> bool {
        tcgetattr(&self.theirs).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "it does not leave");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SHELL: [&str; 7] = ["exec", "-it", "web", "--cluster", "dev", "--", "sh"];

#[test]
fn a_terminal_is_raw_resized_and_given_back() {
    let server = StandIn::start(|_| Reply::Socket(terminal));
    let mut shell = OnTerminal::start(&server, &SHELL);
    shell.begun();
    shell.ours.write_all(b"hello\x03").unwrap();
    shell.wait_for("hello\x03");
    assert!(!shell.is_cooked(), "what is typed goes through as it is, Ctrl-C too");
    shell.resize(123, 45);
    shell.wait_for("[123x45]");
    shell.ours.write_all(b"q").unwrap();
    assert_eq!(shell.exit_code(), Some(3));
    assert!(shell.is_cooked());
}

#[test]
fn a_signal_or_a_lost_server_gives_the_terminal_back() {
    let server = StandIn::start(|_| Reply::Socket(terminal));
    let mut shell = OnTerminal::start(&server, &SHELL);
    shell.begun();
    assert!(!shell.is_cooked());
    shell.signal("-TERM");
    assert_eq!(shell.exit_code(), Some(128 + 15));
    assert!(shell.is_cooked());

    let server = StandIn::start(|_| {
        Reply::Socket(|mut socket| {
            // The size of the window; then it is gone.
            let _ = socket.read();
        })
    });
    let mut shell = OnTerminal::start(&server, &SHELL);
    shell.wait_for("ended before the command did");
    assert_eq!(shell.exit_code(), Some(2));
    assert!(shell.is_cooked());
}
