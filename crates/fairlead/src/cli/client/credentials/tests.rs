use super::*;

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
