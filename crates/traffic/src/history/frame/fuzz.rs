use super::*;

/// A frame as it is on disk, and one before it was deflated. What was read and written again is the same.
pub fn history_frame(bytes: &[u8]) {
    let _ = Frame::decode(bytes);
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::none());
    packed.write_all(bytes).expect("memory takes what is written to it");
    let Ok(frame) = Frame::decode(&packed.finish().expect("memory")) else { return };
    let again =
        frame.encode().and_then(|bytes| Frame::decode(&bytes).map_err(std::io::Error::other));
    assert_eq!(again.expect("it was just written"), frame);
}
