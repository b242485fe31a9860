use super::*;

#[test]
fn a_lifetime_is_a_time_or_never() {
    let days = |days: u64| Ok(Lifetime::For(Duration::from_secs(days * 86_400)));
    assert_eq!(lifetime("90d"), days(90));
    assert_eq!(lifetime("24h"), days(1));
    assert_eq!(lifetime("never"), Ok(Lifetime::Never));
    for wrong in ["", "90", "0d", "5000d", "d", "-1d", "99999999999999999999d"] {
        assert!(lifetime(wrong).is_err(), "{wrong}");
    }
}
