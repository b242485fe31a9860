#![allow(clippy::unwrap_used, reason = "tests")]

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_request_to_enrol_is_read_at_once() {
    let (mut stranger, ours) = duplex(1 << 20);
    stranger.write_all(&[7; AT_ONCE]).await.unwrap();
    let began = Instant::now();
    let mut read = vec![0; AT_ONCE];
    Paced::new(ours).read_exact(&mut read).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(read.iter().all(|&byte| byte == 7));
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_read_a_little_at_a_time_and_answered_meanwhile() {
    let (mut stranger, ours) = duplex(1 << 20);
    stranger.write_all(&vec![7; 1 << 19]).await.unwrap();
    let mut paced = Paced::new(ours);
    paced.write_all(b"go away").await.unwrap();
    let mut answer = [0; 7];
    stranger.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"go away");

    let began = Instant::now();
    let mut read = 0;
    let mut some = [0; 4096];
    while began.elapsed() < Duration::from_secs(10) {
        read += paced.read(&mut some).await.unwrap();
    }
    let most = AT_ONCE + EACH * (10_000 / EVERY.as_millis() as usize + 1);
    assert!(read > AT_ONCE && read <= most, "{read} of at most {most}");
}
