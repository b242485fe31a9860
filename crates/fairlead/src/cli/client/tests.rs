use super::*;

#[test]
fn an_address_is_a_scheme_a_host_and_nothing_else() {
    let ok = |base: &str, host: &str, port, https| (base.to_owned(), host.to_owned(), port, https);
    assert_eq!(
        address("http://127.0.0.1:7680/").unwrap(),
        ok("http://127.0.0.1:7680", "127.0.0.1", 7680, false)
    );
    assert_eq!(address("http://[::1]:80").unwrap(), ok("http://[::1]:80", "::1", 80, false));
    assert_eq!(
        address("https://fairlead.example").unwrap(),
        ok("https://fairlead.example", "fairlead.example", 443, true)
    );
    for (wrong, why) in [
        ("127.0.0.1:7680", "neither http nor https"),
        ("ftp://a", "neither http nor https"),
        ("http://127.0.0.1/api", "has a path"),
        ("https://user:secret@host", "or a user"),
        ("not an address", "is no address"),
    ] {
        let said = address(wrong).unwrap_err().to_string();
        assert!(said.contains(why), "{wrong}: {said}");
    }
}

#[test]
fn a_token_does_not_travel_in_the_clear() {
    let said = address("http://10.0.0.1:7680").unwrap_err().to_string();
    assert!(said.contains("must be https"), "{said}");
    assert!(address("http://localhost:7680").is_ok());
}

#[test]
fn a_token_file_that_is_none_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let said = read_token(&file).unwrap_err().to_string();
    assert!(said.contains("is `fairlead up` running?") && said.contains("--token-file"), "{said}");
    for wrong in ["", "two words", "naïve", &"x".repeat(5000)] {
        std::fs::write(&file, wrong).unwrap();
        let said = read_token(&file).unwrap_err().to_string();
        assert!(said.contains("does not hold a token"), "{said}");
        assert!(wrong.is_empty() || !said.contains(wrong), "a secret is not repeated: {said}");
    }
    std::fs::write(&file, "fl_abc\n").unwrap();
    assert_eq!(read_token(&file).unwrap(), "fl_abc");
}

#[test]
fn an_authority_that_is_none_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let said = read_authorities(file.path()).unwrap_err().to_string();
    assert!(said.contains("holds no certificate"), "{said}");
    let said = read_authorities(Path::new("/nowhere/ca.pem")).unwrap_err().to_string();
    assert!(said.contains("--ca-file /nowhere/ca.pem cannot be read"), "{said}");
}

#[test]
fn nothing_prints_a_token() {
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
    let said = server.get::<Value>(&Route::to(["clusters"])).unwrap_err().to_string();
    assert!(said.contains("is `fairlead up` running") && !said.contains("fl_secret"), "{said}");
}
