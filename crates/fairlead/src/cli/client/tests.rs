use super::*;

#[test]
fn an_address_is_a_scheme_a_host_and_nothing_else() {
    let base = |url: &str| parse_address(url).unwrap().1;
    assert_eq!(base("http://127.0.0.1:7680/"), "http://127.0.0.1:7680");
    assert_eq!(base("http://[::1]:80"), "http://[::1]:80");
    assert_eq!(base("https://fairlead.example"), "https://fairlead.example");
    for (wrong, why) in [
        ("127.0.0.1:7680", "neither http nor https"),
        ("ftp://a", "neither http nor https"),
        ("http://127.0.0.1/api", "has a path"),
        ("https://user:secret@host", "or a user"),
        ("not an address", "is no address"),
    ] {
        let said = parse_address(wrong).unwrap_err().to_string();
        assert!(said.contains(why), "{wrong}: {said}");
    }
}

#[test]
fn a_token_does_not_travel_in_the_clear() {
    let said = parse_address("http://10.0.0.1:7680").unwrap_err().to_string();
    assert!(said.contains("must be https"), "{said}");
    assert!(parse_address("http://localhost:7680").is_ok());
}

#[tokio::test]
async fn nothing_prints_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "fl_secret").unwrap();
    let flags = ServerFlags {
        server: "http://127.0.0.1:1".to_owned(),
        token_file: Some(file),
        ca_file: None,
        timeout: Some(Duration::from_secs(1)),
    };
    let server = flags.open().unwrap();
    assert!(!format!("{server:?}").contains("fl_secret"));
    let said = server.get::<Value>(&Route::to(["clusters"])).await.unwrap_err().to_string();
    assert!(said.contains("is `fairlead up` running") && !said.contains("fl_secret"), "{said}");
}
