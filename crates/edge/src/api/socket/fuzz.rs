use std::io::{self, Cursor, Read, Write};

use tokio_tungstenite::tungstenite::{Error, WebSocket};

use super::*;

/// A connection that says these bytes and ends.
struct Said<'a>(Cursor<&'a [u8]>);

impl Read for Said<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Said<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a client says after the upgrade to a WebSocket, with the limits of ours.
///
/// A frame without a mask is none, no message is longer than all that was said, and nothing is heard after the end.
pub fn websocket(bytes: &[u8]) {
    let mut socket =
        WebSocket::from_raw_socket(Said(Cursor::new(bytes)), Role::Server, Some(config()));
    let (mut heard, mut first) = (0, true);
    loop {
        let message = socket.read();
        if std::mem::take(&mut first) && bytes.get(1).is_some_and(|byte| byte & 0x80 == 0) {
            assert!(message.is_err(), "a frame without a mask was heard");
        }
        let message = match message {
            Ok(message) => message,
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => {
                assert!(socket.read().is_err());
                break;
            }
            // Whoever reads stops at the first error.
            Err(_) => break,
        };
        // What is wrong with a close frame is said in the library's own words.
        heard += if message.is_close() { 0 } else { message.len() };
        assert!(heard <= bytes.len() && message.len() <= LARGEST);
        if let Message::Text(text) = &message {
            assert!(std::str::from_utf8(text.as_bytes()).is_ok());
        }
    }
}
