use super::*;

/// An event as it is in the outbox's file. What was read and written again is the same, also after it was cut to
/// what fits, and cutting again changes nothing.
pub fn outbox_record(bytes: &[u8]) {
    let Ok(mut event) = serde_json::from_slice::<Event>(bytes) else { return };
    let again = |event: &Event| {
        let json = serde_json::to_vec(event).expect("an event is plain values");
        serde_json::from_slice::<Event>(&json).expect("what was written is read")
    };
    assert_eq!(again(&event), event);
    event.fit();
    assert_eq!(again(&event), event);
    let fits = event.clone();
    event.fit();
    assert_eq!(event, fits);
}
