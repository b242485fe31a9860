use std::convert::Infallible;

use http_body_util::StreamBody;
use hyper::body::Frame;

use super::*;

/// A stream of an agent's messages that comes in pieces: the first byte says how long they are.
///
/// Messages are the same however they were cut, none is longer than may be, and what was granted for them is given
/// back.
pub fn agent_frames(bytes: &[u8]) {
    thread_local!(static RUNTIME: tokio::runtime::Runtime = {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
    });
    const LARGEST: usize = 64;
    let Some((cut, stream)) = bytes.split_first() else { return };
    let budget = Budget::new(1 << 20);
    let read = |pieces: usize| {
        let pieces = stream.chunks(pieces).map(Bytes::copy_from_slice).map(Frame::data);
        let body = StreamBody::new(futures::stream::iter(pieces.map(Ok::<_, Infallible>)));
        let mut frames = Frames::new(body, LARGEST, budget.clone());
        let mut messages = Vec::new();
        let ended = RUNTIME.with(|runtime| {
            runtime.block_on(async {
                while frames.wait().await? {
                    messages.push(frames.read().await?.bytes);
                }
                Ok::<(), Status>(())
            })
        });
        (messages, ended.map_err(|status| status.code()))
    };
    let whole = read(stream.len().max(1));
    assert_eq!(read(usize::from(*cut).max(1)), whole);
    assert!(budget.taken() == 0.0, "room was not given back");
    // The stream is the messages that were read, each behind its header, and nothing else if it ended well.
    let (messages, ended) = whole;
    let mut rest = stream;
    for message in &messages {
        assert!(message.len() <= LARGEST);
        let (header, after) = rest.split_at(HEADER);
        assert_eq!(
            u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize,
            message.len()
        );
        let (read, after) = after.split_at(message.len());
        assert_eq!(read, message);
        rest = after;
    }
    assert_eq!(ended.is_ok(), rest.is_empty());
}
