use super::*;

#[test]
fn a_secret_shows_nowhere() {
    let secret = Secret::new("hunter2hunter2");
    assert_eq!(format!("{secret:?}"), "Secret");
    assert!(secret.is("hunter2hunter2") && !secret.is("hunter2hunter3") && !secret.is(""));
}

#[test]
fn random_secrets_are_43_plain_characters_and_differ() {
    let (one, other) = (Secret::random(), Secret::random());
    assert_eq!(one.expose().len(), 43);
    assert!(one.expose().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
    assert!(!one.is(other.expose()));
}

#[test]
fn a_fingerprint_survives_its_hexadecimal() {
    // The known answer of SHA-256 for "abc".
    let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(Fingerprint::of("abc").to_hex(), hex);
    assert_eq!(Fingerprint::from_hex(hex), Some(Fingerprint::of("abc")));
    for bad in ["", "ba78", &hex.replace('b', "g"), &hex.replace("ba", "+1"), &format!("{hex}00")] {
        assert_eq!(Fingerprint::from_hex(bad), None, "{bad}");
    }
}

#[test]
fn where_one_text_ends_matters_to_the_fingerprint_of_several() {
    assert_ne!(Fingerprint::of_all(&["ab", "c"]), Fingerprint::of_all(&["a", "bc"]));
}
