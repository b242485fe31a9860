use futures::{FutureExt, SinkExt, StreamExt};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::super::channels::tests::pair;
use super::*;

async fn session() -> (Input, Output, WebSocketStream<DuplexStream>) {
    let (channels, kubelet) = pair().await;
    let (frames, typed) = mpsc::channel(AHEAD);
    // Nothing is asked of it.
    let client = kube::Client::try_from(kube::Config::new("http://localhost".parse().unwrap()));
    let output = Output {
        channels: Some(channels),
        typed: Some(typed),
        _connection: Connection::new("test", client.unwrap()),
    };
    (Input { frames, closes: true }, output, kubelet)
}

fn frame(channel: u8, bytes: &[u8]) -> Message {
    Message::binary([&[channel], bytes].concat())
}

async fn say(kubelet: &mut WebSocketStream<DuplexStream>, channel: u8, bytes: &[u8]) {
    kubelet.send(frame(channel, bytes)).await.unwrap();
}

#[test]
fn the_last_word_is_a_code_where_there_is_one() {
    let exit = |status: serde_json::Value| exit_of(status.to_string().as_bytes());
    assert_eq!(exit(json!({ "metadata": {}, "status": "Success" })), Exit::Code(0));
    let failed = json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": "command terminated with non-zero exit code",
        "details": { "causes": [{ "reason": "ExitCode", "message": "137" }] },
    });
    assert_eq!(exit(failed), Exit::Code(137));
    let not_found = json!({ "status": "Failure", "message": "no such file: bash" });
    assert_eq!(exit(not_found), Exit::Failed("no such file: bash".to_owned()));
    assert!(matches!(exit_of(b"what?"), Exit::Failed(_)));
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_with_one_exit() {
    let (_input, output, mut kubelet) = session().await;
    for channel in [STDOUT, STDERR, STATUS] {
        say(&mut kubelet, channel, b"").await;
    }
    say(&mut kubelet, STDOUT, b"out").await;
    say(&mut kubelet, STDERR, b"err").await;
    say(&mut kubelet, STATUS, br#"{"status":"Success"}"#).await;
    say(&mut kubelet, STDOUT, b"too late").await;
    let events: Vec<_> = output.collect().await;
    let expected = [
        Event::Stdout(Bytes::from_static(b"out")),
        Event::Stderr(Bytes::from_static(b"err")),
        Event::Exit(Exit::Code(0)),
    ];
    assert_eq!(events, expected);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_breaks_off_is_lost() {
    let (input, mut output, mut kubelet) = session().await;
    say(&mut kubelet, STDOUT, b"so far").await;
    drop(kubelet);
    assert!(matches!(output.next().await, Some(Event::Stdout(_))));
    assert!(matches!(output.next().await, Some(Event::Exit(Exit::Lost(_)))));
    assert_eq!(output.next().await, None);
    assert_eq!(input.stdin(b"hello?").await, Err(Over));
}

#[tokio::test(start_paused = true)]
async fn what_is_typed_arrives_in_order() {
    let (input, mut output, mut kubelet) = session().await;
    input.stdin(b"ls\n").await.unwrap();
    input.resize(Size { width: 80, height: 24 }).await.unwrap();
    input.close().await.unwrap();
    // The output carries it.
    assert_eq!(output.next().now_or_never(), None);
    let mut arrived = Vec::new();
    while let Some(Some(Ok(message))) = kubelet.next().now_or_never() {
        arrived.push(message);
    }
    let size = br#"{"Width":80,"Height":24}"#;
    let expected = [frame(STDIN, b"ls\n"), frame(RESIZE, size), frame(CLOSE, &[STDIN])];
    assert_eq!(arrived, expected);
}

#[tokio::test(start_paused = true)]
async fn output_flows_while_nobody_takes_the_input() {
    let (input, mut output, mut kubelet) = session().await;
    // More than fits anywhere.
    let mut typing = std::pin::pin!(async { input.stdin(&[0; 8 * 1024 * 1024]).await });
    assert!(typing.as_mut().now_or_never().is_none());
    assert_eq!(output.next().now_or_never(), None);
    assert!(typing.as_mut().now_or_never().is_none());
    say(&mut kubelet, STDOUT, b"busy").await;
    assert_eq!(output.next().await, Some(Event::Stdout(Bytes::from_static(b"busy"))));
    // Dropped, the session is over, also for who waits to type.
    drop(output);
    assert_eq!(typing.await, Err(Over));
}
