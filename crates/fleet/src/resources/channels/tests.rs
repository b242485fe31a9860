use std::future::poll_fn;

use futures::{FutureExt, SinkExt, StreamExt};
use stallproof::Deadline;
use tokio::io::DuplexStream;
use tokio::time::{advance, sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// Room for a few frames: an API server that reads no further is soon felt.
const PIPE: usize = 16 * 1024;

/// A connection and its other end.
pub(crate) async fn pair() -> (Channels, WebSocketStream<DuplexStream>) {
    let (ours, theirs) = tokio::io::duplex(PIPE);
    let ours = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
    (Channels::new(ours), WebSocketStream::from_raw_socket(theirs, Role::Server, None).await)
}

async fn receive(channels: &mut Channels) -> Result<Option<(u8, Bytes)>, Lost> {
    poll_fn(|cx| channels.poll_receive(cx)).await
}

async fn send(channels: &mut Channels, bytes: &[u8]) -> Result<(), Lost> {
    poll_fn(|cx| channels.poll_ready(cx)).await?;
    channels.send(0, bytes)?;
    poll_fn(|cx| channels.poll_flush(cx)).await
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_may_be_silent_for_hours() {
    let (mut channels, mut peer) = pair().await;
    let answers = async {
        let hours = sleep(Duration::from_secs(3 * 60 * 60));
        tokio::pin!(hours);
        let mut pings = 0;
        // Reading is what answers pings.
        loop {
            tokio::select! {
                Some(Ok(Message::Ping(_))) = peer.next() => pings += 1,
                () = &mut hours => break,
            }
        }
        peer.send(Message::binary(vec![1, b'x'])).await.unwrap();
        pings
    };
    let (received, pings) = tokio::join!(receive(&mut channels), answers);
    let (channel, bytes) = received.unwrap().unwrap();
    assert_eq!((channel, &bytes[..]), (1, &b"x"[..]));
    assert!(pings > 1000, "{pings} pings");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_gone_is_lost_within_half_a_minute() {
    let (mut channels, _silent) = pair().await;
    send(&mut channels, b"a few words, as one types them").await.unwrap();
    let asked = Instant::now();
    assert!(matches!(receive(&mut channels).await, Err(Lost::Silent)));
    assert_eq!(asked.elapsed(), PING_EVERY + ANSWER_WITHIN);
}

#[tokio::test(start_paused = true)]
async fn a_peer_with_much_to_take_is_given_the_benefit_of_the_doubt() {
    let (mut channels, mut busy) = pair().await;
    send(&mut channels, &[0; UNREAD + 1]).await.unwrap();
    let long = Deadline::after(Duration::from_secs(3600));
    assert!(long.bound(receive(&mut channels)).await.is_err(), "given up");

    // Heard once, it is asked like any other.
    while let Some(Some(Ok(_))) = busy.next().now_or_never() {}
    busy.send(Message::binary(vec![1])).await.unwrap();
    assert!(receive(&mut channels).await.unwrap().is_some());
    assert!(matches!(receive(&mut channels).await, Err(Lost::Silent)));
}

#[tokio::test(start_paused = true)]
async fn who_listens_late_does_not_take_an_answer_for_silence() {
    let (mut channels, mut peer) = pair().await;
    let a_while = Deadline::after(PING_EVERY + Duration::from_secs(1));
    assert!(a_while.bound(receive(&mut channels)).await.is_err());
    // It answers at once; we do not listen for an hour.
    assert!(matches!(peer.next().await, Some(Ok(Message::Ping(_)))));
    peer.flush().await.unwrap();
    advance(Duration::from_secs(3600)).await;
    assert!(receive(&mut channels).now_or_never().is_none());
}

#[tokio::test]
async fn a_connection_that_breaks_says_so() {
    let (mut channels, peer) = pair().await;
    drop(peer);
    assert!(matches!(receive(&mut channels).await, Err(Lost::Broke(_))));
}

#[tokio::test(start_paused = true)]
async fn after_our_goodbye_the_peer_has_its_last_word_or_is_lost() {
    let (mut channels, mut peer) = pair().await;
    poll_fn(|cx| channels.poll_close(cx)).await.unwrap();
    peer.send(Message::binary(vec![1, b'x'])).await.unwrap();
    assert!(receive(&mut channels).await.unwrap().is_some());
    assert!(matches!(peer.next().await, Some(Ok(Message::Close(_)))));
    assert!(peer.next().await.is_none());
    assert!(receive(&mut channels).await.unwrap().is_none());

    let (mut channels, _silent) = pair().await;
    poll_fn(|cx| channels.poll_close(cx)).await.unwrap();
    assert!(matches!(receive(&mut channels).await, Err(Lost::Silent)));
}
