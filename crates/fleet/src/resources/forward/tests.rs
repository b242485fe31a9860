use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::super::channels::tests::pair;
use super::*;

async fn opened(port: u16) -> (Forward, WebSocketStream<DuplexStream>) {
    let (channels, mut kubelet) = pair().await;
    // Nothing is asked of it.
    let client = kube::Client::try_from(kube::Config::new("http://localhost".parse().unwrap()));
    let forward = Forward {
        channels,
        begun: [false; 2],
        unread: Bytes::new(),
        _connection: Connection::new("test", client.unwrap()),
    };
    for channel in [DATA, ERROR] {
        let [low, high] = port.to_le_bytes();
        kubelet.send(Message::binary(vec![channel as u8, low, high])).await.unwrap();
    }
    (forward, kubelet)
}

#[tokio::test(start_paused = true)]
async fn bytes_go_both_ways() {
    let (mut forward, mut kubelet) = opened(8080).await;
    forward.write_all(b"ping").await.unwrap();
    forward.flush().await.unwrap();
    assert_eq!(kubelet.next().await.unwrap().unwrap(), Message::binary(&b"\0ping"[..]));
    kubelet.send(Message::binary(&b"\0po"[..])).await.unwrap();
    kubelet.send(Message::binary(&b"\0ng"[..])).await.unwrap();
    let mut answer = [0; 4];
    forward.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"pong");
    kubelet.close(None).await.unwrap();
    assert_eq!(forward.read(&mut answer).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_port_on_which_nothing_listens_is_the_error_of_the_next_read() {
    let (mut forward, mut kubelet) = opened(1).await;
    kubelet.send(Message::binary(&b"\x01connection refused"[..])).await.unwrap();
    let error = forward.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(error.to_string(), "connection refused");
}

#[tokio::test(start_paused = true)]
async fn a_dead_api_server_ends_a_connection_that_waits() {
    let (mut forward, _kubelet) = opened(5432).await;
    assert_eq!(forward.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}
