use futures::FutureExt;
use futures::io::{BufReader, Cursor};
use tokio::time::Instant;

use super::*;

fn lines(log: &[u8]) -> Vec<(String, bool)> {
    // As it comes from the network: in pieces that know nothing of lines.
    let mut log = BufReader::with_capacity(7, Cursor::new(log));
    let mut lines = Vec::new();
    while let Some(line) = next_line(&mut log, None).now_or_never().unwrap().unwrap() {
        lines.push(line);
    }
    lines
}

#[test]
fn every_line_is_there_also_the_last_without_an_end() {
    let line = |line: &str| (line.to_owned(), false);
    assert_eq!(
        lines(b"one line\n\nanother line"),
        [line("one line"), line(""), line("another line")]
    );
    assert_eq!(lines(b"a line\n"), [line("a line")]);
    assert_eq!(lines(b"\xff is no letter"), [line("\u{fffd} is no letter")]);
    assert_eq!(lines(b""), []);
}

#[test]
fn a_long_line_is_cut_and_the_next_one_is_whole() {
    let longest = "x".repeat(LONGEST_LINE);
    let log = format!("{longest}\n{longest}y and more\nnext\n");
    let expected = [(longest.clone(), false), (longest, true), ("next".to_owned(), false)];
    assert_eq!(lines(log.as_bytes()), expected);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_stalls_is_given_up_unless_it_is_followed() {
    struct Stalled;

    impl futures::io::AsyncRead for Stalled {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut [u8],
        ) -> std::task::Poll<io::Result<usize>> {
            std::task::Poll::Pending
        }
    }

    let mut log = BufReader::new(Stalled);
    let began = Instant::now();
    let error = next_line(&mut log, Some(STALLED)).await.unwrap_err();
    assert_eq!((error.to_string().as_str(), began.elapsed()), ("nothing came for 30 s", STALLED));
    let days = Deadline::after(Duration::from_secs(60 * 60 * 20));
    assert!(days.bound(next_line(&mut log, None)).await.is_err());
}
