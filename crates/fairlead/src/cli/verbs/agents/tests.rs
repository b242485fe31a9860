use super::*;

#[test]
fn a_token_holds_for_a_week_at_most() {
    assert_eq!(ttl("15m"), Ok(Duration::from_secs(900)));
    assert!(ttl("168h").is_ok());
    for wrong in ["", "0s", "169h", "1w", "-1h"] {
        assert!(ttl(wrong).is_err(), "{wrong}");
    }
}
