use super::*;

const SERVER: &str = "https://fairlead.example:7680";

fn tokens(seconds: u64) -> Tokens {
    Tokens {
        user: "ann".to_owned(),
        access: "fls_secret".to_owned(),
        refresh: "flr_secret".to_owned(),
        expires_in_seconds: seconds,
    }
}

#[test]
fn a_login_is_kept_for_its_owner_and_its_server_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = LoginFile::within(&dir.path().join("a/logins"), SERVER);
    assert!(file.read(SERVER).unwrap().is_none());
    let login = SavedLogin::new(SERVER, tokens(600), None);
    assert!(login.is_current() && !SavedLogin::new(SERVER, tokens(30), None).is_current());
    file.write(&login).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(file.path()), 0o600);
    assert_eq!(mode(file.path().parent().unwrap()), 0o700);
    assert_eq!(file.read(SERVER).unwrap().unwrap().refresh, "flr_secret");
    assert!(!format!("{login:?}").contains("secret"));
    // Another server whose file has the same name.
    assert!(file.read("https://fairlead.example_7680").unwrap().is_none());
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(file.read(SERVER).unwrap_err().to_string().contains("log in again"));
    file.remove().unwrap();
    file.remove().unwrap();
    assert!(file.read(SERVER).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn one_command_at_a_time_exchanges_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let file = LoginFile::within(dir.path(), SERVER);
    let held = file.lock().await.unwrap();
    let refused = file.lock().await.unwrap_err();
    assert!(refused.to_string().contains("try again"), "{refused}");
    drop(held);
    file.lock().await.unwrap();
}
