use std::time::Duration;

use ::http::{HeaderValue, Response, StatusCode, header};

use super::http::{LONGEST_WAIT, judge};
use super::{DeliveryError, smtp};

/// What a receiver's server answers: a status and `Retry-After`, or all that a mail server says.
///
/// Only a 2xx is a yes, a wait is bounded, and why it was not taken is a sentence of one line.
pub fn receiver_answer(bytes: &[u8]) {
    let why = match bytes.split_first_chunk::<2>() {
        Some(([0, status], after)) => {
            let Ok(status) = StatusCode::from_u16(100 + 2 * u16::from(*status)) else { return };
            let Ok(after) = HeaderValue::from_bytes(after) else { return };
            let answer = Response::builder().status(status).header(header::RETRY_AFTER, after);
            let taken = judge("host", &answer.body(()).expect("both are valid"));
            assert_eq!(taken.is_ok(), status.is_success());
            taken.err()
        }
        _ => smtp::fuzz::submitted(bytes).err(),
    };
    let Some(why) = why else { return };
    if let DeliveryError::Later { after, .. } = &why {
        assert!(Duration::ZERO < *after && *after <= LONGEST_WAIT);
    }
    let text = why.to_string();
    assert!(!text.contains(char::is_control) && text.chars().count() < 400, "{text:?}");
}
